"""The errors of a cluster: one branch of the tree in `storage.errors`.

    ClusterError
    ├── the caller's mistake, or bad timing: nothing was changed
    │   ├── InvalidMetadataUri    an address of metadata that cannot be used
    │   ├── InvalidQuorums        quorums that are larger than the ensemble, or zero; also a ValueError
    │   ├── NoSuchCluster         there is no cluster at the address
    │   ├── ClusterExists         there is a cluster already
    │   ├── ClusterNotNamed       a cluster is erased only by the name of its instance
    │   ├── BookiesRegistered     bookies still use the cluster
    │   ├── NoSuchBookie          the cluster does not know a bookie of this id
    │   ├── LedgerExists          another ledger has the id
    │   ├── NoSuchLedgerExistsOnMetadataServer   no ledger has the id; also a KeyError
    │   ├── MetadataConflict      the metadata was changed in another way than the caller assumed
    │   ├── LedgerIdOverflow      all ledger ids are used up
    │   ├── BookieRegistered      another process has registered a bookie of this id
    │   ├── CookieRefused         the directories belong to another bookie or cluster, or have lost data
    │   ├── ReplicationStateUnchanged   replication is already disabled, or already enabled
    │   ├── LedgerClosed          the ledger is closed: it takes no more entries
    │   ├── LedgerNotClosed       the ledger may still be written, so it has no end yet
    │   ├── ClientClosed          the client was closed while the call was under way
    │   ├── ForkedClient          the client belongs to another process, of which this one is a fork
    │   ├── WriterFenced          another client has taken the ledger over; also a LedgerFenced
    │   └── UnauthorizedAccess    another password than the ledger's; also an Unauthorized
    ├── bookies failing
    │   ├── NotEnoughBookies      so many bookies cannot be found
    │   │   └── NotEnoughZones    so many bookies cannot be found in so many zones
    │   ├── EnsembleChangesExhausted   bookies fail again and again
    │   ├── AddQuorumTimeout      an entry has too few copies for too long
    │   ├── ForceIncomplete       a bookie has not forced the entries of a ledger
    │   ├── EntriesNotForced      a bookie that may have lost entries ends a writer with deferred syncs
    │   ├── LastAddConfirmedUnknown   too few bookies say what is confirmed
    │   ├── RecoveryIncomplete    bookies do not answer, so the end of the ledger is not known
    │   ├── CopiesUnreadable      no copy of an entry can be read, and it is not certainly missing
    │   └── LedgerCutShort        the closed ledger ends before an entry that was shown to a reader
    ├── the metadata service failing
    │   ├── MetadataUnavailable   no connection, or the service does not answer
    │   ├── SessionExpired        ephemeral nodes are gone; a new connection is needed
    │   └── OutcomeUnknown        a write may have happened, and its content does not tell
    │       └── AddOutcomeUnknown entries may be in the ledger or not
    └── wrong bytes in a node
        └── InvalidMetadata       the node's path, and what is wrong there

`code` is the number of the exception that BookKeeper raises for the same reason, because scripts and
operators of BookKeeper look for it. Errors of a bookie's start (`CookieRefused`, `BookieRegistered`) have
the codes of `BookieException`, all others those of `BKException`.
"""

from __future__ import annotations

from inspect import get_annotations
from typing import ClassVar, dataclass_transform

from storage.errors import LedgerFenced, StoreError, Unauthorized


@dataclass_transform(eq_default=False)
class ClusterError(StoreError):
    """The base class of all errors of a cluster. A subclass declares its fields as annotations."""

    code: ClassVar[int] = -999
    """The code of BookKeeper's exception; UnexpectedConditionException if it has none for this reason."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A subclass without annotations has the fields of its base.
        cls.fields = tuple(get_annotations(cls)) or cls.fields


# the caller's mistake, or bad timing


class InvalidMetadataUri(ClusterError, ValueError):
    """An address of metadata that cannot be used."""

    code = -14
    uri: str
    reason: str
    text = "{uri}: {reason}"


class InvalidQuorums(ClusterError, ValueError):
    """The sizes of a ledger do not fit to each other."""

    code = -14
    ensemble: int
    write: int
    ack: int
    text = (
        "ensemble {ensemble}, write quorum {write}, ack quorum {ack}: each has to be at least as large as "
        "the next, and the last at least 1"
    )


class NoSuchCluster(ClusterError):
    """The root, or a node that every cluster has, is missing."""

    code = -9
    path: str
    text = "there is no cluster at {path}: the node is missing (`ledgerstore cluster init` makes one)"


class ClusterExists(ClusterError):
    """The root is there already, so nothing was made."""

    path: str
    text = "{path} exists already: nothing was changed"


class ClusterNotNamed(ClusterError, ValueError):
    """A cluster is erased only if the caller names its instance id. `given` is what the caller named."""

    code = -14
    path: str
    instance_id: str
    given: str | None

    def __str__(self) -> str:
        named = "no instance was named" if self.given is None else f"{self.given!r} was named"
        return f"{self.path} belongs to the instance {self.instance_id}, and {named}: nothing was changed"


class BookiesRegistered(ClusterError):
    """Bookies are registered, so the cluster is in use."""

    path: str
    bookies: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}: bookies are still registered, stop them first: {', '.join(self.bookies)}"


class NoSuchBookie(ClusterError):
    """The cluster does not know the bookie: it has no cookie, and no ledger names it."""

    code = -8
    path: str
    bookie: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path} knows no bookie {self.bookie}; it knows: {', '.join(self.known) or 'none'}"


class LedgerExists(ClusterError):
    """Another ledger has the id."""

    code = -20
    ledger_id: int
    text = "there is a ledger {ledger_id} already"


class NoSuchLedgerExistsOnMetadataServer(ClusterError, KeyError):
    """No ledger has the id: it was deleted, or never made."""

    code = -25
    ledger_id: int
    text = "the metadata has no ledger {ledger_id}"


class MetadataConflict(ClusterError):
    """The metadata was changed in another way than the caller assumed."""

    code = -17
    path: str
    reason: str
    text = "{path}: {reason}"


class LedgerIdOverflow(ClusterError):
    """All ledger ids are used up."""

    code = -106
    path: str
    text = "{path} has given out its last ledger id"


class BookieRegistered(ClusterError):
    """Another process has registered a bookie of this id. `owner` is the number of that process's session."""

    code = -106
    path: str
    owner: int
    text = "{path} belongs to the session {owner:#x} of another process"


class CookieRefused(ClusterError):
    """The directories do not belong to this bookie and cluster, or have lost data: it must not start."""

    code = -102
    bookie_id: str
    reason: str
    text = "bookie {bookie_id} must not start: {reason}"


class ReplicationStateUnchanged(ClusterError):
    """Replication is already in the state that was asked for."""

    code = -200
    path: str
    state: str
    text = "{path}: replication is already {state}"


class LedgerClosed(ClusterError):
    """The ledger is closed, so it takes no more entries."""

    code = -11
    ledger_id: int
    text = "ledger {ledger_id} is closed: it takes no more entries"


class LedgerNotClosed(ClusterError):
    """The ledger may still be written."""

    ledger_id: int
    text = "ledger {ledger_id} is not closed: a client may still write it (`take_over` closes it)"


class ClientClosed(ClusterError):
    """The client was closed while the call was under way."""

    code = -19
    text = "the client of the cluster was closed"


class ForkedClient(ClusterError):
    """This process is a fork of the process that opened the client, and may not use it."""

    text = "it was opened before a fork; only the process that opened it may use it"


class WriterFenced(ClusterError, LedgerFenced):
    """Another client has taken the ledger over. This writer adds no more."""

    code = -101
    ledger_id: int
    text = "ledger {ledger_id} was taken over by another client: this writer adds no more"


class UnauthorizedAccess(ClusterError, Unauthorized):
    """The password is not the ledger's."""

    code = -102
    ledger_id: int
    text = "ledger {ledger_id} was made with another password"


# bookies failing


class NotEnoughBookies(ClusterError):
    """`wanted` bookies are needed, and only `found` can be used. `by_zone` counts all that take adds."""

    code = -6
    wanted: int
    found: int
    by_zone: dict[str, int]

    def __str__(self) -> str:
        zones = ", ".join(f"{count} in zone {zone}" for zone, count in self.by_zone.items()) or "none"
        return f"{self.wanted} bookies are needed, {self.found} can be used (bookies that take adds: {zones})"


class NotEnoughZones(NotEnoughBookies):
    """The copies of each entry have to be in `zones_min` zones, so that bookies cannot be used."""

    wanted: int
    found: int
    by_zone: dict[str, int]
    zones_min: int

    def __str__(self) -> str:
        return f"each entry needs copies in {self.zones_min} zones: {super().__str__()}"


class EnsembleChangesExhausted(ClusterError):
    """The bookies of a ledger were replaced again and again, and no entry was acknowledged meanwhile."""

    code = -12
    ledger_id: int
    changes: int
    text = "ledger {ledger_id}: {changes} changes of the ensemble, and no entry was acknowledged meanwhile"


class AddQuorumTimeout(ClusterError):
    """An entry did not get Qa copies within the time that the writer's limits give it."""

    code = -21
    ledger_id: int
    entry_id: int
    timeout_s: float
    text = "ledger {ledger_id}: entry {entry_id} has too few copies after {timeout_s:g} s"


class ForceIncomplete(ClusterError):
    """Entries of a ledger with deferred syncs are not confirmed. `reasons` are by bookie."""

    code = -12
    ledger_id: int
    last_entry: int
    reasons: dict[str, str]

    def __str__(self) -> str:
        each = ", ".join(f"{bookie}: {reason}" for bookie, reason in self.reasons.items())
        return f"ledger {self.ledger_id}: entries up to {self.last_entry} are not forced ({each})"


class EntriesNotForced(ClusterError):
    """A bookie has failed that has acknowledged entries which were not forced, so the writer has ended."""

    code = -12
    ledger_id: int
    bookie: str
    last_forced: int
    text = (
        "ledger {ledger_id}: bookie {bookie} has failed, and may have lost entries after {last_forced}, "
        "which were not forced: this writer adds no more (`take_over` keeps what it finds)"
    )


class LastAddConfirmedUnknown(ClusterError):
    """Too few bookies of a ledger have answered, or have good copies. `reasons` are by bookie."""

    code = -10
    ledger_id: int
    reasons: dict[str, str]

    def __str__(self) -> str:
        each = ", ".join(f"{bookie}: {reason}" for bookie, reason in self.reasons.items())
        return f"the last add confirmed of ledger {self.ledger_id} is not known ({each})"


class RecoveryIncomplete(ClusterError):
    """The end of a ledger is not known, because too many bookies gave no useful answer.

    The ledger stays in recovery, and another attempt may succeed.
    """

    code = -10
    ledger_id: int
    reason: str
    bookies: tuple[str, ...]

    def __str__(self) -> str:
        silent = ", ".join(self.bookies)
        return f"ledger {self.ledger_id} cannot be recovered now: {self.reason} (no useful answer: {silent})"


class CopiesUnreadable(ClusterError):
    """No copy of an entry can be read. It is not certainly missing. `reasons` are by bookie."""

    code = -1
    ledger_id: int
    entry_id: int
    reasons: dict[str, str]

    def __str__(self) -> str:
        each = ", ".join(f"{bookie}: {reason}" for bookie, reason in self.reasons.items())
        return f"no copy of entry {self.entry_id} of ledger {self.ledger_id} can be read ({each})"


class LedgerCutShort(ClusterError):
    """The ledger was closed before an entry that a reader has been shown."""

    code = -10
    ledger_id: int
    last_entry: int
    shown: int
    text = "ledger {ledger_id} was closed after entry {last_entry}, but entry {shown} was shown to a reader"


# the metadata service failing


class MetadataUnavailable(ClusterError):
    """No answer: the connection was lost, or the service refused it. A read may be repeated."""

    code = -9
    reason: str
    text = "the metadata service does not answer: {reason}"


class SessionExpired(MetadataUnavailable):
    """The session is over: its ephemeral nodes are gone, and the client must be opened anew."""

    text = "the session with the metadata service has expired: {reason}"


class OutcomeUnknown(ClusterError):
    """A write may have happened or not, and what can be read does not tell. It was not repeated."""

    code = -9
    path: str
    reason: str
    text = "{path}: it is not known whether the write took place: {reason}"


class AddOutcomeUnknown(OutcomeUnknown):
    """These entries were not acknowledged, and may be in the ledger nevertheless once it is recovered."""

    code = -12
    text = "{path}: not acknowledged, and a recovery of the ledger may keep them: {reason}"


# wrong bytes in a node


class InvalidMetadata(ClusterError):
    """A node whose name or content is not what the layout says."""

    code = -107
    path: str
    reason: str
    text = "{path}: {reason}"

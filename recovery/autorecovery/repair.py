"""The repair of one ledger: find what its bookies lack, copy it, change the metadata, check again. Pure.

    read      the metadata, as they are now
    check     the fixed fragments. Of the bookies that the mark suspects and that are there, every entry is
              read: one that has come back after a crash may lack any of them. A later check reads the others
              again of which a read had no answer, and those that were not fixed before
    copy      a fragment of a bookie that is there: what it lacks, in place. Otherwise all its entries, to a
              bookie that is not in the ensemble
    change    the metadata, by compare-and-set, after all entries of the fragments were acknowledged
    check     again, until nothing is found that can be repaired

A change replaces one bookie of one segment: by the segment's key, the index and the bookie that was there. If
one of them is different by now, another worker or a recovery was first, and nothing is replaced. The
bookies' collection deletes the copies that are then not needed.

The last segment of a ledger that is not closed is never touched. If one of its bookies is not registered, its
writer gets time to replace that bookie, and the ledger is recovered if it has not. The worker does this. If
one of its bookies is suspected, and registered, it is read up to the last entry that there is (`growing`). If
it lacks one, the repair is postponed: when the segment has an end, no other mark would say so.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from recovery.autorecovery.check import SAMPLE_OF_ALL, FragmentState, LedgerCheck
from recovery.autorecovery.copying import Copied, CopyFailed, CopyFailure, CopyLimits, FragmentCopy
from recovery.autorecovery.fragments import fixed_fragments, growing_segment
from recovery.autorecovery.growing import GrowingCheck
from storage.cluster.client.distribution import quorums_of
from storage.cluster.client.effects import Effect, ReadMetadata
from storage.cluster.client.entries import entry_codec, undeclared_codec
from storage.cluster.client.metadata_change import MetadataChange
from storage.cluster.client.placement import replace_bookies
from storage.cluster.errors import ClusterError, NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Gone, Unknown
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.autorecovery.check import FragmentFinding
    from recovery.autorecovery.fragments import Fragment, FragmentKey
    from storage.cluster.client.effects import BookieAnswer, MetadataRead, MetadataWritten, Token
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.client.placement import Candidates
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.registration import Bookies

_MOVES_MAX = 1000
"""So many fragments are replaced by one change of the metadata, which are written as a whole each time."""

_SIZE_MAX = 256 << 20
"""After so many bytes the metadata are changed, so that a worker that dies has not copied them in vain."""

_ROUNDS_MAX = 100
"""The most checks of one repair. Otherwise bookies that lose what they take would keep it busy for ever."""


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────


class Repaired(NamedTuple):
    """All fixed fragments are whole. Where the ledger grows, all bookies are there, and no suspect has missed
    anything."""


class LedgerGone(NamedTuple):
    """The ledger was deleted."""


class GrowingWithoutBookies(NamedTuple):
    """The fixed fragments are whole, and the ledger, which is not closed, lacks bookies where it grows."""

    segment: int
    bookies: tuple[str, ...]


class Postponed(NamedTuple):
    """The repair may succeed at another time."""

    reason: str


class Unrepairable(NamedTuple):
    """Entries have no good copy on any registered bookie."""

    reason: str
    absent: frozenset[str]
    """Bookies that may have the entries and are not registered. Empty if the entries are lost."""


RepairResult = Repaired | LedgerGone | GrowingWithoutBookies | Postponed | Unrepairable


# ── the machine ───────────────────────────────────────────────────────────────────────────────────────────


class _Stage(enum.Enum):
    READING = "the metadata are read"
    CHECKING = "the fragments are checked"
    COPYING = "fragments are copied one after the other"
    CHANGING = "the metadata are changed"
    GROWING = "suspects are checked where the ledger grows"


@dataclass(frozen=True, slots=True)
class _Task:
    """The copy of one fragment."""

    fragment: Fragment
    target: str
    bad: Sequence[int]
    """The entries that the fragment's own bookie takes again; empty if another bookie takes all."""

    @property
    def ids(self) -> Iterable[int]:
        return self.bad or self.fragment.entries()


class _Move(NamedTuple):
    """A bookie that is replaced, because the other one has all its entries."""

    key: FragmentKey
    old: str
    new: str


class LedgerRepair:
    """Repairs one ledger. It is over when `result` is there, and nothing is under way then."""

    def __init__(
        self,
        ledger_id: int,
        suspects: Iterable[str],
        bookies: Bookies,
        candidates: Candidates,
        seed: int,
        limits: CopyLimits | None = None,
    ) -> None:
        """`suspects` are the bookies that the mark names; `bookies` those that are registered."""
        self._ledger_id = ledger_id
        self._suspects = frozenset(suspects)
        """Bookies of which every entry is read once."""
        self._were_read: set[tuple[FragmentKey, str]] = set()
        """The fragments of suspects that have answered the read of every entry, each with its bookie."""
        self._bookies = bookies
        self._candidates = candidates
        self._seed = seed
        self._limits = limits or CopyLimits()
        self._stage = _Stage.READING
        self._metadata: Versioned[ClusterLedgerMetadata]
        self._entries: EntryCodec
        self._check: LedgerCheck
        self._copy: FragmentCopy
        self._change: MetadataChange
        self._growing: GrowingCheck
        self._grown_at: int | None = None
        """The version of the metadata with which suspects had everything where the ledger grows."""
        self._tasks: list[_Task] = []
        """The copies of this round that are not begun, the next one last."""
        self._task: _Task
        self._moves: list[_Move] = []
        """Copied, and not in the metadata yet."""
        self._size_of_moves = 0
        self._in_place: dict[FragmentKey, set[int]] = {}
        """The entries that were copied again to the fragment's own bookie."""
        self._failed: dict[FragmentKey, CopyFailed] = {}
        """These fragments are not tried again by this repair."""
        self._rounds = 0
        self._waits_for: str | None = None
        """Why the repair has to be made once more."""
        self._taken = Copied(0, 0)
        """The entries and bytes that targets have taken from the copies that have ended."""
        self.copied = Copied(0, 0)
        """The copies that were made completely."""
        self.result: RepairResult | None = None

    @property
    def taken(self) -> Copied:
        """The entries and bytes that targets have taken until now, even from copies that failed."""
        is_copying = self._stage is _Stage.COPYING and self._copy.result is None
        return _sum(self._taken, self._copy.copied) if is_copying else self._taken

    def begin(self) -> list[Effect]:
        return [ReadMetadata()]

    # ── events ────────────────────────────────────────────────────────────────────────────────────────

    def metadata_read(self, answer: MetadataRead) -> list[Effect]:
        if self._stage is _Stage.CHANGING:
            return self._changed(self._change.metadata_read(answer))
        match answer:
            case Gone():
                return self._end(LedgerGone())
            case Unknown(reason):
                return self._end(Postponed(f"the metadata cannot be read: {reason}"))
            case Versioned(version=version) if version == self._grown_at:
                return self._end(Repaired())
            case Versioned():
                return self._begin_check(answer)

    def metadata_written(self, answer: MetadataWritten) -> list[Effect]:
        return self._changed(self._change.metadata_written(answer))

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:
        if self._stage is _Stage.CHECKING:
            return self._checked([*self._check.answered(token, answer)])
        if self._stage is _Stage.GROWING:
            return self._grown(self._growing.answered(token, answer))
        return self._copied(self._copy.answered(token, answer))

    def waited(self) -> list[Effect]:
        if self._stage is _Stage.GROWING:
            return self._grown(self._growing.waited())
        return self._copied(self._copy.waited())

    # ── check ─────────────────────────────────────────────────────────────────────────────────────────

    def _begin_check(self, metadata: Versioned[ClusterLedgerMetadata]) -> list[Effect]:
        self._stage = _Stage.CHECKING
        self._metadata = metadata
        self._entries = codec_of(self._ledger_id, metadata.value)
        fragments = fixed_fragments(metadata.value)
        self._check = LedgerCheck(self._entries, fragments, self._bookies.all, self._percent, self._seed)
        return self._checked([*self._check.begin()])

    def _percent(self, fragment: Fragment) -> int:
        is_suspected = fragment.bookie in self._suspects and _name_of(fragment) not in self._were_read
        return SAMPLE_OF_ALL if is_suspected or fragment.key in self._in_place else 0

    def _note_read(self, result: Sequence[FragmentFinding]) -> None:
        """Note the fragments of suspects that need not be read completely again."""
        # A fragment whose check has ended early has answered less than was asked. Without an answer only the
        # next check can tell; bad entries are repaired, after which it is read again, too.
        unanswered = {one.fragment.key for one in result if one.unreachable is not None}
        self._were_read.update(
            _name_of(one)
            for one in fixed_fragments(self._metadata.value)
            if one.bookie in self._suspects and one.key not in unanswered
        )

    def _checked(self, effects: list[Effect]) -> list[Effect]:
        if self._check.result is None:
            return effects
        self._waits_for = None
        self._note_read(self._check.result)
        planned: dict[int, tuple[str, ...]] = {}
        """By segment: the ensemble as it will be."""
        tasks = [self._task_for(one, planned) for one in self._check.result]
        self._tasks = [task for task in reversed(tasks) if task is not None]
        self._rounds += 1
        if self._tasks and self._rounds > _ROUNDS_MAX:
            return self._end(Postponed(f"something is still wrong after {_ROUNDS_MAX} repairs"))
        return self._next() if self._tasks else self._conclude()

    def _task_for(self, finding: FragmentFinding, planned: dict[int, tuple[str, ...]]) -> _Task | None:
        """Return how a fragment is repaired; `None` if it cannot be."""
        fragment, key = finding.fragment, finding.fragment.key
        if key in self._failed:
            return None
        if finding.state is FragmentState.UNREACHABLE:
            self._waits_for = f"bookie {fragment.bookie} gives no useful answer: {finding.unreachable}"
            return None
        bad = sorted((*finding.missing, *finding.damaged))
        # A bookie that has taken an entry again and still has no good copy of it does not keep it.
        keeps = bool(bad) and self._in_place.get(key, set()).isdisjoint(bad)
        if keeps and fragment.bookie in self._bookies.writable:
            return _Task(fragment, fragment.bookie, bad)
        ensemble = planned.get(key.segment, fragment.bookies)
        found = replace_bookies(
            self._candidates, fragment.quorums, ensemble, {key.index}, self._seed + key.segment
        )
        if not found:
            self._waits_for = f"no bookie that takes adds can have the entries of {fragment.bookie}"
            return None
        target = found[key.index]
        planned[key.segment] = (*ensemble[: key.index], target, *ensemble[key.index + 1 :])
        return _Task(fragment, target, ())

    # ── copy ──────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> list[Effect]:
        """Begin the next copy, or change the metadata, or check again."""
        while self._tasks and not self._tasks[-1].fragment.count and len(self._moves) < _MOVES_MAX:
            # Nothing has to be copied: a segment can be shorter than its ensemble, or empty.
            self._move(self._tasks.pop())
        if self._moves and (
            not self._tasks or len(self._moves) >= _MOVES_MAX or self._size_of_moves >= _SIZE_MAX
        ):
            self._stage = _Stage.CHANGING
            self._change = MetadataChange(self._ledger_id, self._with_moves)
            return self._changed(self._change.begin(self._metadata))
        if not self._tasks:
            self._stage = _Stage.READING
            return [ReadMetadata()]
        self._stage = _Stage.COPYING
        task = self._task = self._tasks.pop()
        self._copy = FragmentCopy(
            self._entries, task.fragment, task.ids, task.target, self._bookies.all, self._limits
        )
        return self._copied(self._copy.begin())

    def _move(self, task: _Task) -> None:
        self._moves.append(_Move(task.fragment.key, task.fragment.bookie, task.target))

    def _copied(self, effects: list[Effect]) -> list[Effect]:
        task, result = self._task, self._copy.result
        if result is not None:
            self._taken = _sum(self._taken, self._copy.copied)
        match result:
            case None:
                return effects
            case CopyFailed():
                self._failed[task.fragment.key] = result
            case Copied(size=size):
                self.copied = _sum(self.copied, result)
                if task.bad:
                    self._in_place.setdefault(task.fragment.key, set()).update(task.bad)
                else:
                    self._move(task)
                    self._size_of_moves += size
        return effects + self._next()

    # ── change ────────────────────────────────────────────────────────────────────────────────────────

    def _with_moves(self, metadata: ClusterLedgerMetadata) -> ClusterLedgerMetadata:
        """Return the metadata with the bookies that have the copies."""
        by_segment: dict[int, list[_Move]] = {}
        for move in self._moves:
            by_segment.setdefault(move.key.segment, []).append(move)
        growing = growing_segment(metadata)
        segments = list(metadata.segments)
        for number, segment in enumerate(segments):
            if segment is growing:
                continue
            bookies = list(segment.bookies)
            for move in by_segment.get(segment.first_entry, ()):
                # Otherwise the segment would count one copy twice, or lose a bookie that has its entries.
                if bookies[move.key.index] == move.old and move.new not in bookies:
                    bookies[move.key.index] = move.new
            segments[number] = replace(segment, bookies=tuple(bookies))
        return replace(metadata, segments=tuple(segments))

    def _changed(self, effects: list[Effect]) -> list[Effect]:
        match self._change.result:
            case None:
                return effects
            case Versioned() as metadata:
                self._metadata = metadata
                self._moves, self._size_of_moves = [], 0
                return effects + self._next()
            case NoSuchLedgerExistsOnMetadataServer():
                return effects + self._end(LedgerGone())
            case ClusterError() as error:
                return effects + self._end(Postponed(f"the metadata were not changed: {error}"))

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    def _conclude(self) -> list[Effect]:
        """End, or check suspects where the ledger grows if everything else is whole."""
        outcome = self._outcome()
        growing = growing_segment(self._metadata.value)
        if isinstance(outcome, Repaired) and growing is not None:
            suspects = self._suspects & set(growing.bookies)
            if suspects:
                self._stage = _Stage.GROWING
                quorums = quorums_of(self._metadata.value)
                self._growing = GrowingCheck(self._entries, growing, quorums, suspects, self._bookies.all)
                return self._grown(self._growing.begin())
        return self._end(outcome)

    def _grown(self, effects: list[Effect]) -> list[Effect]:
        lacking = self._growing.result
        if lacking is None:
            return effects
        if lacking:
            return self._end(Postponed(lacking))
        # If the segment has got its end meanwhile, every entry up to there belongs to its bookies.
        self._stage, self._grown_at = _Stage.READING, self._metadata.version
        return [*effects, ReadMetadata()]

    def _outcome(self) -> RepairResult:
        """Return what has come of it when nothing more can be repaired now."""
        metadata = self._metadata.value
        failures = self._failed.values()
        lost = [one for one in failures if one.failure is CopyFailure.LOST]
        absent = [one for one in failures if one.failure is CopyFailure.ABSENT]
        again = [one.reason for one in failures if one not in lost and one not in absent]
        if lost:
            return Unrepairable(_first(lost), frozenset())
        if self._waits_for is not None or again:
            return Postponed(self._waits_for or again[0])
        if absent:
            named = {bookie for segment in metadata.segments for bookie in segment.bookies}
            return Unrepairable(_first(absent), frozenset(named - self._bookies.all))
        growing = growing_segment(metadata)
        missing = () if growing is None else tuple(sorted(set(growing.bookies) - self._bookies.all))
        if growing is not None and missing:
            return GrowingWithoutBookies(growing.first_entry, missing)
        return Repaired()

    def _end(self, result: RepairResult) -> list[Effect]:
        self.result = result
        return []


def _sum(one: Copied, other: Copied) -> Copied:
    return Copied(one.entries + other.entries, one.size + other.size)


def _name_of(fragment: Fragment) -> tuple[FragmentKey, str]:
    return fragment.key, fragment.bookie


def _first(failures: list[CopyFailed]) -> str:
    first = min(failures, key=lambda one: one.entry_id)
    return first.reason


def codec_of(ledger_id: int, metadata: ClusterLedgerMetadata) -> EntryCodec:
    """Return the codec of a ledger by the password and the digest type that its metadata have."""
    if metadata.password is None:
        # An old format, which says neither. The password is what a client takes by default, as in BookKeeper.
        return undeclared_codec(ledger_id, b"")
    return entry_codec(ledger_id, metadata.digest_type or DigestType.CRC32C, metadata.password)

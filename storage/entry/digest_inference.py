"""Inference of a ledger's digest type from its entries, because a bookie does not write it down.

There are two kinds of evidence. A CRC that matches names its type almost surely. Otherwise the width of the
digest is the size of an entry without its payload, and the payload's size follows from the cumulative lengths
of two neighbours, or of entry 0 alone. Votes are counted over many entries, so that one damaged entry never
changes the result.

An entry whose *ledger id* is damaged looks like the only entry of another ledger, for which there is no
evidence. So a ledger without evidence is doubtful if all others agree on a CRC, unless its key was logged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck, Digester, digester, master_key
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.entry.digest import Buffer
    from storage.entry.format import Head

VOTES_WANTED = 16
"""After this many votes for one type no more entries of the ledger are counted."""

LEDGERS_MAX = 100_000
"""The most ledgers that are remembered. If there are more, the oldest are forgotten, and counted anew if they
return."""

_TYPE_OF_WIDTH = {digest_type.width: digest_type for digest_type in DigestType}
_CRCS = (Digester(DigestType.CRC32C), Digester(DigestType.CRC32))
_PLAIN_KEY = master_key(b"")
_MATCH_VOTES = 4  # because a CRC that matches by chance is rarer than any damage to the lengths


@dataclass(slots=True)
class _LedgerVotes:
    votes: Counter[DigestType] = field(default_factory=Counter)
    last: Head | None = None
    settled: bool = False

    @property
    def digest_type(self) -> DigestType | None:
        """The type with the most votes."""
        return max(self.votes, key=self.votes.__getitem__) if self.votes else None


class DigestSurvey:
    """Counts the evidence of each ledger: a few numbers for each, whatever the size of the files."""

    def __init__(self, ledgers_max: int | None = None) -> None:
        self._ledgers_max = LEDGERS_MAX if ledgers_max is None else ledgers_max
        self._ledgers: dict[int, _LedgerVotes] = {}
        self._leading: Counter[DigestType] = Counter()
        """The number of ledgers whose evidence is for each type."""
        self._keyed: set[int] = set()

    def note_key(self, ledger_id: int) -> None:
        """Note a key record of the ledger, which proves that the ledger exists."""
        if len(self._keyed) < self._ledgers_max:
            self._keyed.add(ledger_id)

    def note_verified(self, ledger_id: int, digest_type: DigestType) -> None:
        """Note that entries of the ledger were verified elsewhere, so that its type is certain."""
        ledger = self._ledgers.get(ledger_id) or self._remember(ledger_id)
        before = ledger.digest_type
        ledger.votes[digest_type] += VOTES_WANTED
        ledger.settled = len(ledger.votes) == 1
        self._follow(before, ledger.digest_type)

    def observe(self, data: Buffer) -> None:
        """Count the evidence of one entry."""
        head = entry_format.decode_head(data)
        if isinstance(head, Damaged):
            return
        ledger = self._ledgers.get(head.ledger_id) or self._remember(head.ledger_id)
        if not ledger.settled:
            self._count(ledger, head, data)

    def _remember(self, ledger_id: int) -> _LedgerVotes:
        if len(self._ledgers) >= self._ledgers_max:
            forgotten = self._ledgers.pop(next(iter(self._ledgers)))
            self._follow(forgotten.digest_type, None)
        self._ledgers[ledger_id] = _LedgerVotes()
        return self._ledgers[ledger_id]

    def _count(self, ledger: _LedgerVotes, head: Head, data: Buffer) -> None:
        before = ledger.digest_type
        matching = matching_checksum(data)
        width = _digest_width(len(data), head, ledger.last)
        by_width = None if width is None else _TYPE_OF_WIDTH.get(width)
        if matching is not None:
            ledger.votes[matching] += _MATCH_VOTES
        if by_width is not None:
            ledger.votes[by_width] += 1
        ledger.last = head
        ledger.settled = ledger.votes.total() >= VOTES_WANTED and len(ledger.votes) == 1
        self._follow(before, ledger.digest_type)

    def _follow(self, before: DigestType | None, after: DigestType | None) -> None:
        """Update the number of ledgers of each type after a ledger's type has changed."""
        if before is not after:
            self._leading.subtract([before] if before else [])
            self._leading.update([after] if after else [])

    def digest_type(self, ledger_id: int) -> DigestType | None:
        """Return the type that most of the evidence is for; `None` while there is no evidence."""
        ledger = self._ledgers.get(ledger_id)
        return None if ledger is None else ledger.digest_type

    def is_doubtful(self, ledger_id: int) -> bool:
        """Return whether nothing shows this ledger's type, while all others agree on a type that verifies."""
        if self.digest_type(ledger_id) is not None or ledger_id in self._keyed:
            return False
        agreed = [digest_type for digest_type, ledgers in self._leading.items() if ledgers]
        return len(agreed) == 1 and Digester(agreed[0]).verifies


def matching_checksum(data: Buffer) -> DigestType | None:
    """Return the CRC that verifies these bytes as an entry, if one does."""
    checks = (crc for crc in _CRCS if entry_format.check_digest(data, crc) is DigestCheck.OK)
    found = next(checks, None)
    return None if found is None else found.digest_type


def infer_digest_type(data: Buffer) -> DigestType | None:
    """Return the type that one entry alone shows.

    That is the CRC that matches, or else follows from the width of a first entry's digest.
    """
    matching = matching_checksum(data)
    head = entry_format.decode_head(data)
    if matching is not None or isinstance(head, Damaged):
        return matching
    width = _digest_width(len(data), head, None)
    return None if width is None else _TYPE_OF_WIDTH.get(width)


def digest_type_of_lac(packet: Buffer) -> DigestType | None:
    """Return a ledger's type by the width of the digest of its explicit last add confirmed."""
    return _TYPE_OF_WIDTH.get(len(packet) - entry_format.LAC_PACKET.size)


def _digest_width(size: int, head: Head, last: Head | None) -> int | None:
    """Return the size of the entry without head and payload.

    `None` if the lengths of neighbours cannot tell.
    """
    if head.entry_id == 0:
        payload = head.length
    elif last is not None and last.entry_id == head.entry_id - 1:
        payload = head.length - last.length
    else:
        return None
    return size - entry_format.HEAD.size - payload


class EntryVerifier:
    """Checks entries of any ledger by the declared digest type, or else by the inferred one.

    A MAC is verified if the password of its ledger is known. An entry that cannot be verified is
    `UNVERIFIED`. A ledger of which nothing is known has the key of all ledgers that are made without a
    password.
    """

    def __init__(
        self,
        declared: Mapping[int, Digester] = MappingProxyType({}),
        password_of: Callable[[int], bytes | None] = lambda _: None,
        key_of: Callable[[int], bytes | None] = lambda _: _PLAIN_KEY,
    ) -> None:
        self._declared = declared
        self._password_of = password_of
        self._key_of = key_of
        self.survey = DigestSurvey()

    def digester(self, ledger_id: int) -> Digester | None:
        """Return how this ledger's entries are protected, as far as is known."""
        if ledger_id in self._declared:
            return self._declared[ledger_id]
        digest_type = self.survey.digest_type(ledger_id)
        if digest_type is DigestType.MAC and (password := self._password_of(ledger_id)) is not None:
            return digester(DigestType.MAC, password)
        return None if digest_type is None else Digester(digest_type)

    def check(self, data: Buffer) -> DigestCheck:
        """Return whether the entry's digest belongs to its bytes.

        Every checked entry also counts as evidence.
        """
        self.survey.observe(data)
        if len(data) < entry_format.IDS.size:
            return DigestCheck.UNVERIFIED
        ledger_id, _ = entry_format.IDS.unpack_from(data)
        known = self.digester(ledger_id)
        return DigestCheck.UNVERIFIED if known is None else entry_format.check_digest(data, known)

    def is_doubtful(self, ledger_id: int) -> bool:
        """Return whether an unverified entry of this ledger may be one whose ledger id is damaged."""
        return ledger_id not in self._declared and self.survey.is_doubtful(ledger_id)

    def knows_key(self, ledger_id: int, key: bytes) -> bool:
        """Return whether this is the ledger's key, as far as is known. No digest protects a key record."""
        return key == self._key_of(ledger_id)

    def proves(self, data: Buffer) -> bool:
        """Return whether a digest proves that exactly these bytes were written as an entry.

        It is not counted as evidence.
        """
        head = entry_format.decode_head(data)
        if isinstance(head, Damaged):
            return False
        known = self.digester(head.ledger_id)
        # A declared type is not questioned, but an inferred type may be wrong if a CRC matches.
        if head.ledger_id not in self._declared and matching_checksum(data) is not None:
            return True
        return known is not None and entry_format.check_digest(data, known) is DigestCheck.OK

"""The check of fragments: entries are read from the bookie that should have them. Pure.

What the answer to a read means:

    an entry with a good digest          the bookie has it
    other bytes, or an I/O error         *damaged*: the bookie has processed the request, and has no good copy
    no such entry, no such ledger        *missing*
    everything else                      *unreachable*: it says nothing about the entry

Only the first three are definite. A bookie that is slow, busy or disconnected has lost nothing: its ledgers
are not copied away, the check is made again later.

The fragments of a bookie that is not registered are *lost*, and need no reads.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.cluster.client.effects import Send, Token
from storage.cluster.client.reader import reason_of
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import CodeAnswer, FoundEntry, ReadEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from recovery.autorecovery.fragments import Fragment
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.client.entries import EntryCodec

READS_AHEAD = 32
"""Entries that are read at the same time."""

BAD_MAX = 10_000
"""The check of a fragment ends after so many bad entries: these are repaired before the others are read."""

SAMPLE_OF_ALL = 100
"""The percentage with which every entry is read."""


class CopyState(enum.Enum):
    """The facts about one bookie's copy of an entry."""

    GOOD = "good"
    MISSING = "missing"
    DAMAGED = "damaged"
    UNREACHABLE = "unreachable"


class FragmentState(enum.Enum):
    """The copy that a bookie has of a fragment."""

    WHOLE = "whole"
    LOST = "lost"
    """Its bookie is not registered."""
    INCOMPLETE = "incomplete"
    """Entries are certainly missing or damaged."""
    UNREACHABLE = "unreachable"
    """Nothing is wrong as far as the bookie has answered."""


@dataclass(slots=True)
class FragmentFinding:
    """The result of the check of one fragment."""

    fragment: Fragment
    is_lost: bool
    read: int = 0
    """Entries that were read."""
    missing: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    unreachable: str | None = None
    """Why an entry could not be read."""

    @property
    def state(self) -> FragmentState:
        if self.is_lost:
            return FragmentState.LOST
        if self.missing or self.damaged:
            return FragmentState.INCOMPLETE
        return FragmentState.WHOLE if self.unreachable is None else FragmentState.UNREACHABLE


def judge(entries: EntryCodec, entry_id: int, answer: BookieAnswer) -> CopyState:
    """Return what an answer says about a bookie's copy."""
    match answer:
        case FoundEntry(bytes() as data):
            return CopyState.DAMAGED if entries.decode(entry_id, data) is None else CopyState.GOOD
        case CodeAnswer(Code.IO_ERROR):
            return CopyState.DAMAGED
        case CodeAnswer(Code.NO_ENTRY | Code.NO_LEDGER):
            return CopyState.MISSING
        case _:
            return CopyState.UNREACHABLE


def positions(count: int, percent: int, seed: int) -> Iterator[int]:
    """Yield which of so many entries are read: the first, the last, and a sample spread over all.

    The sample is one entry of each of n parts of equal size, where n is so many percent of the entries.
    """
    if percent >= SAMPLE_OF_ALL:
        yield from range(count)
        return
    parts = count * percent // 100
    chosen = {0, count - 1} if count else set[int]()
    for part in range(parts):
        start, stop = count * part // parts, count * (part + 1) // parts
        digest = hashlib.blake2b(f"{seed}/{part}".encode(), digest_size=8).digest()
        chosen.add(start + int.from_bytes(digest, "big") % (stop - start))
    yield from sorted(chosen)


class LedgerCheck:
    """Checks fragments of one ledger. It is over when `result` is there."""

    def __init__(
        self,
        entries: EntryCodec,
        fragments: Iterable[Fragment],
        registered: AbstractSet[str],
        percent: Callable[[Fragment], int],
        seed: int = 0,
        reads_ahead: int = READS_AHEAD,
    ) -> None:
        """`percent` says how many of the entries of a fragment are read besides the first and the last."""
        self._entries = entries
        self._registered = registered
        self._percent = percent
        self._seed = seed
        self._reads_ahead = reads_ahead
        self._under_way: dict[int, FragmentFinding] = {}
        """By number of the read."""
        self._number = 0
        self._to_read = self._reads(fragments)
        self.found: list[FragmentFinding] = []
        """The fragments that are not whole, in the order in which that was noticed."""
        self.result: list[FragmentFinding] | None = None
        """The same when the check is over, sorted by key; `None` before."""

    def begin(self) -> list[Send]:
        return self._read_more()

    def answered(self, token: Token, answer: BookieAnswer) -> list[Send]:
        finding = self._under_way.pop(token.sending)
        was_whole = finding.state is FragmentState.WHOLE
        match judge(self._entries, token.entry_id, answer):
            case CopyState.MISSING:
                finding.missing.append(token.entry_id)
            case CopyState.DAMAGED:
                finding.damaged.append(token.entry_id)
            case CopyState.UNREACHABLE:
                finding.unreachable = reason_of(answer)
        if was_whole and finding.state is not FragmentState.WHOLE:
            self.found.append(finding)
        return self._read_more()

    def _read_more(self) -> list[Send]:
        sends: list[Send] = []
        while len(self._under_way) < self._reads_ahead and (send := next(self._to_read, None)) is not None:
            sends.append(send)
        if not self._under_way:
            self.result = sorted(self.found, key=lambda one: one.fragment.key)
        return sends

    def _reads(self, fragments: Iterable[Fragment]) -> Iterator[Send]:
        """Yield the reads of all fragments, one after the other."""
        for fragment in fragments:
            finding = FragmentFinding(fragment, fragment.bookie not in self._registered)
            if finding.is_lost:
                self.found.append(finding)
                continue
            for position in positions(fragment.count, self._percent(fragment), self._seed):
                # A bookie that does not answer is not asked for the rest: each read would take its time-out.
                if finding.unreachable is not None or len(finding.missing) + len(finding.damaged) >= BAD_MAX:
                    break
                entry_id = fragment.entry_at(position)
                self._number += 1
                self._under_way[self._number] = finding
                finding.read += 1
                request = ReadEntry(self._entries.ledger_id, entry_id)
                yield Send(fragment.bookie, request, Token(entry_id, fragment.key.index, self._number))

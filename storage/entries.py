"""The entries of one ledger that are durable in the journals and not yet in the entry logs.

One thread inserts; any number read meanwhile, without a lock. What they rely on is that the interpreter does
one operation on a list or a dict at a time, and on these orders:

    the run          of a ledger only grows, and no place in it ever changes: first the fronts, then the
                     payloads, whose number says how long it is
    a stray          counts before the run, where the same id may stand in an older copy. One that the run has
                     reached is appended to the run, and only then leaves the strays: whoever looks among the
                     strays first, and then in the run, finds it in one of them
    the largest id   is raised when its record can be found

A record in the run lies in two parts: its front, in a row with the others', and its payload, the caller's own
object: copying each would cost more than all the rest of an add. All fronts of a run have one size, which is
known before a table has the ledger and never changes: that of the ledger's digest type, or what was guessed
where records came whole. A record that is shorter can only be a stray, and so is whatever comes behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from storage.codec import piece, plain
from storage.codec.record import FRONT_SIZE, HEAD_FRONT_SIZE, split
from storage.entry import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.codec.piece import Piece
    from storage.entry import Entry

RECORD_OVERHEAD = 49
"""Bytes of memory beside a record's own: the object's head, its slot in a list, what allocators round up."""

STRAY_OVERHEAD = 90
"""What it costs beyond that while it is a stray: the id as an object, and a share of a dict."""


class Entries:
    """The entries of one ledger: a run without a gap, and strays before and behind it."""

    __slots__ = (
        "_changes",
        "_ordered",
        "first",
        "front_size",
        "fronts",
        "highest_stray",
        "read_last",
        "run",
        "strays",
    )

    def __init__(self, first_id: int, front_size: int) -> None:
        self.first = first_id
        self.front_size = front_size
        """What each front of the run measures."""
        self.fronts = bytearray()
        self.run: list[bytes] = []
        self.strays: dict[int, bytes] = {}
        self.highest_stray = NO_ENTRY
        """The largest id that ever was a stray; not below the run's end while one lies behind it."""
        self._changes = 0
        self._ordered: tuple[int, list[int]] = (0, [])
        self.read_last: Entry | None = None
        """An entry of the run, verified: all who follow a ledger come for the same one."""

    @property
    def end(self) -> int:
        """The id behind the run."""
        return self.first + len(self.run)

    @property
    def last_id(self) -> int:
        return max(self.end - 1, self.highest_stray)

    # ── the writer's ─────────────────────────────────────────────────────────────────────────────────

    @property
    def size(self) -> int:
        """Bytes of memory that the entries take."""
        records = len(self.fronts) + sum(map(len, self.run)) + sum(map(len, self.strays.values()))
        overhead = RECORD_OVERHEAD * (len(self.run) + len(self.strays))
        return records + overhead + STRAY_OVERHEAD * len(self.strays)

    def extend(self, fronts: bytes, payloads: Sequence[bytes]) -> None:
        """Takes the entries behind the run."""
        self.fronts += fronts
        self.run += payloads

    def put(self, entry_id: int, record: bytes) -> int:
        """Takes an entry with any id; answers with the bytes of memory that it adds."""
        assert len(record) >= HEAD_FRONT_SIZE, "no record is shorter than its head"
        if entry_id != self.end:
            return self._put_stray(entry_id, record)
        if entry_id in self.strays or len(record) < self.front_size:
            # Too short for the run, now or before: as a stray the newer copy replaces the older in one step.
            return self._put_stray(entry_id, record) + self._join_strays()
        self._append(record)
        return len(record) + RECORD_OVERHEAD + self._join_strays()

    def _append(self, record: bytes) -> None:
        front, payload = split(record, self.front_size)
        self.extend(front, (payload,))

    def _put_stray(self, entry_id: int, record: bytes) -> int:
        replaced = self.strays.get(entry_id)
        self.strays[entry_id] = record
        if replaced is not None:
            return len(record) - len(replaced)
        self._changes += 1
        self.highest_stray = max(self.highest_stray, entry_id)
        return len(record) + RECORD_OVERHEAD + STRAY_OVERHEAD

    def _join_strays(self) -> int:
        """Moves the strays that follow the run into it; answers with the bytes it adds, none or fewer."""
        added = 0
        while len(record := self.strays.get(entry_id := self.end, b"")) >= self.front_size:
            # Before it leaves the strays: a reader in between must find it in one of them.
            self._append(record)
            del self.strays[entry_id]
            self._changes += 1
            added -= STRAY_OVERHEAD
        return added

    # ── the readers' ─────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        newer = sum(1 for entry_id in self._ordered_strays() if self.first <= entry_id < self.end)
        return len(self.run) + len(self.strays) - newer

    def record(self, at: int) -> bytes:
        """The record in that place of the run."""
        size = self.front_size
        start = size * at
        return b"".join((self.fronts[start : start + size], self.run[at]))

    def has(self, entry_id: int) -> bool:
        # The strays first, see above. Hardly a ledger has any.
        return entry_id in self.strays or 0 <= entry_id - self.first < len(self.run)

    def get(self, entry_id: int) -> bytes | None:
        if self.strays and (record := self.strays.get(entry_id)) is not None:
            return record
        at = entry_id - self.first
        return self.record(at) if 0 <= at < len(self.run) else None

    def plain(self, ledger_id: int, entry_id: int) -> Entry | None:
        """The entry, if it is in the run, under CRC-32C, and nothing is wrong with it."""
        if self.strays and entry_id in self.strays:
            return None
        last = self.read_last
        if last is not None and last.entry_id == entry_id:
            return last  # no place in the run ever changes
        run, at = self.run, entry_id - self.first
        if not 0 <= at < len(run) or self.front_size != FRONT_SIZE:
            return None
        front = self.fronts[at * FRONT_SIZE : (at + 1) * FRONT_SIZE]
        entry = self.read_last = plain.decode(front, ledger_id, entry_id, run[at])
        return entry

    def parts(self, first: int, count: int, front_size: int) -> tuple[bytes, list[bytes]] | None:
        """Fronts and payloads from there on, if they need only be handed out."""
        at = first - self.first
        if self.strays or front_size != self.front_size or at < 0:
            return None
        payloads = self.run[at : at + count]
        return bytes(self.fronts[at * front_size : (at + len(payloads)) * front_size]), payloads

    def ids_from(self, first: int, count: int) -> list[int]:
        strays = self._ordered_strays()  # before the run's end is read: what left them since is in the run
        run = range(self.first, self.end)
        start, below = bisect_left(strays, first), bisect_left(strays, run.start)
        behind = bisect_left(strays, max(first, run.stop))
        ids = strays[start : min(below, start + count)]
        ids += run[max(0, first - run.start) :][: count - len(ids)]
        ids += strays[behind : behind + count - len(ids)]
        return ids

    def pieces(self, ledger_id: int) -> Iterator[Piece]:
        strays = self._ordered_strays()
        before, behind = bisect_left(strays, self.first), bisect_left(strays, self.end)
        yield from self._stray_pieces(ledger_id, strays[:before])
        if before == behind:
            yield from piece.of_parts(ledger_id, self.first, self.fronts, self.front_size, self.run)
        else:
            yield from self._renewed_pieces(ledger_id)
        yield from self._stray_pieces(ledger_id, strays[behind:])

    def _stray_pieces(self, ledger_id: int, ids: list[int]) -> Iterator[Piece]:
        return piece.of_records(ledger_id, ids, [self.strays[entry_id] for entry_id in ids])

    def _renewed_pieces(self, ledger_id: int) -> Iterator[Piece]:
        """The run, where newer copies stand among the strays."""
        # Joined a part at a time: all of a table once more would be as much memory again.
        for start in range(self.first, self.end, piece.COUNT_MAX):
            ids = range(start, min(start + piece.COUNT_MAX, self.end))
            records = [self.strays.get(one) or self.record(one - self.first) for one in ids]
            yield from piece.of_records(ledger_id, ids, records)

    def _ordered_strays(self) -> list[int]:
        # The number of changes is read first, and raised by the writer behind each change: what was sorted
        # too early carries too small a number, and is sorted again.
        changes = self._changes
        sorted_at, ordered = self._ordered
        if sorted_at != changes:
            ordered = sorted(self.strays)
            self._ordered = changes, ordered
        return ordered

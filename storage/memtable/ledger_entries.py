"""The entries of one ledger that are durable in the journals and not yet in the entry logs.

The entries are a *run* of consecutive ids, and *strays*: entries that came out of order. One thread inserts,
any number of threads read meanwhile without a lock. Readers rely on the interpreter, which does one operation
on a list or a dict at a time, and on these orders:

    the run          only grows, and no element of it ever changes. The fronts are appended first, then the
                     payloads, whose number is the length of the run
    a stray          counts before the run, which may have an older copy of the same id. When the run reaches
    a
                     stray, the stray is appended to the run and only then removed from the strays. So a
                     reader that searches the strays first, and then the run, finds it in one of them
    the largest id   is raised after its record can be found

A record in the run has two parts: its front, joined to the other fronts, and its payload, which is the
caller's own object, because a copy of each would cost more than all the rest of an add. All fronts of a run
have one size, which is known before a table has the ledger and never changes: that of the ledger's digest
type, or a guess if the first records came whole. A record that is shorter can only be a stray, and so are all
that follow it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from storage.entry import record_chunk
from storage.entry.model import NO_ENTRY
from storage.entry.record_format import FRONT_SIZE, HEAD_FRONT_SIZE, decode_crc32c, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.entry.model import Entry
    from storage.entry.record_chunk import RecordChunk

RECORD_OVERHEAD = 49
"""Bytes of memory beside a record's own: the object's head, its slot in a list, rounding by the allocator."""

STRAY_OVERHEAD = 90
"""Additional bytes of a stray: the id as an object, and a share of a dict."""


class LedgerEntries:
    """The entries of one ledger: a run without a gap, and strays before and after it."""

    __slots__ = (
        "_changes",
        "_ordered",
        "first",
        "floor",
        "front_size",
        "fronts",
        "highest_stray",
        "read_last",
        "run",
        "skip",
        "strays",
    )

    def __init__(self, first_id: int, front_size: int) -> None:
        # field                                       written by    under    read by
        self.first = first_id  #                        never         -        any thread
        self.front_size = front_size  #                 never         -        any thread
        """Bytes of each front of the run."""
        self.fronts = bytearray()  #                    the writer    no lock  any thread
        self.run: list[bytes] = []  #                   the writer    no lock  any thread
        self.strays: dict[int, bytes] = {}  #           the writer    no lock  any thread
        self.highest_stray = NO_ENTRY  #                the writer    no lock  any thread
        """The largest id that ever was a stray. It is not below the run's end while a stray lies after it."""
        self.floor = 0  #                               the writer    no lock  any thread
        """Entries with smaller ids were truncated: they stay in memory, and no reader finds them."""
        self.skip = 0  #                                the writer    no lock  any thread
        """How many entries of the run were truncated; may be more than there are."""
        self._changes = 0  #                            the writer    no lock  any thread
        self._ordered: tuple[int, list[int]] = (0, [])  # any thread  no lock  any thread
        """The strays' ids in order, with the number of changes for which they were sorted."""
        self.read_last: Entry | None = None  #          any thread    no lock  any thread
        """An entry of the run, verified, because all readers that follow a ledger read the same one."""

    @property
    def end(self) -> int:
        """The id after the run."""
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
        """Append entries to the run."""
        self.fronts += fronts
        self.run += payloads

    def put(self, entry_id: int, record: bytes) -> int:
        """Insert an entry with any id; return the bytes of memory that it adds."""
        assert len(record) >= HEAD_FRONT_SIZE, "no record is shorter than its head"
        if entry_id != self.end:
            return self._put_stray(entry_id, record)
        if entry_id in self.strays or len(record) < self.front_size:
            # A record is too short for the run, now or before. As a stray the newer copy replaces the older
            # in one step.
            return self._put_stray(entry_id, record) + self._join_strays()
        self._append(record)
        return len(record) + RECORD_OVERHEAD + self._join_strays()

    def truncate(self, first_id: int) -> None:
        """Let no reader find entries with smaller ids. Nothing moves, because readers count from `first`."""
        self.floor, self.skip = first_id, max(0, first_id - self.first)
        # After the floor, because a reader that has just put an entry there looks at the floor once more.
        self.read_last = None

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
        """Move the strays that follow the run into it.

        Return the bytes that this adds, which are none or fewer.
        """
        added = 0
        while len(record := self.strays.get(entry_id := self.end, b"")) >= self.front_size:
            # Appended before it leaves the strays, because a reader in between must find it in one of them.
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
        """Return the record at that place of the run."""
        size = self.front_size
        start = size * at
        return b"".join((self.fronts[start : start + size], self.run[at]))

    def has(self, entry_id: int) -> bool:
        # The strays are searched first: see the module. Few ledgers have any.
        if entry_id in self.strays:
            return entry_id >= self.floor
        return self.skip <= entry_id - self.first < len(self.run)

    def end_of_stretch(self, entry_id: int) -> int:
        """Return an id up to which no entry is missing after that one, which is here; there may be more."""
        return self.end if 0 <= entry_id - self.first < len(self.run) else entry_id + 1

    def get(self, entry_id: int) -> bytes | None:
        if self.strays and (record := self.strays.get(entry_id)) is not None:
            return record if entry_id >= self.floor else None
        at = entry_id - self.first
        return self.record(at) if self.skip <= at < len(self.run) else None

    def plain(self, ledger_id: int, entry_id: int) -> Entry | None:
        """Return the entry, if it is in the run, under CRC-32C, and nothing is wrong with it."""
        if self.strays and entry_id in self.strays:
            return None
        last = self.read_last
        if last is not None and last.entry_id == entry_id:
            return last  # no place in the run ever changes
        run, at = self.run, entry_id - self.first
        if not self.skip <= at < len(run) or self.front_size != FRONT_SIZE:
            return None
        front = self.fronts[at * FRONT_SIZE : (at + 1) * FRONT_SIZE]
        entry = self.read_last = decode_crc32c(front, ledger_id, entry_id, run[at])
        if at < self.skip:
            self.read_last = None  # it was truncated meanwhile, and must not be found any more
        return entry

    def parts(self, first: int, count: int, front_size: int) -> tuple[bytes, list[bytes]] | None:
        """Return fronts and payloads from `first` on, if they can be returned as they are."""
        at = first - self.first
        if self.strays or front_size != self.front_size or at < self.skip:
            return None
        payloads = self.run[at : at + count]
        return bytes(self.fronts[at * front_size : (at + len(payloads)) * front_size]), payloads

    def ids_from(self, first: int, count: int) -> list[int]:
        first = max(first, self.floor)
        strays = self._ordered_strays()  # first, because strays that leave meanwhile are in the run
        run = range(self.first, self.end)
        start, below = bisect_left(strays, first), bisect_left(strays, run.start)
        after = bisect_left(strays, max(first, run.stop))
        ids = strays[start : min(below, start + count)]
        ids += run[max(0, first - run.start) :][: count - len(ids)]
        ids += strays[after : after + count - len(ids)]
        return ids

    def chunks(self, ledger_id: int) -> Iterator[RecordChunk]:
        strays = self._ordered_strays()
        strays = strays[bisect_left(strays, self.floor) :]
        before, after = bisect_left(strays, self.first), bisect_left(strays, self.end)
        skip, fronts, run = self.skip, self.fronts, self.run
        yield from self._stray_chunks(ledger_id, strays[:before])
        if before < after:
            yield from self._renewed_chunks(ledger_id, self.first + skip)
        elif not skip:
            yield from record_chunk.of_parts(ledger_id, self.first, fronts, self.front_size, run)
        elif skip < len(run):
            fronts, run = fronts[skip * self.front_size :], run[skip:]
            yield from record_chunk.of_parts(ledger_id, self.first + skip, fronts, self.front_size, run)
        yield from self._stray_chunks(ledger_id, strays[after:])

    def _stray_chunks(self, ledger_id: int, ids: list[int]) -> Iterator[RecordChunk]:
        return record_chunk.of_records(ledger_id, ids, [self.strays[entry_id] for entry_id in ids])

    def _renewed_chunks(self, ledger_id: int, first: int) -> Iterator[RecordChunk]:
        """Return the run, some of whose entries have newer copies among the strays."""
        # Joined some at a time, because a copy of the whole table would take as much memory again.
        for start in range(first, self.end, record_chunk.COUNT_MAX):
            ids = range(start, min(start + record_chunk.COUNT_MAX, self.end))
            records = [self.strays.get(one) or self.record(one - self.first) for one in ids]
            yield from record_chunk.of_records(ledger_id, ids, records)

    def _ordered_strays(self) -> list[int]:
        # The number of changes is read first, and the writer raises it after each change. So an order that
        # was sorted too early has too small a number, and is sorted again.
        changes = self._changes
        sorted_at, ordered = self._ordered
        if sorted_at != changes:
            ordered = sorted(self.strays)
            self._ordered = changes, ordered
        return ordered

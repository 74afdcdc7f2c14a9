"""The extents of entries that are proven durable, which a replay need not read again."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.replay.decision import Decision
from storage.entry.position import LENGTH_WORD_SIZE, JournalPosition
from storage.entry.read_result import Damaged
from storage.journal import extents
from storage.journal import format as journal_format
from storage.journal.scan import Owner

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.replay.chain import JudgedJournal
    from recovery.replay.journals import Replay
    from storage.journal.extents import JournalExtents


@dataclass(frozen=True, slots=True)
class DurableExtents:
    """The part of one journal that is proven durable."""

    end: JournalPosition
    """A later replay may begin here."""
    packed: dict[int, bytes]
    """The extents of each ledger: see `storage.journal.extents`."""
    special: list[journal_format.Record]
    records: int
    """How many entries, and their size together."""
    size: int


def durable_extents(replay: Replay) -> list[DurableExtents] | None:
    """Return the durable part of each journal; `None` if the records must be read one by one."""
    found: list[DurableExtents] = []
    end_ids: dict[int, int] = {}
    for one in replay.verdict.standings:
        end = _end_of_proven(one, replay.durable_up_to)
        if one.decision in (Decision.USE, Decision.CUT) and one.scan.start < end:
            noted = replay.extents.get(one.scan.journal_id)
            proven = None if noted is None else _proven(one, end, noted, replay)
            if proven is None or not _ids_ascend(proven, end_ids):
                return None
            found.append(proven)
    return found


def _end_of_proven(one: JudgedJournal, durable_up_to: JournalPosition) -> int:
    if one.scan.journal_id < durable_up_to.journal_id:
        return one.end
    return min(one.end, durable_up_to.offset) if one.scan.journal_id == durable_up_to.journal_id else 0


def _proven(one: JudgedJournal, end: int, noted: JournalExtents, replay: Replay) -> DurableExtents | None:
    if not noted.is_plain or one.scan.owner is not Owner.OURS:
        return None
    journal_id = one.scan.journal_id

    # Before the records are written again, because the position by which they are judged changes then.
    def dead_below(ledger_id: int) -> int:
        tombstone = replay.tombstone(ledger_id)
        if tombstone is None or tombstone.journal_id < journal_id:
            return 0
        return tombstone.offset if tombstone.journal_id == journal_id else end

    special = _special(one, end, noted, dead_below)
    if special is None:
        return None
    packed = {
        ledger_id: bytes(_between(of_ledger, dead_below(ledger_id), end))
        for ledger_id, of_ledger in noted.packed.items()
    }
    totals = [extents.totals(of_ledger) for of_ledger in packed.values()]
    records, size = (sum(column) for column in zip((0, 0), *totals, strict=True))
    return DurableExtents(JournalPosition(journal_id, end), packed, special, records, size)


def _special(
    one: JudgedJournal, end: int, noted: JournalExtents, dead_below: Callable[[int], int]
) -> list[journal_format.Record] | None:
    """Return the records about ledgers; `None` if one is unknown, or is none that we write."""
    header = one.scan.header
    version = (
        header.version if isinstance(header, journal_format.JournalHeader) else journal_format.VERSION_MAX
    )
    found: list[journal_format.Record] = []
    for offset, record in noted.special:
        said = journal_format.decode_record(record[LENGTH_WORD_SIZE:], version)
        if isinstance(said, Damaged | journal_format.UnknownRecord | journal_format.EntryRecord):
            return None
        if dead_below(said.ledger_id) <= offset < end:
            found.append(said)
    return found


def _between(packed: bytearray, start: int, end: int) -> memoryview:
    """Return the extents that begin in that part of the journal, in its order."""
    count = extents.count(packed)
    if not start and extents.nth(packed, count - 1).offset < end:
        return memoryview(packed)
    numbers = range(count)
    first, after = (
        bisect_left(numbers, place, key=lambda number: extents.nth(packed, number).offset)
        for place in (start, end)
    )
    return memoryview(packed)[first * extents.PACKED_SIZE : after * extents.PACKED_SIZE]


def _ids_ascend(proven: DurableExtents, end_ids: dict[int, int]) -> bool:
    """Return whether each ledger's entries have larger ids than those of the journals before."""
    for ledger_id, packed in proven.packed.items():
        if packed:
            if extents.first_id(packed, 0) < end_ids.get(ledger_id, 0):
                return False
            end_ids[ledger_id] = extents.nth(packed, extents.count(packed) - 1).end_id
    return True

"""What a replay need not read again: entries that are known to be durable, by the places where they lie."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.decision import Decision
from storage.codec import journal as journal_codec
from storage.codec import stretch
from storage.journal_scan import Owner
from storage.outcome import Damaged
from storage.position import LENGTH_WORD_SIZE, JournalPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.chain import Standing
    from recovery.replay import Replay
    from storage.journal_stretches import Stretches


@dataclass(frozen=True, slots=True)
class ProvenJournal:
    """What is proven of one journal."""

    end: JournalPosition
    """Behind it: there another reading may begin."""
    packed: dict[int, bytes]
    """The stretches of each ledger: see `storage.codec.stretch`."""
    special: list[journal_codec.Record]
    records: int
    """Entries, and what they measure together."""
    size: int


def proven_journals(replay: Replay) -> list[ProvenJournal] | None:
    """All that is proven, journal by journal; `None` where the records have to be looked at one by one."""
    found: list[ProvenJournal] = []
    end_ids: dict[int, int] = {}
    for one in replay.verdict.standings:
        end = _end_of_proven(one, replay.durable_up_to)
        if one.decision in (Decision.USE, Decision.CUT) and one.scan.start < end:
            noted = replay.stretches.get(one.scan.journal_id)
            proven = None if noted is None else _proven(one, end, noted, replay.tombstones)
            if proven is None or not _goes_on(proven, end_ids):
                return None
            found.append(proven)
    return found


def _end_of_proven(one: Standing, durable_up_to: JournalPosition) -> int:
    if one.scan.journal_id < durable_up_to.journal_id:
        return one.end
    return min(one.end, durable_up_to.offset) if one.scan.journal_id == durable_up_to.journal_id else 0


def _proven(
    one: Standing, end: int, noted: Stretches, tombstones: Mapping[int, JournalPosition]
) -> ProvenJournal | None:
    if not noted.is_plain or one.scan.owner is not Owner.OURS:
        return None
    journal_id = one.scan.journal_id
    # Here, and not behind the next journal: what is written again loses the place by which it is judged.
    dead = {
        ledger_id: position.offset if position.journal_id == journal_id else end
        for ledger_id, position in tombstones.items()
        if position.journal_id >= journal_id
    }
    special = _special(one, end, noted, dead)
    if special is None:
        return None
    packed = {
        ledger_id: bytes(_between(of_ledger, dead.get(ledger_id, 0), end))
        for ledger_id, of_ledger in noted.packed.items()
    }
    totals = [stretch.totals(of_ledger) for of_ledger in packed.values()]
    records, size = (sum(column) for column in zip((0, 0), *totals, strict=True))
    return ProvenJournal(JournalPosition(journal_id, end), packed, special, records, size)


def _special(
    one: Standing, end: int, noted: Stretches, dead: Mapping[int, int]
) -> list[journal_codec.Record] | None:
    """What is said of ledgers; `None` if something is that nobody here knows or would write."""
    header = one.scan.header
    version = header.version if isinstance(header, journal_codec.Header) else journal_codec.VERSION_MAX
    found: list[journal_codec.Record] = []
    for offset, record in noted.special:
        said = journal_codec.decode_record(record[LENGTH_WORD_SIZE:], version)
        if isinstance(said, Damaged | journal_codec.UnknownRecord | journal_codec.EntryRecord):
            return None
        if dead.get(said.ledger_id, 0) <= offset < end:
            found.append(said)
    return found


def _between(packed: bytearray, start: int, end: int) -> memoryview:
    """The stretches that begin in that part of the journal: they stand in its order."""
    count = stretch.count(packed)
    if not start and stretch.nth(packed, count - 1).offset < end:
        return memoryview(packed)
    numbers = range(count)
    first, behind = (
        bisect_left(numbers, place, key=lambda number: stretch.nth(packed, number).offset)
        for place in (start, end)
    )
    return memoryview(packed)[first * stretch.PACKED_SIZE : behind * stretch.PACKED_SIZE]


def _goes_on(proven: ProvenJournal, end_ids: dict[int, int]) -> bool:
    """Whether each ledger's entries stand behind those of the journals before."""
    for ledger_id, packed in proven.packed.items():
        if packed:
            if stretch.first_id(packed, 0) < end_ids.get(ledger_id, 0):
                return False
            end_ids[ledger_id] = stretch.nth(packed, stretch.count(packed) - 1).end_id
    return True

"""Damage bits of one record of an entry log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import DamagedExtent, Expectation, Planted, Within, kinds
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart, ChartRecord, LogChart
    from recovery.audit.faults.planted import Alternatives
    from recovery.audit.faults.site import FaultSite

_HEAD_END = 36
_BY_NUMBER = 0.5
_FIELDS = {
    Fault.LOG_SIZE: (0, 4),
    Fault.LOG_LEDGER: (4, 12),
    Fault.LOG_ENTRY: (12, 20),
    Fault.LOG_CONFIRMED: (20, 28),
    Fault.LOG_LENGTH: (28, 36),
}
_BAD = kinds("ELG-003", "ELG-004")
_UNSEALED_END = kinds("ELG-006")
_NAMED = kinds("IDX-001", "IDX-002", "ELG-003", "ELG-004", "ELG-007")
CONSEQUENCES = kinds("ELG-002", "LGR-004", "JRN-006")
"""Findings that damage in a log may cause elsewhere: the map counts bytes, ids are compared with earlier
ones, and a journal may have had what is not in the log any more.
"""


class ChosenBits(NamedTuple):
    """A record, and the range of its bits that may be changed."""

    log: LogChart
    record: ChartRecord
    start: int
    end: int


def plant(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit in that field of some entry."""
    chosen = _choose(site, fault)
    log, record = chosen.log, chosen.record
    path = site.log_path(log)
    at = site.flip(path, chosen.start, chosen.end)
    data = site.copy.inside(path).read_bytes()
    size, ledger_id, entry_id = (
        int.from_bytes(data[start:end], "big", signed=True)
        for start, end in ((record.offset, record.offset + 4), *_id_places(record))
    )
    wanted = _expected(site.chart, chosen, fault, at, (size, ledger_id))
    return Planted(
        fault=fault,
        file=log.name,
        offset=record.offset,
        end=record.end,
        ledger_id=record.ledger_id,
        entry_id=record.entry_id,
        wanted=wanted,
        allowed=_allowed_at_place(site.chart, chosen, fault),
        collateral=CONSEQUENCES | _allowed_for_ids(fault),
        words=f"byte {at}: size {size}, ledger {ledger_id}, entry {entry_id}; proven by {record.digest}",
    )


def _allowed_at_place(chart: Chart, chosen: ChosenBits, fault: Fault) -> Alternatives:
    """A dead record is reported as information, but with other ids it is not dead. After a wrong size several
    findings may be made before the next record that proves itself.
    """
    log, record = chosen.log, chosen.record
    if fault is not Fault.LOG_SIZE and not chart.is_dead(log, record):
        return ()
    extent = Within(record.offset, _sound_from(log, record))
    return (Expectation(kinds=_BAD, file=log.name, extent=extent),)


def _allowed_for_ids(fault: Fault) -> frozenset[str]:
    # The size and the ids decide which other entries are affected.
    if fault in (Fault.LOG_LEDGER, Fault.LOG_ENTRY):
        return kinds("IDX-003", "IDX-006")
    return kinds("ELG-003", "ELG-007")


def _id_places(record: ChartRecord) -> tuple[tuple[int, int], tuple[int, int]]:
    return (record.offset + 4, record.offset + 12), (record.offset + 12, record.offset + 20)


def _choose(site: FaultSite, fault: Fault) -> ChosenBits:
    logs = [log for log in site.chart.logs if log.entries and not log.is_leftover]
    log = site.choose(logs)
    if fault in _FIELDS:
        record = _random_entry(site, log.entries)
        start, end = _FIELDS[fault]
        return ChosenBits(log, record, record.offset + start, record.offset + end)
    if fault is Fault.LOG_DIGEST:
        record = _random_entry(site, [one for one in log.entries if one.digest is not None])
        assert record.digest is not None, "chosen so"
        return ChosenBits(
            log, record, record.offset + _HEAD_END, record.offset + _HEAD_END + record.digest.width
        )
    records = [one for one in log.entries if one.end > one.offset + _HEAD_END + DigestType.MAC.width]
    record = _random_entry(site, records)
    width = DigestType.MAC.width if record.digest is None else record.digest.width
    return ChosenBits(log, record, record.offset + _HEAD_END + width, record.end)


def _random_entry(site: FaultSite, entries: list[ChartRecord]) -> ChartRecord:
    """Choose small and large records equally often. Most are small, and large ones cross the chunks of a
    scan.
    """
    if not entries or site.dice.random() < _BY_NUMBER:
        return site.choose(entries)
    return site.dice.choices(entries, [one.end - one.offset for one in entries])[0]


def _expected(
    chart: Chart, chosen: ChosenBits, fault: Fault, at: int, now: tuple[int, int]
) -> tuple[Alternatives, ...]:
    if fault is Fault.LOG_SIZE:
        return _expected_for_size(chart, chosen, at, now[0])
    if fault in (Fault.LOG_LEDGER, Fault.LOG_ENTRY):
        return _expected_for_id(chart, chosen, at, now[1])
    log, record = chosen.log, chosen.record
    ledgers = frozenset({record.ledger_id})
    if chart.is_forgotten(log, record):
        return ()
    if record.digest is None:
        return ((Expectation(kinds=kinds("LGR-005"), ledgers=ledgers),),)
    extent = DamagedExtent(record.offset, at, record.end)
    expected = Expectation(
        kinds=kinds("ELG-003"), file=log.name, extent=extent, ledgers=ledgers, entry_id=record.entry_id
    )
    return ((expected,),)


def _expected_for_size(chart: Chart, chosen: ChosenBits, at: int, size: int) -> tuple[Alternatives, ...]:
    """Expect broken framing at the record; without a digest, wherever its new size leads."""
    log, record = chosen.log, chosen.record
    bad = _BAD | (_UNSEALED_END if _ends_unsealed(chart, log, record) else frozenset())
    if record.digest is not None:
        at_record = Expectation(
            kinds=bad, file=log.name, extent=DamagedExtent(record.offset, at, _sound_from(log, record))
        )
        return ((at_record,), *named(chart, log, record))
    reach = max(record.end, min(record.offset + 4 + max(size, 0), log.size))
    last = log.at(reach - 1) or record
    extent = Within(record.offset, max(log.sound_after(last), last.end))
    alternatives = [Expectation(kinds=bad, file=log.name, extent=extent)]
    swallowed = [one for one in log.entries if record.offset <= one.offset < last.end]
    alternatives += [
        expected for one in swallowed for wanted in named(chart, log, one) for expected in wanted
    ]
    if not chart.is_ours:
        alternatives.append(Expectation(kinds=kinds("LGR-005"), ledgers=frozenset({record.ledger_id})))
    return (tuple(alternatives),)


def _sound_from(log: LogChart, record: ChartRecord) -> int:
    # After the durable end nothing counts as sound.
    return log.size if record.end >= log.limit else max(record.end, log.sound_after(record))


def _ends_unsealed(chart: Chart, log: LogChart, record: ChartRecord) -> bool:
    """Return whether it is at the end of a bookie's unsealed log, where a write may have been torn."""
    nothing_after = log.sound_after(record) == log.size
    return not chart.is_ours and not log.is_sealed and nothing_after


def _expected_for_id(chart: Chart, chosen: ChosenBits, at: int, ledger_id: int) -> tuple[Alternatives, ...]:
    log, record = chosen.log, chosen.record
    either = frozenset({record.ledger_id, ledger_id})
    extent = DamagedExtent(record.offset, at, max(record.end, log.sound_after(record)))
    alternatives = [
        Expectation(kinds=kinds("ELG-003"), file=log.name, extent=extent, ledgers=either),
        Expectation(kinds=kinds("ELG-004"), file=log.name, extent=extent),
    ]
    if chart.is_forgotten(log, record):
        return ()
    if record.digest is None or ledger_id in chart.unproven or not chart.is_ours:
        # Nothing can prove the record with its new ids: only others can show that it should be another.
        alternatives += [expected for wanted in named(chart, log, record) for expected in wanted]
        if not chart.is_ours or not chart.counts(log, record):
            alternatives.append(Expectation(kinds=kinds("LGR-005"), ledgers=either))
    return (tuple(alternatives), *named(chart, log, record))


def named(chart: Chart, log: LogChart, record: ChartRecord) -> tuple[Alternatives, ...]:
    """Expect the entry to be named that cannot be read any more. Only a ledgerstore index knows its place."""
    if not chart.is_ours or not record.is_entry or not chart.counts(log, record):
        return ()
    expected = Expectation(kinds=_NAMED, ledgers=frozenset({record.ledger_id}), entry_id=record.entry_id)
    return ((expected,),)


def plant_in_filler(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit in a filler record, but not in its kind: any kind but a map's is a filler to
    every reader.
    """
    log, record = site.choose(_fillers(site))
    kind_start, kind_end = record.offset + 12, record.offset + 20
    places = [at for at in range(record.offset, record.end) if not kind_start <= at < kind_end]
    at = site.choose(places)
    path = site.log_path(log)
    site.flip_bit(path, at, site.dice.randrange(8))
    extent = Within(record.offset, max(record.end, log.sound_after(record)))
    expected = Expectation(kinds=kinds("ELG-004", "ELG-005"), file=log.name, extent=extent)
    return Planted(
        fault=fault,
        file=log.name,
        offset=record.offset,
        end=record.end,
        wanted=((expected,),),
        collateral=CONSEQUENCES | kinds("ELG-007"),  # unproven records after it are not found
        words=f"byte {at}",
    )


def plant_in_kind(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit in the kind of a filler record. Every scan skips it nevertheless, and one bit does not make
    it a map.
    """
    log, record = site.choose(_fillers(site))
    at = site.flip(site.log_path(log), record.offset + 12, record.offset + 20)
    return Planted(fault=fault, file=log.name, offset=record.offset, end=record.end, words=f"byte {at}")


def _fillers(site: FaultSite) -> list[tuple[LogChart, ChartRecord]]:
    return [
        (log, record)
        for log in site.chart.logs
        for record in log.counted
        if not record.is_entry and not record.is_map and not log.is_leftover
    ]

"""Bits of one record of an entry log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import Extent, Planted, Told, Within, kinds
from storage.entry import DigestType

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart, LogChart, Record
    from recovery.audit.faults.planted import Wanted
    from recovery.audit.faults.site import Site

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
BESIDE = kinds("ELG-002", "LGR-004", "JRN-006")
"""What damage in a log may bring with it: the map counts bytes, ids are compared with those before, and a
journal may have had what is not in the log any more."""


class Chosen(NamedTuple):
    """A record, and the bits of it that are to be changed."""

    log: LogChart
    record: Record
    start: int
    end: int


def plant(site: Site, fault: Fault) -> Planted:
    """Flips a bit in that field of some entry."""
    chosen = _choose(site, fault)
    log, record = chosen.log, chosen.record
    path = site.log_path(log)
    at = site.flip(path, chosen.start, chosen.end)
    data = site.copy.inside(path).read_bytes()
    size, ledger_id, entry_id = (
        int.from_bytes(data[start:end], "big", signed=True)
        for start, end in ((record.offset, record.offset + 4), *_id_places(record))
    )
    wanted = _wanted(site.chart, chosen, fault, at, (size, ledger_id))
    return Planted(
        fault=fault,
        file=log.name,
        offset=record.offset,
        end=record.end,
        ledger_id=record.ledger_id,
        entry_id=record.entry_id,
        wanted=wanted,
        beside=_beside_place(site.chart, chosen, fault),
        collateral=BESIDE | _beside_ids(fault),
        words=f"byte {at}: size {size}, ledger {ledger_id}, entry {entry_id}; proven by {record.digest}",
    )


def _beside_place(chart: Chart, chosen: Chosen, fault: Fault) -> Wanted:
    """A dead record is information; but as another one it is not dead. And behind a wrong size several
    things may be wrong until something proves itself."""
    log, record = chosen.log, chosen.record
    if fault is not Fault.LOG_SIZE and not chart.is_dead(log, record):
        return ()
    extent = Within(record.offset, _sound_from(log, record))
    return (Told(kinds=_BAD, file=log.name, extent=extent),)


def _beside_ids(fault: Fault) -> frozenset[str]:
    # As which entry it is read, and which ones its size takes along, is no more than what stands there.
    if fault in (Fault.LOG_LEDGER, Fault.LOG_ENTRY):
        return kinds("IDX-003", "IDX-006")
    return kinds("ELG-003", "ELG-007")


def _id_places(record: Record) -> tuple[tuple[int, int], tuple[int, int]]:
    return (record.offset + 4, record.offset + 12), (record.offset + 12, record.offset + 20)


def _choose(site: Site, fault: Fault) -> Chosen:
    logs = [log for log in site.chart.logs if log.entries and not log.is_leftover]
    log = site.choose(logs)
    if fault in _FIELDS:
        record = _some_entry(site, log.entries)
        start, end = _FIELDS[fault]
        return Chosen(log, record, record.offset + start, record.offset + end)
    if fault is Fault.LOG_DIGEST:
        record = _some_entry(site, [one for one in log.entries if one.digest is not None])
        assert record.digest is not None, "chosen so"
        return Chosen(log, record, record.offset + _HEAD_END, record.offset + _HEAD_END + record.digest.width)
    records = [one for one in log.entries if one.end > one.offset + _HEAD_END + DigestType.MAC.width]
    record = _some_entry(site, records)
    width = DigestType.MAC.width if record.digest is None else record.digest.width
    return Chosen(log, record, record.offset + _HEAD_END + width, record.end)


def _some_entry(site: Site, entries: list[Record]) -> Record:
    """Most are small, and large ones lie across the pieces in which a log is read: either as often."""
    if not entries or site.dice.random() < _BY_NUMBER:
        return site.choose(entries)
    return site.dice.choices(entries, [one.end - one.offset for one in entries])[0]


def _wanted(chart: Chart, chosen: Chosen, fault: Fault, at: int, now: tuple[int, int]) -> tuple[Wanted, ...]:
    if fault is Fault.LOG_SIZE:
        return _wanted_of_a_size(chart, chosen, at, now[0])
    if fault in (Fault.LOG_LEDGER, Fault.LOG_ENTRY):
        return _wanted_of_an_id(chart, chosen, at, now[1])
    log, record = chosen.log, chosen.record
    ledgers = frozenset({record.ledger_id})
    if chart.is_forgotten(log, record):
        return ()
    if record.digest is None:
        return ((Told(kinds=kinds("LGR-005"), ledgers=ledgers),),)
    extent = Extent(record.offset, at, record.end)
    told = Told(
        kinds=kinds("ELG-003"), file=log.name, extent=extent, ledgers=ledgers, entry_id=record.entry_id
    )
    return ((told,),)


def _wanted_of_a_size(chart: Chart, chosen: Chosen, at: int, size: int) -> tuple[Wanted, ...]:
    """The chain breaks at the record; of one that nothing proves, wherever its new size leads to."""
    log, record = chosen.log, chosen.record
    bad = _BAD | (_UNSEALED_END if _ends_unsealed(chart, log, record) else frozenset())
    if record.digest is not None:
        at_record = Told(kinds=bad, file=log.name, extent=Extent(record.offset, at, _sound_from(log, record)))
        return ((at_record,), *named(chart, log, record))
    reach = max(record.end, min(record.offset + 4 + max(size, 0), log.size))
    last = log.at(reach - 1) or record
    extent = Within(record.offset, max(log.sound_behind(last), last.end))
    alternatives = [Told(kinds=bad, file=log.name, extent=extent)]
    swallowed = [one for one in log.entries if record.offset <= one.offset < last.end]
    alternatives += [told for one in swallowed for wanted in named(chart, log, one) for told in wanted]
    if not chart.is_ours:
        alternatives.append(Told(kinds=kinds("LGR-005"), ledgers=frozenset({record.ledger_id})))
    return (tuple(alternatives),)


def _sound_from(log: LogChart, record: Record) -> int:
    # Behind where it counts nothing is sound or not.
    return log.size if record.end >= log.limit else max(record.end, log.sound_behind(record))


def _ends_unsealed(chart: Chart, log: LogChart, record: Record) -> bool:
    """Whether it is the end of a bookie's log that was in use, where a write may have been cut short."""
    nothing_behind = log.sound_behind(record) == log.size
    return not chart.is_ours and not log.is_sealed and nothing_behind


def _wanted_of_an_id(chart: Chart, chosen: Chosen, at: int, ledger_id: int) -> tuple[Wanted, ...]:
    log, record = chosen.log, chosen.record
    either = frozenset({record.ledger_id, ledger_id})
    extent = Extent(record.offset, at, max(record.end, log.sound_behind(record)))
    alternatives = [
        Told(kinds=kinds("ELG-003"), file=log.name, extent=extent, ledgers=either),
        Told(kinds=kinds("ELG-004"), file=log.name, extent=extent),
    ]
    if chart.is_forgotten(log, record):
        return ()
    if record.digest is None or ledger_id in chart.unproven or not chart.is_ours:
        # As what it is read now, nothing can prove it: only others can say that it should be another.
        alternatives += [told for wanted in named(chart, log, record) for told in wanted]
        if not chart.is_ours or not chart.counts(log, record):
            alternatives.append(Told(kinds=kinds("LGR-005"), ledgers=either))
    return (tuple(alternatives), *named(chart, log, record))


def named(chart: Chart, log: LogChart, record: Record) -> tuple[Wanted, ...]:
    """That the entry is named which can be read no more. Only our index knows what should stand where."""
    if not chart.is_ours or not record.is_entry or not chart.counts(log, record):
        return ()
    told = Told(kinds=_NAMED, ledgers=frozenset({record.ledger_id}), entry_id=record.entry_id)
    return ((told,),)


def plant_in_filler(site: Site, fault: Fault) -> Planted:
    """Flips a bit in a filler record, but for its kind: any kind but a map's is a filler to every reader."""
    log, record = site.choose(_fillers(site))
    kind_start, kind_end = record.offset + 12, record.offset + 20
    places = [at for at in range(record.offset, record.end) if not kind_start <= at < kind_end]
    at = site.choose(places)
    path = site.log_path(log)
    site.flip_bit(path, at, site.dice.randrange(8))
    extent = Within(record.offset, max(record.end, log.sound_behind(record)))
    told = Told(kinds=kinds("ELG-004", "ELG-005"), file=log.name, extent=extent)
    return Planted(
        fault=fault,
        file=log.name,
        offset=record.offset,
        end=record.end,
        wanted=((told,),),
        collateral=BESIDE | kinds("ELG-007"),  # what nothing proves behind it is lost from sight
        words=f"byte {at}",
    )


def plant_in_kind(site: Site, fault: Fault) -> Planted:
    """Flips a bit in the kind of a filler record: every scan passes over it all the same, ours and a
    bookie's. Of no kind is one bit enough to make a map of it."""
    log, record = site.choose(_fillers(site))
    at = site.flip(site.log_path(log), record.offset + 12, record.offset + 20)
    return Planted(fault=fault, file=log.name, offset=record.offset, end=record.end, words=f"byte {at}")


def _fillers(site: Site) -> list[tuple[LogChart, Record]]:
    return [
        (log, record)
        for log in site.chart.logs
        for record in log.counted
        if not record.is_entry and not record.is_map and not log.is_leftover
    ]

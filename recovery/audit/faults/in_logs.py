"""Whole entry logs: cut, missing, copied; their headers and ledgers maps."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from recovery.audit.faults.in_records import BESIDE, named
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import Extent, Planted, Told, kinds
from recovery.audit.faults.site import NoPlace
from storage import filenames
from storage.codec import entrylog as codec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.faults.chart import Chart, LogChart, Record
    from recovery.audit.faults.planted import Wanted
    from recovery.audit.faults.site import Site

_ORIGIN_END = 72
_MAP_FIELDS_END = 20


def cut(site: Site, fault: Fault) -> Planted:
    """The file ends inside a record: the last one, or any."""
    log = site.choose([log for log in site.chart.logs if log.entries and not log.is_leftover])
    record = log.counted[-1] if fault is Fault.LOG_TORN else site.choose(log.counted)
    # At a record's first byte a log of a bookie's would only be shorter, and nothing says how long it was.
    at = site.dice.randrange(record.offset + 1, record.end)
    site.copy.cut(site.log_path(log), at)
    lost = [one for one in log.counted if one.end > at]
    told = Told(kinds=_short(site.chart, log, record), file=log.name, extent=_cut_extent(log, record, at))
    return Planted(
        fault=fault,
        file=log.name,
        offset=at,
        end=log.size,
        wanted=((told,), *_named_all(site.chart, log, lost)),
        collateral=BESIDE,
        words=f"{len(lost)} records lost",
    )


def shorter(site: Site, fault: Fault) -> Planted:
    """The file ends where a record ended: all that is left is sound.

    How far one of ours went its index knows. Of a bookie's only the header tells, if the log was sealed, that
    a map stood behind; else it may have gone no further, and what its entries were nothing says.
    """
    log = site.choose([log for log in site.chart.logs if log.entries and not log.is_leftover])
    record = site.choose(log.counted)
    site.copy.cut(site.log_path(log), record.offset)
    lost = [one for one in log.counted if one.offset >= record.offset]
    found = kinds("ELG-005") if log.is_ours else kinds("ELG-002", "ELG-005")
    told = Told(kinds=found, file=log.name)
    is_known = log.limit > record.offset if log.is_ours else log.is_sealed
    return Planted(
        fault=fault,
        file=log.name,
        offset=record.offset,
        end=log.size,
        wanted=((told,), *_named_all(site.chart, log, lost)) if is_known else (),
        collateral=BESIDE,
        words=f"{len(lost)} records lost",
    )


def _cut_extent(log: LogChart, record: Record, at: int) -> Extent:
    return Extent(record.offset, at, log.size)


def _short(chart: Chart, log: LogChart, record: Record) -> frozenset[str]:
    found = kinds("ELG-004", "ELG-005")
    if record.is_map:
        found |= kinds("ELG-002")
    if not chart.is_ours and not log.is_sealed:
        found |= kinds("ELG-006")
    return found


def _named_all(chart: Chart, log: LogChart, lost: Iterable[Record]) -> tuple[Wanted, ...]:
    return tuple(wanted for record in lost for wanted in named(chart, log, record))


def missing(site: Site, fault: Fault) -> Planted:
    """The file is gone."""
    log = site.choose([log for log in site.chart.logs if log.entries and not log.is_leftover])
    if site.chart.is_ours:
        told: Wanted = (Told(kinds=kinds("ELG-005"), file=log.name),)
    else:
        told = tuple(
            Told(kinds=kinds("LGR-001", "JRN-006", "ELG-005"), ledgers=frozenset({ledger_id}))
            for ledger_id in _with_gaps(site.chart, log)
        )
    if not told:
        raise NoPlace  # a bookie's log that is gone may have been collected, as far as anything tells
    site.copy.remove(site.log_path(log))
    return Planted(
        fault=fault,
        file=log.name,
        wanted=(told, *_named_all(site.chart, log, log.entries)),
        collateral=kinds("JRN-006", "ELG-005"),
        words=f"{len(log.entries)} entries",
    )


def _with_gaps(chart: Chart, log: LogChart) -> list[int]:
    """The ledgers that have entries in other logs in front of those that only this one has, and behind."""
    others = [one for one in chart.logs if one.log_id != log.log_id]
    held: dict[int, set[int]] = {}
    for record in (record for one in others for record in one.entries):
        held.setdefault(record.ledger_id, set()).add(record.entry_id)
    return sorted(
        {
            record.ledger_id
            for record in log.entries
            if (left := held.get(record.ledger_id))
            and record.entry_id not in left
            and min(left) < record.entry_id < max(left)
        }
    )


def copied(site: Site, fault: Fault) -> Planted:
    """A second file with a log's content, behind all others or between them."""
    log = site.choose([log for log in site.chart.logs if log.entries])
    taken = {one.log_id for one in site.chart.logs}
    newest = max(taken)
    log_id = site.choose([one for one in range(newest + 3) if one not in taken])
    name = filenames.entry_log(log_id)
    target = site.copy.inside(site.chart.ledgers / name)
    shutil.copyfile(site.log_path(log), target)
    told = (
        Told(kinds=kinds("DIR-001", "DIR-002", "ELG-001", "ELG-005"), file=name),
        # As a bookie's compaction may leave it: whichever of the two counts, the other is dead.
        Told(kinds=kinds("LGR-007", "LGR-008", "IDX-006"), file=name),
        Told(kinds=kinds("LGR-007", "LGR-008", "IDX-006"), file=log.name),
    )
    return Planted(
        fault=fault,
        file=name,
        wanted=(told,),
        collateral=kinds("ELG-001", "ELG-005", "IDX-006"),
        words=f"a copy of {log.name}",
    )


def header(site: Site, fault: Fault) -> Planted:
    """A bit of the magic, the version or what is ours in the header."""
    log = site.choose([log for log in site.chart.logs if log.records and not log.is_leftover])
    end = _ORIGIN_END if log.is_ours else codec.MAP_FIELDS_OFFSET
    path = site.log_path(log)
    at = site.choose([one for one in range(end) if not codec.MAP_FIELDS_OFFSET <= one < _MAP_FIELDS_END])
    bit = site.dice.randrange(8)
    before = path.read_bytes()[:end]
    if not log.is_ours and at == codec.MAP_FIELDS_OFFSET - 1 and before[at] ^ 1 << bit == 0:
        raise NoPlace  # version 0 is one that bookies wrote
    site.flip_bit(path, at, bit)
    told = Told(kinds=kinds("ELG-001", "DIR-003"), file=log.name, extent=Extent(0, at, codec.HEADER_SIZE))
    return Planted(fault=fault, file=log.name, offset=0, end=end, wanted=((told,),), words=f"byte {at}")


def header_free(site: Site, fault: Fault) -> Planted:
    """A bit behind what the header says: every reader passes over it, and no checksum has it."""
    log = site.choose([log for log in site.chart.logs if log.records and not log.is_leftover])
    start = _ORIGIN_END if log.is_ours else _MAP_FIELDS_END
    at = site.flip(site.log_path(log), start, codec.HEADER_SIZE)
    return Planted(fault=fault, file=log.name, offset=start, end=codec.HEADER_SIZE, words=f"byte {at}")


def map_fields(site: Site, fault: Fault) -> Planted:
    """A bit of where the map stands and how many ledgers are in it."""
    log = site.choose([log for log in site.chart.logs if log.records and not log.is_leftover])
    at = site.flip(site.log_path(log), codec.MAP_FIELDS_OFFSET, _MAP_FIELDS_END)
    told = Told(kinds=kinds("ELG-001", "ELG-002", "ELG-005"), file=log.name)
    return Planted(
        fault=fault, file=log.name, offset=8, end=_MAP_FIELDS_END, wanted=((told,),), words=f"byte {at}"
    )


def ledgers_map(site: Site, fault: Fault) -> Planted:
    """A bit of the map itself."""
    maps = [
        (log, record)
        for log in site.chart.logs
        for record in log.records
        if record.is_map and not log.is_leftover
    ]
    log, record = site.choose(maps)
    at = site.flip(site.log_path(log), record.offset, record.end)
    told = (
        Told(kinds=kinds("ELG-002"), file=log.name),
        Told(kinds=kinds("ELG-004"), file=log.name, extent=Extent(record.offset, record.end - 1, log.size)),
    )
    return Planted(
        fault=fault,
        file=log.name,
        offset=record.offset,
        end=record.end,
        wanted=(told,),
        collateral=kinds("ELG-004", "ELG-005"),
        words=f"byte {at}",
    )

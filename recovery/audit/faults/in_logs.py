"""Damage whole entry logs: cut, missing, copied; their headers and ledgers maps."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from recovery.audit.faults.in_records import CONSEQUENCES, named
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import DamagedExtent, Expectation, Planted, kinds
from recovery.audit.faults.site import NoPlace
from storage.disk import filenames
from storage.entrylog import format as entrylog_format

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.faults.chart import Chart, ChartRecord, LogChart
    from recovery.audit.faults.planted import Alternatives
    from recovery.audit.faults.site import FaultSite

_ORIGIN_END = 72
_MAP_FIELDS_END = 20


def cut(site: FaultSite, fault: Fault) -> Planted:
    """Truncate the file inside a record: the last one, or any."""
    log = site.choose([log for log in site.chart.logs if log.entries and not log.is_leftover])
    record = log.counted[-1] if fault is Fault.LOG_TORN else site.choose(log.counted)
    # A bookie's log that is cut at a record's first byte is only shorter, and nothing says how long it was.
    at = site.dice.randrange(record.offset + 1, record.end)
    site.copy.cut(site.log_path(log), at)
    lost = [one for one in log.counted if one.end > at]
    expected = Expectation(
        kinds=_short(site.chart, log, record), file=log.name, extent=_cut_extent(log, record, at)
    )
    return Planted(
        fault=fault,
        file=log.name,
        offset=at,
        end=log.size,
        wanted=((expected,), *_named_all(site.chart, log, lost)),
        collateral=CONSEQUENCES,
        words=f"{len(lost)} records lost",
    )


def shorter(site: FaultSite, fault: Fault) -> Planted:
    """Truncate the file where a record ended, so that everything left is sound.

    The index knows the length of a ledgerstore log. For a bookie's log only the header of a sealed log says
    that a map followed; otherwise nothing shows that entries are missing.
    """
    log = site.choose([log for log in site.chart.logs if log.entries and not log.is_leftover])
    record = site.choose(log.counted)
    site.copy.cut(site.log_path(log), record.offset)
    lost = [one for one in log.counted if one.offset >= record.offset]
    found = kinds("ELG-005") if log.is_ours else kinds("ELG-002", "ELG-005")
    expected = Expectation(kinds=found, file=log.name)
    is_known = log.limit > record.offset if log.is_ours else log.is_sealed
    return Planted(
        fault=fault,
        file=log.name,
        offset=record.offset,
        end=log.size,
        wanted=((expected,), *_named_all(site.chart, log, lost)) if is_known else (),
        collateral=CONSEQUENCES,
        words=f"{len(lost)} records lost",
    )


def _cut_extent(log: LogChart, record: ChartRecord, at: int) -> DamagedExtent:
    return DamagedExtent(record.offset, at, log.size)


def _short(chart: Chart, log: LogChart, record: ChartRecord) -> frozenset[str]:
    found = kinds("ELG-004", "ELG-005")
    if record.is_map:
        found |= kinds("ELG-002")
    if not chart.is_ours and not log.is_sealed:
        found |= kinds("ELG-006")
    return found


def _named_all(chart: Chart, log: LogChart, lost: Iterable[ChartRecord]) -> tuple[Alternatives, ...]:
    return tuple(wanted for record in lost for wanted in named(chart, log, record))


def missing(site: FaultSite, fault: Fault) -> Planted:
    """Remove the file."""
    log = site.choose([log for log in site.chart.logs if log.entries and not log.is_leftover])
    if site.chart.is_ours:
        expected: Alternatives = (Expectation(kinds=kinds("ELG-005"), file=log.name),)
    else:
        expected = tuple(
            Expectation(kinds=kinds("LGR-001", "JRN-006", "ELG-005"), ledgers=frozenset({ledger_id}))
            for ledger_id in _with_gaps(site.chart, log)
        )
    if not expected:
        raise NoPlace  # as far as anything shows, a bookie's missing log may have been collected
    site.copy.remove(site.log_path(log))
    return Planted(
        fault=fault,
        file=log.name,
        wanted=(expected, *_named_all(site.chart, log, log.entries)),
        collateral=kinds("JRN-006", "ELG-005"),
        words=f"{len(log.entries)} entries",
    )


def _with_gaps(chart: Chart, log: LogChart) -> list[int]:
    """Return the ledgers that have entries in other logs both before and after those that only
    this log has.
    """
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


def copied(site: FaultSite, fault: Fault) -> Planted:
    """Copy a log to a second file, after all others or between them."""
    log = site.choose([log for log in site.chart.logs if log.entries])
    taken = {one.log_id for one in site.chart.logs}
    newest = max(taken)
    log_id = site.choose([one for one in range(newest + 3) if one not in taken])
    name = filenames.entry_log(log_id)
    target = site.copy.inside(site.chart.ledgers / name)
    shutil.copyfile(site.log_path(log), target)
    expected = (
        Expectation(kinds=kinds("DIR-001", "DIR-002", "ELG-001", "ELG-005"), file=name),
        # A bookie's compaction may leave the same: one of the two counts, and the other is dead.
        Expectation(kinds=kinds("LGR-007", "LGR-008", "IDX-006"), file=name),
        Expectation(kinds=kinds("LGR-007", "LGR-008", "IDX-006"), file=log.name),
    )
    return Planted(
        fault=fault,
        file=name,
        wanted=(expected,),
        collateral=kinds("ELG-001", "ELG-005", "IDX-006"),
        words=f"a copy of {log.name}",
    )


def header(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit of the magic, the version or the ledgerstore fields of the header."""
    log = site.choose([log for log in site.chart.logs if log.records and not log.is_leftover])
    end = _ORIGIN_END if log.is_ours else entrylog_format.MAP_FIELDS_OFFSET
    path = site.log_path(log)
    at = site.choose(
        [one for one in range(end) if not entrylog_format.MAP_FIELDS_OFFSET <= one < _MAP_FIELDS_END]
    )
    bit = site.dice.randrange(8)
    before = path.read_bytes()[:end]
    if not log.is_ours and at == entrylog_format.MAP_FIELDS_OFFSET - 1 and before[at] ^ 1 << bit == 0:
        raise NoPlace  # version 0 is one that bookies wrote
    site.flip_bit(path, at, bit)
    expected = Expectation(
        kinds=kinds("ELG-001", "DIR-003"),
        file=log.name,
        extent=DamagedExtent(0, at, entrylog_format.HEADER_SIZE),
    )
    return Planted(fault=fault, file=log.name, offset=0, end=end, wanted=((expected,),), words=f"byte {at}")


def header_free(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit after the fields of the header: every reader skips it, and no checksum covers it."""
    log = site.choose([log for log in site.chart.logs if log.records and not log.is_leftover])
    start = _ORIGIN_END if log.is_ours else _MAP_FIELDS_END
    at = site.flip(site.log_path(log), start, entrylog_format.HEADER_SIZE)
    return Planted(
        fault=fault, file=log.name, offset=start, end=entrylog_format.HEADER_SIZE, words=f"byte {at}"
    )


def map_fields(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit in the offset of the map or the number of ledgers."""
    log = site.choose([log for log in site.chart.logs if log.records and not log.is_leftover])
    at = site.flip(site.log_path(log), entrylog_format.MAP_FIELDS_OFFSET, _MAP_FIELDS_END)
    expected = Expectation(kinds=kinds("ELG-001", "ELG-002", "ELG-005"), file=log.name)
    return Planted(
        fault=fault,
        file=log.name,
        offset=8,
        end=_MAP_FIELDS_END,
        wanted=((expected,),),
        words=f"byte {at}",
    )


def ledgers_map(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit of the map itself."""
    maps = [
        (log, record)
        for log in site.chart.logs
        for record in log.records
        if record.is_map and not log.is_leftover
    ]
    log, record = site.choose(maps)
    at = site.flip(site.log_path(log), record.offset, record.end)
    expected = (
        Expectation(kinds=kinds("ELG-002"), file=log.name),
        Expectation(
            kinds=kinds("ELG-004"),
            file=log.name,
            extent=DamagedExtent(record.offset, record.end - 1, log.size),
        ),
    )
    return Planted(
        fault=fault,
        file=log.name,
        offset=record.offset,
        end=record.end,
        wanted=(expected,),
        collateral=kinds("ELG-004", "ELG-005"),
        words=f"byte {at}",
    )

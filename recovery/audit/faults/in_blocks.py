"""Damage blocks of an entry log: zeros, or bytes from another place, in place of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.faults.in_records import CONSEQUENCES, named
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import DamagedExtent, Expectation, Planted, Within, kinds
from recovery.audit.faults.site import NoPlace
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart, ChartRecord, LogChart
    from recovery.audit.faults.planted import Alternatives
    from recovery.audit.faults.site import FaultSite

BLOCK_SIZE = 4096
_TRIES = 30
_IDS_AT = 4
_BAD = kinds("ELG-003", "ELG-004", "ELG-005")
_HEADER = kinds("ELG-001")


@dataclass(frozen=True, slots=True)
class ChangedBlock:
    """The records that a block has changed, each with its first changed byte."""

    log: LogChart
    start: int
    data: bytes
    hit: tuple[tuple[ChartRecord, int], ...]
    header: bool

    @property
    def end(self) -> int:
        return self.start + len(self.data)


def plant(site: FaultSite, fault: Fault) -> Planted:
    """Replace one block by other bytes."""
    for _ in range(_TRIES):
        changed = _choose(site, fault)
        if changed.hit or changed.header:
            break
    else:
        raise NoPlace
    site.copy.patch(site.log_path(changed.log), changed.start, changed.data)
    return Planted(
        fault=fault,
        file=changed.log.name,
        offset=changed.start,
        end=changed.end,
        wanted=_expected(site.chart, changed, fault),
        allowed=_allowed_at_place(site.chart, changed),
        collateral=CONSEQUENCES | _further_findings(fault, site.chart) | _unproven_after_damage(site.chart),
        words=f"{len(changed.hit)} records",
    )


def _further_findings(fault: Fault, chart: Chart) -> frozenset[str]:
    if fault in (Fault.LOG_MISDIRECTED, Fault.LOG_STALE):
        # The block holds sound copies of entries, and nothing shows that they are not newer ones. A record
        # without a verifiable digest may include what follows the block.
        swallowed = kinds("IDX-002") if _unproven_after_damage(chart) else kinds()
        return kinds("IDX-003", "IDX-006") | swallowed
    return kinds("ELG-001") if fault is Fault.LOG_FIRST_ZEROED else frozenset()


def _unproven_after_damage(chart: Chart) -> frozenset[str]:
    """Return the finding for entries after damage that no digest proves: a reader does not find them."""
    is_proven = all(record.digest is not None for log in chart.logs for record in log.entries)
    return kinds() if is_proven else kinds("ELG-007")


def _choose(site: FaultSite, fault: Fault) -> ChangedBlock:
    log = site.choose([log for log in site.chart.logs if log.counted and not log.is_leftover])
    path = site.log_path(log)
    before = path.read_bytes()
    first = 0 if fault is Fault.LOG_FIRST_ZEROED else HEADER_SIZE
    blocks = range(0 if first == 0 else BLOCK_SIZE, log.limit, BLOCK_SIZE)
    if not blocks:
        raise NoPlace
    start = 0 if first == 0 else site.dice.choice(blocks)
    old = before[start : min(start + BLOCK_SIZE, log.limit)]
    new = _other_block(site, fault, log, start)[: len(old)]
    return _changed(log, start, old, new.ljust(len(old), b"\0"))


def _other_block(site: FaultSite, fault: Fault, log: LogChart, start: int) -> bytes:
    if fault in (Fault.LOG_ZEROED, Fault.LOG_FIRST_ZEROED):
        return bytes(BLOCK_SIZE)
    if fault is Fault.LOG_MISDIRECTED:
        other = site.choose([one for one in site.chart.logs if one.size > 2 * BLOCK_SIZE])
        at = site.dice.randrange(1, other.size // BLOCK_SIZE) * BLOCK_SIZE
        return _block(site, other, at)
    # Left by a file that used the disk block before: the same offset of another file.
    others = [one for one in site.chart.logs if one.size > start and one.log_id != log.log_id]
    return _block(site, site.choose(others), start)


def _block(site: FaultSite, log: LogChart, at: int) -> bytes:
    with site.log_path(log).open("rb") as file:
        file.seek(at)
        return file.read(BLOCK_SIZE)


def _changed(log: LogChart, start: int, old: bytes, new: bytes) -> ChangedBlock:
    hit = []
    for record in log.touching(start, start + len(old)):
        first, end = max(record.offset, start), min(record.end, start + len(old))
        pairs = zip(old[first - start : end - start], new[first - start : end - start], strict=True)
        at = next((first + number for number, (was, now) in enumerate(pairs) if was != now), None)
        if at is not None:
            hit.append((record, at))
    header = start == 0 and old[:HEADER_SIZE] != new[:HEADER_SIZE]
    return ChangedBlock(log, start, new, tuple(hit), header)


def _expected(chart: Chart, changed: ChangedBlock, fault: Fault) -> tuple[Alternatives, ...]:
    is_foreign = fault in (Fault.LOG_MISDIRECTED, Fault.LOG_STALE)
    hit = [one for one in changed.hit if not is_foreign or _is_missed(chart, changed, one[0])]
    wanted = [_expected_for(chart, changed, record, at) for record, at in hit]
    if not chart.is_ours and is_foreign:
        # Sound records are in the place, and nothing shows that others should be there.
        merged = tuple(expected for one in wanted for expected in one)
        wanted = [merged] if merged else []
    if changed.header and chart.is_ours:
        wanted.append((Expectation(kinds=_HEADER, file=changed.log.name),))
    return tuple(wanted)


def _is_missed(chart: Chart, changed: ChangedBlock, record: ChartRecord) -> bool:
    """Return whether the record would be missed, if the new record here does not have the same ids."""
    if chart.is_ours:
        ids = record.ledger_id.to_bytes(8, signed=True) + record.entry_id.to_bytes(8, signed=True)
        at = record.offset - changed.start + _IDS_AT
        is_same = at >= _IDS_AT and changed.data[at : at + len(ids)] == ids
        return record.is_entry and chart.counts(changed.log, record) and not is_same
    return record.is_map or record.is_entry


def _end(changed: ChangedBlock) -> int:
    log, last = changed.log, changed.hit[-1][0]
    # After the durable end nothing counts as sound.
    return log.size if last.end >= log.limit else max(last.end, log.sound_after(last))


def _allowed_at_place(chart: Chart, changed: ChangedBlock) -> Alternatives:
    """There may be several holes between the foreign records. One of them that no digest proves may be taken
    as long as its size says, and extend beyond the block.
    """
    if not changed.hit:
        return ()
    is_led_astray = chart.unproven and changed.data.strip(b"\0")
    end = changed.log.size if is_led_astray else max(changed.end, _end(changed))
    extent = Within(changed.hit[0][0].offset, end)
    return (Expectation(kinds=_BAD, file=changed.log.name, extent=extent),)


def _expected_for(chart: Chart, changed: ChangedBlock, record: ChartRecord, at: int) -> Alternatives:
    """Expect a finding at the place, or one that names the entry that should be there."""
    log, first = changed.log, changed.hit[0][0]
    last = changed.hit[-1][0]
    bad = _BAD | (kinds("ELG-002") if record.is_map else frozenset())
    is_sealed = log.is_sealed and not changed.header  # its header says so
    if not chart.is_ours and not is_sealed and log.sound_after(last) == log.size:
        bad |= kinds("ELG-006")
    extent = DamagedExtent(first.offset, at, _end(changed), record.offset)
    expected = [Expectation(kinds=bad, file=log.name, extent=extent)]
    expected += [one for wanted in named(chart, log, record) for one in wanted]
    if record.is_map:
        expected.append(Expectation(kinds=kinds("ELG-002"), file=log.name))
    if record.is_entry and record.digest is None:
        expected.append(Expectation(kinds=kinds("LGR-005"), ledgers=frozenset({record.ledger_id})))
    return tuple(expected)

"""Blocks of an entry log: zeros where records stood, or what belongs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.faults.in_records import BESIDE, named
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import Extent, Planted, Told, Within, kinds
from recovery.audit.faults.site import NoPlace
from storage.codec.entrylog import HEADER_SIZE

if TYPE_CHECKING:
    from recovery.audit.faults.chart import Chart, LogChart, Record
    from recovery.audit.faults.planted import Wanted
    from recovery.audit.faults.site import Site

BLOCK_SIZE = 4096
_TRIES = 30
_IDS_AT = 4
_BAD = kinds("ELG-003", "ELG-004", "ELG-005")
_HEADER = kinds("ELG-001")


@dataclass(frozen=True, slots=True)
class Changed:
    """The records that a block has hit, each with its first changed byte."""

    log: LogChart
    start: int
    data: bytes
    hit: tuple[tuple[Record, int], ...]
    header: bool

    @property
    def end(self) -> int:
        return self.start + len(self.data)


def plant(site: Site, fault: Fault) -> Planted:
    """Puts other bytes in the place of one block."""
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
        wanted=_wanted(site.chart, changed, fault),
        beside=_beside_place(site.chart, changed),
        collateral=BESIDE | _beside(fault, site.chart) | _lost_from_sight(site.chart),
        words=f"{len(changed.hit)} records",
    )


def _beside(fault: Fault, chart: Chart) -> frozenset[str]:
    if fault in (Fault.LOG_MISDIRECTED, Fault.LOG_STALE):
        # Sound copies of entries that stand elsewhere; nothing tells that they are not newer ones. One that
        # nothing proves may have swallowed what stands behind the block.
        swallowed = kinds("IDX-002") if _lost_from_sight(chart) else kinds()
        return kinds("IDX-003", "IDX-006") | swallowed
    return kinds("ELG-001") if fault is Fault.LOG_FIRST_ZEROED else frozenset()


def _lost_from_sight(chart: Chart) -> frozenset[str]:
    """Behind damage nobody recognises what nothing proves."""
    is_proven = all(record.digest is not None for log in chart.logs for record in log.entries)
    return kinds() if is_proven else kinds("ELG-007")


def _choose(site: Site, fault: Fault) -> Changed:
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


def _other_block(site: Site, fault: Fault, log: LogChart, start: int) -> bytes:
    if fault in (Fault.LOG_ZEROED, Fault.LOG_FIRST_ZEROED):
        return bytes(BLOCK_SIZE)
    if fault is Fault.LOG_MISDIRECTED:
        other = site.choose([one for one in site.chart.logs if one.size > 2 * BLOCK_SIZE])
        at = site.dice.randrange(1, other.size // BLOCK_SIZE) * BLOCK_SIZE
        return _block(site, other, at)
    # What a file that was here before it has left: the same place in another one.
    others = [one for one in site.chart.logs if one.size > start and one.log_id != log.log_id]
    return _block(site, site.choose(others), start)


def _block(site: Site, log: LogChart, at: int) -> bytes:
    with site.log_path(log).open("rb") as file:
        file.seek(at)
        return file.read(BLOCK_SIZE)


def _changed(log: LogChart, start: int, old: bytes, new: bytes) -> Changed:
    hit = []
    for record in log.touching(start, start + len(old)):
        first, end = max(record.offset, start), min(record.end, start + len(old))
        pairs = zip(old[first - start : end - start], new[first - start : end - start], strict=True)
        at = next((first + number for number, (was, now) in enumerate(pairs) if was != now), None)
        if at is not None:
            hit.append((record, at))
    header = start == 0 and old[:HEADER_SIZE] != new[:HEADER_SIZE]
    return Changed(log, start, new, tuple(hit), header)


def _wanted(chart: Chart, changed: Changed, fault: Fault) -> tuple[Wanted, ...]:
    is_foreign = fault in (Fault.LOG_MISDIRECTED, Fault.LOG_STALE)
    hit = [one for one in changed.hit if not is_foreign or _is_missed(chart, changed, one[0])]
    wanted = [_told(chart, changed, record, at) for record, at in hit]
    if not chart.is_ours and is_foreign:
        # Where sound records stand now, nothing knows that it should be others.
        merged = tuple(told for one in wanted for told in one)
        wanted = [merged] if merged else []
    if changed.header and chart.is_ours:
        wanted.append((Told(kinds=_HEADER, file=changed.log.name),))
    return tuple(wanted)


def _is_missed(chart: Chart, changed: Changed, record: Record) -> bool:
    """Whether anybody could miss it, where another record stands now: not one with the same ids."""
    if chart.is_ours:
        ids = record.ledger_id.to_bytes(8, signed=True) + record.entry_id.to_bytes(8, signed=True)
        at = record.offset - changed.start + _IDS_AT
        is_same = at >= _IDS_AT and changed.data[at : at + len(ids)] == ids
        return record.is_entry and chart.counts(changed.log, record) and not is_same
    return record.is_map or record.is_entry


def _end(changed: Changed) -> int:
    log, last = changed.log, changed.hit[-1][0]
    # Behind where it counts nothing is sound or not.
    return log.size if last.end >= log.limit else max(last.end, log.sound_behind(last))


def _beside_place(chart: Chart, changed: Changed) -> Wanted:
    """Between sound records of elsewhere there may be several holes; one that nothing proves may be taken for
    as long as it says, and leads on beyond the block."""
    if not changed.hit:
        return ()
    is_led_astray = chart.unproven and changed.data.strip(b"\0")
    end = changed.log.size if is_led_astray else max(changed.end, _end(changed))
    extent = Within(changed.hit[0][0].offset, end)
    return (Told(kinds=_BAD, file=changed.log.name, extent=extent),)


def _told(chart: Chart, changed: Changed, record: Record, at: int) -> Wanted:
    """A finding over the place; or one that names the entry that should stand there."""
    log, first = changed.log, changed.hit[0][0]
    last = changed.hit[-1][0]
    bad = _BAD | (kinds("ELG-002") if record.is_map else frozenset())
    is_sealed = log.is_sealed and not changed.header  # its header says so
    if not chart.is_ours and not is_sealed and log.sound_behind(last) == log.size:
        bad |= kinds("ELG-006")
    extent = Extent(first.offset, at, _end(changed), record.offset)
    told = [Told(kinds=bad, file=log.name, extent=extent)]
    told += [one for wanted in named(chart, log, record) for one in wanted]
    if record.is_map:
        told.append(Told(kinds=kinds("ELG-002"), file=log.name))
    if record.is_entry and record.digest is None:
        told.append(Told(kinds=kinds("LGR-005"), ledgers=frozenset({record.ledger_id})))
    return tuple(told)

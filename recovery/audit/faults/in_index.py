"""Damage the index: wrong rows in valid pages, damaged pages, missing files."""

from __future__ import annotations

from array import array
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.audit.faults.chart import packed
from recovery.audit.faults.planted import Expectation, Planted, kinds
from recovery.audit.faults.site import NoPlace
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry.read_result import Damaged
from storage.index import state_format as state_codec
from storage.index.lmdb import checksum_format as sums_codec
from storage.index.lmdb import page_checksums
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.lmdb.environment import IndexBatch, LocationRun
from storage.index.lmdb.index import LmdbIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from recovery.audit.faults.chart import Chart, ChartRecord, LogChart
    from recovery.audit.faults.kinds import Fault
    from recovery.audit.faults.site import FaultSite

_DATA = "data.mdb"
_NO_ENTRY = 1 << 40
_CONSEQUENCES = kinds("JRN-006", "IDX-003", "IDX-006")


def _index(site: FaultSite) -> Path:
    path = site.chart.ledgers / filenames.INDEX
    if not site.chart.is_ours or not path.is_dir():
        raise NoPlace
    return path


def _set(site: FaultSite, rows: Mapping[int, Sequence[tuple[int, int]]], state: bytes | None = None) -> None:
    """Replace the rows of these ledgers, and the state if given, in one commit with valid page checksums."""
    site.copy.own(_index(site))
    ledgers = site.copy.inside(site.chart.ledgers)
    index = LmdbIndexDirectory(PosixDirectory(ledgers), ledgers).open()
    assert isinstance(index, LmdbIndex), f"the copy's index is damaged before anything was planted: {index}"
    with closing(index):
        batch = IndexBatch({ledger_id.to_bytes(8, "big") for ledger_id in rows})
        for ledger_id, pairs in sorted(rows.items()):
            ordered = sorted(pairs)
            ids, places = (array("q", (pair[one] for pair in ordered)) for one in (0, 1))
            batch.runs.append(LocationRun(ledger_id, ids, places))
        # Not by an index change, because that would refuse two places for one entry.
        index._commit(batch, state)  # noqa: SLF001


def _pairs(site: FaultSite, ledger_id: int) -> list[tuple[int, int]]:
    return sorted(site.chart.places.get(ledger_id, {}).items())


def _random_entry(site: FaultSite) -> tuple[int, int, LogChart, ChartRecord]:
    _index(site)
    ledger_id = site.choose(sorted(site.chart.places))
    entry_id = site.choose(sorted(site.chart.places[ledger_id]))
    found = site.chart.record_of(ledger_id, entry_id)
    assert found is not None, "the index of an undamaged store leads to records"
    return ledger_id, entry_id, *found


def _repoint(site: FaultSite, fault: Fault, place: int, *found: str) -> Planted:
    """Make the row of some entry point at that place."""
    ledger_id, entry_id, log, record = _random_entry(site)
    return _repointed(site, fault, (ledger_id, entry_id, log, record), place, *found)


def _repointed(
    site: FaultSite, fault: Fault, entry: tuple[int, int, LogChart, ChartRecord], place: int, *found: str
) -> Planted:
    ledger_id, entry_id, log, record = entry
    others = [pair for pair in _pairs(site, ledger_id) if pair[0] != entry_id]
    _set(site, {ledger_id: [*others, (entry_id, place)]})
    return _planted(site.chart, fault, ledger_id, entry_id, f"from {log.name}@{record.offset}", *found)


def _planted(chart: Chart, fault: Fault, ledger_id: int, entry_id: int, words: str, *found: str) -> Planted:
    expected = Expectation(kinds=kinds(*found), ledgers=frozenset({ledger_id}), entry_id=entry_id)
    assert chart.is_ours, "only our index is looked at"
    return Planted(
        fault=fault,
        file=filenames.INDEX,
        ledger_id=ledger_id,
        entry_id=entry_id,
        wanted=((expected,),),
        collateral=_CONSEQUENCES,
        words=words,
    )


def other_place(site: FaultSite, fault: Fault) -> Planted:
    """Point a row at the place of another entry."""
    entry = _random_entry(site)
    others = [
        packed(log, record)
        for log in site.chart.logs
        for record in log.entries
        if (record.ledger_id, record.entry_id) != entry[:2]
    ]
    return _repointed(site, fault, entry, site.choose(others), "IDX-002")


def inside(site: FaultSite, fault: Fault) -> Planted:
    """Point a row at a place where no record begins."""
    log = site.choose([log for log in site.chart.logs if log.entries])
    record = site.choose(log.entries)
    place = log.log_id << 32 | site.dice.randrange(record.offset + 5, record.end)
    return _repoint(site, fault, place, "IDX-002", "IDX-001")


def past_end(site: FaultSite, fault: Fault) -> Planted:
    """Point a row after the end of a log's file, or after its durable end."""
    log = site.choose([log for log in site.chart.logs if log.entries])
    limit = site.choose([log.limit, log.size, log.size + 4096])
    return _repoint(site, fault, log.log_id << 32 | (limit + 4), "IDX-001")


def no_log(site: FaultSite, fault: Fault) -> Planted:
    """Point a row into a log that does not exist."""
    taken = {log.log_id for log in site.chart.logs}
    free = site.choose([one for one in range(max(taken, default=0) + 4) if one not in taken])
    return _repoint(site, fault, free << 32 | 1028, "IDX-001")


def row_missing(site: FaultSite, fault: Fault) -> Planted:
    """Remove the row of an entry."""
    ledger_id, entry_id, log, record = _random_entry(site)
    _set(site, {ledger_id: [pair for pair in _pairs(site, ledger_id) if pair[0] != entry_id]})
    words = f"stands at {log.name}@{record.offset}"
    return _planted(site.chart, fault, ledger_id, entry_id, words, "IDX-003")


def ledger_missing(site: FaultSite, fault: Fault) -> Planted:
    """Remove all rows of a ledger."""
    ledger_id, entry_id, log, record = _random_entry(site)
    _set(site, {ledger_id: []})
    words = f"all rows of the ledger; this one stands at {log.name}@{record.offset}"
    return _planted(site.chart, fault, ledger_id, entry_id, words, "IDX-003")


def dangling(site: FaultSite, fault: Fault) -> Planted:
    """Add a row for an entry that was never written, in an existing ledger or a new one."""
    ledger_id, _, log, record = _random_entry(site)
    entry_id = site.choose([max(site.chart.places[ledger_id]) + 1, _NO_ENTRY])
    if site.dice.random() < 0.3:
        ledger_id = max({*site.chart.places, *site.chart.deleted}) + 1
    place = site.choose([packed(log, record), log.log_id << 32 | (log.size + 40)])
    _set(site, {ledger_id: [*_pairs(site, ledger_id), (entry_id, place)]})
    words = f"leads to {place >> 32:x}.log+{place & 0xFFFF_FFFF}"
    return _planted(site.chart, fault, ledger_id, entry_id, words, "IDX-001", "IDX-002")


def _kept_records(site: FaultSite) -> Iterator[tuple[LogChart, ChartRecord]]:
    """Yield the records whose places an index may have."""
    _index(site)
    for log in site.chart.logs:
        if not log.is_leftover:
            for record in log.entries:
                # The places of the others are void until the next opening removes them.
                if record.ledger_id not in site.chart.unindexed:
                    yield log, record


def deleted(site: FaultSite, fault: Fault) -> Planted:
    """Add a row for a record of a deleted ledger that is still in a log."""
    dead = [
        (log, record)
        for log, record in _kept_records(site)
        if record.entry_id not in site.chart.places.get(record.ledger_id, {})
        and not site.chart.is_truncated(record)
    ]
    return _placed_again(site, fault, dead, "IDX-001", "IDX-002", "LGR-003")


def truncated(site: FaultSite, fault: Fault) -> Planted:
    """Add a row for an entry before a truncation that is still in a log."""
    cut = [(log, record) for log, record in _kept_records(site) if site.chart.is_truncated(record)]
    # The log may have the entry from an earlier ledger of this id.
    deleted = ("IDX-002",) if cut and {record.ledger_id for _, record in cut} & site.chart.deleted else ()
    return _placed_again(site, fault, cut, "IDX-007", *deleted)


def _placed_again(
    site: FaultSite, fault: Fault, candidates: Sequence[tuple[LogChart, ChartRecord]], *found: str
) -> Planted:
    """Add a row for one of these records, to which none leads."""
    log, record = site.choose(candidates)
    pairs = [*_pairs(site, record.ledger_id), (record.entry_id, packed(log, record))]
    _set(site, {record.ledger_id: pairs})
    words = f"leads to {log.name}@{record.offset}"
    return _planted(site.chart, fault, record.ledger_id, record.entry_id, words, *found)


def twice(site: FaultSite, fault: Fault) -> Planted:
    """Add a second row for an entry."""
    ledger_id, entry_id, log, record = _random_entry(site)
    other = site.choose([packed(log, record) + 1, packed(log, record) + (1 << 32), 1028])
    _set(site, {ledger_id: [*_pairs(site, ledger_id), (entry_id, other)]})
    planted = _planted(site.chart, fault, ledger_id, entry_id, f"the other {other:x}", "IDX-005")
    # The finding depends on where the other row points.
    return replace(planted, collateral=_CONSEQUENCES | kinds("IDX-001", "IDX-002", "ELG-007"))


def older_copy(site: FaultSite, fault: Fault) -> Planted:
    """Point the row of an entry that was written twice at the first copy."""
    _index(site)
    copies = [
        (log, record)
        for log in site.chart.logs
        if not log.is_leftover
        for record in log.entries
        if (placed := site.chart.record_of(record.ledger_id, record.entry_id)) is not None
        and (placed[0].log_id, placed[1].offset) > (log.log_id, record.offset)
    ]
    log, record = site.choose(copies)
    found = site.chart.record_of(record.ledger_id, record.entry_id)
    assert found is not None, "chosen so"
    entry = (record.ledger_id, record.entry_id, *found)
    # The first copy may belong to a ledger that was deleted before a new ledger got its id.
    dead = ("IDX-002",) if record.ledger_id in site.chart.deleted else ()
    return _repointed(site, fault, entry, packed(log, record), "IDX-006", *dead)


def older(site: FaultSite, fault: Fault) -> Planted:
    """Replace the index by its state after an earlier checkpoint, with valid page checksums: an
    older copy.
    """
    trailer = site.chart.mark.trailer if site.chart.mark is not None else None
    generation = site.chart.state.generation
    if trailer is None or trailer.generation != generation or not generation:
        raise NoPlace
    _index(site)
    ledger_id = site.choose(sorted(site.chart.places))
    state = replace(site.chart.state, generation=site.dice.randrange(generation))
    _set(site, {ledger_id: _pairs(site, ledger_id)[:-1]}, state_codec.encode(state))
    planted = _planted_in_file(fault, f"of checkpoint {state.generation}, and the mark of {generation}")
    return replace(planted, collateral=_CONSEQUENCES)


def page(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit of a page that the newest transaction uses."""
    index = _index(site)
    with PosixDirectory(index).open(_DATA) as data:
        snapshot = page_checksums.snapshot_all_pages(data)
    assert not isinstance(snapshot, Damaged), "the index is sound"
    number = site.choose([one for one, is_live in enumerate(snapshot.is_live) if is_live])
    start = number * snapshot.page_size
    at = site.flip(index / _DATA, start, start + snapshot.page_size)
    return _planted_in_file(fault, f"{_DATA} byte {at}, page {number}")


def sums(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit of the first checksum record, which covers every page. The last record may be torn like a
    group.
    """
    index = _index(site)
    data = (index / page_checksums.SUMS).read_bytes()
    head = sums_codec.decode_head(data, 0, len(data))
    assert isinstance(head, sums_codec.RecordHead), "the index is sound"
    at = site.flip(index / page_checksums.SUMS, 0, sums_codec.HEAD_SIZE + head.body_size)
    return _planted_in_file(fault, f"{page_checksums.SUMS} byte {at}")


def file_missing(site: FaultSite, fault: Fault) -> Planted:
    """Remove a file of the index."""
    name = site.choose([_DATA, page_checksums.SUMS])
    site.copy.remove(_index(site) / name)
    return _planted_in_file(fault, name)


def missing(site: FaultSite, fault: Fault) -> Planted:
    """Remove the whole index."""
    site.copy.remove(_index(site))
    return _planted_in_file(fault, "the directory")


def _planted_in_file(fault: Fault, words: str) -> Planted:
    return Planted(
        fault=fault,
        file=filenames.INDEX,
        wanted=((Expectation(kinds=kinds("IDX-004")),),),
        words=words,
    )

"""The index: rows that are wrong in pages that are right, pages that are wrong, files that are gone."""

from __future__ import annotations

from array import array
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.audit.faults.chart import packed
from recovery.audit.faults.planted import Planted, Told, kinds
from recovery.audit.faults.site import NoPlace
from storage import filenames, page_sums
from storage.codec import index_state as state_codec
from storage.codec import page_sums as sums_codec
from storage.lmdb_environment import Batch, Run
from storage.lmdb_index import LmdbIndex
from storage.lmdb_place import LmdbPlace
from storage.outcome import Damaged
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from recovery.audit.faults.chart import Chart, LogChart, Record
    from recovery.audit.faults.kinds import Fault
    from recovery.audit.faults.site import Site

_DATA = "data.mdb"
_NO_ENTRY = 1 << 40
_BESIDE = kinds("JRN-006", "IDX-003", "IDX-006")


def _index(site: Site) -> Path:
    path = site.chart.ledgers / filenames.INDEX
    if not site.chart.is_ours or not path.is_dir():
        raise NoPlace
    return path


def _set(site: Site, rows: Mapping[int, Sequence[tuple[int, int]]], state: bytes | None = None) -> None:
    """These ledgers have these rows, in one commit whose page checksums are right; and perhaps a state."""
    site.copy.own(_index(site))
    ledgers = site.copy.inside(site.chart.ledgers)
    index = LmdbPlace(PosixDirectory(ledgers), ledgers).open()
    assert isinstance(index, LmdbIndex), f"the copy's index is damaged before anything was planted: {index}"
    with closing(index):
        batch = Batch({ledger_id.to_bytes(8, "big") for ledger_id in rows})
        for ledger_id, pairs in sorted(rows.items()):
            ordered = sorted(pairs)
            ids, places = (array("q", (pair[one] for pair in ordered)) for one in (0, 1))
            batch.runs.append(Run(ledger_id, ids, places))
        # Not by a change: that would refuse two places for one entry.
        index._commit(batch, state)  # noqa: SLF001


def _pairs(site: Site, ledger_id: int) -> list[tuple[int, int]]:
    return sorted(site.chart.places.get(ledger_id, {}).items())


def _some_entry(site: Site) -> tuple[int, int, LogChart, Record]:
    _index(site)
    ledger_id = site.choose(sorted(site.chart.places))
    entry_id = site.choose(sorted(site.chart.places[ledger_id]))
    found = site.chart.record_of(ledger_id, entry_id)
    assert found is not None, "the index of an undamaged store leads to records"
    return ledger_id, entry_id, *found


def _repoint(site: Site, fault: Fault, place: int, *found: str) -> Planted:
    """Some entry's row leads to that place."""
    ledger_id, entry_id, log, record = _some_entry(site)
    return _repointed(site, fault, (ledger_id, entry_id, log, record), place, *found)


def _repointed(
    site: Site, fault: Fault, entry: tuple[int, int, LogChart, Record], place: int, *found: str
) -> Planted:
    ledger_id, entry_id, log, record = entry
    others = [pair for pair in _pairs(site, ledger_id) if pair[0] != entry_id]
    _set(site, {ledger_id: [*others, (entry_id, place)]})
    return _planted(site.chart, fault, ledger_id, entry_id, f"from {log.name}@{record.offset}", *found)


def _planted(chart: Chart, fault: Fault, ledger_id: int, entry_id: int, words: str, *found: str) -> Planted:
    told = Told(kinds=kinds(*found), ledgers=frozenset({ledger_id}), entry_id=entry_id)
    assert chart.is_ours, "only our index is looked at"
    return Planted(
        fault=fault,
        file=filenames.INDEX,
        ledger_id=ledger_id,
        entry_id=entry_id,
        wanted=((told,),),
        collateral=_BESIDE,
        words=words,
    )


def other_place(site: Site, fault: Fault) -> Planted:
    """The place of another entry."""
    entry = _some_entry(site)
    others = [
        packed(log, record)
        for log in site.chart.logs
        for record in log.entries
        if (record.ledger_id, record.entry_id) != entry[:2]
    ]
    return _repointed(site, fault, entry, site.choose(others), "IDX-002")


def inside(site: Site, fault: Fault) -> Planted:
    """A place where no record begins."""
    log = site.choose([log for log in site.chart.logs if log.entries])
    record = site.choose(log.entries)
    place = log.log_id << 32 | site.dice.randrange(record.offset + 5, record.end)
    return _repoint(site, fault, place, "IDX-002", "IDX-001")


def past_end(site: Site, fault: Fault) -> Planted:
    """A place behind the end of what a log holds: of the file, or of what is durable in it."""
    log = site.choose([log for log in site.chart.logs if log.entries])
    limit = site.choose([log.limit, log.size, log.size + 4096])
    return _repoint(site, fault, log.log_id << 32 | (limit + 4), "IDX-001")


def no_log(site: Site, fault: Fault) -> Planted:
    """A place in a log that is not there."""
    taken = {log.log_id for log in site.chart.logs}
    free = site.choose([one for one in range(max(taken, default=0) + 4) if one not in taken])
    return _repoint(site, fault, free << 32 | 1028, "IDX-001")


def row_missing(site: Site, fault: Fault) -> Planted:
    """An entry without a row."""
    ledger_id, entry_id, log, record = _some_entry(site)
    _set(site, {ledger_id: [pair for pair in _pairs(site, ledger_id) if pair[0] != entry_id]})
    words = f"stands at {log.name}@{record.offset}"
    return _planted(site.chart, fault, ledger_id, entry_id, words, "IDX-003")


def ledger_missing(site: Site, fault: Fault) -> Planted:
    """A ledger without rows."""
    ledger_id, entry_id, log, record = _some_entry(site)
    _set(site, {ledger_id: []})
    words = f"all rows of the ledger; this one stands at {log.name}@{record.offset}"
    return _planted(site.chart, fault, ledger_id, entry_id, words, "IDX-003")


def dangling(site: Site, fault: Fault) -> Planted:
    """A row for an entry that was never written, of a ledger there is or of none."""
    ledger_id, _, log, record = _some_entry(site)
    entry_id = site.choose([max(site.chart.places[ledger_id]) + 1, _NO_ENTRY])
    if site.dice.random() < 0.3:
        ledger_id = max(site.chart.places) + 1
    place = site.choose([packed(log, record), log.log_id << 32 | (log.size + 40)])
    _set(site, {ledger_id: [*_pairs(site, ledger_id), (entry_id, place)]})
    words = f"leads to {place >> 32:x}.log+{place & 0xFFFF_FFFF}"
    return _planted(site.chart, fault, ledger_id, entry_id, words, "IDX-001", "IDX-002")


def deleted(site: Site, fault: Fault) -> Planted:
    """A row for a record that stands in a log and is dead: its ledger was deleted."""
    _index(site)
    dead = [
        (log, record)
        for log in site.chart.logs
        if not log.is_leftover
        for record in log.entries
        if record.entry_id not in site.chart.places.get(record.ledger_id, {})
    ]
    log, record = site.choose(dead)
    pairs = [*_pairs(site, record.ledger_id), (record.entry_id, packed(log, record))]
    _set(site, {record.ledger_id: pairs})
    words = f"leads to {log.name}@{record.offset}"
    found = ("IDX-001", "IDX-002", "LGR-003")
    return _planted(site.chart, fault, record.ledger_id, record.entry_id, words, *found)


def twice(site: Site, fault: Fault) -> Planted:
    """Two rows for one entry."""
    ledger_id, entry_id, log, record = _some_entry(site)
    other = site.choose([packed(log, record) + 1, packed(log, record) + (1 << 32), 1028])
    _set(site, {ledger_id: [*_pairs(site, ledger_id), (entry_id, other)]})
    planted = _planted(site.chart, fault, ledger_id, entry_id, f"the other {other:x}", "IDX-005")
    # And wherever the other one leads to.
    return replace(planted, collateral=_BESIDE | kinds("IDX-001", "IDX-002", "ELG-007"))


def older_copy(site: Site, fault: Fault) -> Planted:
    """The row of an entry that was written twice leads to the first copy."""
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
    # The first copy may be one of a ledger that was deleted before there was another of that id.
    dead = ("IDX-002",) if record.ledger_id in site.chart.deleted else ()
    return _repointed(site, fault, entry, packed(log, record), "IDX-006", *dead)


def older(site: Site, fault: Fault) -> Planted:
    """The index as an earlier checkpoint left it, its page checksums right: an older copy brought back."""
    trailer = site.chart.mark.trailer if site.chart.mark is not None else None
    generation = site.chart.state.generation
    if trailer is None or trailer.generation != generation or not generation:
        raise NoPlace
    _index(site)
    ledger_id = site.choose(sorted(site.chart.places))
    state = replace(site.chart.state, generation=site.dice.randrange(generation))
    _set(site, {ledger_id: _pairs(site, ledger_id)[:-1]}, state_codec.encode(state))
    planted = _of_a_file(fault, f"of checkpoint {state.generation}, and the mark of {generation}")
    return replace(planted, collateral=_BESIDE)


def page(site: Site, fault: Fault) -> Planted:
    """A bit of a page that the newest transaction leads to."""
    index = _index(site)
    with PosixDirectory(index).open(_DATA) as data:
        snapshot = page_sums.all_pages(data)
    assert not isinstance(snapshot, Damaged), "the index is sound"
    number = site.choose([one for one, is_live in enumerate(snapshot.is_live) if is_live])
    start = number * snapshot.page_size
    at = site.flip(index / _DATA, start, start + snapshot.page_size)
    return _of_a_file(fault, f"{_DATA} byte {at}, page {number}")


def sums(site: Site, fault: Fault) -> Planted:
    """A bit of the first record of checksums, which has every page. The last one may be torn like a group."""
    index = _index(site)
    data = (index / page_sums.SUMS).read_bytes()
    head = sums_codec.decode_head(data, 0, len(data))
    assert isinstance(head, sums_codec.Head), "the index is sound"
    at = site.flip(index / page_sums.SUMS, 0, sums_codec.HEAD_SIZE + head.body_size)
    return _of_a_file(fault, f"{page_sums.SUMS} byte {at}")


def file_missing(site: Site, fault: Fault) -> Planted:
    """A file of the index is gone."""
    name = site.choose([_DATA, page_sums.SUMS])
    site.copy.remove(_index(site) / name)
    return _of_a_file(fault, name)


def missing(site: Site, fault: Fault) -> Planted:
    """The whole index is gone."""
    site.copy.remove(_index(site))
    return _of_a_file(fault, "the directory")


def _of_a_file(fault: Fault, words: str) -> Planted:
    return Planted(fault=fault, file=filenames.INDEX, wanted=((Told(kinds=kinds("IDX-004")),),), words=words)

"""Brings mark, index and ledger metadata into agreement when a store is opened.

`recovery.directory.authority` decides which of them counts if they disagree. This module carries the decision
out. Each branch writes only what is missing or wrong, and each step is durable before the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.bookkeeper.import_directory import import_directory
from recovery.directory.authority import Authority
from recovery.directory.evidence import examine, is_deleted_since, newest_rows
from recovery.directory.orphans import check_logs
from recovery.opening.repair_lineage import repair_lineage
from recovery.rebuild.entry_log_chain import in_creation_order
from recovery.rebuild.index_builder import tombstone_positions
from recovery.rebuild.rebuild import rebuild
from storage.checkpoint import mark as lastmark
from storage.disk import filenames
from storage.entry.position import EntryLocation
from storage.ledgers.metadata_log import MetadataLog
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack

    from recovery.directory.evidence import Evidence
    from recovery.directory.layout import Layout
    from storage.checkpoint.mark_format import Mark
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.ledger_record_table import LedgerRecordTable
    from storage.index.port import Index, IndexDirectory
    from storage.ledgers.metadata_log import LoadedMetadataLog


_PLACES = 10_000
"""So many locations of a deleted ledger are read at once."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Index, mark and ledger metadata of a store, durable and in agreement with each other."""

    index: Index
    how: IndexFound
    mark: Mark
    rows: MetadataLog
    findings: tuple[str, ...] = ()


def reconcile(layout: Layout, place: IndexDirectory, store_id: bytes, held: ExitStack) -> Reconciled:
    """Carry out the decision; `held` closes all that is opened. Raise if no file can be trusted."""
    evidence = examine(layout, place.open, held)
    match evidence.authority:
        case Authority.AGREED:
            rows = _merge_metadata(layout, evidence, held)
            assert evidence.index is not None, "it counts"
            findings = repair_lineage(layout.ledgers, evidence.index.state(), store_id)
            return Reconciled(evidence.index, IndexFound.GOOD, evidence.mark, rows, findings)
        case Authority.INDEX:
            rows = _merge_metadata(layout, evidence, held)
            assert evidence.index is not None, "it counts"
            # Durable before it is relied on, because it may have been read from the page cache only.
            evidence.index.sync()
            mark = evidence.mark
            lastmark.write_draft(layout.ledgers, mark)
            lastmark.publish(layout.ledgers)
            # After the mark, because a lineage of a later generation than the mark is refused.
            findings = repair_lineage(layout.ledgers, evidence.index.state(), store_id)
            return Reconciled(evidence.index, IndexFound.AHEAD, mark, rows, findings)
        case Authority.MARK:
            return _rebuild(layout, place, evidence, store_id, held)
        case Authority.BOOKIE | Authority.FOREIGN:
            imported = import_directory(layout, place, store_id)
            held.callback(imported.index.close)
            held.callback(imported.rows.close)
            return Reconciled(
                imported.index, IndexFound.ADOPTED, imported.mark, imported.rows, imported.findings
            )
    raise evidence.refusal(layout)


def _rebuild(
    layout: Layout, place: IndexDirectory, evidence: Evidence, store_id: bytes, held: ExitStack
) -> Reconciled:
    """Make the index again as the mark has it, because another one would be taken for another history."""
    damage, mark = evidence.index_damage, evidence.mark
    assert mark.trailer is not None, "the mark of a store of ours"
    loaded = evidence.judged_metadata(layout)
    rows = _durable_metadata(layout, loaded, loaded.rows, held)
    rebuilt = rebuild(place, layout.ledgers, mark, store_id, rows.rows, mark.trailer.rows_sequence)
    held.callback(rebuilt.index.close)
    findings = () if damage is None else (f"IDX-004 {filenames.INDEX}: {damage}",)
    return Reconciled(rebuilt.index, IndexFound.REBUILT, mark, rows, (*findings, *rebuilt.findings))


# ── ledger metadata ──────────────────────────────────────────────────────────────────────────────────────


def _merge_metadata(layout: Layout, evidence: Evidence, held: ExitStack) -> MetadataLog:
    """Bring the newest record of each ledger into the file and into the index, the file first."""
    index, indexed = evidence.index, evidence.indexed
    assert index is not None, "it counts"
    check_logs(layout.ledgers, index.state())
    loaded = evidence.judged_metadata(layout)
    newest = newest_rows(loaded.rows, indexed)
    if newest != loaded.rows:
        # Durable before the file relies on what was read from it.
        index.sync()
    rows = _durable_metadata(layout, loaded, newest, held)
    differing = [newest[ledger_id] for ledger_id in sorted(newest.differing(indexed))]
    if differing:
        deleted = {row.ledger_id: row for row in differing if is_deleted_since(row, indexed)}
        later = list(_later_entries(index, deleted))
        with index.change() as change:
            change.remove(deleted)
            for ledger_id, entry_ids, locations in later:
                change.put(ledger_id, entry_ids, locations)
            for row in differing:
                change.remove_before(row.ledger_id, row.first_entry_id)
            change.put_rows(differing)
            change.commit(None)
    return rows


def _later_entries(
    index: Index, deleted: Mapping[int, LedgerRecord]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield the entries of these ledgers that their tombstones do not delete, because they are later.

    There are none after a crash. But a copy of `ledgers.rows` from before a tombstone was purged may be here
    again, and the ledger may have been made again since.
    """
    order = in_creation_order(index.state().log_ends)
    rank_of = {log_id: rank for rank, log_id in enumerate(order)}
    for ledger_id, bound in tombstone_positions(deleted, order).items():
        first = 0
        while places := index.locations(ledger_id, first, _PLACES):
            later = {}
            for entry_id, packed in places:
                at = EntryLocation.unpack(packed).position
                if (rank_of.get(at.log_id, -1), at.offset) >= bound:
                    later[entry_id] = packed
            if later:
                yield ledger_id, [*later], [*later.values()]
            first = places[-1][0] + 1


def _durable_metadata(
    layout: Layout, loaded: LoadedMetadataLog, newest: LedgerRecordTable, held: ExitStack
) -> MetadataLog:
    """Return the records in a file of which everything is known to be durable."""
    rows = MetadataLog(layout.ledgers, newest, loaded.sequence)
    held.callback(rows.close)
    # A power cut may take away what was only read, and a torn tail would be taken for rot if more followed.
    if loaded.sequence > loaded.proven_sequence or loaded.torn is not None or newest != loaded.rows:
        rows.rewrite()
    return rows

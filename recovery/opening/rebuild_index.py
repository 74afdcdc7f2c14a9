"""Rebuilds the index of a store, or makes one for a bookie's directory, on request."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.bookkeeper.import_directory import import_directory
from recovery.directory.authority import Authority
from recovery.directory.evidence import examine, newest_rows
from recovery.directory.layout import load_store_id
from recovery.opening.repair_lineage import repair_lineage
from recovery.rebuild.rebuild import rebuild
from recovery.replay.progress import ignore
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.entry.read_result import Damaged
from storage.errors import NotAStore
from storage.ledgers.metadata_log import MetadataLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from recovery.directory.evidence import Evidence
    from recovery.directory.layout import Layout
    from recovery.rebuild.index_builder import RebuildFigures
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.port import Index, IndexDirectory
    from storage.open_report import RebuildProgress

_MADE_FROM = frozenset({FileKind.JOURNAL, FileKind.ENTRY_LOG, FileKind.LAST_MARK, FileKind.LEDGER_ROWS})


@dataclass(frozen=True, slots=True)
class RebuiltDirectory:
    """A new index, open, and the metadata and figures of the directory."""

    was_imported: bool
    index: Index
    rows: Mapping[int, LedgerRecord]
    findings: tuple[str, ...]
    figures: RebuildFigures


def rebuild_index(
    layout: Layout, place: IndexDirectory, progress: Callable[[RebuildProgress], None] = ignore
) -> RebuiltDirectory:
    """Make the index again, durably, and keep the old one aside. The caller holds the directory's lock.

    A directory in which a bookie has written last becomes a store of ours, and so does one whose mark is lost
    or short. Where neither mark nor index says from where to replay, all journals are to be replayed, and the
    next opening refuses if one is missing. Raise before anything is replaced if something is in the way.
    """
    store_id = load_store_id(layout)
    with ExitStack() as examined:
        evidence = examine(layout, place.open, examined)
    match evidence.authority:
        case Authority.AGREED | Authority.MARK:
            return _rebuild_ours(layout, place, evidence, store_id, progress)
        case Authority.INDEX if isinstance(evidence.found, Mark):
            # From the mark all the same, because the journals after it are replayed by the next opening.
            return _rebuild_ours(layout, place, evidence, store_id, progress)
        case Authority.INDEX if isinstance(evidence.found, Damaged):
            raise evidence.refusal(layout, "; opening the store writes it again from the index")
        case Authority.NOTHING | Authority.NEWER_VERSION:
            raise evidence.refusal(layout)
    imported = import_directory(layout, place, store_id, progress)
    imported.rows.close()
    return RebuiltDirectory(
        was_imported=True,
        index=imported.index,
        rows=imported.rows.rows,
        findings=imported.findings,
        figures=imported.figures,
    )


def check_can_be_rebuilt(layout: Layout) -> None:
    """Raise if there is nothing to make an index of, before even a lock is made there."""
    kinds = set()
    for directory in (layout.journal, layout.ledgers):
        try:
            kinds |= {filenames.parse(name).kind for name in directory.names()}
        except (FileNotFoundError, NotADirectoryError):
            raise NotAStore(layout.root.path, f"there is no {directory.path}") from None
    if not kinds & _MADE_FROM:
        raise NotAStore(layout.root.path, "it has no journals, no entry logs and no mark")


def _rebuild_ours(
    layout: Layout,
    place: IndexDirectory,
    evidence: Evidence,
    store_id: bytes,
    progress: Callable[[RebuildProgress], None],
) -> RebuiltDirectory:
    mark, damage = evidence.found, evidence.index_damage
    assert isinstance(mark, Mark), "a mark of ours"
    assert mark.trailer is not None, "a mark of ours"
    # The names that are read must stay, because the index is about to name the files.
    layout.ledgers.sync()
    repaired: tuple[str, ...] = ()
    if evidence.authority is Authority.AGREED and evidence.state is not None:
        # The old index knows which logs count. With a damaged lineage the new one would not be whole.
        repaired = repair_lineage(layout.ledgers, evidence.state, store_id)
    loaded = evidence.judged_metadata(layout)
    newest = newest_rows(loaded.rows, evidence.indexed)
    if newest != loaded.rows or loaded.torn is not None or loaded.sequence > loaded.proven_sequence:
        # A power cut may take away what was only read, and the index is about to rely on it.
        with closing(MetadataLog(layout.ledgers, newest, loaded.sequence)) as rows:
            rows.rewrite()
    # The group that the mark names, because an index that names another one would be of another history.
    sequence = mark.trailer.rows_sequence
    rebuilt = rebuild(place, layout.ledgers, mark, store_id, newest, sequence, progress)
    findings = () if damage is None else (f"IDX-004 {filenames.INDEX}: {damage}",)
    return RebuiltDirectory(
        was_imported=False,
        index=rebuilt.index,
        rows=newest,
        findings=(*findings, *repaired, *rebuilt.findings),
        figures=rebuilt.figures,
    )

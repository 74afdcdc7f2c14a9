"""The index of a directory made again because somebody asks for it, whoever has written there last."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery import founding
from recovery.adoption import adopt
from recovery.meter import nowhere
from recovery.past import latest_rows, load_index
from recovery.rebuild import rebuild
from storage import filenames, lastmark, ledger_rows
from storage.codec.mark import Mark
from storage.errors import CorruptionError, NewerFormat, NotAStore
from storage.filenames import FileKind
from storage.ledger_rows import LedgerRows
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from recovery.founding import Layout
    from recovery.placing import Figures
    from storage.index import Index, IndexPlace
    from storage.report import RebuildProgress
    from storage.row import LedgerRow

_MADE_FROM = frozenset({FileKind.JOURNAL, FileKind.ENTRY_LOG, FileKind.LAST_MARK, FileKind.LEDGER_ROWS})


@dataclass(frozen=True, slots=True)
class Remade:
    """A new index, open, and what it was made of."""

    was_a_bookie_s: bool
    index: Index
    rows: Mapping[int, LedgerRow]
    findings: tuple[str, ...]
    figures: Figures


def remake(
    layout: Layout, place: IndexPlace, progress: Callable[[RebuildProgress], None] = nowhere
) -> Remade:
    """Makes the index anew, durably; the old one is kept aside. For whoever holds the directory's lock.

    A directory with a mark of ours is ours; any other a bookie has written to, and with its index it becomes
    ours. Raises before anything is replaced where something is in the way.
    """
    store_id = founding.store_id(layout)
    found = lastmark.load(layout.ledgers)
    if isinstance(found, Damaged):
        raise _refusal(layout, found)
    if isinstance(found, Mark) and found.trailer is not None:
        return _remake_ours(layout, place, found, store_id, progress)
    adopted = adopt(layout, place, progress)
    adopted.rows.close()
    return Remade(
        was_a_bookie_s=True,
        index=adopted.index,
        rows=adopted.rows.rows,
        findings=adopted.findings,
        figures=adopted.figures,
    )


def check_may_be_remade(layout: Layout) -> None:
    """Raises where there is nothing to make an index of, before so much as a lock is made there."""
    kinds = set()
    for directory in (layout.journal, layout.ledgers):
        try:
            kinds |= {filenames.parse(name).kind for name in directory.names()}
        except (FileNotFoundError, NotADirectoryError):
            raise NotAStore(layout.root.path, f"there is no {directory.path}") from None
    if not kinds & _MADE_FROM:
        raise NotAStore(layout.root.path, "it has no journals, no entry logs and no mark")


def _refusal(layout: Layout, found: Damaged) -> CorruptionError | NewerFormat:
    if found.flaw is Flaw.FUTURE_VERSION:
        return NewerFormat(layout.root.path, f"{filenames.LAST_MARK}: {found}")
    words = f"{found}; while there is an index, opening the store writes another"
    return CorruptionError(filenames.LAST_MARK, found.offset, words, "MRK-001")


def _remake_ours(
    layout: Layout,
    place: IndexPlace,
    mark: Mark,
    store_id: bytes,
    progress: Callable[[RebuildProgress], None],
) -> Remade:
    assert mark.trailer is not None, "a mark of ours"
    # The names that are read must stay: the index is about to name them.
    layout.ledgers.sync()
    index = load_index(layout.ledgers, place)
    is_older = index.state is None or index.state.generation < mark.trailer.generation
    loaded = ledger_rows.load(layout.ledgers, mark.trailer.rows_sequence)
    latest = loaded.rows if is_older else latest_rows(loaded.rows, index.rows)
    if latest != loaded.rows or loaded.torn is not None or loaded.sequence > loaded.proven_sequence:
        # What was only read a power cut may take away, and the index is about to believe it.
        with closing(LedgerRows(layout.ledgers, latest, loaded.sequence)) as rows:
            rows.rewrite()
    # The group that the mark names: an index that names another is taken for one of another past.
    sequence = mark.trailer.rows_sequence
    rebuilt = rebuild(place, layout.ledgers, mark, store_id, latest, sequence, progress)
    return Remade(
        was_a_bookie_s=False,
        index=rebuilt.index,
        rows=latest,
        findings=(*index.findings, *rebuilt.findings),
        figures=rebuilt.figures,
    )

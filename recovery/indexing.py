"""The index, the rows and the mark, as they are at an opening: which of them speak for the others.

A mark of ours and an index that is not older: good. An older index, a damaged one or none: made again. A
bookie's mark, a journal of a bookie's behind ours, or a log that the index has never heard of: a bookie ran
here, and everything is asked anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery import founding
from recovery.adoption import adopt
from recovery.leftovers import check_logs, has_foreign_logs, newest_foreign_journal
from recovery.rebuild import rebuild
from storage import filenames, lastmark, ledger_rows
from storage.errors import CorruptionError, NewerFormat
from storage.index import NoIndex
from storage.lastmark import mark_of, newest_named
from storage.ledger_rows import LedgerRows
from storage.outcome import Damaged, Flaw
from storage.report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from recovery.founding import Layout
    from storage.codec.mark import Mark
    from storage.index import Index, IndexPlace
    from storage.index_state import IndexState
    from storage.ledger_rows import LoadedRows
    from storage.row import LedgerRow


@dataclass(frozen=True, slots=True)
class Foundation:
    """What an opening goes on from."""

    index: Index
    how: IndexFound
    mark: Mark
    rows: LedgerRows
    findings: tuple[str, ...] = ()


def lay(layout: Layout, place: IndexPlace, store_id: bytes, held: ExitStack) -> Foundation:
    """Index, rows and mark, each durable and in agreement with the others; whatever it opens is `held`."""
    if founding.is_marked_by_a_bookie(layout):
        return _adopted(layout, place, held)
    mark = founding.load_mark(layout)
    # Nothing of ours tells what the ledgers in it are protected by.
    if mark is not None and _has_newer_journals(layout, newest_named(mark)):
        return _adopted(layout, place, held)
    index = place.open()
    if isinstance(index, Damaged) and index.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(layout.ledgers.path, f"{filenames.INDEX}: {index}")
    if isinstance(index, NoIndex | Damaged):
        return _rebuilt(layout, place, mark, store_id, index, held)
    held.callback(index.close)
    state = index.state()
    if mark is not None and not may_be_of(mark, state):
        index.close()
        return _rebuilt(layout, place, mark, store_id, NoIndex(), held)
    try:
        indexed = {row.ledger_id: row for row in index.rows()}
    except OSError as error:
        index.close()
        damaged = Damaged(0, Flaw.CHECKSUM, f"{error}")
        return _rebuilt(layout, place, mark, store_id, damaged, held)
    if has_foreign_logs(layout.ledgers, state) or (
        mark is None and _has_newer_journals(layout, state.mark.journal_id)
    ):
        index.close()
        return _adopted(layout, place, held)
    check_logs(layout.ledgers, state)
    rows = _agreed(layout, index, indexed, max(_rows_sequence(mark), state.rows_sequence), held)
    if mark is not None and generation(mark) == state.generation:
        return Foundation(index, IndexFound.GOOD, mark, rows)
    # A checkpoint ended between its last two steps, or the mark is damaged: the index says the same.
    return Foundation(index, IndexFound.AHEAD, _mark_from(layout, index, newest_named(mark)), rows)


def _has_newer_journals(layout: Layout, known: int) -> bool:
    """Whether a bookie has begun a journal behind the newest one that we know to be there."""
    return newest_foreign_journal(layout.journal, known) > known


def _adopted(layout: Layout, place: IndexPlace, held: ExitStack) -> Foundation:
    adopted = adopt(layout, place)
    held.callback(adopted.index.close)
    held.callback(adopted.rows.close)
    return Foundation(adopted.index, IndexFound.ADOPTED, adopted.mark, adopted.rows, adopted.findings)


def _mark_from(layout: Layout, index: Index, newest_journal: int) -> Mark:
    # What is read of it may still be in the memory of the system: durable first, then believed.
    index.sync()
    state = index.state()
    mark = mark_of(state, max(newest_journal, state.mark.journal_id))
    lastmark.write_draft(layout.ledgers, mark)
    lastmark.publish(layout.ledgers)
    return mark


def _rebuilt(
    layout: Layout,
    place: IndexPlace,
    mark: Mark | None,
    store_id: bytes,
    index: NoIndex | Damaged,
    held: ExitStack,
) -> Foundation:
    if mark is None:
        raise CorruptionError(
            filenames.LAST_MARK, 0, "damaged, and the index cannot stand in for it", "MRK-001"
        )
    findings = (f"IDX-004 {filenames.INDEX}: {index}",) if isinstance(index, Damaged) else ()
    loaded = ledger_rows.load(layout.ledgers, _rows_sequence(mark))
    rows = _kept(layout, loaded, loaded.rows, held)
    # As the mark has it: an index that says otherwise is taken for one of another past.
    rebuilt = rebuild(place, layout.ledgers, mark, store_id, rows.rows, _rows_sequence(mark))
    held.callback(rebuilt.index.close)
    return Foundation(rebuilt.index, IndexFound.REBUILT, mark, rows, (*findings, *rebuilt.findings))


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def _agreed(
    layout: Layout, index: Index, indexed: dict[int, LedgerRow], known_sequence: int, held: ExitStack
) -> LedgerRows:
    """The rows of file and index together. The file counts, but for what only the index still has."""
    loaded = ledger_rows.load(layout.ledgers, known_sequence)
    latest = dict(loaded.rows)
    for ledger_id, row in indexed.items():
        # A tombstone whose group was the file's last, and has rotted.
        if ledger_id not in latest or row.change > latest[ledger_id].change:
            latest[ledger_id] = row
    if latest != loaded.rows:
        # Read from it, and about to be relied on.
        index.sync()
    rows = _kept(layout, loaded, latest, held)
    differing = [row for ledger_id, row in latest.items() if indexed.get(ledger_id) != row]
    if differing:
        with index.change() as change:
            change.remove(row.ledger_id for row in differing if is_deleted_since(row, indexed))
            change.put_rows(differing)
            change.commit(None)
    return rows


def is_deleted_since(row: LedgerRow, indexed: Mapping[int, LedgerRow]) -> bool:
    """Whether the row tells of a delete that these do not know."""
    known = indexed.get(row.ledger_id)
    return row.tombstone is not None and (
        known is None or known.tombstone is None or known.tombstone.journal != row.tombstone.journal
    )


def _kept(layout: Layout, loaded: LoadedRows, latest: dict[int, LedgerRow], held: ExitStack) -> LedgerRows:
    """The rows, in a file of which everything is known to be durable."""
    rows = LedgerRows(layout.ledgers, latest, loaded.sequence)
    held.callback(rows.close)
    # What was only read a power cut may take away; a torn tail must not be taken for rot when more follows.
    if loaded.sequence > loaded.proven_sequence or loaded.torn is not None or latest != loaded.rows:
        rows.rewrite()
    return rows


def _rows_sequence(mark: Mark | None) -> int:
    return 0 if mark is None or mark.trailer is None else mark.trailer.rows_sequence


# ── the mark ─────────────────────────────────────────────────────────────────────────────────────────────


def may_be_of(mark: Mark, state: IndexState) -> bool:
    """Whether an index in this state can have been committed before the mark was stored, or right behind it.

    One of the same generation says the same; else it is of another past, as a copy brings one back.
    """
    if generation(mark) != state.generation:
        return generation(mark) < state.generation
    return mark == mark_of(state, newest_named(mark))


def generation(mark: Mark) -> int:
    """The checkpoint that stored a mark of ours."""
    assert mark.trailer is not None, "a mark of ours has a trailer"
    return mark.trailer.generation

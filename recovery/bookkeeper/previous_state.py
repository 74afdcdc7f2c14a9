"""Reads what an earlier run of ours has left in a directory in which a bookie wrote afterwards."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recovery.directory.authority import Authority, ReplayFrom, decide
from recovery.directory.evidence import facts_of, newest_rows
from recovery.rebuild.entry_log_chain import origin_of
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.entry.ledger_record_table import LedgerRecordTable
from storage.entry.position import START, LogPosition
from storage.entry.read_result import Damaged, Flaw
from storage.entrylog import format as entrylog_format
from storage.errors import CorruptionError, NewerFormat
from storage.index.port import NoIndex
from storage.index.state import IndexState
from storage.ledgers import metadata_log
from storage.ledgers.metadata import BEFORE_ALL_LOGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery.directory.layout import Layout
    from recovery.rebuild.entry_log_chain import FoundHeader
    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import JournalPosition
    from storage.index.port import Index, IndexDirectory


@dataclass(frozen=True, slots=True)
class PreviousState:
    """Knowledge about a directory that needs neither logs nor journals."""

    mark: JournalPosition
    """Where the replay of the journals begins."""
    newest_journal: int
    generation: int
    rows: Mapping[int, LedgerRecord]
    """The ledger records, each tombstone with the log position before which entries are deleted."""
    rows_sequence: int
    indexed: frozenset[int]
    """The ledgers with entries in our index."""
    log_ends: Mapping[int, int]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OldIndex:
    """The content of our index; empty if there is none."""

    state: IndexState | None = None
    rows: LedgerRecordTable = field(default_factory=LedgerRecordTable)
    ledgers: frozenset[int] = frozenset()
    findings: tuple[str, ...] = ()


def load_previous_state(
    layout: Layout, place: IndexDirectory, headers: Mapping[int, FoundHeader], order: Sequence[int]
) -> PreviousState:
    """Read what we left in the ledger directory, if it ever was ours.

    Raise if a newer version wrote, or if the metadata is damaged.
    """
    directory = layout.ledgers
    found = lastmark.load(directory)
    if isinstance(found, Damaged) and found.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(directory.path, f"{filenames.LAST_MARK}: {found}")
    index = read_old_index(directory, place)
    state = index.state or IndexState()
    trailer = found.trailer if isinstance(found, Mark) else None
    named_sequence = 0 if trailer is None else trailer.rows_sequence
    loaded = metadata_log.load(directory, max(named_sequence, state.rows_sequence))
    rows = newest_rows(loaded.rows, index.rows)
    newest = _newest_known(state, headers, order)
    return PreviousState(
        mark=_replay_from(layout, found, index.state),
        newest_journal=0 if trailer is None else trailer.newest_journal,
        generation=max(state.generation, 0 if trailer is None else trailer.generation),
        rows=_with_log_ends(rows, newest),
        rows_sequence=loaded.sequence,
        indexed=index.ledgers,
        log_ends=state.log_ends,
        findings=index.findings,
    )


def _replay_from(layout: Layout, found: lastmark.LoadedMark, state: IndexState | None) -> JournalPosition:
    """Return the position at which the replay of the journals begins, as the table decides."""
    rule = decide(facts_of(layout, found, state))
    match rule.replay_from:
        case ReplayFrom.MARK if isinstance(found, Mark):
            return found.position
        case ReplayFrom.INDEX if state is not None:
            return state.mark
    if rule.authority is Authority.NOTHING:
        raise CorruptionError(filenames.LAST_MARK, 0, f"{found}; {rule.why}", "MRK-001")
    return START


def read_old_index(directory: Directory, place: IndexDirectory) -> OldIndex:
    """Read the index; a damaged one is a finding."""
    found = place.open()
    if isinstance(found, Damaged) and found.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(directory.path, f"{filenames.INDEX}: {found}")
    if isinstance(found, NoIndex):
        return OldIndex()
    if isinstance(found, Damaged):
        return OldIndex(findings=(f"IDX-004 {filenames.INDEX}: {found}",))
    with closing(found) as index:
        return _read(index)


def _read(index: Index) -> OldIndex:
    try:
        return OldIndex(index.state(), LedgerRecordTable(index.all_rows({})), frozenset(index.ledgers()))
    except OSError as error:
        return OldIndex(findings=(f"IDX-004 {filenames.INDEX}: {error}",))


def _newest_known(state: IndexState, headers: Mapping[int, FoundHeader], order: Sequence[int]) -> LogPosition:
    """Return the end of the newest log that was there when we wrote last; the bookie wrote after it."""
    known = [one for one in order if one in state.log_ends or origin_of(headers[one]) is not None]
    return LogPosition(known[-1], entrylog_format.HEADER_SIZE) if known else BEFORE_ALL_LOGS


def _with_log_ends(rows: Mapping[int, LedgerRecord], end: LogPosition) -> dict[int, LedgerRecord]:
    """Return the records, and limit each tombstone without a log position to the logs that were there.

    Otherwise it would delete what the bookie has written when the index is made again.
    """
    change = max((row.change for row in rows.values()), default=0)
    ended = {}
    for ledger_id, row in sorted(rows.items()):
        if row.tombstone is not None and row.tombstone.log is None:
            change += 1
            ended[ledger_id] = replace(row, change=change, tombstone=replace(row.tombstone, log=end))
    return {**rows, **ended}

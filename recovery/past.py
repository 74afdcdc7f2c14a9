"""What an earlier run of ours has left in a directory that a bookie then wrote to."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recovery.lineage import origin_of
from storage import filenames, lastmark, ledger_rows
from storage.codec import entrylog as codec
from storage.codec.mark import Mark
from storage.errors import CorruptionError, NewerFormat
from storage.index import NoIndex
from storage.index_state import IndexState
from storage.outcome import Damaged, Flaw
from storage.position import START, LogPosition
from storage.registry import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery.lineage import FoundHeader
    from storage.files import Directory
    from storage.index import Index, IndexPlace
    from storage.position import JournalPosition
    from storage.row import LedgerRow


@dataclass(frozen=True, slots=True)
class Past:
    """What is known without asking the logs and the journals."""

    mark: JournalPosition
    """From where the journals must be replayed: who wrote last has said it."""
    newest_journal: int
    generation: int
    rows: Mapping[int, LedgerRow]
    """Each tombstone says what of the logs it kills: no checkpoint of ours can have added that since."""
    rows_sequence: int
    indexed: frozenset[int]
    """The ledgers that had entries in our index."""
    log_ends: Mapping[int, int]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundIndex:
    """What our index said; nothing, where there is none."""

    state: IndexState | None = None
    rows: dict[int, LedgerRow] = field(default_factory=dict)
    ledgers: frozenset[int] = frozenset()
    findings: tuple[str, ...] = ()


def load_past(
    directory: Directory, place: IndexPlace, headers: Mapping[int, FoundHeader], order: Sequence[int]
) -> Past:
    """What we left in the ledger directory, if it ever was ours.

    Raises where a newer version wrote, or where the rows are damaged.
    """
    found = lastmark.load(directory)
    if isinstance(found, Damaged) and found.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(directory.path, f"{filenames.LAST_MARK}: {found}")
    index = load_index(directory, place)
    state = index.state or IndexState()
    trailer = found.trailer if isinstance(found, Mark) else None
    named_sequence = 0 if trailer is None else trailer.rows_sequence
    loaded = ledger_rows.load(directory, max(named_sequence, state.rows_sequence))
    rows = latest_rows(loaded.rows, index.rows)
    newest = _newest_known(state, headers, order)
    return Past(
        mark=_mark(found, index.state),
        newest_journal=0 if trailer is None else trailer.newest_journal,
        generation=max(state.generation, 0 if trailer is None else trailer.generation),
        rows=_with_log_ends(rows, newest),
        rows_sequence=loaded.sequence,
        indexed=index.ledgers,
        log_ends=state.log_ends,
        findings=index.findings,
    )


def _mark(found: lastmark.LoadedMark, state: IndexState | None) -> JournalPosition:
    match found:
        case Mark(position=position):
            return position
        case Damaged() if state is not None:
            # No bookie leaves such a file: the mark was ours, and the index says the same.
            return state.mark
        case Damaged():
            raise CorruptionError(filenames.LAST_MARK, 0, f"{found}, and there is no index", "MRK-001")
    # Missing, empty, or shorter than a mark: a bookie was interrupted while it rewrote it.
    return START


def load_index(directory: Directory, place: IndexPlace) -> FoundIndex:
    """What the index says that is there; one that is damaged is a finding."""
    found = place.open()
    if isinstance(found, Damaged) and found.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(directory.path, f"{filenames.INDEX}: {found}")
    if isinstance(found, NoIndex):
        return FoundIndex()
    if isinstance(found, Damaged):
        return FoundIndex(findings=(f"IDX-004 {filenames.INDEX}: {found}",))
    with closing(found) as index:
        return _read(index)


def _read(index: Index) -> FoundIndex:
    try:
        rows = {row.ledger_id: row for row in index.rows()}
        return FoundIndex(index.state(), rows, frozenset(index.ledgers()))
    except OSError as error:
        return FoundIndex(findings=(f"IDX-004 {filenames.INDEX}: {error}",))


def latest_rows(filed: Mapping[int, LedgerRow], indexed: Mapping[int, LedgerRow]) -> dict[int, LedgerRow]:
    """The rows of the file and of the index together.

    A tombstone stands in both: the last group of the file may have rotted.
    """
    latest = dict(filed)
    for ledger_id, row in indexed.items():
        if ledger_id not in latest or row.change > latest[ledger_id].change:
            latest[ledger_id] = row
    return latest


def _newest_known(state: IndexState, headers: Mapping[int, FoundHeader], order: Sequence[int]) -> LogPosition:
    """The newest log that was there when we wrote last, all of it: behind it the bookie has written."""
    known = [one for one in order if one in state.log_ends or origin_of(headers[one]) is not None]
    return LogPosition(known[-1], codec.HEADER_SIZE) if known else NOWHERE


def _with_log_ends(rows: Mapping[int, LedgerRow], end: LogPosition) -> dict[int, LedgerRow]:
    """The rows, where a tombstone that kills everything in the logs kills no more than there was.

    Else it would kill what the bookie has written, at the next time that the index is made again.
    """
    change = max((row.change for row in rows.values()), default=0)
    ended = {}
    for ledger_id, row in sorted(rows.items()):
        if row.tombstone is not None and row.tombstone.log is None:
            change += 1
            ended[ledger_id] = replace(row, change=change, tombstone=replace(row.tombstone, log=end))
    return {**rows, **ended}

"""Finds files to which nothing points: leftovers of an earlier process, and files of a bookie."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.entry.position import LogPosition
from storage.entrylog import format as entrylog_format
from storage.entrylog.log_set import log_ids
from storage.errors import CorruptionError
from storage.journal import journal_set
from storage.journal.reader import JournalReader, StoredRecord
from storage.journal.scan import Owner, owner_of
from storage.runtime.events import LOG

if TYPE_CHECKING:
    from recovery.directory.layout import Layout
    from storage.disk.files import Directory
    from storage.index.state import IndexState

_DRAFTS = frozenset(
    {
        FileKind.JOURNAL_DRAFT,
        FileKind.ENTRY_LOG_DRAFT,
        FileKind.LAST_MARK_DRAFT,
        FileKind.LEDGER_ROWS_DRAFT,
        FileKind.LINEAGE_DRAFT,
        FileKind.COOKIE_DRAFT,
        FileKind.RESERVE_DRAFT,
    }
)


@dataclass(frozen=True, slots=True)
class Orphans:
    """The names of files to which nothing points."""

    removed: tuple[str, ...]
    """Drafts, our entry logs of a checkpoint that did not complete, and logs whose removal did not complete.
    """
    unknown: tuple[str, ...]
    """Files that no store writes, kept where they are."""


def remove_orphans(layout: Layout, state: IndexState, store_id: bytes) -> Orphans:
    """Remove the files of ours to which nothing points, and say which others are unknown.

    A log without our store id may be a bookie's, and is removed only if the index says that it is gone.
    """
    removed, unknown = [], []
    for directory in (layout.journal, layout.ledgers):
        for name in directory.names():
            parsed = filenames.parse(name)
            is_log = parsed.kind is FileKind.ENTRY_LOG and parsed.number not in state.log_ends
            if is_log and parsed.number in state.gone:
                removed += _removed_if_possible(directory, name)
            elif parsed.kind in _DRAFTS or (is_log and _is_log_of(directory, name, store_id)):
                directory.remove(name)
                removed.append(name)
            elif parsed.kind is FileKind.UNKNOWN:
                unknown.append(name)
    if state.gone:
        # A power cut must not bring a removed log back after the index has forgotten that it is gone.
        layout.ledgers.sync()
    return Orphans(tuple(removed), tuple(sorted(unknown)))


def _removed_if_possible(directory: Directory, name: str) -> list[str]:
    """Remove a log that is gone for the store. Return its name, unless it stays.

    No opening is refused because of it: the index says that it is gone until its removal is durable, and each
    collection tries again.
    """
    try:
        directory.remove(name)
    except OSError as error:
        LOG.warning("%s/%s was not removed: %s", directory.path, name, error)
        return []
    return [name]


def remove_drafts(layout: Layout) -> bool:
    """Remove the drafts of an earlier process, which no opening reads. Return whether there were any."""
    removed = False
    for directory in (layout.journal, layout.ledgers):
        for name in directory.names():
            if filenames.parse(name).kind in _DRAFTS:
                directory.remove(name)
                removed = True
    return removed


def _is_log_of(directory: Directory, name: str, store_id: bytes) -> bool:
    with directory.open(name) as file:
        header = entrylog_format.decode_header(file.read(0, entrylog_format.HEADER_SIZE))
    origin = header.origin if isinstance(header, entrylog_format.LogHeader) else None
    return origin is not None and origin.store_id == store_id


def has_foreign_logs(directory: Directory, state: IndexState) -> bool:
    """Return whether there is a log of a bookie that is not in the index.

    Not one that the index says is gone: a crash has left it, or a power cut has brought it back.
    """
    for log_id in sorted({*log_ids(directory)} - {*state.log_ends, *state.gone}):
        with suppress(FileNotFoundError), directory.open(filenames.entry_log(log_id)) as file:
            header = entrylog_format.decode_header(file.read(0, entrylog_format.HEADER_SIZE))
            if isinstance(header, entrylog_format.LogHeader) and header.origin is None:
                return True
    return False


def newest_foreign_journal(directory: Directory, beyond: int) -> int:
    """Return the newest journal after `beyond` in which a bookie has written a record; or `beyond`."""
    newer = (one for one in reversed(journal_set.journal_ids(directory)) if one > beyond)
    return next((one for one in newer if _is_foreign(directory, one)), beyond)


def _is_foreign(directory: Directory, journal_id: int) -> bool:
    with directory.open(filenames.journal(journal_id)) as file:
        reader = JournalReader(file, journal_id)
        items = reader.items(reader.records_start)
        return owner_of(reader) is Owner.BOOKIE and any(isinstance(item, StoredRecord) for item in items)


def check_logs(directory: Directory, state: IndexState) -> None:
    """Raise if a log with acknowledged entries is missing, or shorter than it was."""
    for log_id, end in state.log_ends.items():
        check_log(directory, LogPosition(log_id, end))


def check_log(directory: Directory, end: LogPosition) -> None:
    """Raise unless the log is there, and as long as its durable content."""
    name = filenames.entry_log(end.log_id)
    try:
        file = directory.open(name)
    except FileNotFoundError:
        raise CorruptionError(name, 0, "missing, and it held acknowledged entries", "ELG-005") from None
    # An end inside the header is that of a log of a bookie, of which nothing is known to be durable.
    with file:
        if end.offset > entrylog_format.HEADER_SIZE and (size := file.size()) < end.offset:
            raise CorruptionError(name, size, f"ends here, and was written up to {end.offset}", "ELG-005")

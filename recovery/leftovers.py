"""What an earlier process left that nothing points to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage import filenames, journals
from storage.codec import entrylog as codec
from storage.entry_logs import log_ids
from storage.errors import CorruptionError
from storage.filenames import FileKind
from storage.journal_reader import JournalReader, StoredRecord
from storage.journal_scan import Owner, owner_of
from storage.position import LogPosition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.founding import Layout
    from storage.files import Directory
    from storage.index_state import IndexState

_DRAFTS = frozenset(
    {
        FileKind.JOURNAL_DRAFT,
        FileKind.ENTRY_LOG_DRAFT,
        FileKind.LAST_MARK_DRAFT,
        FileKind.LEDGER_ROWS_DRAFT,
        FileKind.COOKIE_DRAFT,
    }
)


def remove_drafts(layout: Layout) -> tuple[str, ...]:
    """Removes files that never got their name; returns what they were called."""
    removed = []
    for directory in (layout.journal, layout.ledgers):
        for name in directory.names():
            if filenames.parse(name).kind in _DRAFTS:
                directory.remove(name)
                removed.append(name)
    return tuple(removed)


def remove_leftover_logs(directory: Directory, state: IndexState, store_id: bytes) -> tuple[str, ...]:
    """Removes the logs of a checkpoint that never ended: ours, and without an entry that counts.

    Nothing else is ever removed: a log that a bookie has written is a bookie's, and anything that cannot
    be told is kept.
    """
    removed = []
    for log_id in log_ids(directory):
        if log_id in state.log_ends:
            continue
        name = filenames.entry_log(log_id)
        with directory.open(name) as file:
            header = codec.decode_header(file.read(0, codec.HEADER_SIZE))
        if isinstance(header, codec.Header) and header.origin and header.origin.store_id == store_id:
            directory.remove(name)
            removed.append(name)
    return tuple(removed)


def has_foreign_logs(directory: Directory, state: IndexState) -> bool:
    """Whether a bookie has made a log here that the index has never heard of."""
    for log_id in log_ids(directory):
        if log_id not in state.log_ends:
            with directory.open(filenames.entry_log(log_id)) as file:
                header = codec.decode_header(file.read(0, codec.HEADER_SIZE))
            if isinstance(header, codec.Header) and header.origin is None:
                return True
    return False


def newest_foreign_journal(directory: Directory, beyond: int) -> int:
    """The newest journal, newer than that one, in which a bookie has written a record; else that one."""
    newer = (one for one in reversed(journals.journal_ids(directory)) if one > beyond)
    return next((one for one in newer if _is_foreign(directory, one)), beyond)


def _is_foreign(directory: Directory, journal_id: int) -> bool:
    with directory.open(filenames.journal(journal_id)) as file:
        reader = JournalReader(file, journal_id)
        items = reader.items(reader.records_start)
        return owner_of(reader) is Owner.BOOKIE and any(isinstance(item, StoredRecord) for item in items)


def check_logs(directory: Directory, state: IndexState) -> None:
    """Raises if a log that holds acknowledged entries is gone, or shorter than it was."""
    for log_id, end in state.log_ends.items():
        check_log(directory, LogPosition(log_id, end))


def check_log(directory: Directory, end: LogPosition) -> None:
    """Raises unless the log is there, and reaches as far as it was written."""
    name = filenames.entry_log(end.log_id)
    try:
        file = directory.open(name)
    except FileNotFoundError:
        raise CorruptionError(name, 0, "missing, and it held acknowledged entries", "ELG-005") from None
    # An end inside the header is that of a log which was only read: it may lose more than that.
    with file:
        if end.offset > codec.HEADER_SIZE and (size := file.size()) < end.offset:
            raise CorruptionError(name, size, f"ends here, and was written up to {end.offset}", "ELG-005")


def unknown_names(layout: Layout) -> tuple[str, ...]:
    """Files that no store writes, kept where they are."""
    return tuple(sorted(_unknown(layout)))


def _unknown(layout: Layout) -> Iterator[str]:
    for directory in (layout.journal, layout.ledgers):
        for name in directory.names():
            if filenames.parse(name).kind is FileKind.UNKNOWN:
                yield name

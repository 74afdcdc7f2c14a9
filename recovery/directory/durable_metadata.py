"""Reads from the journals which group of the metadata log was durable when they were written.

A delete is acknowledged when its tombstone is in the metadata log, and a group of the journal is durable
whose seal names that tombstone's group. Until the next checkpoint only the seals tell a metadata log that has
lost its last groups from one that never had them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.journal.journal_set import journal_ids
from storage.journal.reader import JournalReader
from storage.journal.seal import metadata_sequence

if TYPE_CHECKING:
    from storage.disk.files import Directory
    from storage.entry.position import JournalPosition

_READ_AHEAD = 4096
"""Bytes that are read at once, because nothing follows the mark of a store that was closed."""


def durable_sequence(journals: Directory, mark: JournalPosition, known: int) -> int:
    """Return the last group of the metadata log that was durable, as far as mark, index and journals tell.

    `known` is the one that mark and index name. The newest group of the journals decides, if it was written
    after the mark: every group says what the one before it said, or more.
    """
    for journal_id in reversed(journal_ids(journals)):
        if journal_id < mark.journal_id:
            break
        try:
            file = journals.open(filenames.journal(journal_id))
        except FileNotFoundError:
            continue
        with file:
            start = mark.offset if journal_id == mark.journal_id else 0
            seal = JournalReader(file, journal_id, _READ_AHEAD).last_seal(start)
        if seal is not None:
            return metadata_sequence(seal.metadata_tag, known)
    return known

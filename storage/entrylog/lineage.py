"""The lineage file of a ledger directory, which is written before a log is removed.

Only removals and imports write it, so that no checkpoint and no roll of a log pays for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk import replace as disk_replace
from storage.entry.read_result import Damaged, Flaw
from storage.entrylog import lineage_format
from storage.errors import NewerFormat

if TYPE_CHECKING:
    from storage.disk.files import Directory
    from storage.entrylog.lineage_format import Lineage


@dataclass(frozen=True, slots=True)
class NoLineage:
    """There is no lineage file: no log was ever removed or imported, or the file is lost."""


def load(directory: Directory, store_id: bytes) -> Lineage | NoLineage | Damaged:
    """Load the directory's lineage. The caller decides what a missing or damaged one means.

    Raise `NewerFormat` if a newer version of this package wrote it.
    """
    try:
        file = directory.open(filenames.LINEAGE)
    except FileNotFoundError:
        return NoLineage()
    with file:
        found = lineage_format.decode(file.read(0, file.size()), store_id)
    if isinstance(found, Damaged) and found.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(directory.path, f"{filenames.LINEAGE}: {found}")
    return found


def store(directory: Directory, lineage: Lineage, store_id: bytes) -> None:
    """Replace the file durably.

    After an error of the draft nothing has changed. After an error of `publish` either file may be there.
    """
    write_draft(directory, lineage, store_id)
    publish(directory)


def write_draft(directory: Directory, lineage: Lineage, store_id: bytes) -> None:
    """Write the lineage under a draft's name, its content durable. No reader sees it."""
    disk_replace.write_draft(directory, filenames.LINEAGE, [lineage_format.encode(lineage, store_id)])


def publish(directory: Directory) -> None:
    """Put the draft in the file's place, in one step and durably."""
    disk_replace.publish_draft(directory, filenames.LINEAGE)

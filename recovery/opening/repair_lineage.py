"""Compares the lineage of the entry logs with a good index, and writes it again if it is damaged or wrong.

While the index is good the lineage is not needed. If the index is lost later, a wrong lineage would hide logs
that count, or name logs that were removed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from recovery.rebuild.entry_log_chain import in_creation_order, lineage_finding, origin_of, read_header
from storage.disk import filenames
from storage.entry.position import LogPosition
from storage.entry.read_result import Damaged
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage
from storage.entrylog.lineage import NoLineage
from storage.entrylog.lineage_format import Lineage
from storage.errors import NO_SPACE

if TYPE_CHECKING:
    from storage.disk.files import Directory
    from storage.index.state import IndexState


def repair_lineage(directory: Directory, state: IndexState, store_id: bytes) -> tuple[str, ...]:
    """Write the lineage again if it is damaged or contradicts the index. Return what was wrong.

    The mark must be durable at the generation of the state. Raise if a newer version wrote the file.
    """
    found = lineage.load(directory, store_id)
    wrong = _what_is_wrong(directory, found, state)
    if not wrong:
        return ()
    kept = tuple(LogPosition(one, state.log_ends[one]) for one in in_creation_order(state.log_ends))
    try:
        lineage.store(directory, Lineage(state.generation, kept, state.gone), store_id)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        # The store does not need it now. The next opening tries again.
        return (f"{wrong}; no space to write it again",)
    return (f"{wrong}; written again from the index",)


def _what_is_wrong(directory: Directory, found: Lineage | NoLineage | Damaged, state: IndexState) -> str:
    match found:
        case Damaged():
            return lineage_finding(found)
        case NoLineage() if _misses_removed_logs(directory, state):
            return f"ELG-008 {filenames.LINEAGE}@0: missing, although logs were removed"
        case Lineage() if _contradicts(found, state):
            return f"ELG-008 {filenames.LINEAGE}@0: it does not belong to this index"
    return ""


def _contradicts(found: Lineage, state: IndexState) -> bool:
    """Return whether no removal or import can have left this lineage beside this index.

    A removal that was interrupted leaves a lineage without logs that the index still has.
    """
    is_later = found.generation > state.generation
    return is_later or not {one.log_id for one in found.kept} <= state.log_ends.keys()


def _misses_removed_logs(directory: Directory, state: IndexState) -> bool:
    """Return whether the header of a log names a log that was removed, so that the chain ends there."""
    if state.gone:
        return True
    # The log before another one is that of the id before, if that is committed: only the others are read.
    for log_id in [one for one in state.log_ends if one - 1 not in state.log_ends]:
        with suppress(OSError):  # a log that cannot be read now proves nothing, and is not needed here
            origin = origin_of(read_header(directory, log_id))
            previous = None if origin is None else origin.previous
            if (
                previous is not None
                and previous.offset > entrylog_format.HEADER_SIZE
                and previous.log_id not in state.log_ends
            ):
                return True
    return False

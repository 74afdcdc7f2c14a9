"""The live records of one log, found by reading all of it and asking the index about every record.

A collection needs no such answer, because it moves the live records and proves that all others are dead. It
is for an operator who asks why a log is still there, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.entry.read_result import Damaged
from storage.gc.log_walk import walk
from storage.gc.policy import Problem, ProblemKind
from storage.gc.proof import DeadRecords, KeptBecause, LedgerLookups, kept_damaged, not_dead
from storage.gc.victim import Victim
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from storage.disk.files import Directory
    from storage.entry.digest import Digester
    from storage.entry.ledger_record import LedgerRecord
    from storage.gc.proof import Kept
    from storage.index.port import IndexReader
    from storage.index.state import IndexState
    from storage.runtime.worker import Pause


def examine(
    directory: Directory,
    visible: IndexReader,
    state: IndexState,
    record_of: Callable[[int], LedgerRecord],
    digester_of: Callable[[int], Digester | None],
    log_id: int,
) -> Generator[Pause, None, tuple[int, Problem | None]]:
    """Return the bytes of the live records in a log, and why it cannot be collected, if so.

    `visible` is the index without the locations of deleted ledgers.
    """
    victim = Victim(directory, visible, digester_of, lambda: 0, log_id, state.log_ends[log_id])
    live = 0
    for found in victim.chunks():
        if isinstance(found, Damaged):
            return live, problem_of(kept_damaged(log_id, found))
        live += sum(one.records.size for one in found)
        yield AT_ONCE
    dead = DeadRecords(log_id, LedgerLookups(state, visible, record_of))
    with directory.open(filenames.entry_log(log_id)) as file:
        for item in walk(file, log_id, state.log_ends[log_id]):
            if isinstance(item, Damaged):
                return live, problem_of(kept_damaged(log_id, item))
            for run in item.runs:
                for kept in not_dead(visible, dead, log_id, run):
                    if (problem := problem_of(kept)) is not None:
                        return live, problem
            yield AT_ONCE
    return live, None


def problem_of(kept: Kept) -> Problem | None:
    """Return why a log cannot be collected; `None` if it is kept for any other reason."""
    match kept.because:
        case KeptBecause.DAMAGED:
            kind = ProblemKind.DAMAGED
        case KeptBecause.UNACCOUNTED:
            kind = ProblemKind.UNACCOUNTED
        case _:
            return None
    return Problem(kind, kept.finding or "ELG-004", kept.offset or 0)

"""After the kill: the files that the writer has left, and every entry that was acknowledged to it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.opening.open_store import open_store
from storage.checkpoint import mark
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.errors import EntryUnreadable, NoSuchEntry, NoSuchLedger
from storage.journal import journal_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from recovery.demo.workload import Workload
    from storage.ledger import Ledger
    from storage.open_report import OpenReport, ReplayProgress
    from storage.store import Store


@dataclass(frozen=True, slots=True)
class WriterProgress:
    """How far the writer had come, by its files."""

    checkpoints: int
    journals: int


def writer_progress(path: str) -> WriterProgress:
    """Read the progress from the files.

    Call it before the store is opened, because an opening changes them.
    """
    current = filenames.CURRENT
    found = mark.load(PosixDirectory(Path(path) / filenames.LEDGER_DIRECTORY / current))
    generation = found.trailer.generation if isinstance(found, Mark) and found.trailer else 0
    ids = journal_set.journal_ids(PosixDirectory(Path(path) / filenames.JOURNAL_DIRECTORY / current))
    return WriterProgress(generation, max(ids, default=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBackResult:
    """The result of opening the store and reading everything. `lost` must be 0."""

    acknowledged: int
    intact: int
    """Acknowledged entries that are there, byte for byte as written."""
    unacknowledged: int
    """Further entries: the kill came between their sync and their acknowledgement."""
    wrong: int
    """Further entries that are not as they were written."""
    opened: OpenReport
    replay_s: float
    """Seconds until everything was in memory again."""
    open_s: float
    """Seconds until the store could take adds again."""

    @property
    def lost(self) -> int:
        """Acknowledged entries that are missing, unreadable or changed."""
        return self.acknowledged - self.intact

    @property
    def is_sound(self) -> bool:
        return self.lost == 0 and self.wrong == 0


def audit(
    path: str,
    workload: Workload,
    ends: Mapping[int, int],
    replaying: Callable[[ReplayProgress], None],
    reading: Callable[[int, int], None],
) -> ReadBackResult:
    """Open the store and read everything; `ends` is the number of acknowledged entries of each ledger.

    `reading` is called with the number of entries that have been read, and the number of all.
    """
    stopwatch = _ReplayStopwatch(replaying)
    with open_store(path, workload.config, stopwatch.note) as store:
        open_s = stopwatch.elapsed()
        kept = {ledger_id: max(end, _end(store, ledger_id)) for ledger_id, end in ends.items()}
        total = sum(kept.values())
        done = intact = unacknowledged = 0
        for ledger_id, end in kept.items():
            for entry_id, is_intact in enumerate(_intact(store.ledger(ledger_id), end, workload)):
                if entry_id < ends[ledger_id]:
                    intact += is_intact
                else:
                    unacknowledged += is_intact
                done += 1
                reading(done, total)
        acknowledged = sum(ends.values())
        return ReadBackResult(
            acknowledged=acknowledged,
            intact=intact,
            unacknowledged=unacknowledged,
            wrong=total - acknowledged - unacknowledged,
            opened=store.opened,
            replay_s=stopwatch.replayed_s,
            open_s=open_s,
        )


class _ReplayStopwatch:
    """Measures time from its creation; passes progress on and notes when it last came."""

    def __init__(self, replaying: Callable[[ReplayProgress], None]) -> None:
        self.replayed_s = 0.0
        self._replaying = replaying
        self._began = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def note(self, progress: ReplayProgress) -> None:
        self.replayed_s = self.elapsed()
        self._replaying(progress)


def _end(store: Store, ledger_id: int) -> int:
    last = store.ledger(ledger_id).last_entry_id
    return 0 if last is None else last + 1


def _intact(ledger: Ledger, end: int, workload: Workload) -> Iterator[bool]:
    """Yield for each entry before `end` whether it is there as it was written."""
    at = 0
    while at < end:
        try:
            for payload in ledger.payloads(at, end - 1):
                yield payload == workload.payload(ledger.id, at)
                at += 1
        except (NoSuchLedger, NoSuchEntry, EntryUnreadable):
            # A whole block may have been refused because of one entry, so read each entry by itself.
            yield _is_intact(ledger, at, workload)
            at += 1


def _is_intact(ledger: Ledger, entry_id: int, workload: Workload) -> bool:
    try:
        return ledger.read(entry_id).payload == workload.payload(ledger.id, entry_id)
    except (NoSuchLedger, NoSuchEntry, EntryUnreadable):
        return False

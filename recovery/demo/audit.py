"""What is there after the kill: the traces that the writer has left, and every entry it was answered for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.opening import open_store
from storage import filenames, journals, lastmark
from storage.codec.mark import Mark
from storage.errors import EntryUnreadable, NoSuchEntry, NoSuchLedger
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from recovery.demo.workload import Workload
    from storage.ledger import Ledger
    from storage.report import OpenReport, ReplayProgress
    from storage.store import Store


@dataclass(frozen=True, slots=True)
class Traces:
    """How far the writer had come, by its files."""

    checkpoints: int
    journals: int


def traces(path: str) -> Traces:
    """Looked for before the store is opened, which adds its own. Reads only."""
    current = filenames.CURRENT
    found = lastmark.load(PosixDirectory(Path(path) / filenames.LEDGER_DIRECTORY / current))
    generation = found.trailer.generation if isinstance(found, Mark) and found.trailer else 0
    ids = journals.journal_ids(PosixDirectory(Path(path) / filenames.JOURNAL_DIRECTORY / current))
    return Traces(generation, max(ids, default=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What opening has brought back. `lost` is what must be 0."""

    acknowledged: int
    intact: int
    """Of those acknowledged: there, byte for byte what was written."""
    unacknowledged: int
    """Kept beyond them: the kill came between their sync and the answer."""
    wrong: int
    """Kept beyond them, and not what was written."""
    opened: OpenReport
    replay_s: float
    """Until everything was in memory again."""
    open_s: float
    """Until the store could take adds again."""

    @property
    def lost(self) -> int:
        """Acknowledged, and now missing, unreadable or changed."""
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
) -> Recovered:
    """Opens the store and reads everything. `ends`: of each ledger, the entries that were acknowledged.

    `reading` is told how many entries have been read, and of how many.
    """
    stopwatch = _Stopwatch(replaying)
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
        return Recovered(
            acknowledged=acknowledged,
            intact=intact,
            unacknowledged=unacknowledged,
            wrong=total - acknowledged - unacknowledged,
            opened=store.opened,
            replay_s=stopwatch.replayed_s,
            open_s=open_s,
        )


class _Stopwatch:
    """Starts when it is made; passes progress on, and notes when it last came."""

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
    """Of each entry before `end`, whether it is there as it was written."""
    at = 0
    while at < end:
        try:
            for payload in ledger.payloads(at, end - 1):
                yield payload == workload.payload(ledger.id, at)
                at += 1
        except (NoSuchLedger, NoSuchEntry, EntryUnreadable):
            # A whole block may have been refused for one of its entries: each has to be asked for by itself.
            yield _is_intact(ledger, at, workload)
            at += 1


def _is_intact(ledger: Ledger, entry_id: int, workload: Workload) -> bool:
    try:
        return ledger.read(entry_id).payload == workload.payload(ledger.id, entry_id)
    except (NoSuchLedger, NoSuchEntry, EntryUnreadable):
        return False

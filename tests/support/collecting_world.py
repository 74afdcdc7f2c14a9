"""A world whose store also reclaims space: the workload `compaction` of the crash simulation.

Between any two steps of moves, removals and purges the other work goes on: entries are added again, ledgers
are deleted and made again, checkpoints run, and the process ends. Logs are small, so that there is always a
log to collect. At the end of a sitting the index may be lost, so that it is made again from the logs, the
metadata and the lineage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from file_index import FileIndex, FileIndexPlace
from simulated_store import SimulatedWorld, Trouble
from store_internals import StoreInternals

from recovery.crashlab import Stopped
from recovery.directory.layout import Layout
from recovery.rebuild.entry_log_chain import read_header
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.entry.read_result import Damaged
from storage.entrylog.log_set import log_ids
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from recovery.crashlab import Fault, SimulatedDisk
    from storage.disk.files import Directory
    from storage.gc.compactor import Moved, Purged, Removed

LOG_SIZE = 16 << 10


class CollectingWorld(SimulatedWorld):
    """The history of one seed, with a collector."""

    def __init__(self, seed: int, trouble: Trouble, fault: Fault | None = None) -> None:
        super().__init__(seed, trouble, fault)
        self.shape = replace(
            self.shape, config=replace(self.shape.config, entry_log_size_max=LOG_SIZE, journal_max_backups=0)
        )
        self.moved = self.removed = self.purged = self.lost_indexes = 0
        self._verb: Generator[Any, None, Moved | Removed | Purged] | None = None

    def _more_choices(self) -> list[tuple[Callable[[], None], int]]:
        choices: list[tuple[Callable[[], None], int]] = [(self._request_checkpoint, 6), (self._delete, 6)]
        if self._verb is None:
            return [*choices, (self._begin_move, 25), (self._begin_removal, 25), (self._begin_purge, 8)]
        runner = next(one for one in self._workers if one.name == "ledgerstore-checkpoint")
        # Often, because a verb has many steps, and most histories would crash before it ends.
        choices += [(runner.play, 100)] if self._may_play(runner) else []
        return [*choices, (self._collect, 100)]

    def _perhaps_trouble(self) -> None:
        if self._dice.random() < 0.2:
            super()._perhaps_trouble()

    def _begin_move(self) -> None:
        logs = StoreInternals(self.store).log_ids[:-1]
        if logs:
            self._verb = StoreInternals(self.store).compactor.move(self._dice.choice(logs))

    def _begin_removal(self) -> None:
        self._verb = StoreInternals(self.store).compactor.remove(StoreInternals(self.store).log_ids)

    def _begin_purge(self) -> None:
        self._verb = StoreInternals(self.store).compactor.purge_tombstones()

    def _collect(self) -> None:
        """Take a step of the collector, which may have to wait for the runner of checkpoints."""
        verb = self._verb
        assert verb is not None
        try:
            for _ in range(self._dice.choice([1, 1, 4, 16])):
                if next(verb) is None:
                    break
        except StopIteration as end:
            self._verb = None
            result = end.value
            self.moved += getattr(result, "entries_moved", 0)
            self.removed += len(getattr(result, "logs_removed", ()))
            self.purged += getattr(result, "tombstones_purged", 0)
        except (StoreError, OSError):
            self._verb = None

    def _open(self) -> None:
        super()._open()
        if self._sitting is not None:
            internals = StoreInternals(self.store)
            internals.move_chunk_by_chunk()  # so that there is more between the steps of a slice
            if self.seed % 2:
                internals.make_each_chunk_a_slice()

    def _end(self) -> None:
        super()._end()
        self._verb = None

    def _crash_once(self) -> None:
        super()._crash_once()
        if self._dice.random() < 0.4 and not self._is_faulty and can_lose_its_index(self.disk):
            ledgers = Layout(self.disk.root()).ledgers
            try:
                ledgers.remove(filenames.INDEX)
                ledgers.sync()
            except Stopped:
                self.disk.kill()
                return
            self.lost_indexes += 1
            self._note("index lost")


def can_lose_its_index(disk: SimulatedDisk) -> bool:
    """Return whether the index can be made again without a loss that is another one.

    An index that is ahead of the mark may have entries that were never acknowledged, and a power cut while a
    log is sealed destroys its header.
    """
    ledgers = Layout(disk.root()).ledgers
    try:
        names = set(ledgers.names())
    except FileNotFoundError:
        return False
    if not {filenames.INDEX, filenames.LAST_MARK} <= names:
        return False
    return not index_is_ahead(ledgers) and not torn_headers(ledgers)


def index_is_ahead(ledgers: Directory) -> bool:
    """Return whether the index has a state that the mark does not have yet."""
    index, mark = FileIndexPlace(ledgers).open(), lastmark.load(ledgers)
    assert isinstance(index, FileIndex)
    assert isinstance(mark, Mark)
    assert mark.trailer is not None
    return index.state().generation > mark.trailer.generation


def torn_headers(ledgers: Directory) -> tuple[str, ...]:
    """Return the beginnings of findings about entry logs whose header is torn."""
    headers = {log_id: read_header(ledgers, log_id) for log_id in log_ids(ledgers)}
    torn = [log_id for log_id, header in headers.items() if isinstance(header, Damaged)]
    return tuple(f"ELG-001 {filenames.entry_log(log_id)}@0" for log_id in torn)

"""Opens a store, which is always a recovery: `Opening.recover` has all steps in their order.

No file of an earlier process is ever written to. Recovered data goes into new files, so that a crash at any
moment of an opening costs only repeated work.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.directory.audit_links import remove_stale
from recovery.directory.layout import Layout, check_can_be_opened, create_store, is_created, load_store_id
from recovery.directory.orphans import remove_drafts, remove_orphans
from recovery.opening.assembly import Platform, assemble
from recovery.opening.reconcile import reconcile
from recovery.replay.apply import JournalApplier
from recovery.replay.journals import Replay
from recovery.replay.progress import ignore
from recovery.replay.torn_tails import save_torn_tails
from storage.capacity.reserve import Reserve
from storage.checkpoint.mark import newest_named
from storage.config import ReadMode, StoreConfig
from storage.disk import filenames
from storage.disk.mapped import open_mapped
from storage.disk.posix import PosixDirectory
from storage.errors import NO_SPACE, DiskFull
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.journal.journal_set import journal_ids, trim
from storage.open_report import IndexFound, OpenReport, ReplayProgress
from storage.runtime import forks
from storage.runtime.worker import ThreadWorker, begin_in_finalizer
from storage.store import Store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from storage.disk.files import Directory, Lock, ReadFile
    from storage.engine import Engine
    from storage.index.port import Index, IndexDirectory

_LOG = logging.getLogger("ledgerstore.opening")

JOURNALS_MAX = 3
"""With more journals than this from the mark on, an opening makes a checkpoint to bound their number."""

_MEMORY_OF_AN_EXTENT = 64
"""Bytes that a noted extent takes at most. All of them together take no more than a table."""

_EXTENTS_MIN = 1024


@dataclass(frozen=True, slots=True)
class RecoveredStore:
    """The result of a recovery: a store without workers, to which nothing is added yet."""

    engine: Engine
    index: Index
    report: OpenReport
    lock: Lock


def open_store(
    path: str | os.PathLike[str],
    config: StoreConfig = StoreConfig(),  # noqa: B008 - frozen
    progress: Callable[[ReplayProgress], None] = ignore,
) -> Store:
    """Open the store at `path`: make it if there is none, recover it after a crash. Close it, or use `with`.

    Every entry that was ever acknowledged can be read when this returns. `progress` is called during a long
    replay. `StoreLocked` if the store is open already, in another process or in this one; `CorruptionError`
    if acknowledged data is damaged, and then nothing has been changed.

    A relative path means the directory that it names now: a later `os.chdir` does not move the store. `~` is
    an ordinary name, as it is for `open`: use `pathlib.Path.expanduser`. An empty path is `InvalidConfig`.
    """
    root = PosixDirectory(path)
    parent = PosixDirectory(Path(root.path).parent)
    root.make()
    layout = Layout(root)
    place = LmdbIndexDirectory(layout.ledgers, Path(layout.ledgers.path), config.index_size_max)
    platform = Platform(ThreadWorker, close_unclosed=begin_in_finalizer)
    if config.read_mode is ReadMode.MMAP:
        platform = replace(platform, open_log=_open_mapped)
    opening = Opening(layout, place, config, platform, progress, parent)
    store = opening.run()
    # Links that a killed audit has left keep the space of removed logs and journals.
    remove_stale(root.path)
    forks.watch(store)
    _log(store.path, store.opened)
    return store


def _log(path: str, report: OpenReport) -> None:
    _LOG.info("%s: %s", path, "; ".join(str(report).splitlines()))
    if report.index is IndexFound.REBUILT:
        _LOG.warning("%s: index: %s", path, report.index.value)
    for finding in report.findings:
        _LOG.warning("%s: finding: %s", path, finding)


def _open_mapped(directory: Directory, name: str) -> ReadFile:
    return open_mapped(f"{directory.path}/{name}")


class Opening:
    """One opening of one directory."""

    def __init__(
        self,
        layout: Layout,
        place: IndexDirectory,
        config: StoreConfig,
        platform: Platform,
        progress: Callable[[ReplayProgress], None] = ignore,
        parent: Directory | None = None,
    ) -> None:
        self._layout = layout
        self._place = place
        self._config = config
        self._platform = platform
        self._progress = progress
        self._parent = layout.root if parent is None else parent
        self._created = False
        self._replayed_from: int | None = None
        """The journal from which the last attempt has replayed, once mark and index agreed."""

    def run(self) -> Store:
        """Recover the store and return it."""
        with ExitStack() as held:
            recovered = self.recover(held)
            release = held.pop_all()
            return Store(
                recovered.engine,
                recovered.report,
                release.close,
                recovered.lock.close,
                self._platform.new_worker,
                self._platform.close_unclosed,
            )

    def recover(self, held: ExitStack) -> RecoveredStore:
        """Lock the directory and recover it; `held` closes whatever is opened, the lock last.

        If the disk is full, space is freed and everything is done again, as after a crash.
        """
        layout = self._layout
        with _naming_full_disk(layout.root.path):
            # Nothing is made in a directory that holds something else, not even the lock.
            check_can_be_opened(layout)
            lock = held.enter_context(layout.root.lock(filenames.LOCK))
            ways = self._ways_to_free_space()
            while True:
                try:
                    with ExitStack() as unless_recovered:
                        recovered = self._recover_locked(lock, unless_recovered)
                        held.enter_context(unless_recovered.pop_all())
                        return recovered
                except OSError as error:
                    if error.errno not in NO_SPACE or not any(ways):
                        raise

    def _ways_to_free_space(self) -> Iterator[bool]:
        """Free space for an opening in one way after another, and yield whether that has freed any.

        What no opening needs comes first, the reserve last. Each way is gone once, because each attempt may
        leave drafts again.
        """
        layout = self._layout
        yield remove_drafts(layout)
        yield self._trim_backups()
        for name in (filenames.RESERVE, filenames.OPENING_RESERVE):
            yield Reserve(layout.ledgers, name, self._platform.new_lock()).give_up()
        # Again, because the first attempts may have failed before it was known which are needed.
        yield self._trim_backups()

    def _trim_backups(self) -> bool:
        journal_id = self._replayed_from
        return journal_id is not None and bool(trim(self._layout.journal, journal_id, 0))

    def _recover_locked(self, lock: Lock, held: ExitStack) -> RecoveredStore:
        """Do every step of the recovery in its order; `held` closes whatever is opened."""
        layout, config = self._layout, self._config
        started = self._platform.clock()
        # 1. A directory without a store becomes one.
        if not is_created(layout):
            self._created = True
            create_store(layout, self._place, self._platform.new_id)
            # Before anything is acknowledged, because a power cut must not take the whole store away.
            self._parent.sync()
        # 2. Mark, index and ledger metadata are brought into agreement.
        store_id = load_store_id(layout)
        reconciled = reconcile(layout, self._place, store_id, held)
        mark = reconciled.mark
        self._replayed_from = mark.position.journal_id
        # 3. The journals are judged, before anything is removed: a refused store stays as it was.
        replay = Replay(
            layout.journal,
            mark.position,
            newest_named(mark),
            reconciled.rows.rows,
            max(_EXTENTS_MIN, config.memtable_size_max // _MEMORY_OF_AN_EXTENT),
        )
        # 4. Leftovers of an earlier process are removed, and torn tails are saved.
        orphans = remove_orphans(layout, reconciled.index.state(), store_id)
        torn = tuple(save_torn_tails(replay.verdict, layout.journal, layout.quarantine))
        # 5. The engine is put together, and the journals are replayed into it.
        engine = assemble(layout, config, self._platform, store_id, reconciled, replay)
        engine.journals.note_read(replay.sound_end)
        engine.journals.note_ends({one.scan.journal_id: one.end for one in replay.verdict.standings})
        for close in (engine.slot.close, engine.reader.close, engine.journals.close, engine.logs.abandon):
            held.callback(close)
        applied = JournalApplier(replay, engine, self._progress)
        applied.run()
        # 6. Records that were only read may not be durable: written again before they can be seen.
        if applied.carried:
            engine.committer.carry_over(applied.carried)
        # 7. Crash loops must not pile up journals. A frozen table is counted where it was left in them.
        marked = [one for one in journal_ids(layout.journal) if one >= mark.position.journal_id]
        if len(marked) > JOURNALS_MAX and engine.slot.tables.frozen is None:
            # On a full disk the table stays frozen, and its checkpoint is tried again later.
            engine.checkpointer.finish()
            if engine.store_state.failure is not None:
                raise engine.store_state.failure
        report = OpenReport(
            created=self._created,
            index=IndexFound.MADE if self._created else reconciled.how,
            seconds=self._platform.clock() - started,
            journals_read=len(replay.verdict.standings),
            records_replayed=applied.records,
            bytes_replayed=applied.size,
            records_carried=len(applied.carried),
            torn=torn,
            removed=orphans.removed,
            unknown=orphans.unknown,
            findings=reconciled.findings,
        )
        return RecoveredStore(engine, reconciled.index, report, lock)


@contextmanager
def _naming_full_disk(path: str) -> Iterator[None]:
    """Raise `DiskFull` with the path of the store, because most calls that write do not name the file."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE or isinstance(error, DiskFull):
            raise
        raise DiskFull(path) from error

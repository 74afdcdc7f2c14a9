"""The store: ledgers to append to and to read from. `recovery.open_store` makes it; opening is recovering.

It owns the background work and nothing else: adds are `storage.commit.committer`, checkpoints
`storage.checkpoint.checkpointer`, reads `storage.read.points` and `storage.read.ranges`.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Self, Unpack
from weakref import ref

from storage.background import DebouncedTask, IdleSealer, JournalPreallocator, SpaceKeeper
from storage.bookie import Bookie
from storage.commit.pending import ReplicaEntry
from storage.commit.queue import new_lock
from storage.entry.model import DigestType
from storage.errors import DiskFull, NoSuchLedger
from storage.ledger import Ledger
from storage.runtime.events import LOG
from storage.space_survey import measure
from storage.stats import stats_of
from storage.validation import access_of, check_id, checked_payload, overhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from weakref import ReferenceType

    from storage.cluster.topics.blocking import Topic
    from storage.cluster.topics.embedded import EmbeddedTopics
    from storage.cluster.topics.policies import TopicOptions
    from storage.engine import Engine
    from storage.entry.model import Entry
    from storage.gc.report import CollectionProgress, CollectionReport
    from storage.memtable.table import Memtable
    from storage.open_report import OpenReport
    from storage.runtime.worker import WorkerFactory
    from storage.space import StoreSpace
    from storage.stats import StoreStats


class Store:
    """A directory of ledgers, open for one process.

    `ledgerstore.open` makes it. Threads may share it. A child process after a fork must not use it: each call
    raises `ForkedStore`. It cannot be pickled.
    """

    def __init__(
        self,
        engine: Engine,
        report: OpenReport,
        release: Callable[[], None],
        unlock: Callable[[], None],
        new_worker: WorkerFactory,
        close_unclosed: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`close_unclosed` makes a call in another thread. Without it an unclosed store ends as if killed."""
        self._close_unclosed = close_unclosed
        self._opened = report
        self._opened_at = time.time()
        self._entries_before = engine.slot.tables.added
        self._release = release
        self._unlock = unlock
        self._engine = engine
        self._committer = engine.committer
        self._store_state = engine.store_state
        self._reader = engine.reader
        self._background = Background(engine, new_worker)
        self._topics: EmbeddedTopics | None = None
        self._topics_lock = new_lock()
        self._topics_claim = new_lock()
        """Taken for ever by the first face of the store that has topics."""

    @property
    def path(self) -> str:
        """The directory of the store, as an absolute path."""
        return self._engine.path

    @property
    def opened(self) -> OpenReport:
        """The report of the opening; print it, or read its fields."""
        return self._opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.path}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a store belongs to the process that opened it, and cannot be pickled")

    # ── ledgers ──────────────────────────────────────────────────────────────────────────────────────

    def ledger(self, ledger_id: int, digest: DigestType | None = None, password: bytes = b"") -> Ledger:
        """Return the ledger of that id. Its first append creates it; the call itself writes nothing.

        The first append fixes the password of the ledger and the digest type of its entries, which is CRC-32C
        unless `digest` names another. Appending with another password raises `Unauthorized`. Reading needs
        the password only for `DigestType.MAC`.
        """
        self._store_state.check_reads()
        return Ledger(
            ledger_id, access_of(password, digest), self._engine, self._background.flushing.notice, self
        )

    def topic(self, name: str, **options: Unpack[TopicOptions]) -> Topic:
        """Return the topic of that name in this store: see `storage.cluster.topics`.

        Nothing is written before its first message. Raise `TopicsInUse` if coroutines have topics of it.
        """
        self._store_state.check_reads()
        with self._topics_lock:
            if self._topics is None:
                from storage.cluster.topics.embedded import EmbeddedTopics

                self._topics = EmbeddedTopics(self)
            return self._topics.topic(name, **options)

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers that exist, ascending. `Ledger.exists` says when a ledger exists."""
        with self._store_state.reading():
            return sorted({*self._reader.ledgers(), *self._engine.metadata.existing_ledgers()})

    def add(self, entry: Entry, digest: DigestType | None = None, password: bytes = b"") -> None:
        """Add an entry whose id, last add confirmed and length the caller has chosen, as a replica does.

        Returns when a crash can no longer lose the entry. Ids may come in any order and leave gaps. If an id
        is added twice, the later entry counts. Programs that write their own ledgers use `Ledger.append`.
        """
        self._store_state.check_reads()
        access, checked = access_of(password, digest), checked_entry(entry, digest, self._engine)
        self._committer.commit(ReplicaEntry(self._engine.states.of(entry.ledger_id), access, checked))

    def delete(self, ledger_ids: Iterable[int], password: bytes = b"") -> None:
        """Delete many ledgers at once, in about the time of one; return when no crash can bring any back.

        If one does not exist, nothing is deleted, and `NoSuchLedger` names the first. If one was made with
        another password, nothing is deleted either, and it is `Unauthorized`. The ids are then free, as after
        `Ledger.delete`. `DiskFull` if all are there as before. An id that is named twice counts once.
        """
        self._store_state.check_reads()
        ids = list(ledger_ids)
        for ledger_id in ids:
            check_id("ledger", ledger_id)
        if (missing := self._engine.control.delete_all(ids, access_of(password, None))) is not None:
            raise NoSuchLedger(missing)

    @property
    def bookie(self) -> Bookie:
        """The same store with the operations of a bookie: entries as bytes, master keys for passwords."""
        return Bookie(self._engine, self._background.flushing.notice, self)

    def stats(self) -> StoreStats:
        """Return the figures of the store now. Adds do not wait for it; it takes longer with more ledgers.

        It also answers after a failure has stopped the store from writing: `StoreStats.failed` states the
        reason.
        """
        with self._store_state.reading():
            return stats_of(self._engine, self._opened_at, self._entries_before)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────

    def checkpoint(self) -> None:
        """Move everything added so far to the entry logs and the index; return when that is durable.

        A store does this by itself; call it to keep the next replay short. `DiskFull` if there is no space:
        nothing is lost, and the checkpoint goes on by itself when there is space again.
        """
        self._store_state.check_writes()
        number = self._engine.checkpointer.request()
        self._background.checkpoints.wake()
        self._engine.checkpointer.wait_for(number)
        self._store_state.check_writes()
        if self._engine.checkpointer.disk_full_error is not None:
            raise DiskFull(self.path) from self._engine.checkpointer.disk_full_error

    # ── space ────────────────────────────────────────────────────────────────────────────────────────

    def collect(self, watch: Callable[[CollectionProgress], None] | None = None) -> CollectionReport:
        """Give the space of dead entries back now: remove logs without live entries, and move live
        entries out of logs that are mostly dead. Return when that is done, with what was done.

        A store does this by itself, after `StoreConfig.collection_interval_s`; this call does not wait for
        `compaction_window`. Adds and reads go on meanwhile. A damaged log is passed over, and is in the
        report. `watch` is called with the progress, in the calling thread. While collection is paused,
        nothing is done, and the report says so.
        """
        self._store_state.check_writes()
        collector = self._engine.collector
        number = collector.request()
        collector.wait_for(number, watch)
        self._store_state.check_writes()
        assert collector.report is not None, "it has ended"
        return collector.report

    def pause_collection(self) -> None:
        """Let no collection begin until `resume_collection`; one under way ends after a few megabytes."""
        self._store_state.check_writes()
        self._engine.collector.pause()

    def resume_collection(self) -> None:
        """Let collections begin again."""
        self._store_state.check_writes()
        self._engine.collector.resume()

    def space(self) -> StoreSpace:
        """Return what takes the space of the store now. Adds do not wait for it.

        It reads the ledgers map of each entry log, so it takes longer with more logs and ledgers.
        """
        engine = self._engine
        with self._store_state.reading():
            return measure(
                engine.root,
                engine.index,
                engine.usage_survey(),
                engine.metadata.count_tombstones(),
            )

    # ── followers ────────────────────────────────────────────────────────────────────────────────────

    def stop_followers(self) -> None:
        """End every `Ledger.follow`, also those begun later; for a program that is about to shut down.

        A server that first waits for its streams and then closes the store would wait for ever without this
        call, because a stream that follows a ledger ends only when the store is closed. Readers that wait for
        a last add confirmed are answered, too. Everything else goes on. Any thread and any signal handler may
        call it.
        """
        self._committer.waiters.stop()

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Move everything to the entry logs and release the directory; after a failed write only release it.

        Nothing acknowledged depends on it, because a store that was not closed is recovered when it is opened
        again. Closing a second time does nothing.
        """
        topics, self._topics = self._topics, None
        if topics is not None:
            topics.close()
        if not self._store_state.begin_close():
            return
        self._committer.waiters.wake_all()
        self._background.stop()
        try:
            if self._store_state.failure is None:
                self._leave_in_order()
            else:
                # Nothing is written, but callers with a future and threads that delete get their error.
                self._committer.finish_deletes()
        finally:
            self._store_state.close()
            self._engine.metadata.close()
            self._engine.logs.abandon()
            self._engine.journals.close()
            self._engine.space.close()
            self._release()

    def _leave_in_order(self) -> None:
        self._committer.finish_deletes()
        # Before the checkpoint: should that fail, nothing about the last group is ambiguous at least.
        self._committer.seal()
        try:
            self._engine.checkpointer.finish()
        except OSError as error:
            # The journals have everything, and the next opening replays it.
            LOG.warning("%s: closed without a last checkpoint: %s", self.path, error)
            return
        self._engine.logs.seal()
        self._engine.journals.discard_next()
        self._engine.space.discard_drafts()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        close_unclosed = self._close_unclosed
        if close_unclosed is None or self._store_state.is_closed:
            return
        try:
            _warn(f"unclosed store {self.path}", ResourceWarning, source=self, stacklevel=2)
        finally:
            # In a thread, because the collector may run in any code, so that this thread may hold any lock.
            close_unclosed(self.close)

    def _forked(self) -> None:
        """Called in a child process: refuse all calls, and release what the child shares with its parent."""
        self._store_state.fork()
        # Its copy of the descriptor would keep the directory locked after the store has ended.
        self._unlock()
        self._engine.journals.close()
        self._engine.space.close()
        self._engine.logs.abandon()
        self._engine.reader.close()
        self._engine.slot.close()


def checked_entry(entry: Entry, digest: DigestType | None, engine: Engine) -> Entry:
    """Return the entry with an immutable copy of its payload; raise if that is too large."""
    check_id("ledger", entry.ledger_id)
    check_id("entry", entry.entry_id)
    size = overhead(digest or engine.metadata.digest_type(entry.ledger_id) or DigestType.CRC32C)
    payload = checked_payload(entry.payload, engine.config, size)
    return entry if payload is entry.payload else replace(entry, payload=payload)


class Background:
    """The background work of a store: its workers, and what wakes them.

    It refers to the engine and not to the `Store`, because the workers' threads keep alive what they
    refer to: a store that the program has dropped without closing it could never be collected.
    """

    def __init__(self, engine: Engine, new_worker: WorkerFactory) -> None:
        config = engine.config
        self._engine = engine
        self._slot = engine.slot
        self._journals = engine.journals
        self._groups = engine.journals.groups
        self._metadata = engine.metadata
        self._collector = engine.collector
        self._change = -1  # the first commit gives notice of what died before the opening
        self._frozen: ReferenceType[Memtable] | None = None
        self.checkpoints = new_worker("ledgerstore-checkpoint", engine.checkpointer.step, self.fail)
        engine.checkpointer.wake = self.checkpoints.wake
        self._filling = JournalPreallocator(engine.journals, engine.space, new_worker, self.fail)
        self._space = SpaceKeeper(engine.space, new_worker, self.fail)
        self._collecting = new_worker("ledgerstore-collect", engine.collector.step, self.fail)
        engine.collector.wake = engine.checkpointer.on_reclaimed = self._collecting.wake
        engine.space.on_low = self._collecting.wake
        synced = engine.store_state.events.synced
        self._sealing = IdleSealer(
            engine.committer, engine.journals, config.idle_seal_s, synced, new_worker, self.fail
        )
        flush = engine.committer.flush
        self.flushing = DebouncedTask("ledgerstore-flush", config.group_wait_s, flush, new_worker, self.fail)
        interval_s = config.checkpoint_interval_s
        self._timer = DebouncedTask(
            "ledgerstore-timer", interval_s, self.request_checkpoint, new_worker, self.fail
        )
        engine.committer.after_commit = self._after_commit
        # A replay may have left a frozen table that waits to be written down.
        self._wake_checkpoints()

    def request_checkpoint(self) -> None:
        """Request a checkpoint, without waiting for it."""
        self._engine.checkpointer.request()
        self.checkpoints.wake()

    def _after_commit(self) -> None:
        """Wake the workers that have something to do now. Called in the thread that has led the commit.

        It is repeated when a signal handler has interrupted it.
        """
        if self._slot.tables.frozen is not None:
            self._wake_checkpoints()
        journal = self._journals.active
        if journal is not None and journal.end > journal.half:
            self._filling.notice()
        if self._journals.groups != self._groups:
            # Only if something was written, so that an idle store comes to rest.
            if self._sealing.delayed.is_waiting:
                self._sealing.delayed.notice()
            if self._timer.is_waiting:
                self._timer.notice()
            if self._space.is_waiting:
                self._space.notice()
            self._groups = self._journals.groups
        if self._metadata.last_change != self._change:
            # A ledger may have been deleted or truncated.
            self._change = self._metadata.last_change
            self._collector.notice()

    def _wake_checkpoints(self) -> None:
        frozen = self._slot.tables.frozen
        if frozen is not None and (self._frozen is None or self._frozen() is not frozen):
            self.checkpoints.wake()
            self._frozen = ref(frozen)  # a weak one, because a table must be freed when it is written down

    def fail(self, error: BaseException) -> None:
        """Fail the store because a worker has died, on which its promises depend."""
        self._engine.store_state.fail(error)
        self._engine.committer.waiters.wake_all()

    def stop(self) -> None:
        """Return when no worker runs any more."""
        for worker in (
            self.flushing,
            self._timer,
            self._sealing,
            self._filling,
            self._space,
            self._collecting,  # before the checkpoints, because it submits work to their runner
            self.checkpoints,
        ):
            worker.stop()

"""The store: ledgers to append to and to read from. `recovery.open_store` makes it; opening is recovering.

It owns the workers and nothing else: adds are `storage.commit`, checkpoints `storage.checkpoint`, reads
`storage.reading` and `storage.scanning`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from storage.chores import Delayed, Filling, Sealing
from storage.codec import record as record_codec
from storage.codec.digest import digester
from storage.entry import ID_MAX, NO_ENTRY, DigestType, Entry
from storage.errors import (
    DiskFull,
    EntryTooLarge,
    EntryUnreadable,
    ForkedStore,
    InvalidEntry,
    NoSuchEntry,
    NoSuchLedger,
    StoreClosed,
)
from storage.tail import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from types import TracebackType

    from storage.checkpoint import Checkpointer
    from storage.commit import Committer
    from storage.config import StoreConfig
    from storage.entry_logs import EntryLogs
    from storage.journals import Journals
    from storage.latch import Latch
    from storage.memtable import Memtable, Slot
    from storage.reading import Reading
    from storage.report import OpenReport
    from storage.scanning import Block, Scanning
    from storage.tail import Tails
    from storage.worker import Hire

    Payload = bytes | bytearray | memoryview

_LOG = logging.getLogger(__name__)
_CRC32C = digester(DigestType.CRC32C)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a store is made of; opening puts it together."""

    path: str
    config: StoreConfig
    latch: Latch
    slot: Slot
    tails: Tails
    journals: Journals
    committer: Committer
    logs: EntryLogs
    checkpointer: Checkpointer
    reading: Reading
    scanning: Scanning


class Store:
    """A directory of ledgers, open for one process.

    Threads may share it. A fork of the process must not use it, and it cannot be pickled: `ForkedStore`.
    """

    def __init__(
        self,
        parts: Parts,
        report: OpenReport,
        release: Callable[[], None],
        unlock: Callable[[], None],
        hire: Hire,
    ) -> None:
        self.opened = report
        """What opening found and did."""
        self._release = release
        self._unlock = unlock
        self._parts = parts
        self._committer = parts.committer
        self._latch = parts.latch
        self._reading = parts.reading
        config = parts.config
        self._checkpoints = hire("ledgerstore-checkpoint", parts.checkpointer.step, self._fail)
        self._filling = Filling(parts.journals, hire, self._fail)
        self._sealing = Sealing(parts.committer, config.idle_seal_s, hire, self._fail)
        self._flushing = Delayed("ledgerstore-flush", config.group_wait_s, self._flush, hire, self._fail)
        self._timer = Delayed(
            "ledgerstore-timer", config.checkpoint_interval_s, self._request_checkpoint, hire, self._fail
        )
        self._frozen: Memtable | None = None
        self._groups = parts.committer.groups
        self._committer.on_turn = self._after_turn

    @property
    def path(self) -> str:
        return self._parts.path

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

    def ledger(self, ledger_id: int) -> Ledger:
        """The ledger of that id; its first add creates it."""
        self._latch.check_reads()
        _check_id("ledger", ledger_id)
        return Ledger(self, self._parts, ledger_id)

    def ledgers(self) -> list[int]:
        """The ids of all ledgers with an entry, ascending."""
        with self._latch.reading():
            return self._reading.ledgers()

    def add(self, entry: Entry) -> None:
        """Adds an entry whose id, last add confirmed and length the caller has chosen: what a replica gets.

        Returns when a crash can no longer lose it. Ids may come in any order and leave gaps; of an id added
        twice the later entry counts.
        """
        self._latch.check_reads()
        record = record_codec.encode(entry, _CRC32C)
        self._check_size(len(record) - record_codec.LENGTH_SIZE)
        self._committer.place(entry.ledger_id, entry.entry_id, entry.length, record)

    def _check_size(self, size: int) -> None:
        if size > self._parts.config.entry_size_max:
            raise EntryTooLarge(size, self._parts.config.entry_size_max)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────

    def checkpoint(self) -> None:
        """Returns when everything added before is in entry log and index, and the mark behind it.

        `DiskFull` when there is no space for that: it goes on by itself when there is, and nothing is lost.
        """
        self._latch.check_writes()
        number = self._parts.checkpointer.request()
        self._checkpoints.wake()
        self._parts.checkpointer.wait_for(number)
        self._latch.check_writes()
        if self._parts.checkpointer.hindrance is not None:
            raise DiskFull(self.path) from self._parts.checkpointer.hindrance

    def _request_checkpoint(self) -> None:
        self._parts.checkpointer.request()
        self._checkpoints.wake()

    # ── background work ──────────────────────────────────────────────────────────────────────────────

    def _after_turn(self) -> None:
        """Wakes whoever has something to do now; in the thread of whoever has led the turn."""
        try:
            self._wake_workers()
        except Exception as error:  # the entries are durable: the turn itself has not failed
            self._fail(error)

    def _wake_workers(self) -> None:
        frozen = self._parts.slot.tables.frozen
        if frozen is not self._frozen:
            self._frozen = frozen
            if frozen is not None:
                self._checkpoints.wake()
        self._filling.notice()
        if self._committer.groups != self._groups:
            # Only where something was written: an idle store must come to rest.
            self._groups = self._committer.groups
            self._sealing.notice()
            self._timer.notice()

    def notice_submit(self) -> None:
        """Something waits for a turn, and perhaps nobody to lead it."""
        self._flushing.notice()

    def _flush(self) -> None:
        self._committer.turnstile.flush()

    def _fail(self, error: BaseException) -> None:
        """Background work has died: nothing that depends on it is promised any more."""
        self._latch.fail(error)
        self._committer.news.notify()
        self._parts.checkpointer.done.notify()

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Checkpoints everything and lets the directory go; after a failed write it only lets go.

        Nothing acknowledged depends on it: a store that is not closed is recovered when it is opened again.
        """
        if not self._latch.begin_close():
            return
        self._committer.news.notify()
        self._parts.checkpointer.done.notify()
        for worker in (self._flushing, self._timer, self._sealing, self._filling, self._checkpoints):
            worker.stop()
        try:
            if self._latch.failure is None:
                self._leave_in_order()
        finally:
            self._latch.close()
            self._parts.logs.abandon()
            self._parts.journals.close()
            self._release()

    def _leave_in_order(self) -> None:
        self._committer.turnstile.flush()
        # Before the checkpoint: should that fail, nothing about the last group is ambiguous at least.
        self._committer.seal()
        try:
            self._parts.checkpointer.finish()
        except OSError as error:
            # The journals have everything, and the next opening replays it.
            _LOG.warning("%s: closed without a last checkpoint: %s", self.path, error)
            return
        self._parts.logs.seal()
        self._parts.journals.discard_draft()

    def forked(self) -> None:
        """This process is a fork: it may use nothing of the store, and holds on to nothing that it shares."""
        self._latch.fork()
        # Its copy of the descriptor would keep the directory locked after the store has ended.
        self._unlock()
        self._parts.reading.close()


class Ledger:
    """One ledger of a store: append to it, read it, follow it. Cheap to make, and shared like its store."""

    __slots__ = ("_committer", "_latch", "_parts", "_store", "id")

    def __init__(self, store: Store, parts: Parts, ledger_id: int) -> None:
        self.id = ledger_id
        self._store = store
        self._parts = parts
        self._committer = parts.committer
        self._latch = parts.latch

    def __repr__(self) -> str:
        return f"<Ledger {self.id} of {self._store.path}>"

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    def append(self, payload: Payload) -> int:
        """The id of the new entry, when a crash can no longer lose it."""
        self._latch.check_reads()
        return self._committer.append(self.id, (self._checked(payload),)).start

    def append_many(self, payloads: Iterable[Payload]) -> range:
        """The ids of the new entries, consecutive, when a crash can no longer lose any of them.

        One sync for all. If together they are no more than `group_size_max`, a crash before the answer
        leaves all of them or none; of more than that it, or a full disk, may leave the first ones.
        """
        self._latch.check_reads()
        checked = [self._checked(payload) for payload in payloads]
        return self._committer.append(self.id, checked) if checked else range(0)

    def submit(self, payload: Payload) -> Future[int]:
        """The id of the new entry as a future, done when a crash can no longer lose it.

        Entries get their ids in the order of the calls. The sync is shared with whatever else is added
        within `group_wait_s`.
        """
        self._latch.check_reads()
        future = self._committer.submit(self.id, self._checked(payload))
        self._store.notice_submit()
        return future

    def _checked(self, payload: Payload) -> bytes:
        data = payload if type(payload) is bytes else bytes(memoryview(payload))
        size = record_codec.CRC32C_OVERHEAD + len(data)
        limit = self._parts.config.entry_size_max
        if size > limit:
            raise EntryTooLarge(size, limit)
        return data

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def read(self, entry_id: int) -> Entry:
        """The entry, its digest verified. `NoSuchEntry` if there is none, `EntryUnreadable` if damaged."""
        self._latch.check_reads()
        _check_id("entry", entry_id)
        try:
            entry = self._parts.reading.entry(self.id, entry_id)
        except (EntryUnreadable, OSError):
            self._latch.check_reads()  # its files were closed while it read
            raise
        return entry if entry is not None else self._missing(entry_id)

    def _missing(self, entry_id: int) -> NoReturn:
        if self.last_entry_id is None:
            raise NoSuchLedger(self.id)
        raise NoSuchEntry(self.id, entry_id)

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[Entry]:
        """The entries from `first` to `last`, both included, or to the end; read ahead and verified.

        Lazy, in bounded memory. One that is missing raises `NoSuchEntry` when its turn comes.
        """
        for block in self._blocks(first, last):
            yield from block.entries()

    def payloads(self, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """The payloads alone: the fastest way to read many."""
        for block in self._blocks(first, last):
            yield from block.payloads()

    def _blocks(self, first: int, last: int | None) -> Iterator[Block]:
        self._latch.check_reads()
        _check_id("entry", first)
        end = self.last_entry_id
        if end is None:
            raise NoSuchLedger(self.id)
        if last is not None:
            _check_id("entry", max(last, 0))
        blocks = self._parts.scanning.blocks(self.id, first, end if last is None else last)
        while (block := self._next(blocks)) is not None:
            yield block

    def _next(self, blocks: Iterator[Block]) -> Block | None:
        # For each again: what it would come from may be closed by now.
        with self._latch.reading():
            return next(blocks, None)

    def follow(self, from_entry: int = 0, *, idle_timeout_s: float | None = None) -> Iterator[Entry]:
        """The entries from there on, and then each new one as it becomes durable.

        Waits where an id is missing: nothing is passed over. Ends when the store is closed, or when nothing
        has come for `idle_timeout_s`.
        """
        _check_id("entry", from_entry)
        at = from_entry
        with suppress(StoreClosed, ForkedStore):
            while at <= ID_MAX:
                for entry in self._available(at):
                    yield entry
                    at = entry.entry_id + 1
                if at <= ID_MAX and not self._wait_for(at, idle_timeout_s):
                    return

    def _available(self, first: int) -> Iterator[Entry]:
        end = self.last_entry_id
        # A missing one ends what is available; who follows waits there.
        with suppress(NoSuchEntry):
            blocks = self._parts.scanning.blocks(self.id, first, NO_ENTRY if end is None else end)
            while (block := self._next(blocks)) is not None:
                yield from block.entries()

    def _wait_for(self, entry_id: int, timeout: float | None) -> bool:
        has = self._parts.reading.has
        with self._latch.reading():
            came = self._committer.news.wait_for(
                lambda: self._latch.is_closed or has(self.id, entry_id), timeout
            )
        return came and not self._latch.is_closed

    # ── where it ends ────────────────────────────────────────────────────────────────────────────────

    @property
    def last_entry_id(self) -> int | None:
        """The largest id of a durable entry; `None` while there is none."""
        self._latch.check_reads()
        tail = self._parts.tails.known(self.id)
        if tail is None:
            with self._latch.reading():
                return self._parts.reading.last_id(self.id)
        return None if tail.end == EMPTY else tail.end.entry_id

    @property
    def last_add_confirmed(self) -> int:
        """Up to here every entry is durable, or its writer has said so; -1 while there is none.

        Never goes back, not over a reopening either.
        """
        with self._latch.reading():
            return self._parts.reading.last_add_confirmed(self._parts.tails.of(self.id))


def _check_id(what: str, number: int) -> None:
    if not 0 <= number <= ID_MAX:
        raise InvalidEntry(f"{what} id {number} is not between 0 and 2^63 - 1")

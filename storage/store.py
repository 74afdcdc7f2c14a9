"""The store: ledgers to append to and to read from. `recovery.open_store` makes it; opening is recovering.

It owns the workers and nothing else: adds are `storage.adding`, made durable by `storage.commit`, checkpoints
`storage.checkpoint`, reads `storage.reading` and `storage.scanning`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Self
from weakref import ref

from storage.bookie import Bookie
from storage.chores import Delayed, Filling, Sealing
from storage.entry import DigestType
from storage.errors import DiskFull
from storage.ledger import Ledger
from storage.request import access_of, checked_payload, overhead

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from weakref import ReferenceType

    from storage.entry import Entry
    from storage.memtable import Memtable
    from storage.parts import Parts
    from storage.report import OpenReport
    from storage.worker import Hire

_LOG = logging.getLogger(__name__)


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
        self._slot = parts.slot
        config = parts.config
        self._checkpoints = hire("ledgerstore-checkpoint", parts.checkpointer.step, self._fail)
        self._filling = Filling(parts.journals, hire, self._fail)
        self._sealing = Sealing(parts.committer, parts.journals, config.idle_seal_s, hire, self._fail)
        self._flushing = Delayed("ledgerstore-flush", config.group_wait_s, self._flush, hire, self._fail)
        self._timer = Delayed(
            "ledgerstore-timer", config.checkpoint_interval_s, self._request_checkpoint, hire, self._fail
        )
        self._frozen: ReferenceType[Memtable] | None = None
        self._journals = parts.journals
        self._groups = self._journals.groups
        self._committer.on_turn = self._after_turn
        # What a replay has left in the journals waits to be written down.
        self._wake_checkpoints()

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

    def ledger(self, ledger_id: int, digest: DigestType | None = None, password: bytes = b"") -> Ledger:
        """The ledger of that id; its first add creates it.

        With the first add its password is set, and how its entries are protected: by CRC-32C unless `digest`
        says otherwise. Adding with another password is `Unauthorized`; reading needs it only for a MAC.
        """
        self._latch.check_reads()
        return Ledger(ledger_id, access_of(password, digest), self._parts, self._flushing.notice)

    def ledgers(self) -> list[int]:
        """The ids of all ledgers that exist, ascending, be they without entries: see `Ledger.exists`."""
        with self._latch.reading():
            return sorted({*self._reading.ledgers(), *self._parts.registry.existing()})

    def add(self, entry: Entry, digest: DigestType | None = None, password: bytes = b"") -> None:
        """Adds an entry whose id, last add confirmed and length the caller has chosen: what a replica gets.

        Returns when a crash can no longer lose it. Ids may come in any order and leave gaps; of an id added
        twice the later entry counts.
        """
        self._latch.check_reads()
        self._parts.adding.place(access_of(password, digest), checked_entry(entry, digest, self._parts))

    @property
    def bookie(self) -> Bookie:
        """The store as a bookie shows itself: entries as bytes, and keys in the place of passwords."""
        return Bookie(self._parts, self._flushing.notice)

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
            if self._slot.tables.frozen is not None:
                self._wake_checkpoints()
            self._filling.notice()
            if self._journals.groups != self._groups:
                # Only where something was written: an idle store must come to rest.
                self._groups = self._journals.groups
                if self._sealing.delayed.rests:
                    self._sealing.delayed.notice()
                if self._timer.rests:
                    self._timer.notice()
        except Exception as error:  # the entries are durable: the turn itself has not failed
            self._fail(error)

    def _wake_checkpoints(self) -> None:
        frozen = self._slot.tables.frozen
        if frozen is not None and (self._frozen is None or self._frozen() is not frozen):
            self._frozen = ref(frozen)  # as no more than that: a table must go when it is written down
            self._checkpoints.wake()

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
            else:
                self._committer.turnstile.flush()  # nothing is written: who has a future hears of it
        finally:
            self._latch.close()
            self._parts.registry.close()
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
        self._parts.journals.close()
        self._parts.logs.abandon()
        self._parts.reading.close()
        self._parts.slot.close()


def checked_entry(entry: Entry, digest: DigestType | None, parts: Parts) -> Entry:
    """The entry with a payload that nobody can change any more; raises if that is too large."""
    size = overhead(digest or parts.registry.digest_type(entry.ledger_id) or DigestType.CRC32C)
    payload = checked_payload(entry.payload, parts.config, size)
    return entry if payload is entry.payload else replace(entry, payload=payload)

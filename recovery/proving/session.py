"""One opening of the store and operations on it, each between marks for the laboratory.

The key of an entry is (ledger id, entry id), its value the payload; a stream is a ledger. All payloads
differ, so that an older copy of an entry is recognised.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from recovery.proving.store_under_test import StoreUnderTest
from recovery.proving.watched_directory import WatchedDirectory
from storage.disk.filenames import FileKind, parse
from storage.entry import format as entry_format
from storage.entry.digest import digester, master_key
from storage.entry.model import DigestType, Entry
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from recovery.crashlab.record.history import Ctx, Value
    from storage.ledger import Ledger

PASSWORDS = (b"", b"first", b"second")
"""The passwords of ledgers. A ledger that is made again gets another one."""

# Files that only a checkpoint changes, and without a lock that an add to a plain ledger takes.
_PAUSES_MAX = 3
"""After so many pauses without any work between them a full disk does not get free in this run."""

_CHECKPOINT_FILES = frozenset({FileKind.ENTRY_LOG, FileKind.ENTRY_LOG_DRAFT, FileKind.JOURNAL})

# Files that a checkpoint changes under the one lock that an add takes only for a new journal.
_MARK_FILES = frozenset({FileKind.LAST_MARK, FileKind.LAST_MARK_DRAFT})


class Session:
    """The open store, whose background work runs when the workload says so. Use it from one thread.

    It ends as a kill would end it, unless it is closed.
    """

    def __init__(self, root: Path, ctx: Ctx, numbers: Iterator[int]) -> None:
        self._ctx = ctx
        self._numbers = numbers
        self._next_ids: dict[int, int] = {}
        self._submitted: list[tuple[int, Future[int]]] = []
        self._deferred: list[tuple[int, int]] = []
        self._extra_ledger: int | None = None
        self._is_stepping = False
        self.opened = StoreUnderTest(root, numbers, lambda path: WatchedDirectory(path, self._before_change))
        self.store = self.opened.store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.opened.__exit__(kind, error, trace)

    def close(self) -> None:
        """Close the store, with everything checkpointed."""
        self.store.close()

    # ── adds ─────────────────────────────────────────────────────────────────────────────────────────

    def append(self, ledger_id: int, *sizes: int, password: bytes = b"") -> None:
        """Add entries one after the other, each acknowledged before the next."""
        ledger = self.store.ledger(ledger_id, password=password)
        for size in sizes:
            entry_id = self._take_id(ledger)
            payload = self._payload(ledger_id, entry_id, size)
            with self._adding("add", ledger_id, entry_id, payload):
                assert ledger.append(payload) == entry_id

    def append_many(self, ledger_id: int, *sizes: int, password: bytes = b"") -> None:
        """Add entries, all of them or none."""
        ledger = self.store.ledger(ledger_id, password=password)
        keyed = [(self._take_id(ledger), size) for size in sizes]
        pairs = [((ledger_id, one), self._payload(ledger_id, one, size)) for one, size in keyed]
        with self._adding("add_all", ledger_id, tuple(pairs)):
            added = ledger.append_many([payload for _, payload in pairs])
            assert [(ledger_id, one) for one in added] == [key for key, _ in pairs]

    def submit(self, ledger_id: int, *sizes: int) -> None:
        """Add entries that share a group with the next add; `acknowledge_durable` acknowledges them."""
        ledger = self.store.ledger(ledger_id)
        for size in sizes:
            entry_id = self._take_id(ledger)
            payload = self._payload(ledger_id, entry_id, size)
            token = self._ctx.invoke("add", ledger_id, entry_id, payload)
            self._submitted.append((token, ledger.submit(payload)))

    def acknowledge_durable(self) -> None:
        """Acknowledge the submitted entries that are durable by now."""
        done = [one for one in self._submitted if one[1].done()]
        self._submitted = [one for one in self._submitted if not one[1].done()]
        for token, future in done:
            future.result()
            self._ctx.ack(token)

    def add_as_replica(self, ledger_id: int, *entry_ids: int, size: int = 60) -> None:
        """Add entries as a replica gets them, in any order. If an id comes twice, the later copy counts."""
        for entry_id in entry_ids:
            payload = self._payload(ledger_id, entry_id, size)
            with self._ctx.doing("add", ledger_id, entry_id, payload):
                self.store.add(Entry(ledger_id, entry_id, -1, 1000 * (entry_id + 1), payload))

    def make(self, ledger_id: int, digest: DigestType, password: bytes = b"", size: int = 40) -> None:
        """Make a ledger with this digest type and password, and add its first entry."""
        self._next_ids[ledger_id] = 1
        payload = self._payload(ledger_id, 0, size)
        with self._adding("add", ledger_id, 0, payload):
            assert self.store.ledger(ledger_id, digest, password).append(payload) == 0

    # ── operations of a bookie ───────────────────────────────────────────────────────────────────────

    def defer(self, ledger_id: int, *sizes: int) -> None:
        """Add entries whose writer does not wait. The next `force` of the ledger acknowledges them."""
        for size in sizes:
            entry_id = self._take_id(self.store.ledger(ledger_id))
            payload = self._payload(ledger_id, entry_id, size)
            self._deferred.append((ledger_id, self._ctx.invoke("add", ledger_id, entry_id, payload)))
            self.store.bookie.defer(self._encoded(ledger_id, entry_id, payload), master_key(b""))

    def force(self, ledger_id: int) -> None:
        """Make the deferred entries of a ledger durable."""
        self.store.bookie.force(ledger_id)
        for token in [token for one, token in self._deferred if one == ledger_id]:
            self._ctx.ack(token)
        self._deferred = [one for one in self._deferred if one[0] != ledger_id]

    def recover(self, ledger_id: int, *entry_ids: int, password: bytes = b"") -> None:
        """Add entries as a ledger recovery does, which also succeeds on a fenced ledger."""
        for entry_id in entry_ids:
            payload = self._payload(ledger_id, entry_id, 50)
            with self._ctx.doing("add", ledger_id, entry_id, payload):
                data = self._encoded(ledger_id, entry_id, payload, password)
                self.store.bookie.recover(data, master_key(password))

    def _encoded(self, ledger_id: int, entry_id: int, payload: bytes, password: bytes = b"") -> bytes:
        digest_type = self.store.ledger(ledger_id).digest_type or DigestType.CRC32C
        entry = Entry(ledger_id, entry_id, entry_id - 1, 1000 * (entry_id + 1), payload)
        return entry_format.encode(entry, digester(digest_type, password))

    # ── operations on ledgers ────────────────────────────────────────────────────────────────────────

    def fence(self, ledger_id: int, password: bytes = b"") -> None:
        with self._ctx.doing("fence", ledger_id):
            self.store.ledger(ledger_id, password=password).fence()

    def confirm(self, ledger_id: int, *numbers: int, password: bytes = b"") -> None:
        digest_type = self.store.ledger(ledger_id).digest_type or DigestType.CRC32C
        writer, bookie = digester(digest_type, password), self.store.bookie
        for number in numbers:
            with self._ctx.doing("confirm", ledger_id, number):
                # By `store.bookie`, because `Ledger` refuses a confirmation after the last entry.
                packet = entry_format.encode_lac(ledger_id, number, writer)
                bookie.set_explicit_lac(ledger_id, packet, master_key(password))

    def delete(self, ledger_id: int, password: bytes = b"") -> None:
        self._next_ids.pop(ledger_id, None)
        with self._ctx.doing("delete", ledger_id):
            self.store.ledger(ledger_id, password=password).delete()

    def truncate(self, ledger_id: int, before: int) -> None:
        """Truncate a ledger: each of its entries before that one is deleted."""
        ledger = self.store.ledger(ledger_id)
        entry_ids = range(ledger.first_entry_id, before)
        tokens = [self._ctx.invoke("delete", ledger_id, entry_id) for entry_id in entry_ids]
        ledger.truncate(before)
        for token in tokens:
            self._ctx.ack(token)

    def delete_all(self, *ledger_ids: int) -> None:
        """Delete several ledgers at once."""
        tokens = [self._ctx.invoke("delete", ledger_id) for ledger_id in ledger_ids]
        for ledger_id in ledger_ids:
            self._next_ids.pop(ledger_id, None)
        self.store.delete(ledger_ids)
        for token in tokens:
            self._ctx.ack(token)

    # ── background work ──────────────────────────────────────────────────────────────────────────────

    def checkpoint(self) -> None:
        """Make a whole checkpoint, with nothing else in between."""
        self.opened.request_checkpoint()
        self.run()

    def request_checkpoint(self) -> None:
        """Ask for a checkpoint, which the next steps make."""
        self.opened.request_checkpoint()

    def steps(self, count_max: int = 1000) -> Iterator[int]:
        """Let each worker do one step at a time, until none has work; the caller acts between the steps."""
        for number in range(count_max):
            with self._stepping():
                had_work = self.opened.workers.step()
            self.acknowledge_durable()
            if not had_work:
                return
            yield number

    def run(self) -> None:
        """Do all background work that does not have to wait."""
        with self._stepping():
            self.opened.workers.run()
        self.acknowledge_durable()

    def reclaiming(self) -> Iterator[None]:
        """Move the entries of all logs, remove the logs and purge tombstones; the caller acts between the
        steps."""
        compactor, logs = self.opened.engine.compactor, self.opened.log_ids
        moves = (compactor.move(log_id) for log_id in logs[:-1])
        pauses = 0
        for verb in (*moves, compactor.remove(logs), compactor.purge_tombstones()):
            for pause in verb:
                if pause is None:  # it waits for the runner of checkpoints
                    with self._stepping():
                        if self.opened.workers.step():
                            pauses = 0
                        else:
                            # After an error for lack of space the runner pauses before it tries again.
                            self.opened.workers.elapse()
                            pauses += 1
                self.acknowledge_durable()
                yield
                if pauses == _PAUSES_MAX:
                    return  # the disk stays full

    def elapse(self) -> None:
        """End all pauses: do all background work, write pending adds, and seal the last group."""
        with self._stepping():
            self.opened.workers.elapse()
        self.acknowledge_durable()

    @contextmanager
    def adding_between_changes(self, ledger_id: int) -> Iterator[None]:
        """In the block, add an entry to this plain ledger before each change that a checkpoint makes."""
        self.append(ledger_id, 20)  # its first entry takes locks that a checkpoint may hold
        self._extra_ledger = ledger_id
        try:
            yield
        finally:
            self._extra_ledger = None

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        self._is_stepping = True
        try:
            yield
        finally:
            self._is_stepping = False

    def _before_change(self, name: str) -> None:
        # A commit must not be entered from within itself.
        if self._extra_ledger is None or not self._is_stepping or self.opened.is_full:
            return
        kind = parse(name).kind
        is_of_the_mark = kind in _MARK_FILES or name == self.opened.layout.ledgers.path
        if is_of_the_mark and self.opened.must_roll:
            return  # another thread would wait until the mark is stored
        if kind in _CHECKPOINT_FILES or is_of_the_mark:
            self._is_stepping = False  # changes by the add itself must not trigger another add
            # an add of another thread would be refused, and the checkpoint would not fail
            with suppress(StoreError):
                self.append(self._extra_ledger, 12)
            self._is_stepping = True

    # ── payloads ─────────────────────────────────────────────────────────────────────────────────────

    def next_id(self, ledger_id: int) -> int:
        """Return the id that the ledger's next entry gets."""
        if ledger_id not in self._next_ids:
            last_id = self.store.ledger(ledger_id).last_entry_id
            self._next_ids[ledger_id] = 0 if last_id is None else last_id + 1
        return self._next_ids[ledger_id]

    def _take_id(self, ledger: Ledger) -> int:
        entry_id = self.next_id(ledger.id)
        self._next_ids[ledger.id] = entry_id + 1
        return entry_id

    @contextmanager
    def _adding(self, kind: str, ledger_id: int, *args: Value) -> Iterator[None]:
        try:
            with self._ctx.doing(kind, ledger_id, *args):
                yield
        except StoreError:
            self._next_ids.pop(ledger_id, None)  # a refused add uses no id
            raise

    def _payload(self, ledger_id: int, entry_id: int, size: int) -> bytes:
        return b"%d.%d.%d." % (ledger_id, entry_id, next(self._numbers)) + b"x" * size

"""One opening of the store and what is done in it, each thing between marks that tell the laboratory.

The key of an entry is (ledger id, entry id), its value the payload; a stream is a ledger. Every payload is
another one, so that an old copy is not taken for a new one.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from recovery.proving.meanwhile import AttendedDirectory
from recovery.proving.opened import Opened
from storage.codec import entry as entry_codec
from storage.codec.digest import digester, master_key
from storage.entry import DigestType, Entry
from storage.errors import StoreError
from storage.filenames import FileKind, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from recovery.crashlab.history import Ctx, Value
    from storage.ledger import Ledger

PASSWORDS = (b"", b"first", b"second")
"""Those that ledgers are made with, one after the other; a ledger that is made again has another."""

# What a checkpoint alone changes, and with no lock held that an add of a plain ledger takes.
_ATTENDED = frozenset({FileKind.ENTRY_LOG, FileKind.ENTRY_LOG_DRAFT, FileKind.JOURNAL})

# And what it changes under the one lock that such an add takes only with a new journal.
_OF_THE_MARK = frozenset({FileKind.LAST_MARK, FileKind.LAST_MARK_DRAFT})


class Sitting:
    """The store, open, its background work done when a workload says so. For one thread.

    Ends as its process would in a kill, unless it was closed.
    """

    def __init__(self, root: Path, ctx: Ctx, numbers: Iterator[int]) -> None:
        self._ctx = ctx
        self._numbers = numbers
        self._next_ids: dict[int, int] = {}
        self._submitted: list[tuple[int, Future[int]]] = []
        self._deferred: list[tuple[int, int]] = []
        self._aside: int | None = None
        self._is_stepping = False
        self.opened = Opened(root, numbers, lambda path: AttendedDirectory(path, self._meanwhile))
        self.store = self.opened.store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.opened.__exit__(kind, error, trace)

    def close(self) -> None:
        """In order, with everything checkpointed."""
        self.store.close()

    # ── adds ─────────────────────────────────────────────────────────────────────────────────────────

    def append(self, ledger_id: int, *sizes: int, password: bytes = b"") -> None:
        """Entries one after the other, each acknowledged before the next."""
        ledger = self.store.ledger(ledger_id, password=password)
        for size in sizes:
            entry_id = self._take_id(ledger)
            payload = self._payload(ledger_id, entry_id, size)
            with self._adding("add", ledger_id, entry_id, payload):
                assert ledger.append(payload) == entry_id

    def append_many(self, ledger_id: int, *sizes: int, password: bytes = b"") -> None:
        """Entries that come all or none."""
        ledger = self.store.ledger(ledger_id, password=password)
        keyed = [(self._take_id(ledger), size) for size in sizes]
        pairs = [((ledger_id, one), self._payload(ledger_id, one, size)) for one, size in keyed]
        with self._adding("add_all", ledger_id, tuple(pairs)):
            added = ledger.append_many([payload for _, payload in pairs])
            assert [(ledger_id, one) for one in added] == [key for key, _ in pairs]

    def submit(self, ledger_id: int, *sizes: int) -> None:
        """Entries that share a group with whatever is added next; acknowledged by `hear` once done."""
        ledger = self.store.ledger(ledger_id)
        for size in sizes:
            entry_id = self._take_id(ledger)
            payload = self._payload(ledger_id, entry_id, size)
            token = self._ctx.invoke("add", ledger_id, entry_id, payload)
            self._submitted.append((token, ledger.submit(payload)))

    def hear(self) -> None:
        """Acknowledges the submitted entries that are durable by now."""
        done = [one for one in self._submitted if one[1].done()]
        self._submitted = [one for one in self._submitted if not one[1].done()]
        for token, future in done:
            future.result()
            self._ctx.ack(token)

    def place(self, ledger_id: int, *entry_ids: int, size: int = 60) -> None:
        """Entries as a replica gets them, in any order; of one that comes again the later copy counts."""
        for entry_id in entry_ids:
            payload = self._payload(ledger_id, entry_id, size)
            with self._ctx.doing("add", ledger_id, entry_id, payload):
                self.store.add(Entry(ledger_id, entry_id, -1, 1000 * (entry_id + 1), payload))

    def make(self, ledger_id: int, digest: DigestType, password: bytes = b"", size: int = 40) -> None:
        """A new ledger with its first entry, protected like that."""
        self._next_ids[ledger_id] = 1
        payload = self._payload(ledger_id, 0, size)
        with self._adding("add", ledger_id, 0, payload):
            assert self.store.ledger(ledger_id, digest, password).append(payload) == 0

    # ── as a bookie ──────────────────────────────────────────────────────────────────────────────────

    def defer(self, ledger_id: int, *sizes: int) -> None:
        """Entries whose writer does not wait: acknowledged by the next `force` of their ledger."""
        for size in sizes:
            entry_id = self._take_id(self.store.ledger(ledger_id))
            payload = self._payload(ledger_id, entry_id, size)
            self._deferred.append((ledger_id, self._ctx.invoke("add", ledger_id, entry_id, payload)))
            self.store.bookie.defer(self._encoded(ledger_id, entry_id, payload), master_key(b""))

    def force(self, ledger_id: int) -> None:
        """Makes the deferred entries of a ledger durable."""
        self.store.bookie.force(ledger_id)
        for token in [token for one, token in self._deferred if one == ledger_id]:
            self._ctx.ack(token)
        self._deferred = [one for one in self._deferred if one[0] != ledger_id]

    def recover(self, ledger_id: int, *entry_ids: int, password: bytes = b"") -> None:
        """Entries that somebody copies who recovers the ledger: a fence lets them pass."""
        for entry_id in entry_ids:
            payload = self._payload(ledger_id, entry_id, 50)
            with self._ctx.doing("add", ledger_id, entry_id, payload):
                data = self._encoded(ledger_id, entry_id, payload, password)
                self.store.bookie.recover(data, master_key(password))

    def _encoded(self, ledger_id: int, entry_id: int, payload: bytes, password: bytes = b"") -> bytes:
        digest_type = self.store.ledger(ledger_id).digest_type or DigestType.CRC32C
        entry = Entry(ledger_id, entry_id, entry_id - 1, 1000 * (entry_id + 1), payload)
        return entry_codec.encode(entry, digester(digest_type, password))

    # ── what is said of ledgers ──────────────────────────────────────────────────────────────────────

    def fence(self, ledger_id: int, password: bytes = b"") -> None:
        with self._ctx.doing("fence", ledger_id):
            self.store.ledger(ledger_id, password=password).fence()

    def confirm(self, ledger_id: int, *numbers: int, password: bytes = b"") -> None:
        ledger = self.store.ledger(ledger_id, password=password)
        for number in numbers:
            with self._ctx.doing("confirm", ledger_id, number):
                ledger.set_explicit_lac(number)

    def delete(self, ledger_id: int, password: bytes = b"") -> None:
        self._next_ids.pop(ledger_id, None)
        with self._ctx.doing("delete", ledger_id):
            self.store.ledger(ledger_id, password=password).delete()

    # ── background work ──────────────────────────────────────────────────────────────────────────────

    def checkpoint(self) -> None:
        """A whole checkpoint, and nothing beside it."""
        self.opened.request_checkpoint()
        self.run()

    def request_checkpoint(self) -> None:
        """One that the next steps make."""
        self.opened.request_checkpoint()

    def steps(self, count_max: int = 1000) -> Iterator[int]:
        """One step of everybody at a time, until nobody has anything to do; the caller acts in between."""
        for number in range(count_max):
            with self._stepping():
                had_work = self.opened.crew.step()
            self.hear()
            if not had_work:
                return
            yield number

    def run(self) -> None:
        """Background work until there is none, and no pauses end."""
        with self._stepping():
            self.opened.crew.run()
        self.hear()

    def elapse(self) -> None:
        """The same, and all pauses end: what waits for company is written, and an idle store vouches."""
        with self._stepping():
            self.opened.crew.elapse()
        self.hear()

    @contextmanager
    def adding_aside(self, ledger_id: int) -> Iterator[None]:
        """While it lasts, an entry goes into this plain ledger before each change that a checkpoint makes."""
        self.append(ledger_id, 20)  # its first entry takes locks that a checkpoint may hold
        self._aside = ledger_id
        try:
            yield
        finally:
            self._aside = None

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        self._is_stepping = True
        try:
            yield
        finally:
            self._is_stepping = False

    def _meanwhile(self, name: str) -> None:
        # A turn of the foreground must not be entered from within itself.
        if self._aside is None or not self._is_stepping or self.opened.is_full:
            return
        kind = parse(name).kind
        may_be_the_mark_s = kind in _OF_THE_MARK or name == self.opened.layout.ledgers.path
        if may_be_the_mark_s and self.opened.must_roll:
            return  # another thread would wait until the mark is stored
        if kind in _ATTENDED or may_be_the_mark_s:
            self._is_stepping = False  # what the add itself changes is not attended
            with suppress(StoreError):  # another thread's add would be refused, and not the checkpoint fail
                self.append(self._aside, 12)
            self._is_stepping = True

    # ── payloads ─────────────────────────────────────────────────────────────────────────────────────

    def next_id(self, ledger_id: int) -> int:
        """The id that the ledger's next entry gets."""
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
            self._next_ids.pop(ledger_id, None)  # what was refused has no id
            raise

    def _payload(self, ledger_id: int, entry_id: int, size: int) -> bytes:
        return b"%d.%d.%d." % (ledger_id, entry_id, next(self._numbers)) + b"x" * size

"""A ledger of a store, as its users see it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, cast

from storage.codec import record as record_codec
from storage.entry import ID_MAX, NO_ENTRY, Entry
from storage.errors import (
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
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from storage.config import StoreConfig
    from storage.parts import Parts
    from storage.scanning import Block

    Payload = bytes | bytearray | memoryview


class Ledger:
    """One ledger of a store: append to it, read it, follow it. Cheap to make, and shared like its store."""

    __slots__ = ("_committer", "_latch", "_notice_submit", "_parts", "id")

    def __init__(self, ledger_id: int, parts: Parts, notice_submit: Callable[[], None]) -> None:
        check_id("ledger", ledger_id)
        self.id = ledger_id
        self._notice_submit = notice_submit
        self._parts = parts
        self._committer = parts.committer
        self._latch = parts.latch

    def __repr__(self) -> str:
        return f"<Ledger {self.id} of {self._parts.path}>"

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    def append(self, payload: Payload) -> int:
        """The id of the new entry, when a crash can no longer lose it."""
        self._latch.check_reads()
        return self._committer.append(self.id, (checked_payload(payload, self._parts.config),)).start

    def append_many(self, payloads: Iterable[Payload]) -> range:
        """The ids of the new entries, consecutive, when a crash can no longer lose any of them.

        One sync for all. If together they are no more than `group_size_max`, a crash before the answer
        leaves all of them or none; of more than that it, or a full disk, may leave the first ones.
        """
        self._latch.check_reads()
        checked = checked_payloads(list(payloads), self._parts.config)
        return self._committer.append(self.id, checked) if checked else range(0)

    def submit(self, payload: Payload) -> Future[int]:
        """The id of the new entry as a future, done when a crash can no longer lose it.

        Entries get their ids in the order of the calls. The sync is shared with whatever else is added
        within `group_wait_s`.
        """
        self._latch.check_reads()
        future = self._committer.submit(self.id, checked_payload(payload, self._parts.config))
        self._notice_submit()
        return future

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def read(self, entry_id: int) -> Entry:
        """The entry, its digest verified. `NoSuchEntry` if there is none, `EntryUnreadable` if damaged."""
        self._latch.check_reads()
        check_id("entry", entry_id)
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
        check_id("entry", first)
        end = self.last_entry_id
        if end is None:
            raise NoSuchLedger(self.id)
        if last is not None:
            check_id("entry", max(last, 0))
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
        check_id("entry", from_entry)
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


def checked_payload(payload: Payload, config: StoreConfig) -> bytes:
    """The payload as bytes that nobody can change any more; raises if there are too many of them."""
    data = payload if type(payload) is bytes else bytes(memoryview(payload))
    size = record_codec.CRC32C_OVERHEAD + len(data)
    if size > config.entry_size_max:
        raise EntryTooLarge(size, config.entry_size_max)
    return data


def checked_payloads(payloads: list[Payload], config: StoreConfig) -> Sequence[bytes]:
    """The same for many."""
    # The usual case first, a third of the time: each is bytes, and the largest is not too large.
    limit = config.entry_size_max - record_codec.CRC32C_OVERHEAD
    if set(map(type, payloads)) == {bytes} and max(map(len, payloads)) <= limit:
        return cast("list[bytes]", payloads)
    return [checked_payload(payload, config) for payload in payloads]


def check_id(what: str, number: int) -> None:
    if not 0 <= number <= ID_MAX:
        raise InvalidEntry(f"{what} id {number} is not between 0 and 2^63 - 1")

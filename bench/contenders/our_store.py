"""Our store as a contender that adds, blocking or asynchronous."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from contest import timing
from contest.resource_usage import settle

from contenders.adding_contender import AddingContender
from recovery import open_async_store, open_store
from storage import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from contest.timing import Limit, Timed

    from storage.aio import AsyncStore
    from storage.journal.journal_set import Journals
    from storage.journal.writer import JournalWriter
    from storage.store import Store

_WITHOUT_CHECKPOINTS: dict[str, Any] = {"memtable_size_max": 1 << 40, "checkpoint_interval_s": None}
_FILLER = bytes(1 << 20)
_FILLER_LEDGER = 1 << 40


def config_of(kind: str, journal_size: int) -> StoreConfig:
    """Return the settings of a kind of store.

    `default` has default settings, and `no-checkpoints` has them except that there are no checkpoints. In
    `journals-only` no checkpoint and no filling of a journal or of the reserve falls into a turn, as for the
    raw file.
    """
    if kind == "default":
        return StoreConfig()
    if kind == "no-checkpoints":
        return StoreConfig(**_WITHOUT_CHECKPOINTS)
    assert kind == "journals-only"
    return StoreConfig(
        **_WITHOUT_CHECKPOINTS,
        journal_size=journal_size,
        journal_max_backups=0,
        idle_seal_s=None,
        space_reserve=0,
    )


class Ours(AddingContender):
    """Blocking adds, by one thread or by several."""

    def __init__(self, place: Path, kind: str, journal_size: int, **work: int) -> None:
        super().__init__(**work)
        self._kind = kind
        self._store = open_store(place / "store", config_of(kind, journal_size))

    def prepare(self, size: int) -> None:
        if self._kind == "journals-only":
            make_room(self._store, size)
        elif self._kind == "no-checkpoints":
            self._store.checkpoint()

    def writer(self, number: int) -> Callable[[], object]:
        if self.work.batch == 1:
            append, payloads = self._store.ledger(number + 1).append, self.work.each()
            return map(append, payloads).__next__
        batches = self.work.batches()
        if self.work.ledgers > 1:
            ledgers = map(self._store.ledger, self.work.ledger_ids(number))
            return lambda: next(ledgers).append_many(next(batches))
        append_many = self._store.ledger(number + 1).append_many
        return map(append_many, batches).__next__

    def shut(self) -> None:
        self._store.close()


class OursAsync(AddingContender):
    """Awaited adds, by as many tasks of one event loop as there are writers."""

    def __init__(self, place: Path, kind: str, journal_size: int, **work: int) -> None:
        super().__init__(**work)
        self._kind = kind
        self._runner = asyncio.Runner()
        self._end = AsyncExitStack()
        self._store = self._runner.run(self._open(place / "store", config_of(kind, journal_size)))
        self._calls: list[Callable[[], Awaitable[object]]] = []

    async def _open(self, path: Path, config: StoreConfig) -> AsyncStore:
        return await self._end.enter_async_context(open_async_store(path, config))

    def prepare(self, size: int) -> None:
        if self._kind == "journals-only":
            make_room(self._store.blocking, size)

    def run(self, limit: Limit) -> Timed:
        return self._runner.run(self._run(limit))

    async def _run(self, limit: Limit) -> Timed:
        self._calls = self._calls or [self._call(number) for number in range(self.work.writers)]
        return await timing.in_one_loop(self._calls, limit)

    def _call(self, number: int) -> Callable[[], Awaitable[object]]:
        append, payloads = self._store.ledger(number + 1).append, self.work.each()
        return map(append, payloads).__next__

    def shut(self) -> None:
        self._runner.run(self._end.aclose())
        self._runner.close()


def make_room(store: Store, size: int) -> None:
    """Roll to a journal that is filled completely, if a turn would pass the middle of the current one.

    After the middle of a journal the filling of the next one begins. Entries that are added to get there are
    checkpointed, so that memory does not grow from turn to turn.
    """
    journals = store._engine.journals  # noqa: SLF001 - no public method reports how full a journal is
    if _room_before_the_middle(journals) >= size:
        return
    if size > store._engine.config.journal_size // 4:  # noqa: SLF001
        raise ValueError(f"half of a journal of this store has no room for {size} bytes")
    filler = store.ledger(_FILLER_LEDGER)
    while _room_before_the_middle(journals) < size:
        _roll(journals, lambda: filler.append(_FILLER))
    store.checkpoint()
    settle()


def _roll(journals: Journals, add: Callable[[], object]) -> None:
    """Add until the next journal is in use. It is filled in the meantime."""
    add()
    before = _active(journals)
    while _active(journals) is before and not before.is_half_full:
        add()
    settle()
    while _active(journals) is before:
        add()


def _room_before_the_middle(journals: Journals) -> int:
    return 0 if journals.active is None else (journals.active.room - journals.active.end) // 2


def _active(journals: Journals) -> JournalWriter:
    assert journals.active is not None
    return journals.active

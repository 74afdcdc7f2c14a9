"""Bookies that delete the copies which the metadata do not assign to them, as production code decides.

The passes of `deleted_ledgers` and `over_replicated` run as a process beside each bookie, with a session of
their own, and end when the bookie crashes. A bookie's clock goes sixty times as fast as the world's: an hour,
for which a copy must have been over-replicated, is over while other ledgers are still repaired.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, Self, TypeVar, cast

from recovery.clusterlab.bookies import BookieOracles, ModelBookie, first_add
from recovery.clusterlab.recovery_hosts import PATHS
from recovery.clusterlab.virtual_loop import UNITS_PER_SECOND
from storage.cluster.bookie.deleted_ledgers import LedgerDeletion
from storage.cluster.bookie.first_add import EndedLedger
from storage.cluster.bookie.over_replicated import GRACE_S, OverReplication
from storage.cluster.errors import ClusterError
from storage.entry.credentials import Purpose
from storage.errors import NoSuchLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.clusterlab.bookies import BookieMetadata, Reply
    from recovery.clusterlab.recovery_hosts import Host
    from recovery.clusterlab.world import World
    from storage.aio.bookie import AsyncBookie
    from storage.cluster.wire.messages import AddEntry

_T = TypeVar("_T")

INSTANCE = "an-instance"

_SPEED = 60.0
_PASS_S = 1200.0
"""The pause between two passes, on the bookie's clock."""
_SCAN_S = 1800.0
"""How often all ledgers are looked at."""

COLLECTED_UNITS = (_SCAN_S + GRACE_S + 4 * _PASS_S) / _SPEED * UNITS_PER_SECOND
"""After this time a copy that is not needed is gone."""


class CollectionOracles(BookieOracles, Protocol):
    """The events of bookies that delete copies, for an oracle."""

    def copy_deleted(self, bookie: str, ledger_id: int) -> None: ...


class CollectedBookie(ModelBookie):
    """A model bookie, in the place of the store and of the adds that the passes see."""

    def __init__(
        self, name: str, world: World, oracles: CollectionOracles, metadata: BookieMetadata | None = None
    ) -> None:
        super().__init__(name, world, oracles, metadata)
        self._held: dict[int, list[tuple[AddEntry, Reply]]] = {}
        """By ledger that is being deleted: the adds that wait for the end of that."""
        self._recovered: set[int] = set()

    def _add(self, request: AddEntry, reply: Reply) -> None:
        ledger_id = request.ledger_id
        if ledger_id in self._held:
            self._held[ledger_id].append((request, reply))
            return
        if request.options.is_recovery:
            self._recovered.add(ledger_id)
            if self._metadata is not None and ledger_id not in self.ledgers:
                znodes = self._metadata.znodes_of(self.name)
                if isinstance(first_add(znodes, ledger_id, self.name, Purpose.RECOVERING), EndedLedger):
                    # A fence of before was deleted with the copy.
                    ledger = self._ledger(ledger_id)
                    ledger.is_fenced = ledger.is_fenced_durably = True
        super()._add(request, reply)

    def crash(self) -> None:
        super().crash()
        self._recovered.clear()
        for waiting in self._held.values():
            waiting.clear()

    # ── what the passes use ───────────────────────────────────────────────────────────────────────────

    @contextmanager
    def held(self, ledger_id: int) -> Iterator[bool]:
        """Let new adds to a ledger wait for a block. False if its metadata are being read."""
        if ledger_id in self._unchecked:
            yield False
            return
        self._held[ledger_id] = []
        try:
            yield True
        finally:
            for request, reply in self._held.pop(ledger_id):
                self._add(request, reply)

    def take_recovered(self) -> set[int]:
        recovered, self._recovered = self._recovered, set()
        return recovered


class _StoreOfCopies:
    """The copies of a model bookie, with the methods of a store that the passes call."""

    def __init__(self, bookie: CollectedBookie, world: World, oracles: CollectionOracles) -> None:
        self._bookie = bookie
        self._world = world
        self._oracles = oracles

    @property
    def blocking(self) -> Self:
        return self

    async def ledgers(self) -> list[int]:
        return sorted(self._bookie.ledgers)

    async def call(self, act: Callable[[], _T]) -> _T:
        await asyncio.sleep(self._world.delay() / UNITS_PER_SECOND)
        return act()

    def delete_all(self, ledger_ids: Sequence[int]) -> None:
        for ledger_id in ledger_ids:
            if ledger_id not in self._bookie.ledgers:
                raise NoSuchLedger(ledger_id)
        for ledger_id in ledger_ids:
            self._oracles.copy_deleted(self._bookie.name, ledger_id)
            del self._bookie.ledgers[ledger_id]


async def collect(bookie: CollectedBookie, host: Host, world: World, oracles: CollectionOracles) -> None:
    """Make passes over the copies of a bookie until its process ends."""
    store = cast("AsyncBookie", _StoreOfCopies(bookie, world, oracles))

    def clock() -> float:
        return world.now / UNITS_PER_SECOND * _SPEED

    async def pause() -> None:
        await asyncio.sleep(0)

    passes = (
        LedgerDeletion(store, INSTANCE, bookie),
        OverReplication(store, bookie.name, INSTANCE, bookie, clock, pause, _SCAN_S),
    )
    while True:
        async with host.connect() as session:
            while not session.is_told:
                await asyncio.sleep(_PASS_S / _SPEED)
                for one in passes:
                    with suppress(ClusterError):
                        await one.make_pass(session, PATHS)

"""A copy that the metadata assign to other bookies goes after an hour, and never while it could be needed."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

import pytest
from bookie_connection import KEY, RawBookieConnection, add_of, running_bookie
from cluster_loops import run, run_with_server

from storage.cluster.bookie.deleted_ledgers import FEW, PassRefusal
from storage.cluster.bookie.over_replicated import (
    GRACE_S,
    LOOKS_AT_ONCE,
    SCAN_EVERY_S,
    OverReplication,
    OverReplicationPass,
)
from storage.cluster.errors import SessionExpired
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.underreplication import lock_ledger, lock_path, mark_ledger, unlock_ledger
from storage.cluster.metadata.update import change_ledger, create_ledger, delete_ledger
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import LAST_ENTRY, AddOptions, Protocol, ReadEntry
from storage.errors import NoSuchLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from memory_znodes import MemoryServer, MemoryZnodes

    from storage.aio.bookie import AsyncBookie
    from storage.cluster.metadata.znodes import Gone, Node
    from storage.entry.credentials import Purpose

PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
RECOVERY = AddOptions(is_recovery=True)
HERE, THERE = "here:1", "there:1"
OPEN = ClusterLedgerMetadata(1, 1, 1, (LedgerSegment(0, (THERE,)),), creator_token=1)
ELSEWHERE = OPEN.closed(9, 100)
OURS = ClusterLedgerMetadata(1, 1, 1, (LedgerSegment(0, (HERE,)),), creator_token=1).closed(9, 100)
STAYS = range(100, 200)
"""Ledgers of this bookie, so that no pass is refused for too many that are elsewhere."""


class World:
    """A bookie with some ledgers, and the metadata in memory."""

    def __init__(self, znodes: MemoryZnodes, instance_id: str | None, scan_every_s: float) -> None:
        self.znodes: Any = znodes
        self.blocking = self
        self.now = 1000.0
        self.here: set[int] = set()
        self.recovered: set[int] = set()
        self.can_hold = True
        self.adds_held: list[int] = []
        self.pauses = 0
        self.before_delete: Callable[[], object] = lambda: None
        self.passes = OverReplication(
            cast("AsyncBookie", self),
            HERE,
            instance_id,
            self,
            lambda: self.now,
            self.pause,
            scan_every_s,
        )

    async def ledgers(self) -> list[int]:
        return sorted(self.here)

    async def call(self, act: Callable[[], object]) -> object:
        return act()

    async def pause(self) -> None:
        self.pauses += 1

    def take_recovered(self) -> set[int]:
        recovered, self.recovered = self.recovered, set()
        return recovered

    @contextmanager
    def held(self, ledger_id: int) -> Iterator[bool]:
        self.adds_held.append(ledger_id)
        yield self.can_hold
        self.adds_held.remove(ledger_id)

    def delete_all(self, ledger_ids: Iterable[int]) -> None:
        assert self.adds_held == ledger_ids
        self.before_delete()
        for one in ledger_ids:
            if one not in self.here:
                raise NoSuchLedger(one)
            self.here.discard(one)

    async def hold(self, ledger_id: int, metadata: ClusterLedgerMetadata) -> None:
        """Let the bookie have a copy, and the cluster the ledger."""
        self.here.add(ledger_id)
        await create_ledger(self.znodes, PATHS, ledger_id, metadata)

    async def look(self) -> OverReplicationPass:
        return await self.passes.make_pass(self.znodes, PATHS)

    async def look_after(self, seconds: float) -> OverReplicationPass:
        self.now += seconds
        return await self.look()


async def world(
    znodes: MemoryZnodes, instance_id: str | None = "an-instance", scan_every_s: float = SCAN_EVERY_S
) -> World:
    """Return a bookie with ledger 7, which is closed and elsewhere, and ledgers of its own."""
    await init_cluster(znodes, "/ledgers", "an-instance")
    found = World(znodes, instance_id, scan_every_s)
    await found.hold(7, ELSEWHERE)
    for one in STAYS:
        await found.hold(one, OURS)
    return found


SUSPECTED = OverReplicationPass(suspected=frozenset({7}))


def test_a_copy_that_is_elsewhere_goes_after_an_hour_and_the_others_stay() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        assert await one.look() == SUSPECTED
        assert await one.look_after(GRACE_S - 1) == SUSPECTED
        assert one.here == {7, *STAYS}
        assert await one.look_after(1) == OverReplicationPass((7,))
        assert (one.here, one.passes.deleted) == (set(STAYS), 1)

    run(main)


def test_the_lock_is_held_while_the_copy_is_deleted_and_released_then() -> None:
    async def main(server: MemoryServer) -> None:
        one = await world(server.session())
        path = lock_path("/ledgers", 7)
        held: list[bool] = []
        one.before_delete = lambda: held.append(path in server.paths())
        await one.look()
        assert (await one.look_after(GRACE_S)).deleted == (7,)
        assert held == [True]
        assert path not in server.paths()

    run_with_server(main)


async def in_recovery(one: World) -> None:
    await change_ledger(one.znodes, PATHS, 7, lambda _: OPEN.in_recovery())


async def ours_again(one: World) -> None:
    await change_ledger(one.znodes, PATHS, 7, lambda _: OURS)


async def deleted(one: World) -> None:
    await delete_ledger(one.znodes, PATHS, 7)


async def marked(one: World) -> None:
    await mark_ledger(one.znodes, "/ledgers", 7, [THERE], 1)


async def damaged(one: World) -> None:
    await one.znodes.set(PATHS.path_of(7), b"BookieMetadataFormatVersion\t9\n")


async def recovered(one: World) -> None:
    one.recovered.add(7)


@pytest.mark.parametrize("change", [in_recovery, ours_again, deleted, marked, damaged, recovered])
def test_a_copy_stays_whose_ledger_changes_before_the_hour_is_over(change: Any) -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.look()
        await change(one)
        assert (await one.look_after(GRACE_S)).deleted == ()
        assert 7 in one.here

    run(main)


def test_an_open_ledger_and_one_with_an_old_ensemble_of_this_bookie_are_not_even_suspected() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.hold(8, OPEN)
        await one.hold(9, OPEN.in_recovery())
        segments = (LedgerSegment(0, (HERE,)), LedgerSegment(5, (THERE,)))
        await one.hold(10, ClusterLedgerMetadata(1, 1, 1, segments, creator_token=1).closed(9, 100))
        assert await one.look() == SUSPECTED

    run(main)


def test_a_recovery_add_begins_the_hour_anew() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.look()
        one.now += GRACE_S - 1
        one.recovered.add(7)
        assert await one.look() == OverReplicationPass()
        # It was forgotten, and the scan of the next day finds it again.
        assert await one.look_after(SCAN_EVERY_S) == SUSPECTED
        assert (await one.look_after(GRACE_S)).deleted == (7,)

    run(main)


def test_a_recovery_add_that_comes_during_the_last_look_keeps_the_copy() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.look()
        one.znodes = WatchedZnodes(znodes, lambda: one.recovered.add(7))
        assert (await one.look_after(GRACE_S)).deleted == ()
        assert 7 in one.here

    run(main)


def test_a_ledger_that_another_session_has_locked_stays_until_the_lock_is_released() -> None:
    async def main(server: MemoryServer) -> None:
        one, worker = await world(server.session()), server.session()
        lock = await lock_ledger(worker, "/ledgers", 7, "another-worker")
        assert lock is not None
        await one.look()
        assert await one.look_after(GRACE_S) == SUSPECTED
        assert 7 in one.here
        assert lock.path in server.paths()
        await unlock_ledger(worker, lock)
        assert (await one.look_after(1)).deleted == (7,)

    run_with_server(main)


class WatchedZnodes:
    """A session that calls a function at each sync."""

    def __init__(self, znodes: MemoryZnodes, at_sync: Callable[[], object]) -> None:
        self._znodes = znodes
        self._at_sync = at_sync

    def __getattr__(self, name: str) -> object:
        return getattr(self._znodes, name)

    async def sync(self, path: str) -> None:
        self._at_sync()
        await self._znodes.sync(path)


class LaggingNode(WatchedZnodes):
    """A session whose server shows an old state of the ledger until it is synced."""

    def __init__(self, znodes: MemoryZnodes, path: str, old: Node | Gone) -> None:
        super().__init__(znodes, lambda: setattr(self, "_old", None))
        self._path = path
        self._old: Node | Gone | None = old

    async def get(self, path: str) -> Node | Gone:
        return self._old if path == self._path and self._old is not None else await self._znodes.get(path)

    async def get_all(self, paths: Sequence[str]) -> list[Node | Gone]:
        return [await self.get(one) for one in paths]


def test_a_server_that_lags_behind_a_repair_to_this_bookie_deletes_nothing() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        old = await znodes.get(PATHS.path_of(7))
        await ours_again(one)
        one.znodes = LaggingNode(znodes, PATHS.path_of(7), old)
        assert await one.look() == SUSPECTED
        assert (await one.look_after(GRACE_S)).deleted == ()
        assert 7 in one.here

    run(main)


@pytest.mark.parametrize("instance_id", [None, "another-instance"])
def test_another_cluster_or_none_deletes_nothing(instance_id: str | None) -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes, instance_id)
        for _ in range(3):
            assert (await one.look_after(GRACE_S)).refused is PassRefusal.OTHER_CLUSTER
        assert 7 in one.here

    run(main)


def test_an_empty_root_deletes_nothing() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.look()
        for ledger_id in sorted(one.here):
            await delete_ledger(znodes, PATHS, ledger_id)
        assert await one.look_after(GRACE_S) == OverReplicationPass()
        assert one.here == {7, *STAYS}

    run(main)


def test_more_than_half_of_the_ledgers_are_never_deleted_at_once() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        one.here -= set(STAYS)
        for ledger_id in range(8, 8 + FEW):
            await one.hold(ledger_id, ELSEWHERE)
        await one.look()
        found = await one.look_after(GRACE_S)
        assert (found.deleted, found.refused) == ((), PassRefusal.TOO_MANY_ELSEWHERE)
        # One fewer are few enough.
        await change_ledger(znodes, PATHS, 8, lambda _: OURS)
        assert len((await one.look_after(1)).deleted) == FEW

    run(main)


def test_metadata_that_cannot_be_read_delete_nothing() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.look()
        znodes.expire()
        with pytest.raises(SessionExpired):
            await one.look_after(GRACE_S)
        assert 7 in one.here

    run(main)


def test_a_copy_stays_while_adds_to_it_are_under_way() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.look()
        one.can_hold = False
        assert await one.look_after(GRACE_S) == SUSPECTED
        assert 7 in one.here

    run(main)


def test_a_ledger_that_was_deleted_here_meanwhile_is_passed_over() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.look()
        one.before_delete = lambda: one.here.discard(7)
        assert (await one.look_after(GRACE_S)).deleted == ()

    run(main)


def test_all_ledgers_are_looked_at_once_a_day_with_pauses_and_the_suspected_ones_always() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes)
        await one.look()
        assert one.pauses == -(-len(one.here) // LOOKS_AT_ONCE)
        await one.hold(8, ELSEWHERE)
        assert await one.look_after(1) == SUSPECTED
        assert (await one.look_after(SCAN_EVERY_S)).suspected == {8}

    run(main)


def test_a_bookie_that_never_looks_deletes_nothing() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        one = await world(znodes, scan_every_s=inf)
        for _ in range(3):
            assert await one.look_after(SCAN_EVERY_S) == OverReplicationPass()
        assert 7 in one.here

    run(main)


def test_the_server_tells_once_which_ledgers_got_a_recovery_add(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_bookie(tmp_path / "store") as (_, server, port):
            client = await RawBookieConnection.open(port)
            for ledger_id, options in ((1, AddOptions()), (2, RECOVERY), (3, AddOptions()), (2, RECOVERY)):
                added = await client.ask(add_of(ledger_id, 0, b"x", options=options), Protocol.V3)
                assert added.code is Code.OK
            assert server.adds.take_recovered() == {2}
            assert server.adds.take_recovered() == set()
            await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("ledger_id", [1, 2])
def test_an_add_that_comes_while_adds_are_held_is_stored_after_the_deletion(
    tmp_path: Path, ledger_id: int
) -> None:
    async def main() -> None:
        async with running_bookie(tmp_path / "store") as (store, server, port):
            client = await RawBookieConnection.open(port)
            await client.ask(add_of(1, 0, b"old"), Protocol.V3)
            with server.adds.held(ledger_id) as are_held:
                assert are_held
                with server.adds.held(ledger_id) as are_held_twice:
                    assert not are_held_twice
                client.send(add_of(ledger_id, 7, b"new", options=RECOVERY), Protocol.V3)
                # The other ledger's answer comes first, although its add was sent later.
                client.send(add_of(3, 0, b"other"), Protocol.V3)
                assert (await client.answer()).number == 3
                await store.bookie.call(partial(store.bookie.blocking.delete_all, [1]))
            assert (await client.answer()).number == 2
            assert await store.ledger(ledger_id, password=b"secret").entry_ids() == [range(7, 8)]
            await client.close()

    asyncio.run(main())


def test_a_writer_that_comes_after_its_copy_was_deleted_is_checked_anew(tmp_path: Path) -> None:
    """The fence went with the copy, so an add that is taken unchecked could complete a write quorum."""
    codes = [Code.OK, Code.FENCED]

    async def check_first(_: int, __: Purpose) -> Code:
        return codes.pop(0)

    async def main() -> None:
        async with running_bookie(tmp_path / "store", check_first=check_first) as (store, server, port):
            client = await RawBookieConnection.open(port)
            assert (await client.ask(add_of(1, 0, b"old"), Protocol.V3)).code is Code.OK
            fence = ReadEntry(1, LAST_ENTRY, KEY, fences=True)
            assert (await client.ask(fence, Protocol.V3)).code is Code.OK
            with server.adds.held(1):
                await store.bookie.call(partial(store.bookie.blocking.delete_all, [1]))
            assert (await client.ask(add_of(1, 1, b"late"), Protocol.V3)).code is Code.FENCED
            await client.close()

    asyncio.run(main())

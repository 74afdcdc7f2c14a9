"""Ledgers that the metadata no longer have are deleted at the second look, and never on doubtful metadata."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from cluster_loops import run

from storage.cluster.bookie.deleted_ledgers import FEW, DeletionPass, LedgerDeletion, PassRefusal, judge
from storage.cluster.errors import SessionExpired
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import create_ledger, delete_ledger
from storage.cluster.metadata.znodes import ChildNames, Gone
from storage.errors import NoSuchLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memory_znodes import MemoryZnodes

    from storage.aio.bookie import AsyncBookie

PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
METADATA = ClusterLedgerMetadata(1, 1, 1, (LedgerSegment(0, ("here:1",)),), creator_token=1)


class LittleBookie:
    """A set of ledgers with the operations that a collection needs."""

    def __init__(self, ledgers: Iterable[int]) -> None:
        self.here = set(ledgers)
        self.blocking = self
        self.before_list: Callable[[], None] = lambda: None
        self.busy: set[int] = set()
        """Ledgers with adds under way."""
        self.held_now: set[int] = set()

    async def ledgers(self) -> list[int]:
        found = sorted(self.here)
        self.before_list()
        return found

    async def call(self, act: Callable[[], object]) -> object:
        return act()

    @contextmanager
    def held(self, ledger_id: int) -> Iterator[bool]:
        if ledger_id in self.busy:
            yield False
            return
        self.held_now.add(ledger_id)
        yield True
        self.held_now.remove(ledger_id)

    def delete_all(self, ledger_ids: Iterable[int]) -> None:
        ids = list(ledger_ids)
        assert self.held_now >= set(ids)
        for one in ids:
            if one not in self.here:
                raise NoSuchLedger(one)
        self.here -= set(ids)


def deletion(bookie: LittleBookie, instance_id: str | None = "an-instance") -> LedgerDeletion:
    return LedgerDeletion(cast("AsyncBookie", bookie), instance_id, bookie)


async def with_ledgers(znodes: MemoryZnodes, ledger_ids: Iterable[int]) -> None:
    await init_cluster(znodes, "/ledgers", "an-instance")
    for one in ledger_ids:
        await create_ledger(znodes, PATHS, one, METADATA)


def test_a_deleted_ledger_goes_at_the_second_look() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await with_ledgers(znodes, range(10))
        bookie = LittleBookie(range(10))
        passes = deletion(bookie)
        assert await passes.make_pass(znodes, PATHS) == DeletionPass()
        await delete_ledger(znodes, PATHS, 3)
        assert await passes.make_pass(znodes, PATHS) == DeletionPass(suspected=frozenset({3}))
        assert bookie.here == set(range(10))
        assert await passes.make_pass(znodes, PATHS) == DeletionPass((3,))
        assert bookie.here == set(range(10)) - {3}

    run(main)


def test_a_ledger_that_came_back_between_two_looks_stays() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await with_ledgers(znodes, range(3))
        bookie = LittleBookie(range(4))
        passes = deletion(bookie)
        assert (await passes.make_pass(znodes, PATHS)).suspected == {3}
        await create_ledger(znodes, PATHS, 3, METADATA)
        assert await passes.make_pass(znodes, PATHS) == DeletionPass()
        await delete_ledger(znodes, PATHS, 3)
        # It is suspected anew.
        assert await passes.make_pass(znodes, PATHS) == DeletionPass(suspected=frozenset({3}))

    run(main)


class LedgerMadeAgain:
    """A session in which a client makes a ledger with the id of a deleted one just before the last look."""

    def __init__(self, znodes: MemoryZnodes, bookie: LittleBookie, ledger_id: int) -> None:
        self._znodes = znodes
        self._bookie = bookie
        self._ledger_id = ledger_id

    def __getattr__(self, name: str) -> object:
        return getattr(self._znodes, name)

    async def sync(self, path: str) -> None:
        if path == PATHS.path_of(self._ledger_id):
            assert self._ledger_id in self._bookie.held_now, "an add after this look could be deleted"
            await create_ledger(self._znodes, PATHS, self._ledger_id, METADATA)
        await self._znodes.sync(path)


def test_adds_wait_from_the_last_look_to_the_deletion_because_an_id_may_be_used_again() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await with_ledgers(znodes, range(10))
        bookie = LittleBookie(range(11))
        passes = deletion(bookie)
        assert (await passes.make_pass(znodes, PATHS)).suspected == {10}
        again: Any = LedgerMadeAgain(znodes, bookie, 10)
        assert await passes.make_pass(again, PATHS) == DeletionPass()
        assert 10 in bookie.here
        assert not bookie.held_now

    run(main)


def test_a_ledger_with_adds_under_way_waits_for_the_next_pass() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await with_ledgers(znodes, range(10))
        bookie = LittleBookie(range(11))
        bookie.busy = {10}
        passes = deletion(bookie)
        for _ in range(3):
            assert await passes.make_pass(znodes, PATHS) == DeletionPass(suspected=frozenset({10}))
        bookie.busy = set()
        assert await passes.make_pass(znodes, PATHS) == DeletionPass((10,))

    run(main)


class LaggingLists:
    """A session whose server does not show some ledgers in lists, until their own nodes are synced."""

    def __init__(self, znodes: MemoryZnodes, hidden: str) -> None:
        self._znodes = znodes
        self._hidden = hidden
        self.synced: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._znodes, name)

    async def sync(self, path: str) -> None:
        self.synced.append(path)

    async def exists(self, path: str) -> object:
        assert path in self.synced, "read before the sync"
        return await self._znodes.exists(path)

    async def children_of_all(self, paths: list[str]) -> list[ChildNames | Gone]:
        answers = await self._znodes.children_of_all(paths)
        return [one if isinstance(one, Gone) else self._shown(one) for one in answers]

    def _shown(self, children: ChildNames) -> ChildNames:
        return replace(children, names=tuple(one for one in children.names if one != self._hidden))


def test_a_ledger_that_a_lagging_server_does_not_list_is_not_deleted() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await with_ledgers(znodes, range(5))
        name = PATHS.path_of(3).rpartition("/")[2]
        lagging = LaggingLists(znodes, name)
        bookie = LittleBookie(range(5))
        passes = deletion(bookie)
        assert (await passes.make_pass(lagging, PATHS)).suspected == {3}  # type: ignore[arg-type]
        assert (await passes.make_pass(lagging, PATHS)).deleted == ()  # type: ignore[arg-type]
        assert bookie.here == set(range(5))

    run(main)


def test_a_ledger_that_is_made_after_the_local_list_is_not_suspected() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await with_ledgers(znodes, range(3))
        bookie = LittleBookie(range(3))
        bookie.before_list = lambda: bookie.here.add(7)
        assert await deletion(bookie).make_pass(znodes, PATHS) == DeletionPass()

    run(main)


@pytest.mark.parametrize("instance_id", [None, "another-instance"])
def test_another_cluster_or_none_deletes_nothing(instance_id: str | None) -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await with_ledgers(znodes, range(2))
        bookie = LittleBookie(range(4))
        passes = deletion(bookie, instance_id)
        for _ in range(3):
            assert (await passes.make_pass(znodes, PATHS)).refused is PassRefusal.OTHER_CLUSTER
        assert bookie.here == set(range(4))

    run(main)


def test_metadata_that_cannot_be_read_delete_nothing() -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await with_ledgers(znodes, range(2))
        bookie = LittleBookie(range(3))
        passes = deletion(bookie)
        await passes.make_pass(znodes, PATHS)
        znodes.expire()
        with pytest.raises(SessionExpired):
            await passes.make_pass(znodes, PATHS)
        assert bookie.here == set(range(3))

    run(main)


EMPTY: frozenset[int] = frozenset()
LOST = frozenset(range(49, 100))


@pytest.mark.parametrize(
    ("here", "listed", "suspected", "found"),
    [
        (range(10), range(10), EMPTY, DeletionPass()),
        (range(10), range(9), EMPTY, DeletionPass(suspected=frozenset({9}))),
        (range(10), range(9), {9}, DeletionPass((9,))),
        (range(10), range(8), {9}, DeletionPass((9,), frozenset({8}))),
        (range(10), (), range(10), DeletionPass(refused=PassRefusal.EMPTY)),
        (EMPTY, (), EMPTY, DeletionPass()),
        (range(100), range(50), range(100), DeletionPass(tuple(range(50, 100)))),
        (
            range(100),
            range(49),
            range(100),
            DeletionPass(suspected=LOST, refused=PassRefusal.TOO_MANY),
        ),
        (range(FEW + 1), range(1), range(FEW + 1), DeletionPass(tuple(range(1, FEW + 1)))),
    ],
)
def test_the_judgement_of_a_pass(
    here: Iterable[int], listed: Iterable[int], suspected: Iterable[int], found: DeletionPass
) -> None:
    assert judge(frozenset(here), frozenset(listed), frozenset(suspected)) == found

"""A Ctrl-C on a loop that leads commits: no id is skipped, and no caller waits for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from itertools import count

import pytest
from async_stores import PATIENCE_S, AwaitedSite, passes
from keyboard_interrupts import interrupted
from sampling import many
from stepped_store import payloads
from store_internals import AsyncEngine

from storage import StoreFailed
from storage.aio import AsyncStore, ledger, loop_commits
from storage.commit import committer, pending, portions
from storage.commit import queue as commit_queue
from storage.journal import journal_set
from storage.ledgers import state as ledgers_state

ADDS = (committer, pending, portions, journal_set, ledgers_state, commit_queue, loop_commits, ledger)
"""The modules that an add runs through."""


class Loop:
    """A store on a loop that may be interrupted, and then goes on."""

    def __init__(self, site: AwaitedSite) -> None:
        self._runner = asyncio.Runner()
        self._store = self._runner.run(self._opened(site))
        self._adds: list[asyncio.Task[int]] = []

    @staticmethod
    async def _opened(site: AwaitedSite) -> AsyncStore:
        store = AsyncStore(site.open())
        store.blocking.ledger(1).append(b"zero")
        return store

    def add(self, *texts: bytes) -> None:
        """Returns when all of them are answered."""
        self._runner.get_loop().run_until_complete(self._add(*texts))

    async def _add(self, *texts: bytes) -> None:
        one = self._store.ledger(1)
        adds = [asyncio.create_task(one.append(text)) for text in texts]
        self._adds += adds
        done, _ = await asyncio.wait(adds, timeout=PATIENCE_S)
        assert len(done) == len(adds), "an add was never answered"

    def settle(self) -> None:
        """Returns when all that was added is answered."""
        self._runner.get_loop().run_until_complete(self._settle())

    async def _settle(self) -> None:
        if self._adds:
            _, left = await asyncio.wait(self._adds, timeout=PATIENCE_S)
            assert not left, "an add was never answered"

    def close(self) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await passes(3)
        for add in self._adds:
            if add.done() and not add.cancelled() and add.exception() is not None:
                assert isinstance(add.exception(), StoreFailed | KeyboardInterrupt)
        AsyncEngine(self._store).stop_threads()


@pytest.mark.sampled(one_of=2)
@pytest.mark.parametrize("texts", [(b"one",), (b"one", b"one")], ids=["one", "two"])
@pytest.mark.parametrize("is_followed", [True, False], ids=["followed", "alone"])
def test_a_ctrl_c_anywhere_in_an_add_leaves_no_gap_and_each_a_way_through(
    texts: tuple[bytes, ...], is_followed: bool
) -> None:
    for number in count(1, many(1, 4)):
        site = AwaitedSite()
        loop = Loop(site)
        add = partial(loop.add, *texts)
        was_interrupted = interrupted(add, number, *ADDS)
        if is_followed:
            with suppress(StoreFailed):
                loop.add(b"two")
        loop.settle()
        loop.close()
        found = payloads(site.after_kill(), 1)
        assert found[0] == b"zero", f"interrupted at place {number}"
        assert set(found[1:]) <= {b"one", b"two"}, f"interrupted at place {number}"
        if not was_interrupted:
            assert found == [b"zero", *texts, *([b"two"] if is_followed else [])]
            break
    assert number > 40

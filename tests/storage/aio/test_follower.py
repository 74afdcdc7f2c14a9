"""Following a ledger, awaited: until it is stopped, the ledger is deleted, or the program shuts down."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from itertools import count
from typing import TYPE_CHECKING

import pytest
from async_stores import AwaitedSite, passes, run, until
from store_internals import AsyncEngine

from storage import DigestType, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.aio import AsyncStore
    from storage.aio.follower import AsyncFollower


@pytest.fixture
def site() -> AwaitedSite:
    return AwaitedSite()


async def payloads(follower: AsyncFollower) -> list[bytes]:
    return [entry.payload async for entry in follower]


async def waiting(store: AsyncStore, follower: AsyncFollower) -> asyncio.Task[list[bytes]]:
    """A task that follows; it waits already."""
    before = AsyncEngine(store).waiting_coroutines
    task = asyncio.create_task(payloads(follower))
    await until(lambda: AsyncEngine(store).waiting_coroutines > before)
    return task


# ── stopping one ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stop", ["stop", "aclose", "from a thread", "async with"])
def test_a_follower_that_waits_is_stopped_from_outside(site: AwaitedSite, stop: str) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            follower, other = store.ledger(1).follow(), store.ledger(1).follow()
            task, others = await waiting(store, follower), await waiting(store, other)
            if stop == "stop":
                follower.stop()
            elif stop == "aclose":
                await follower.aclose()
            elif stop == "from a thread":
                threading.Thread(target=follower.stop).start()
            else:
                async with follower:
                    pass
            assert await task == [b"zero"]
            assert await payloads(follower) == []
            assert not others.done()
            other.stop()
            assert await others == [b"zero"]
            assert AsyncEngine(store).registered == 0

    run(main())


def test_a_stopped_follower_hands_out_nothing_that_it_has_read(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            await store.ledger(1).append_many([b"x"] * 5)
            follower = store.ledger(1).follow()
            assert (await anext(follower)).entry_id == 0
            await follower.aclose()
            assert await payloads(follower) == []

    run(main())


def test_a_follower_whose_wait_was_cancelled_can_be_asked_again(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            await ledger.append_many([b"x"] * 5000)
            follower, found = ledger.follow(), list[int]()
            for number in range(50):
                # Cancelled anywhere: before it reads, and while a thread reads for it.
                asking = asyncio.ensure_future(anext(follower))
                await passes(number)
                asking.cancel()
                await asyncio.wait([asking])
                if not asking.cancelled():
                    found.append(asking.result().entry_id)
            while len(found) <= 5000:
                found.append((await anext(follower)).entry_id)
            assert found == list(range(5001))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(follower), 0.001)
            await ledger.append(b"new")
            assert (await anext(follower)).entry_id == 5001

    run(main())


def test_two_tasks_cannot_share_a_follower(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            follower = store.ledger(1).follow()
            task = await waiting(store, follower)
            with pytest.raises(RuntimeError, match="another task"):
                await anext(follower)
            follower.stop()
            assert await task == [b"zero"]

    run(main())


def test_the_time_without_an_entry_is_not_counted_anew_because_of_other_changes(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            task = await waiting(store, store.ledger(1).follow(idle_timeout_s=0.02))
            for entry_id in count(2):  # entry 1 stays missing
                if task.done():
                    break
                await store.add(Entry(1, entry_id, 0, 9, b"behind the gap"))
            assert await task == [b"zero"]

    run(main())


# ── a ledger that is deleted ─────────────────────────────────────────────────────────────────────────────


def test_a_follower_that_waits_ends_when_its_ledger_is_deleted(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            task = await waiting(store, ledger.follow())
            await ledger.delete()
            await ledger.append_many([b"new"] * 5)
            assert await task == [b"zero"]
            assert await payloads(ledger.follow(idle_timeout_s=0)) == [b"new"] * 5

    run(main())


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("digest", [DigestType.CRC32C, DigestType.MAC])
def test_a_follower_gets_nothing_of_the_ledger_that_is_made_again(
    site: AwaitedSite, size: int, digest: DigestType
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            old = store.ledger(2)
            await old.append_many([b"old"] * size)
            follower = old.follow()
            assert (await anext(follower)).payload == b"old"
            await old.delete()
            await store.ledger(2, digest, b"secret").append_many([b"new"] * (size + 3))
            assert set(await payloads(follower)) <= {b"old"}

    run(main())


def test_a_wait_for_a_deleted_ledger_ends_though_another_ledger_has_its_id(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            confirmed = asyncio.create_task(ledger.wait_for_last_add_confirmed(5))
            await until(lambda: AsyncEngine(store).waiting_coroutines > 0)
            await ledger.delete()
            assert await confirmed == -1

    run(main())


# ── a program that shuts down ────────────────────────────────────────────────────────────────────────────


def test_all_followers_of_a_store_are_stopped_and_everything_else_goes_on(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            tasks = [await waiting(store, store.ledger(one).follow(1)) for one in (1, 1, 2)]
            confirmed = asyncio.create_task(ledger.wait_for_last_add_confirmed(5))
            await until(lambda: AsyncEngine(store).waiting_coroutines == 4)
            store.stop_followers()
            assert await asyncio.gather(*tasks, confirmed) == [[], [], [], 0]
            assert await payloads(ledger.follow()) == []
            assert await ledger.append(b"one") == 1
            assert [payload async for payload in ledger.payloads()] == [b"zero", b"one"]

    run(main())


def test_a_server_that_waits_for_its_streams_before_it_closes_the_store_shuts_down(site: AwaitedSite) -> None:
    """An HTTP server that gets SIGTERM takes no new connection, ends its streams, then closes the store."""
    loop_is_at: list[str] = []

    async def main() -> None:
        async with site.awaited() as store:
            terminated, streams = asyncio.Event(), set[asyncio.Task[None] | None]()

            async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                streams.add(asyncio.current_task())
                async for entry in store.ledger(1).follow():
                    writer.write(b"data: %b\n\n" % entry.payload)
                    await writer.drain()
                writer.close()

            def shut_down() -> None:
                store.stop_followers()
                terminated.set()

            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, shut_down)
            server = await asyncio.start_server(stream, "127.0.0.1", 0)
            clients = [await asyncio.open_connection(*server.sockets[0].getsockname()[:2]) for _ in range(3)]
            for reader, _ in clients:
                assert await reader.readuntil(b"\n\n") == b"data: zero\n\n"
            await until(lambda: AsyncEngine(store).waiting_coroutines == 3)
            os.kill(os.getpid(), signal.SIGTERM)
            await terminated.wait()
            server.close()
            await asyncio.wait([one for one in streams if one is not None])
            loop_is_at.append("streams ended")
            assert [await reader.read() for reader, _ in clients] == [b""] * 3
            for _, writer in clients:
                writer.close()
            loop.remove_signal_handler(signal.SIGTERM)
        loop_is_at.append("store closed")

    run(main())
    assert loop_is_at == ["streams ended", "store closed"]


@pytest.mark.parametrize("end", ["stop", "stop_followers", "close"])
def test_whatever_ends_a_follower_ends_it_before_it_waits_too(site: AwaitedSite, end: str) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            follower = store.ledger(1).follow()
            assert (await anext(follower)).entry_id == 0
            ends: dict[str, Callable[[], object]] = {
                "stop": follower.stop,
                "stop_followers": store.stop_followers,
                "close": store.blocking.close,
            }
            task = asyncio.create_task(payloads(follower))
            await passes()  # it has begun, and does not wait yet
            assert AsyncEngine(store).waiting_coroutines == 0
            ends[end]()
            assert await task == []

    run(main())

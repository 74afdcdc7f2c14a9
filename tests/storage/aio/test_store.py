"""Opening, closing, and whose an awaited store is."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from async_stores import PATIENCE_S, AwaitedSite, believe_slow, in_time, passes, run, until
from stepped_store import payloads
from store_internals import ANSWER_COROUTINE, AsyncEngine, EngineCall

from recovery import open_async_store, open_store
from recovery.crashlab import FailedSync, Verb, When
from recovery.opening import open_async_store as opening_async
from storage import (
    Entry,
    EntryTooLarge,
    ForkedStore,
    NotAStore,
    OtherLoop,
    StoreClosed,
    StoreConfig,
    StoreFailed,
    StoreLocked,
)
from storage.aio import AsyncLedger, AsyncStore
from storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from storage.aio.thread_calls import ThreadCalls

QUIET = StoreConfig(journal_size=8 << 20, checkpoint_interval_s=None, idle_seal_s=None)
ROOT = Path(opening_async.__file__).parents[2]


@pytest.fixture
def site() -> AwaitedSite:
    return AwaitedSite()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────────


def test_it_is_entered_or_awaited_and_closed_in_either_case(path: Path) -> None:
    async def main() -> None:
        async with open_async_store(path, QUIET) as store:
            assert store.opened.created
            assert store.path == str(path)
            assert await store.ledger(1).append(b"one") == 0
        store = await open_async_store(path, QUIET)
        assert not store.opened.created
        async with store:
            assert (await store.ledger(1).read(0)).payload == b"one"
        with open_store(path, QUIET) as blocking:
            assert blocking.ledgers() == [1]

    run(main())


def test_a_store_that_cannot_be_opened_says_why(path: Path) -> None:
    async def main() -> None:
        async with open_async_store(path, QUIET):
            with pytest.raises(StoreLocked):
                await open_async_store(path, QUIET)
        (path / "elsewhere").mkdir()
        (path / "elsewhere" / "file").write_text("something else")
        with pytest.raises(NotAStore):
            async with open_async_store(path / "elsewhere", QUIET):
                pytest.fail("it was opened")

    run(main())


def test_an_opening_without_a_waiting_task_leaves_no_open_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, may_open, closed = threading.Event(), threading.Event(), threading.Event()

    def held(*arguments: object) -> Store:
        entered.set()
        assert may_open.wait(PATIENCE_S)
        return open_store(*arguments)  # type: ignore[arg-type]

    def close(store: Store) -> None:
        Store_close(store)
        closed.set()

    Store_close = Store.close  # noqa: N806
    monkeypatch.setattr("recovery.opening.open_async_store.open_store", held)
    monkeypatch.setattr(Store, "close", close)

    async def main() -> None:
        opening = asyncio.ensure_future(open_async_store(path, QUIET))
        await until(entered.is_set)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        may_open.set()

    run(main())
    assert closed.wait(PATIENCE_S)
    open_store(path, QUIET).close()  # no process holds its lock


def test_an_opening_that_is_cancelled_as_it_ends_leaves_no_open_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: Callable[..., None] = getattr(*ANSWER_COROUTINE)

    async def main() -> None:
        opening = asyncio.ensure_future(open_async_store(path, QUIET))

        def answer_and_cancel(calls: ThreadCalls, *arguments: object) -> None:
            # The store is there, and who waits for it has not run yet.
            answer(calls, *arguments)
            opening.cancel()

        monkeypatch.setattr(*ANSWER_COROUTINE, answer_and_cancel)
        with pytest.raises(asyncio.CancelledError):
            await opening

    run(main())
    assert in_time(partial(_open_when_unlocked, path))


def _open_when_unlocked(path: Path) -> None:
    while True:
        with suppress(StoreLocked):
            return open_store(path, QUIET).close()


# ── closing ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pace", [lambda _: None, believe_slow], ids=["on the loop", "in a thread"])
def test_adds_under_way_are_answered_before_it_is_closed(
    site: AwaitedSite, pace: Callable[[AsyncStore], None]
) -> None:
    acknowledged: dict[int, bytes] = {}

    async def main() -> None:
        async with site.awaited() as store:
            pace(store)

            async def write(number: int) -> None:
                ledger = store.ledger(1)
                for count in range(1000):
                    text = b"%d:%d" % (number, count)
                    acknowledged[await ledger.append(text)] = text

            writing = [asyncio.create_task(write(number)) for number in range(8)]
            await until(lambda: len(acknowledged) > 30)
            await asyncio.gather(store.close(), store.close())
            # Right after the close no caller waits any more.
            assert all(task.done() for task in writing)
            told = await asyncio.gather(*writing, return_exceptions=True)
            assert {type(one) for one in told} == {StoreClosed}

    run(main())
    found = dict(enumerate(payloads(site.after_power_cut(), 1)))
    assert acknowledged.items() <= found.items()


def test_adds_that_wait_for_a_thread_when_the_store_closes_are_answered(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal = site.awaited_journal()
            believe_slow(store)
            journal.hold()
            first = [asyncio.create_task(store.ledger(1).append(b"1")) for _ in range(2)]
            await until(lambda: bool(journal.syncs))
            behind = [asyncio.create_task(store.ledger(1).append(b"2")) for _ in range(2)]
            await passes(10)
            closing = asyncio.create_task(store.close())
            await passes(10)
            assert not any(task.done() for task in [*first, *behind, closing])
            journal.let_go()
            assert await asyncio.gather(*first, *behind) == [1, 2, 3, 4]
            await closing

    run(main())


def test_after_a_failure_waiting_coroutines_get_the_error_before_the_store_is_closed(
    site: AwaitedSite,
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal = site.awaited_journal()
            believe_slow(store)
            journal.hold()
            site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="*.txn.draft")))
            first = asyncio.create_task(store.ledger(1).append(b"1"))
            await until(lambda: bool(journal.syncs))
            behind = asyncio.create_task(store.ledger(1).append(b"2"))
            await passes(10)
            # Its leader does no other turn: it is told to stop while it is in the first.
            closing = asyncio.create_task(store.close())
            await until(lambda: AsyncEngine(store).leader_is_stopped)
            journal.let_go()
            told = await asyncio.gather(first, behind, return_exceptions=True)
            assert [type(one) for one in told] == [StoreFailed] * 2
            await closing

    run(main())


def test_it_is_closed_once_and_answers_nothing_then(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            await store.close()
            await store.close()
            words: list[Coroutine[object, object, object]] = [
                store.ledgers(),
                store.checkpoint(),
                store.add(Entry(1, 5, 0, 5, b"x")),
            ]
            for word in words:
                with pytest.raises(StoreClosed):
                    await word
            with pytest.raises(StoreClosed):
                store.ledger(1)

    run(main())


def test_a_close_that_is_cancelled_goes_on(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal = site.awaited_journal()
            believe_slow(store)
            journal.hold()
            add = asyncio.create_task(store.ledger(1).append(b"one"))
            await until(lambda: bool(journal.syncs))
            closing = asyncio.create_task(store.close())
            await passes(10)
            closing.cancel()
            await passes(2)
            assert closing.cancelled()
            journal.let_go()
            await store.close()
            assert await add == 1
        assert payloads(site.after_kill(), 1) == [b"zero", b"one"]

    run(main())


def test_an_error_of_a_close_is_raised(site: AwaitedSite) -> None:
    async def main() -> None:
        def fail() -> None:
            raise OSError("not sealed")

        store = AsyncStore(site.open())
        setattr(*AsyncEngine(store).at(EngineCall.SEAL_LOG), fail)
        with pytest.raises(OSError, match="not sealed"):
            await store.close()
        await until(lambda: not _threads())

    run(main())


def test_a_closed_store_leaves_no_thread(path: Path) -> None:
    async def main() -> None:
        async with open_async_store(path, QUIET) as store:
            believe_slow(store)
            await asyncio.gather(*(store.ledger(one).append(b"x") for one in range(20)))
            await store.checkpoint()
        await until(lambda: not _threads())

    run(main())


def _threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("ledgerstore")]


def test_a_store_whose_calls_all_wait_for_the_disk_can_be_closed(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal = site.awaited_journal()
            journal.hold()
            fencing = [asyncio.create_task(store.ledger(one).fence()) for one in range(40)]
            await until(lambda: bool(journal.syncs))
            closing = asyncio.create_task(store.close())
            await until(lambda: AsyncEngine(store).is_closed)
            journal.let_go()
            await closing
            told = await asyncio.gather(*fencing, return_exceptions=True)
            assert {type(one) for one in told} <= {int, type(None), StoreClosed}

    run(main())


# ── whose it is ──────────────────────────────────────────────────────────────────────────────────────────


def test_on_another_loop_it_is_refused_and_nothing_is_done(site: AwaitedSite) -> None:
    with asyncio.Runner() as first, asyncio.Runner() as second:

        async def opened() -> AsyncStore:
            store = AsyncStore(site.open())
            await store.ledger(1).append(b"zero")
            return store

        store = first.run(opened())

        async def ledger_of() -> AsyncLedger:
            return store.ledger(1)

        ledger = first.run(ledger_of())

        async def refused() -> None:
            words = [
                ledger.append(b"x"),
                ledger.append_many([b"x"]),
                ledger.read(0),
                ledger.fence(),
                anext(ledger.follow()),
                store.ledgers(),
                store.close(),
            ]
            for word in words:
                with pytest.raises(OtherLoop):
                    await word
            with pytest.raises(OtherLoop):
                store.ledger(1)

        second.run(refused())
        first.run(store.close())
    assert payloads(site.after_kill(), 1) == [b"zero"]


def test_a_fork_is_told_that_it_is_one(path: Path) -> None:
    async def main() -> None:
        async with open_async_store(path, QUIET) as store:
            ledger = store.ledger(1)
            await ledger.append(b"zero")
            pid = os.fork()
            if not pid:  # pragma: no cover - in the child
                os._exit(_told_in_a_fork(store, ledger))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert await ledger.append(b"one") == 1

    run(main())


def _told_in_a_fork(store: AsyncStore, ledger: AsyncLedger) -> int:  # pragma: no cover - in the child
    """0 if each word says so at once."""
    words: list[Callable[[], object]] = [
        lambda: ledger.append(b"x").send(None),
        lambda: ledger.append_many([b"x"]).send(None),
        lambda: ledger.read(0).send(None),
        lambda: store.ledgers().send(None),
        lambda: store.ledger(1),
    ]
    for number, word in enumerate(words, 1):
        try:
            word()
        except ForkedStore:
            continue
        return number
    with suppress(StopIteration):
        store.close().send(None)
        return 100
    return 0


def test_it_cannot_be_pickled(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            with pytest.raises(TypeError, match="belongs to the process"):
                pickle.dumps(store)
            assert repr(store) == f"<AsyncStore {store.path}>"
            assert repr(store.ledger(1)) == f"<AsyncLedger 1 of {store.path}>"

    run(main())


def test_a_placed_entry_is_checked_and_copied_as_by_the_blocking_store(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            buffer = bytearray(b"before")
            add = asyncio.create_task(store.add(Entry(1, 3, 0, 9, buffer)))  # type: ignore[arg-type]
            await passes()
            buffer[:] = b"after!"
            await add
            assert (await store.ledger(1).read(3)).payload == b"before"
            with pytest.raises(EntryTooLarge):
                await store.add(Entry(1, 4, 0, 9, bytes(AsyncEngine(store).config.entry_size_max)))

    run(main())


# ── a program that ends ──────────────────────────────────────────────────────────────────────────────────

PROGRAMS = {
    "is cancelled while it adds": """
        async def main():
            async with open_async_store(path) as store:
                async def write():
                    while True:
                        await store.ledger(1).append(b"x")
                tasks = [asyncio.create_task(write()) for _ in range(5)]
                await asyncio.sleep(0.01)
                asyncio.current_task().cancel()
                await asyncio.gather(*tasks)
        try:
            asyncio.run(main())
        except asyncio.CancelledError:
            print("ended")
    """,
    "never enters what it opens": """
        open_async_store(path)
        print("ended")
    """,
    "leaves a follower and a scan where they are": """
        async def main():
            async with open_async_store(path) as store:
                ledger = store.ledger(1)
                await ledger.append_many([b"x"] * 10)
                async for entry in ledger.follow():
                    break
                scan = ledger.entries()
                await anext(scan)
                async def follow():
                    async for entry in ledger.follow(10):
                        pass
                following = asyncio.create_task(follow())
                await asyncio.sleep(0)
        asyncio.run(main())
        print("ended")
    """,
    "is interrupted": """
        # A program that a shell has started in the background ignores SIGINT otherwise.
        signal.signal(signal.SIGINT, signal.default_int_handler)

        async def main():
            async with open_async_store(path) as store:
                asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), signal.SIGINT)
                while True:
                    await store.ledger(1).append(b"x")
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("ended")
    """,
    "closes it on its way out": """
        async def main():
            store = await open_async_store(path)
            async def end():
                try:
                    await asyncio.sleep(3600)
                finally:
                    await store.close()
            asyncio.create_task(end())
            await store.ledger(1).append(b"x")
        asyncio.run(main())
        print("ended")
    """,
}

NEVER_CLOSES_IT = """
        async def main():
            store = await open_async_store(path)
            tasks = [asyncio.create_task(store.ledger(1).append(b"x")) for _ in range(5)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        asyncio.run(main())
        print("ended")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_ends_without_a_warning_that(path: Path, program: str) -> None:
    done = run_program(path, PROGRAMS[program])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_a_program_that_never_closes_its_store_is_told_so_and_nothing_else(path: Path) -> None:
    done = run_program(path, NEVER_CLOSES_IT)
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert done.stderr.endswith(f"ResourceWarning: unclosed store {path}\n")
    assert (done.stderr.count("Exception ignored"), done.stderr.count("Warning: ")) == (1, 1)


def run_program(path: Path, program: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, where every warning is an error."""
    # Messages about slow callbacks are left out, because a busy machine makes them slow.
    code = "import asyncio, logging, os, signal, sys\nlogging.getLogger('asyncio').setLevel(logging.ERROR)\n"
    code += "from recovery import open_async_store\npath = sys.argv[1]\n"
    code += "\n".join(line.removeprefix("        ") for line in program.splitlines())
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code, str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )


def test_only_the_opening_of_an_awaited_store_loads_asyncio() -> None:
    code = "import sys, recovery, storage; from recovery import open_store; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n"

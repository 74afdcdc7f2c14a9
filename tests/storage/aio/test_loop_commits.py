"""Adds of coroutines: which thread leads a commit, which adds share it, and the outcome of each add."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from async_stores import LARGE_JOURNAL, AwaitedSite, believe_slow, passes, run, until
from stepped_store import payloads
from store_internals import SPLIT_WORK, AsyncEngine, EngineCall, StoreInternals

from recovery.crashlab import FailedSync, Refused, Verb, When
from recovery.proving.stepped_workers import SteppedWorkers
from storage import DigestType, DiskFull, Entry, LedgerFenced, StoreFailed, Unauthorized
from storage.aio import AsyncStore
from storage.aio.inline_policy import INLINE_MAX_S, INLINE_SIZE_MAX
from storage.errors import EntryTooLarge

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from async_stores import Journal

    from storage.aio import AsyncLedger
    from storage.journal.writer import JournalWriter

LEADER = "ledgerstore-lead"
LOOP = threading.main_thread().name


class Clock:
    """Time that only a disk takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def site() -> AwaitedSite:
    return AwaitedSite()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """It stands still, unless a test says otherwise: how busy the machine is decides nothing."""
    clock = Clock()
    monkeypatch.setattr("storage.aio.loop_commits.waited_s", clock)
    return clock


def text(number: int) -> bytes:
    return b"text %d" % number


def append_all(ledger: AsyncLedger, *numbers: int) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(ledger.append(text(number))) for number in numbers]


async def refusals(*adds: Awaitable[object]) -> list[BaseException]:
    """Return the error of each add; all of them must fail."""
    told = await asyncio.gather(*adds, return_exceptions=True)
    assert all(isinstance(one, BaseException) for one in told), told
    return [one for one in told if isinstance(one, BaseException)]


# ── who shares ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 64, 512])
def test_adds_of_one_pass_of_the_loop_share_one_sync(site: AwaitedSite, count: int) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)

            async def write() -> list[int]:
                return [await ledger.append(b"a"), await ledger.append(b"b")]

            ids = await asyncio.gather(*(write() for _ in range(count)))
            assert journal.syncs == [LOOP] * 2
            assert sorted(chain.from_iterable(ids)) == list(range(1, 2 * count + 1))

    run(main())


def test_a_hundred_adds_of_one_coroutine_are_a_hundred_syncs(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            for _ in range(100):
                await ledger.append(b"x")
            assert len(journal.syncs) == 100

    run(main())


def test_ids_come_in_the_order_in_which_coroutines_run(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            new = store.ledger(2)  # its end is not known yet: all of them wait for it
            assert await asyncio.gather(*append_all(new, *range(50))) == list(range(50))
            assert await asyncio.gather(*append_all(store.ledger(2), *range(50))) == list(range(50, 100))
        assert payloads(site.after_kill(), 2) == [text(number) for number in [*range(50)] * 2]

    run(main())


def test_every_word_that_adds_goes_with_the_same_turn(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            many = ledger.append_many([b"two", bytearray(b"three"), memoryview(b"four")])
            placed = store.add(Entry(1, 9, 0, 9, b"nine"))
            assert tuple(await asyncio.gather(ledger.append(b"one"), many, placed)) == (1, range(2, 5), None)
            assert len(journal.syncs) == 1
            assert (await ledger.read(9)).payload == b"nine"
            assert await ledger.append_many([]) == range(0)

    run(main())


def test_acknowledged_adds_survive_a_power_cut_right_after_the_answer(site: AwaitedSite) -> None:
    async def main() -> None:
        store = site.open()
        store.ledger(1).append(b"zero")
        ledger = AsyncStore(store).ledger(1)
        acknowledged: dict[int, bytes] = {}

        async def write(number: int) -> None:
            while True:
                payload = b"%d:%d" % (number, len(acknowledged))
                acknowledged[await ledger.append(payload)] = payload
                # In the very step in which it hears of it: nothing else has run in between.
                copy = AwaitedSite(disk=site.disk.copy())
                if len(acknowledged) > 20:
                    found = dict(enumerate(payloads(copy.after_power_cut(), 1)))
                    assert acknowledged.items() <= found.items()
                    return

        await asyncio.gather(*(write(number) for number in range(5)))
        StoreInternals(store).fail(OSError("enough"))
        await asyncio.to_thread(store.close)

    run(main())


# ── who is cancelled ─────────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_is_cancelled_before_its_commit_leaves_no_gap(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            adds = append_all(ledger, 1, 2, 3)
            # Scheduled behind them: it runs when all three have put in, and the loop has not led yet.
            asyncio.get_running_loop().call_soon(adds[1].cancel)
            done = await asyncio.gather(*adds, return_exceptions=True)
            assert [done[0], type(done[1]), done[2]] == [1, asyncio.CancelledError, 3]
            assert [one async for one in ledger.payloads()] == [b"zero", text(1), text(2), text(3)]

    run(main())


def test_a_task_that_is_cancelled_before_it_runs_adds_nothing(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            adds = append_all(store.ledger(1), 1, 2)
            adds[0].cancel()
            assert await adds[1] == 1

    run(main())


def test_a_task_that_is_cancelled_while_the_disk_hangs_ends_at_once_and_alone(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            believe_slow(store)
            journal.hold()
            adds = append_all(ledger, *range(1, 6))
            await until(lambda: bool(journal.syncs))
            adds[2].cancel()
            await passes(2)
            assert [add.done() for add in adds] == [False, False, True, False, False]
            # So does one whose turn has not begun.
            late = append_all(ledger, 6, 7)
            await passes(3)
            late[0].cancel()
            await passes(2)
            assert [add.done() for add in late] == [True, False]
            journal.let_go()
            assert [await adds[at] for at in (0, 1, 3, 4)] == [1, 2, 4, 5]
            assert await late[1] == 7
            assert [one async for one in ledger.payloads(1)] == [text(number) for number in range(1, 8)]

    run(main())


def test_a_timeout_ends_in_time_though_the_disk_is_stuck(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            believe_slow(store)
            journal.hold()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ledger.append(b"one"), 0.001)
            journal.let_go()
            assert await ledger.append(b"two") == 2

    run(main())


# ── a slow disk ──────────────────────────────────────────────────────────────────────────────────────────


def test_while_a_thread_leads_the_loop_goes_on(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            believe_slow(store)
            journal.hold()
            first = append_all(ledger, *range(1, 9))
            await until(lambda: bool(journal.syncs))
            # All that comes meanwhile goes with the next turn, and waits for it.
            second = append_all(ledger, *range(9, 17))
            await passes(50)
            assert not any(add.done() for add in [*first, *second])
            assert (await ledger.read(0)).payload == b"zero"
            journal.let_go()
            assert await asyncio.gather(*first, *second) == list(range(1, 17))
            assert journal.syncs == [LEADER] * 2

    run(main())


def test_a_slow_disk_is_left_to_a_thread_and_a_quick_one_is_not(site: AwaitedSite, clock: Clock) -> None:
    async def threads_of(journal: Journal, ledger: AsyncLedger, adds: int, seconds: float) -> list[str]:
        def take_time() -> None:
            clock.now += seconds

        journal.on_sync = take_time
        before = len(journal.syncs)
        for _ in range(adds):
            await ledger.append(b"x")
        return journal.syncs[before:]

    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            assert await threads_of(journal, ledger, 20, INLINE_MAX_S / 2) == [LOOP] * 20
            slow = await threads_of(journal, ledger, 6, 5 * INLINE_MAX_S)
            assert slow == [LOOP] + [LEADER] * 5
            # It tries again after some turns, and stays.
            quick = await threads_of(journal, ledger, 30, INLINE_MAX_S / 2)
            assert quick[0] == LEADER
            assert quick[-20:] == [LOOP] * 20

    run(main())


@pytest.mark.parametrize(("size", "leader"), [(INLINE_SIZE_MAX // 2, LOOP), (INLINE_SIZE_MAX, LEADER)])
def test_a_large_turn_is_left_to_a_thread(size: int, leader: str) -> None:
    # The first journal is a sixteenth: it has room for either.
    larger = replace(LARGE_JOURNAL, group_size_max=4 << 20, entry_size_max=2 << 20, journal_size=64 << 20)
    site = AwaitedSite(larger)

    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            await asyncio.gather(*(ledger.append(bytes(size // 2)) for _ in range(2)))
            assert set(journal.syncs) == {leader}

    run(main())


def test_a_new_journal_is_begun_in_a_thread(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            threads: list[str] = []
            roll = AsyncEngine(store).call(EngineCall.ROLL_JOURNAL)

            def noted(room: int) -> JournalWriter:
                threads.append(threading.current_thread().name)
                return roll(room)  # type: ignore[no-any-return]

            setattr(*AsyncEngine(store).at(EngineCall.ROLL_JOURNAL), noted)
            while not threads:
                await store.ledger(1).append(bytes(60_000))
            assert threads == [LEADER]

    run(main())


def test_a_delete_is_led_in_a_thread(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, blocking = site.awaited_journal(), store.blocking
            taken = StoreInternals(blocking).begin_turn()
            assert taken is not None
            deleting = asyncio.create_task(store.ledger(1).delete())
            await until(lambda: bool(StoreInternals(blocking).open_group.deletes))
            add = asyncio.create_task(store.ledger(2).append(b"beside it"))
            await until(lambda: bool(StoreInternals(blocking).open_group.entries))
            StoreInternals(blocking).end_turn(taken)
            await asyncio.gather(add, deleting)
            assert LOOP not in journal.syncs

    run(main())


# ── threads beside ───────────────────────────────────────────────────────────────────────────────────────


def test_a_thread_that_leads_answers_the_coroutines_that_share_its_turn(site: AwaitedSite) -> None:
    async def main() -> None:
        # No thread leads for the loop: its workers do nothing by themselves.
        async with site.awaited(SteppedWorkers().new_worker) as store:
            journal, blocking = site.awaited_journal(), store.blocking
            with ThreadPoolExecutor(2) as pool:
                journal.hold()
                leading = pool.submit(blocking.ledger(1).append, b"of a thread")
                await until(lambda: bool(journal.syncs))
                waiting = pool.submit(blocking.ledger(1).append, b"of the next")
                await until(lambda: StoreInternals(blocking).waiting_threads == 1)
                add = asyncio.create_task(store.ledger(1).append(b"of a coroutine"))
                await passes(5)
                journal.let_go()
                assert await add == 3
                assert [leading.result(10), waiting.result(10)] == [1, 2]
            assert len(journal.syncs) == 2

    run(main())


def test_the_loop_goes_on_while_a_thread_leads_a_turn_of_its_own(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            journal.hold()
            with ThreadPoolExecutor(1) as pool:
                thread = pool.submit(store.blocking.ledger(1).append, b"of a thread")
                await until(lambda: bool(journal.syncs))
                adds = append_all(ledger, 2, 3)
                await passes(20)
                assert not any(add.done() for add in adds)
                journal.let_go()
                assert await asyncio.gather(*adds) == [2, 3]
                assert thread.result(10) == 1
            assert await ledger.append(b"on the loop again") == 4
            assert journal.syncs[-1] == LOOP

    run(main())


def test_adds_that_came_while_a_thread_led_are_done_although_no_coroutine_waits_for_them(
    site: AwaitedSite,
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            journal.hold()
            with ThreadPoolExecutor(1) as pool:
                thread = pool.submit(store.blocking.ledger(1).append, b"of a thread")
                await until(lambda: bool(journal.syncs))
                [add] = append_all(ledger, 2)
                asyncio.get_running_loop().call_soon(add.cancel)
                await asyncio.wait([add])
                assert add.cancelled()
                journal.let_go()
                assert thread.result(10) == 1
            await until(lambda: store.blocking.ledger(1).last_entry_id == 2)

    run(main())


def test_threads_and_coroutines_that_add_at_once_get_each_id_once(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger, blocking = store.ledger(1), store.blocking.ledger(1)

            async def write() -> list[int]:
                return [await ledger.append(b"c") for _ in range(60)]

            def write_in_thread() -> list[int]:
                return [blocking.append(b"t") for _ in range(60)]

            threads = [asyncio.to_thread(write_in_thread) for _ in range(4)]
            found = await asyncio.gather(*threads, *(write() for _ in range(8)))
            assert sorted(chain.from_iterable(found)) == list(range(1, 12 * 60 + 1))
            assert all(ids == sorted(ids) for ids in found)
            assert [one async for one in ledger.payloads(1)].count(b"t") == 4 * 60

    run(main())


def test_a_blocking_call_on_the_loop_goes_before_what_coroutines_have_only_asked_for(
    site: AwaitedSite,
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            add = asyncio.create_task(store.ledger(1).append(b"asked for"))
            await passes()
            assert store.blocking.ledger(1).append(b"blocking") == 1
            assert await add == 2

    run(main())


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pace", [lambda _: None, believe_slow], ids=["on the loop", "in a thread"])
def test_after_a_failed_sync_each_is_told_by_an_error_of_its_own(site: AwaitedSite, pace: object) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            assert callable(pace)
            pace(store)
            site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="*.txn.draft")))
            told = await refusals(*append_all(store.ledger(1), 1, 2, 3))
            assert {type(one) for one in told} == {StoreFailed}
            assert len({id(one) for one in told}) == 3
            assert len({id(one.__cause__) for one in told}) == 1
            assert (await store.ledger(1).read(0)).payload == b"zero"
            with pytest.raises(StoreFailed):
                await store.ledger(1).append(b"four")
        assert payloads(site.after_power_cut(), 1)[:1] == [b"zero"]

    run(main())


@pytest.mark.parametrize("pace", [lambda _: None, believe_slow], ids=["on the loop", "in a thread"])
def test_a_full_disk_is_told_to_each_and_its_ids_are_given_again(site: AwaitedSite, pace: object) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            while (journal := AsyncEngine(store).journal) is None or journal.room > 30_000:
                await ledger.append(bytes(4000))
            last = await ledger.last_entry_id()
            assert last is not None
            assert callable(pace)
            pace(store)
            site.disk.plant(Refused(When(verb=Verb.CREATE, name="*.txn.draft"), 28))
            told = await refusals(*(ledger.append(bytes(20_000)) for _ in range(3)))
            assert {type(one) for one in told} == {DiskFull}
            assert len({id(one) for one in told}) == 3
            assert await ledger.append(b"now") == last + 1

    run(main())


@pytest.mark.parametrize("pace", [lambda _: None, believe_slow], ids=["on the loop", "in a thread"])
def test_adds_that_were_durable_before_the_disk_was_full_are_answered(
    site: AwaitedSite, pace: object
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            active = AsyncEngine(store).journal
            assert active is not None
            # Ledgers with an entry, so that neither add asks the disk first and comes after the other.
            await asyncio.gather(store.ledger(5).append(b"0"), store.ledger(6).append(b"0"))
            while active.room > 86_000:
                await store.ledger(1).append(bytes(4000))
            site.disk.plant(Refused(When(verb=Verb.CREATE, name="*.txn.draft"), 28))
            assert callable(pace)
            pace(store)
            # Together they are more than a group takes, and the journal has room for the first.
            adds = [store.ledger(ledger_id).append(bytes(40_000)) for ledger_id in (5, 6)]
            done = await asyncio.gather(*adds, return_exceptions=True)
            assert done[0] == 1
            assert isinstance(done[1], DiskFull)

    run(main())


def test_adds_that_a_full_disk_refuses_after_a_commit_get_their_error_too(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            journal, ledger = site.awaited_journal(), store.ledger(1)
            believe_slow(store)
            held = threading.Event()

            def wait() -> None:
                assert held.wait(10)

            end = AsyncEngine(store).refuse_for_space(wait)
            first = append_all(ledger, 1)
            await passes(5)
            behind = append_all(ledger, 2, 3)
            await passes(5)
            held.set()
            assert [type(one) for one in await refusals(*first, *behind)] == [DiskFull] * 3
            end()
            assert await ledger.append(b"now") == 1
            assert len(journal.syncs) == 1

    run(main())


def test_an_add_that_is_refused_does_not_refuse_the_others_of_its_pass(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            await store.ledger(2).append(b"x")
            await store.ledger(2).fence()
            adds = [
                store.ledger(1).append(b"one"),
                store.ledger(2).append(b"fenced"),
                store.ledger(1, password=b"wrong").append(b"not ours"),
                store.ledger(1).append(bytes(LARGE_JOURNAL.entry_size_max)),
                store.ledger(1).append(b"two"),
            ]
            done = await asyncio.gather(*adds, return_exceptions=True)
            assert [one if isinstance(one, int) else type(one) for one in done] == [
                1,
                LedgerFenced,
                Unauthorized,
                EntryTooLarge,
                2,
            ]

    run(main())


class Deaf:
    """A loop that forgets to call, as one whose callback a Ctrl-C has ended before it began."""

    def call_soon(self, *_: object) -> None:
        """Nothing is called."""


class Interrupted:
    """A loop on which a Ctrl-C strikes as it is asked to call."""

    def call_soon(self, *_: object) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("word", ["append", "append_many"])
def test_adds_that_the_loop_does_not_put_in_are_put_in_by_the_coroutines_that_wait(
    site: AwaitedSite, word: str
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            AsyncEngine(store).use_loop(Deaf())
            if word == "append":
                assert await asyncio.gather(*append_all(ledger, 1, 2)) == [1, 2]
            else:
                assert await ledger.append_many([b"x"] * 2) == range(1, 3)

    run(main())


def test_a_ctrl_c_as_the_first_of_a_pass_asks_leaves_the_next_one_a_way_through(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            engine = AsyncEngine(store)
            loop = engine.use_loop(Interrupted())
            with pytest.raises(KeyboardInterrupt):
                engine.begin_batch(1, b"x")
            engine.use_loop(loop)
            believe_slow(store)
            assert await store.ledger(1).append(b"one") == 1

    run(main())


def test_answered_adds_are_not_kept(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            await store.ledger(1).append(b"x")
            assert AsyncEngine(store).is_empty

    run(main())


# ── which entries are one run ────────────────────────────────────────────────────────────────────────────


def runs_of(store: AsyncStore) -> list[tuple[int, int, int]]:
    """Ledger, first and last id of each run from now on."""
    runs: list[tuple[int, int, int]] = []
    AsyncEngine(store).watch_inserts(lambda *one: runs.append(one))
    return runs


@pytest.mark.parametrize("password", [b"", b"secret"])
def test_adds_to_one_ledger_in_one_pass_are_one_run(site: AwaitedSite, password: bytes) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            await asyncio.gather(*(store.ledger(one, password=password).append(b"zero") for one in (2, 3)))
            runs = runs_of(store)
            # Each of them a ledger object of its own.
            ledgers = [store.ledger(2 + number % 2, password=password) for number in range(10)]
            adds = [one.append(b"x") for one in ledgers]
            assert await asyncio.gather(*adds) == [1 + number // 2 for number in range(10)]
            assert runs == [(2, 1, 5), (3, 1, 5)]

    run(main())


def test_an_atomic_batch_is_a_run_of_its_own_between_the_adds_before_and_after_it(
    site: AwaitedSite,
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            runs, ledger = runs_of(store), store.ledger(1)
            adds = [
                ledger.append(b"1"),
                ledger.append(b"2"),
                ledger.append_many([b"3", b"4"]),
                ledger.append(b"5"),
                ledger.append(b"6"),
            ]
            assert await asyncio.gather(*adds) == [1, 2, range(3, 5), 5, 6]
            assert runs == [(1, 1, 2), (1, 3, 4), (1, 5, 6)]

    run(main())


@pytest.mark.parametrize(
    ("count", "size", "runs"), [(300, 1, [127, 127, 46]), (10, 20_000, [3, 3, 3, 1]), (3, 63_000, [1, 1, 1])]
)
def test_a_run_is_no_larger_than_a_group_and_has_no_more_entries_than_are_framed_without_numpy(
    site: AwaitedSite, count: int, size: int, runs: list[int]
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            found, ledger = runs_of(store), store.ledger(1)
            ids = await asyncio.gather(*(ledger.append(bytes(size)) for _ in range(count)))
            assert ids == list(range(1, count + 1))
            assert [last - first + 1 for _, first, last in found] == runs

    run(main())


def test_no_run_is_split_so_that_each_can_be_told_of_its_own_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    site = AwaitedSite(replace(LARGE_JOURNAL, group_size_max=4096))

    async def main() -> None:
        async with site.awaited() as store:
            split: list[object] = []
            monkeypatch.setattr(*SPLIT_WORK, lambda *work: split.append(work))
            ledger = store.ledger(1, DigestType.CRC32C)
            ids = await asyncio.gather(*(ledger.append(bytes(size)) for size in range(200)))
            assert ids == list(range(1, 201))
            assert split == []

    run(main())


def test_adds_with_another_key_in_the_same_pass_are_refused_alone(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ours, theirs = store.ledger(1), store.ledger(1, password=b"wrong")
            adds = [
                ours.append(b"1"),
                theirs.append(b"x"),
                ours.append(b"2"),
                theirs.append(b"y"),
                ours.append(b"3"),
            ]
            done = await asyncio.gather(*adds, return_exceptions=True)
            assert [one if isinstance(one, int) else type(one) for one in done] == [
                1,
                Unauthorized,
                2,
                Unauthorized,
                3,
            ]
            assert done[1] is not done[3]

    run(main())


def test_callers_that_are_refused_together_get_an_error_each(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            await store.ledger(1).fence()
            told = await refusals(*append_all(store.ledger(1), 1, 2, 3))
            assert [type(one) for one in told] == [LedgerFenced] * 3
            assert len({id(one) for one in told}) == 3

    run(main())

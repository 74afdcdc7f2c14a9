"""Runs of entries that a server commits as one piece of work."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from async_stores import LARGE_JOURNAL, AwaitedSite, run
from bookie_clients import AddingClient, flipped
from crc32c import crc32c

from storage.entry.credentials import Purpose
from storage.errors import LedgerFenced

if TYPE_CHECKING:
    from storage.aio import AsyncStore
    from storage.commit.pending import PendingEntries

WRITER = AddingClient()
IDS = range(1, 200)
ENTRIES = [WRITER.entry(entry_id) for entry_id in IDS]


def with_lac(data: bytes, confirmed: int) -> bytes:
    """Return the entry with another last add confirmed, and with the digest that belongs to it."""
    head = data[:16] + confirmed.to_bytes(8, signed=True) + data[24:32]
    return head + crc32c(data[36:], crc32c(head)).to_bytes(4) + data[36:]


async def commit(store: AsyncStore, *works: PendingEntries) -> None:
    done = asyncio.Event()
    store.bookie.commit(works, done.set)
    await done.wait()


async def begun(store: AsyncStore) -> None:
    """Add the first entry, which decides the ledger's key and digest type."""
    await store.bookie.load(WRITER.ledger_id)
    await commit(store, store.bookie.entry(WRITER.entry(0), WRITER.key))


@pytest.mark.parametrize("group_size_max", [64 << 10, 1 << 10], ids=["one portion", "many portions"])
def test_a_run_is_durable_when_it_is_answered_and_read_after_a_power_cut(group_size_max: int) -> None:
    site = AwaitedSite(replace(LARGE_JOURNAL, group_size_max=group_size_max))

    async def main() -> None:
        async with site.awaited() as store:
            await begun(store)
            work = store.bookie.entries(7, 1, ENTRIES, WRITER.key)
            assert work is not None
            await commit(store, work)
            assert work.is_durable
            assert store.bookie.read_from_memory(7, IDS[-1]) == ENTRIES[-1]
            bookie = AwaitedSite(site.config, site.disk.copy()).after_power_cut().bookie
            assert [bookie.read(7, entry_id) for entry_id in IDS] == ENTRIES
            assert bookie.last_add_confirmed(7) == IDS[-1] - 1

    run(main())


def test_a_commit_that_the_loop_leads_is_answered_in_its_pass_and_wakes_no_selector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = AwaitedSite(LARGE_JOURNAL)

    async def main() -> None:
        async with site.awaited() as store:
            await begun(store)
            woken: list[object] = []
            answered: list[bool] = []
            monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", woken.append)
            work = store.bookie.entries(7, 1, ENTRIES, WRITER.key)
            assert work is not None
            store.bookie.commit([work], lambda: answered.append(work.is_durable))
            assert (answered, woken) == ([True], [])
            monkeypatch.undo()

    run(main())


def test_a_run_may_begin_anywhere_and_repeat_entries() -> None:
    site = AwaitedSite()

    async def main() -> None:
        async with site.awaited() as store:
            await begun(store)
            for first in (50, 1, 20, 0):
                entries = [WRITER.entry(entry_id) for entry_id in range(first, first + 60)]
                work = store.bookie.entries(7, first, entries, WRITER.key)
                assert work is not None
                await commit(store, work)
            await commit(store, store.bookie.entry(WRITER.entry(110), WRITER.key))
            bookie = AwaitedSite(site.config, site.disk.copy()).after_power_cut().bookie
            assert bookie.entry_ids(7) == [range(111)]
            assert all(bookie.read(7, entry_id) == WRITER.entry(entry_id) for entry_id in range(111))

    run(main())


@pytest.mark.parametrize(
    ("entries", "key"),
    [
        ([*ENTRIES[:5], flipped(ENTRIES[5]), *ENTRIES[6:]], WRITER.key),
        ([*ENTRIES[:5], *ENTRIES[6:]], WRITER.key),
        (ENTRIES[1:], WRITER.key),
        ([*ENTRIES[:5], ENTRIES[5][:20]], WRITER.key),
        ([ENTRIES[0], AddingClient(ledger_id=8).entry(2)], WRITER.key),
        ([ENTRIES[0], with_lac(WRITER.entry(2), -2)], WRITER.key),
        ([ENTRIES[0], WRITER.entry(2, b"longer than the length tells"), ENTRIES[2]], WRITER.key),
        (ENTRIES, AddingClient(password=b"another").key),
        ([WRITER.entry(1, bytes(LARGE_JOURNAL.entry_size_max))], WRITER.key),
    ],
    ids=[
        "damaged",
        "gap",
        "other ids",
        "cut",
        "other ledger",
        "impossible lac",
        "length",
        "key",
        "too large",
    ],
)
def test_a_run_in_which_anything_is_unusual_must_go_one_by_one(entries: list[bytes], key: bytes) -> None:
    async def main() -> None:
        async with AwaitedSite().awaited() as store:
            assert store.bookie.entries(7, 1, entries, key) is None  # the ledger has no entry yet
            await begun(store)
            assert store.bookie.entries(7, 1, entries, key) is None

    run(main())


def test_a_run_that_a_fence_overtakes_is_refused_as_a_whole() -> None:
    async def main() -> None:
        async with AwaitedSite().awaited() as store:
            await begun(store)
            work = store.bookie.entries(7, 1, ENTRIES, WRITER.key)
            assert work is not None
            await store.bookie.call(lambda: store.blocking.bookie.fence(7, WRITER.key))
            await commit(store, work)
            assert (work.is_durable, type(work.refusal)) == (False, LedgerFenced)
            assert store.bookie.entries(7, 1, ENTRIES, WRITER.key) is None
            late = store.bookie.entry(ENTRIES[0], WRITER.key, Purpose.RECOVERING)
            await commit(store, late)
            assert (await store.bookie.call(lambda: store.blocking.bookie.entry_ids(7))) == [range(2)]

    run(main())

"""The client on running bookies: our bookies over sockets, with the metadata in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from example_cluster import INSTANCE_ID, info
from played_peer import played_peer
from running_cluster import RunningCluster, run_with_cluster
from zookeeper_servers import serving

from storage.cluster.client.cluster import open_cluster
from storage.cluster.client.connect import connect_async
from storage.cluster.client.connections import BookieLink, CallLimits
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.writer import WriterLimits
from storage.cluster.errors import (
    ClientClosed,
    LedgerClosed,
    LedgerNotClosed,
    NoSuchCluster,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    OutcomeUnknown,
    RecoveryIncomplete,
    SessionExpired,
    UnauthorizedAccess,
    WriterFenced,
)
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree, read_tree
from storage.cluster.metadata.registration import BookieMode, register
from storage.cluster.metadata.underreplication import list_marked, read_mark
from storage.cluster.metadata.update import change_ledger
from storage.cluster.zookeeper import client as zookeeper
from storage.entry.digest import master_key
from storage.errors import EntryTooLarge, NoSuchEntry

if TYPE_CHECKING:
    from pathlib import Path

ROOT = "/ledgers"
THREE = Quorums(3, 3, 2)
AT_ONCE = CallLimits(reconnect_delay_s=0)


def test_entries_are_acknowledged_closed_and_read(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            async with await cluster.create(THREE, password=b"secret") as writer:
                assert await writer.append(b"one") == 0
                assert await writer.append_many([b"two", b"three"]) == [1, 2]
                added = await writer.submit(b"four")
                assert await added == 3
                assert (writer.last_add_confirmed, writer.length) == (3, 15)

            metadata = await cluster.metadata(writer.id)
            assert (metadata.is_closed, metadata.last_entry, metadata.length) == (True, 3, 15)
            reader = await cluster.view(writer.id, b"secret")
            found = [payload async for payload in reader.payloads()]
            assert found == [b"one", b"two", b"three", b"four"]
            assert [payload async for payload in reader.payloads(1, 2)] == [b"two", b"three"]
            assert (await reader.read(3)).length == 15
            with pytest.raises(NoSuchEntry):
                await reader.read(4)

    run_with_cluster(tmp_path, 3, steps)


def test_a_submit_waits_while_too_many_entries_are_under_way(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            writer = await cluster.create(THREE, limits=WriterLimits(entries_in_flight_max=2))
            adds = []
            for number in range(5):
                adds.append(await writer.submit(b"%d" % number))
                assert sum(not add.done() for add in adds) <= 2
            assert await asyncio.gather(*adds) == list(range(5))

    run_with_cluster(tmp_path, 3, steps)


def test_hundreds_of_entries_in_flight_are_acknowledged_in_order(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            writer = await cluster.create(Quorums(4, 3, 2))
            adds = [await writer.submit(b"%d" % number) for number in range(400)]
            assert await asyncio.gather(*adds) == list(range(400))
            await writer.close()
            reader = await cluster.view(writer.id)
            found = [payload async for payload in reader.payloads()]
            assert found == [b"%d" % number for number in range(400)]
            for name in ("b1", "b2", "b3", "b4"):
                assert running.stores[name].bookie.has_entries(writer.id)

    run_with_cluster(tmp_path, 4, steps)


def test_a_bookie_that_stops_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            writer = await cluster.create(THREE)
            for number in range(10):
                await writer.append(b"%d" % number)
            stopped = (await cluster.metadata(writer.id)).segments[0].bookies[0]
            await running.stop(stopped)
            for number in range(10, 20):
                await writer.append(b"%d" % number)
            metadata = await writer.close()

            assert stopped not in metadata.segments[-1].bookies
            assert len(metadata.segments) == 2
            reader = await cluster.view(writer.id)
            assert [payload async for payload in reader.payloads()] == [b"%d" % n for n in range(20)]

    run_with_cluster(tmp_path, 4, steps)


def test_a_client_that_takes_over_fences_the_writer_and_has_all_acknowledged_entries(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as first, running.client() as second:
            writer = await first.create(THREE)
            for number in range(5):
                await writer.append(b"%d" % number)

            reader = await second.take_over(writer.id)
            assert reader.last_entry >= 4
            found = [payload async for payload in reader.payloads()]
            assert found[:5] == [b"%d" % number for number in range(5)]

            with pytest.raises(OutcomeUnknown):
                await writer.append(b"too late")
            with pytest.raises(WriterFenced):
                await writer.append(b"later")
            with pytest.raises(WriterFenced):
                await writer.close()
            again = await first.take_over(writer.id)
            assert again.last_entry == reader.last_entry

    run_with_cluster(tmp_path, 3, steps)


def test_32_a_reader_that_only_views_a_ledger_does_not_fence_its_writer(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as first, running.client() as second:
            writer = await first.create(THREE)
            await writer.append(b"one")
            reader = await second.view(writer.id)
            assert (await reader.read(0)).payload == b"one"
            assert await reader.read_last_add_confirmed() == -1
            with pytest.raises(NoSuchEntry):
                await reader.read(1)
            before = await second.metadata(writer.id)
            assert [await writer.append(b"two"), await writer.append(b"three")] == [1, 2]
            assert await second.metadata(writer.id) == before
            assert (await writer.close()).last_entry == 2

    run_with_cluster(tmp_path, 3, steps)


def test_33_a_ledger_stays_fenced_when_its_bookies_are_restarted(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client(AT_ONCE) as first, running.client() as second:
            writer = await first.create(THREE)
            await writer.append(b"one")
            # Fenced, and not closed: the client goes away in the middle of its recovery.
            key = master_key(b"")
            for name in ("b1", "b2", "b3"):
                running.stores[name].bookie.blocking.fence(writer.id, key)
                await running.stop(name)
                await running.start(name)
            with pytest.raises(OutcomeUnknown):
                await writer.append(b"two")
            with pytest.raises(WriterFenced):
                await writer.append(b"three")
            assert (await second.take_over(writer.id)).last_entry == 0

    run_with_cluster(tmp_path, 3, steps)


def test_37_a_recovery_without_bookies_fails_and_succeeds_when_they_are_back(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as first, running.client(AT_ONCE) as second:
            writer = await first.create(THREE)
            await writer.append_many([b"one", b"two"])
            for name in ("b1", "b2", "b3"):
                await running.stop(name)
            with pytest.raises(RecoveryIncomplete) as caught:
                await second.take_over(writer.id)
            assert len(caught.value.bookies) == 3
            state = (await second.metadata(writer.id)).state
            assert state is ClusterLedgerState.IN_RECOVERY

            for name in ("b1", "b2", "b3"):
                await running.start(name)
            reader = await second.take_over(writer.id)
            assert [payload async for payload in reader.payloads()] == [b"one", b"two"]

    run_with_cluster(tmp_path, 3, steps)


def test_45_a_writer_adds_nothing_to_a_ledger_that_was_taken_over_and_deleted(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        for name in ("b1", "b2", "b3"):
            await running.start_with_checks(name)
        async with running.client(AT_ONCE) as first, running.client() as second:
            writer = await first.create(THREE)
            await writer.append(b"one")
            await second.take_over(writer.id)
            await second.delete(writer.id)
            for name in ("b1", "b2", "b3"):
                # As when the bookie has collected the ledger, and its fence with it. It forgets in a restart
                # that it has checked the first add.
                running.stores[name].bookie.blocking.delete(writer.id)
                await running.stop(name)
                await running.start_with_checks(name)
            with pytest.raises(OutcomeUnknown):
                await writer.append(b"two")
            with pytest.raises((WriterFenced, NoSuchLedgerExistsOnMetadataServer)):
                await writer.append(b"three")
            for name in ("b1", "b2", "b3"):
                assert not running.stores[name].bookie.has_entries(writer.id)

    run_with_cluster(tmp_path, 0, steps)


def test_a_ledger_is_followed_while_it_is_written(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as first, running.client() as second:
            writer = await first.create(THREE)
            reader = await second.view(writer.id)

            async def follow() -> list[bytes]:
                return [entry.payload async for entry in reader.follow()]

            following = asyncio.ensure_future(follow())
            for number in range(150):
                await writer.append(b"%d" % number)
            await writer.close()

            assert await following == [b"%d" % number for number in range(150)]
            with pytest.raises(LedgerNotClosed):
                _ = reader.last_entry

    run_with_cluster(tmp_path, 3, steps)


def test_a_batch_has_at_least_one_entry_and_keeps_to_its_limits_and_segments(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            writer = await cluster.create(THREE)
            await writer.append_many([b"%d" % number * 100 for number in range(5)])
            opened = await cluster.view(writer.id)
            assert [one.entry_id for one in await opened.read_batch(1, 2)] == [1, 2]
            assert [one.entry_id for one in await opened.read_batch(3, size_max=1)] == [3]
            with pytest.raises(NoSuchEntry):
                await opened.read_batch(5)
            await running.stop(writer.metadata.segments[0].bookies[0])
            while len(writer.metadata.segments) == 1:
                await writer.append(b"more")
            await writer.append_many([b"more"] * 5)
            await writer.close()

            reader = await cluster.view(writer.id)
            second, end = reader.metadata.segments[1].first_entry, reader.last_entry + 1
            assert [one.entry_id for one in await reader.read_batch(0)] == list(range(second))
            assert [one.entry_id for one in await reader.read_batch(second)] == list(range(second, end))
            assert [entry.entry_id async for entry in reader.entries()] == list(range(end))

    run_with_cluster(tmp_path, 4, steps)


def test_the_next_batch_is_asked_for_before_the_entries_of_the_last_one_are_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.cluster.client.async_reader.BATCH_COUNT", 2)
    written: list[str] = []
    flush = BookieLink.flush

    def noted(link: BookieLink) -> None:
        written.append(link.bookie)
        flush(link)

    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            # One bookie, which has every entry when it is acknowledged, so that no other one is asked.
            async with await cluster.create(Quorums(1, 1, 1)) as writer:
                await writer.append_many([b"%d" % number for number in range(6)])
            reader = await cluster.view(writer.id)
            monkeypatch.setattr(BookieLink, "flush", noted)
            at_entry = [(entry.entry_id, len(written)) async for entry in reader.entries()]
            assert at_entry == [(0, 2), (1, 2), (2, 3), (3, 3), (4, 3), (5, 3)]

    run_with_cluster(tmp_path, 1, steps)


def test_a_reader_learns_of_the_last_entry_although_no_other_follows(tmp_path: Path) -> None:
    """Each entry brings what was confirmed before it. Bookies are told the rest after an interval."""

    async def steps(running: RunningCluster) -> None:
        async with running.client() as first, running.client() as second:
            limits = WriterLimits(explicit_lac_interval_s=0.01)
            async with await first.create(THREE, limits=limits) as writer:
                reader = await second.view(writer.id)
                assert await reader.read_last_add_confirmed() == -1
                await writer.append_many([b"one", b"two"])
                followed = reader.follow()
                assert [(await anext(followed)).payload for _ in range(2)] == [b"one", b"two"]
                await followed.aclose()
                assert await reader.read_last_add_confirmed() == 1
            assert await reader.read_last_add_confirmed() == 1

    run_with_cluster(tmp_path, 3, steps)


def test_a_reader_finds_an_entry_whose_copies_have_all_moved_since_it_was_opened(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            async with await cluster.create(Quorums(1, 1, 1)) as writer:
                await writer.append(b"one")
            reader = await cluster.view(writer.id)
            (old,) = reader.metadata.segments[0].bookies
            (new,) = {"b1", "b2"} - {old}
            before, after = running.stores[old].bookie.blocking, running.stores[new].bookie.blocking
            after.recover(before.read(writer.id, 0), master_key(b""))
            paths = LedgerPaths(ROOT, await read_tree(running.znodes, ROOT))
            await change_ledger(running.znodes, paths, writer.id, lambda now: now.with_bookies(0, (new,)))
            before.delete(writer.id)

            assert (await reader.read(0)).payload == b"one"
            await cluster.delete(writer.id)
            with pytest.raises(NoSuchLedgerExistsOnMetadataServer):
                await reader.read(1)

    run_with_cluster(tmp_path, 2, steps)


def test_too_few_bookies_are_named_before_anything_is_written(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            before = dict(running.server.paths())
            with pytest.raises(NotEnoughBookies) as caught:
                await cluster.create(Quorums(3, 2, 2))
            assert (caught.value.wanted, caught.value.found) == (3, 2)
            assert running.server.paths() == before

    run_with_cluster(tmp_path, 2, steps)


def test_another_password_is_refused_before_any_bookie_is_asked(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            writer = await cluster.create(THREE, password=b"secret")
            await writer.append(b"one")
            for opened in (cluster.view, cluster.take_over):
                with pytest.raises(UnauthorizedAccess):
                    await opened(writer.id, b"guess")
            assert await writer.append(b"two") == 1

    run_with_cluster(tmp_path, 3, steps)


def test_a_ledger_that_may_have_a_writer_is_not_deleted_by_mistake(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            writer = await cluster.create(THREE)
            with pytest.raises(LedgerNotClosed):
                await cluster.delete(writer.id)
            await writer.close()
            await cluster.delete(writer.id)
            for opened in (cluster.view, cluster.take_over, cluster.metadata, cluster.delete):
                with pytest.raises(NoSuchLedgerExistsOnMetadataServer):
                    await opened(writer.id)

            other = await cluster.create(THREE)
            await cluster.delete_open(other.id)
            with pytest.raises(NoSuchLedgerExistsOnMetadataServer):
                await other.close()

    run_with_cluster(tmp_path, 3, steps)


def test_an_entry_above_the_limit_is_refused_and_the_writer_goes_on(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster, await cluster.create(THREE) as writer:
            with pytest.raises(EntryTooLarge):
                await writer.append(b"x" * (5 << 20))
            assert await writer.append(b"one") == 0

    run_with_cluster(tmp_path, 3, steps)


def test_a_closed_writer_takes_no_more_entries(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            writer = await cluster.create(THREE)
            await writer.close()
            await writer.close()
            with pytest.raises(LedgerClosed):
                await writer.append(b"one")

    run_with_cluster(tmp_path, 3, steps)


def test_a_ledger_with_too_few_copies_is_marked_when_it_is_closed(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            writer = await cluster.create(THREE)
            await writer.append(b"one")
            await running.stop("b2")
            await writer.append(b"two")
            await writer.append(b"three")
            await writer.close()
            while not [one async for one in list_marked(running.znodes, ROOT)]:
                await asyncio.sleep(0)

            mark = await read_mark(running.znodes, ROOT, writer.id)
            assert getattr(mark, "replicas", None) == ("b2",)

    run_with_cluster(tmp_path, 3, steps)


def test_a_mark_is_written_although_the_client_is_closed_at_once(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster, await cluster.create(THREE) as writer:
            await running.stop("b2")
            await writer.append(b"one")
            while "b2" not in cluster.slow_bookies():
                await asyncio.sleep(0)
        assert [one async for one in list_marked(running.znodes, ROOT)] == [writer.id]

    run_with_cluster(tmp_path, 3, steps)


def test_every_call_ends_when_the_client_is_closed(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with played_peer(b"", lambda _: b"") as port:
            for name in ("b1", "b2", "b3"):
                await running.advertise(name, port)
            async with running.client() as cluster:
                written = await cluster.create(THREE)
                added = await written.submit(b"one")
                closing = asyncio.ensure_future(written.close())
                recovering = asyncio.ensure_future(cluster.take_over((await cluster.create(THREE)).id))
                followed = (await cluster.view(written.id)).follow()
                following = asyncio.ensure_future(anext(followed))
                await asyncio.sleep(0)
                before = await cluster.metadata(written.id)
            with pytest.raises(OutcomeUnknown):
                await added
            for call in (closing, recovering, following):
                with pytest.raises(ClientClosed):
                    await call
            async with running.client() as other:
                assert await other.metadata(written.id) == before

    run_with_cluster(tmp_path, 0, steps)


async def with_peer(running: RunningCluster, says: bytes, limits: CallLimits) -> None:
    """Write a ledger with an ensemble in which one peer says this and nothing more."""
    async with played_peer(says, lambda _: b"") as port:
        await running.advertise("b0", port)
        async with running.client(limits) as cluster:
            writer = await cluster.create(THREE)
            while "b0" not in writer.metadata.segments[0].bookies:
                await writer.close()
                writer = await cluster.create(THREE)
            assert [await writer.append(b"one"), await writer.append(b"two")] == [0, 1]
            assert (await writer.close()).last_entry == 1
            reader = await cluster.take_over(writer.id)
            assert [payload async for payload in reader.payloads()] == [b"one", b"two"]


@pytest.mark.parametrize("says", [b"\xff" * 64, b"\0\0\0\x02\x0a\xff"])
def test_calls_to_a_peer_that_is_no_bookie_end(tmp_path: Path, says: bytes) -> None:
    run_with_cluster(tmp_path, 3, lambda running: with_peer(running, says, CallLimits()))


@pytest.mark.slow(5)
def test_calls_to_a_peer_that_does_not_answer_end_with_their_time(tmp_path: Path) -> None:
    limits = CallLimits(call_timeout_s=3)
    run_with_cluster(tmp_path, 3, lambda running: with_peer(running, b"", limits))


def test_a_cluster_is_found_by_the_address_of_its_metadata(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with serving() as server:
            address = f"zk://127.0.0.1:{server.port}{ROOT}"
            config = zookeeper.ClientConfig((f"127.0.0.1:{server.port}",))
            async with zookeeper.connect(config) as znodes:
                await init_cluster(znodes, ROOT, INSTANCE_ID)
                for name, port in running.ports.items():
                    await register(znodes, ROOT, name, info(port), BookieMode.WRITABLE, 1)
                async with connect_async(address) as cluster, await cluster.create(THREE) as writer:
                    assert await writer.append(b"one") == 0
                    assert sorted((await cluster.bookies()).writable) == ["b1", "b2", "b3"]

    run_with_cluster(tmp_path, 3, steps)


def test_an_address_without_a_cluster_is_refused() -> None:
    async def steps() -> None:
        async with serving() as server:
            with pytest.raises(NoSuchCluster):
                async with connect_async(f"zk://127.0.0.1:{server.port}{ROOT}"):
                    raise AssertionError

    asyncio.run(asyncio.wait_for(steps(), 60))


def test_a_session_that_ends_while_a_client_is_opened_says_nothing_about_the_cluster(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        session = running.server.session()
        opening = asyncio.ensure_future(open_cluster(session, ROOT, LedgerTree.HIERARCHICAL).__aenter__())
        session.expire()
        with pytest.raises(SessionExpired):
            await opening

    run_with_cluster(tmp_path, 1, steps)

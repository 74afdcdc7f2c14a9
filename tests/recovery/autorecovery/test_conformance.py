"""Auto-recovery. The numbers are those of the tests in docs/conformance.md."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from cluster_loops import run_with_server
from example_cluster import INSTANCE_ID, ROOT, info
from recovering_cluster import FAST, PATHS, changes_until, lose, marks_of, metadata_of, recovering
from repair_world import CODEC, data_of, ledger, world_of
from running_cluster import RunningCluster, run_with_cluster

from recovery.autorecovery import audits, decommission, service
from recovery.autorecovery.auditor import Auditor
from recovery.autorecovery.check import FragmentFinding, LedgerCheck
from recovery.autorecovery.copying import Copied, CopyLimits, FragmentCopy
from recovery.autorecovery.fragments import FragmentKey, fixed_fragments
from recovery.autorecovery.lost_bookies import LostBookies
from recovery.autorecovery.repair import Repaired
from recovery.autorecovery.service import AutoRecovery, PartFailed
from recovery.autorecovery.worker import ReplicationWorker
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.effects import Send, Wait
from storage.cluster.errors import MetadataUnavailable, NoSuchBookie, ReplicationStateUnchanged
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.election import read_auditor
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.registration import BookieMode, register
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import Gone
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, CodeAnswer, FoundEntry, ReadEntry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from memory_znodes import MemoryServer, MemoryZnodes

    from recovery.autorecovery.fragments import Fragment
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import BookieAnswer, Effect
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.znodes import Znodes


async def until(is_so: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    while not is_so():
        await asyncio.sleep(0)


async def cancel(*running: asyncio.Future[None]) -> None:
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def marks(cluster: RunningCluster) -> dict[int, tuple[str, ...]]:
    """Return the suspects of each marked ledger."""
    found = [one async for one in underreplication.list_marked(cluster.znodes, ROOT)]
    read = [await underreplication.read_mark(cluster.znodes, ROOT, one) for one in found]
    return {one.ledger_id: one.replicas for one in read if not isinstance(one, Gone)}


async def closed(client: AsyncCluster, quorums: Quorums, count: int = 5) -> int:
    async with await client.create(quorums) as writer:
        await writer.append_many([b"%d" % number for number in range(count)])
    return int(writer.id)


# ── 46 to 48: the auditor, marks and locks ────────────────────────────────────────────────────────────────


def test_46_there_is_one_auditor_after_each_crash_and_after_a_restart_of_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ledgerstore.autorecovery")

    def elected() -> list[str]:
        said = [record.getMessage() for record in caplog.records]
        return [line.partition(" is the auditor")[0] for line in said if line.endswith(" is the auditor")]

    async def steps(cluster: RunningCluster) -> None:
        await underreplication.prepare(cluster.znodes, ROOT)
        async with cluster.client() as client:

            def started(name: str) -> tuple[MemoryZnodes, asyncio.Future[None]]:
                session = cluster.server.session()
                return session, asyncio.ensure_future(Auditor(session, PATHS, client, name, FAST).run())

            running = {name: started(name) for name in "abc"}
            expected = []
            for name in "abc":
                expected.append(name)
                await until(lambda: len(elected()) == len(expected))
                assert elected() == expected
                assert await read_auditor(cluster.znodes, ROOT) == name
                running[name][0].expire()
            assert isinstance(await read_auditor(cluster.znodes, ROOT), Gone)
            again = {name: started(name) for name in "cb"}
            await until(lambda: len(elected()) == 4)
            assert await read_auditor(cluster.znodes, ROOT) == elected()[3] == "c"
            await cancel(*(task for _, task in (*running.values(), *again.values())))

    run_with_cluster(tmp_path, 1, steps)


def test_47_ledgers_of_lost_bookies_are_marked_with_their_ids_and_those_of_read_only_ones_are_not(
    tmp_path: Path,
) -> None:
    async def steps(cluster: RunningCluster) -> None:
        await underreplication.prepare(cluster.znodes, ROOT)
        async with cluster.client() as client:
            ledger_id = await closed(client, Quorums(4, 2, 2))
            auditing = asyncio.ensure_future(
                Auditor(cluster.server.session(), PATHS, client, "auditor", FAST).run()
            )
            where = info(cluster.ports["b1"])
            await cluster.withdraw("b1")
            await register(cluster.znodes, ROOT, "b1", where, BookieMode.READ_ONLY, 1)
            await lose(cluster, "b2")
            await changes_until(cluster, lambda: marks_of(cluster) > 0)
            await lose(cluster, "b3")
            while (await marks(cluster)).get(ledger_id) != ("b2", "b3"):
                assert "b1" not in (await marks(cluster)).get(ledger_id, ())
                await asyncio.sleep(0)
            await cancel(auditing)

    run_with_cluster(tmp_path, 4, steps)


def test_47_the_delay_cancels_and_can_be_changed() -> None:
    bookies = frozenset({"b1", "b2", "b3"})
    lost = LostBookies(bookies, delay_s=60, now=0.0)
    lost.audit_begins()
    due = []
    lost.registered(bookies - {"b1"}, now=10.0)
    due.append(lost.due_at)
    lost.delay_written(20, now=11.0)
    due.append(lost.due_at)
    lost.registered(bookies, now=12.0)
    due.append(lost.due_at)
    lost.registered(bookies - {"b1", "b2"}, now=13.0)
    due.append(lost.due_at)
    assert due == [70.0, 30.0, None, 13.0]


def test_48_marks_have_all_suspects_and_locks_one_owner_for_as_long_as_its_session() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        await init_cluster(znodes, ROOT, INSTANCE_ID)
        await underreplication.prepare(znodes, ROOT)
        await underreplication.mark_ledger(znodes, ROOT, 7, ["b1"], 1)
        await underreplication.mark_ledger(znodes, ROOT, 7, ["b2", "b1"], 2)
        lock = await underreplication.take_lock(znodes, ROOT, 7, "first")
        assert lock is not None
        assert lock.mark.replicas == ("b1", "b2")
        assert await underreplication.take_lock(other, ROOT, 7, "second") is None
        # Marked again while it is repaired: the mark stays.
        await underreplication.mark_ledger(other, ROOT, 7, ["b2"], 3)
        assert not await underreplication.mark_repaired(znodes, ROOT, lock)
        lock = await underreplication.take_lock(znodes, ROOT, 7, "first")
        assert lock is not None
        znodes.expire()
        lock = await underreplication.take_lock(other, ROOT, 7, "second")
        assert lock is not None
        assert await underreplication.mark_repaired(other, ROOT, lock)
        await underreplication.disable(other, ROOT)
        with pytest.raises(ReplicationStateUnchanged):
            await underreplication.disable(other, ROOT)
        assert not await underreplication.is_enabled(other, ROOT)
        await underreplication.enable(other, ROOT)

    run_with_server(test)


# ── 49: the worker ────────────────────────────────────────────────────────────────────────────────────────


def test_49_two_workers_share_marked_ledgers_and_each_is_repaired_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ledgerstore.autorecovery")

    async def steps(cluster: RunningCluster) -> None:
        await underreplication.prepare(cluster.znodes, ROOT)
        async with cluster.client() as client:
            ids = [await closed(client, Quorums(2, 2, 2)) for _ in range(6)]
            deleted = ids[-1] + 1
            await lose(cluster, "b1")
            for ledger_id in (*ids, deleted):
                await underreplication.mark_ledger(cluster.znodes, ROOT, ledger_id, ["b1"], 1)
            workers = [
                asyncio.ensure_future(
                    ReplicationWorker(cluster.server.session(), ROOT, client, name, FAST).run()
                )
                for name in ("one", "two")
            ]
            await changes_until(cluster, lambda: marks_of(cluster) == 0)
            await cancel(*workers)
            for ledger_id in ids:
                [segment] = (await metadata_of(cluster, ledger_id)).segments
                assert "b1" not in segment.bookies
        said = [record.getMessage() for record in caplog.records]
        assert sorted(line for line in said if line.endswith(": repaired")) == [
            f"ledger {ledger_id}: repaired" for ledger_id in ids
        ]
        assert f"ledger {deleted}: deleted by its owner" in said

    run_with_cluster(tmp_path, 4, steps)


def test_49_an_open_ledger_whose_writer_has_moved_on_is_left_alone(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            writer = await client.create(Quorums(2, 2, 2))
            await writer.append(b"before")
            lost = writer.metadata.segments[-1].bookies[0]
            await lose(cluster, lost)
            await writer.append(b"after")
            async with recovering(cluster):
                await underreplication.prepare(cluster.znodes, ROOT)
                await underreplication.mark_ledger(cluster.znodes, ROOT, writer.id, [lost], 1)
                await changes_until(cluster, lambda: marks_of(cluster) == 0)
            metadata = await metadata_of(cluster, writer.id)
            assert metadata.state is ClusterLedgerState.OPEN
            assert all(lost not in one.bookies for one in metadata.segments)
            await writer.append(b"still open")
            await writer.close()

    run_with_cluster(tmp_path, 4, steps)


def test_49_the_grace_of_one_ledger_holds_up_no_other(tmp_path: Path) -> None:
    """BookKeeper's worker slept after each open ledger (its issue 4593)."""

    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            growing = await client.create(Quorums(4, 2, 2))
            await growing.append(b"open")
            others = [await closed(client, Quorums(3, 2, 2)) for _ in range(4)]
            await lose(cluster, "b1")
            patient = replace(FAST, open_ledger_grace_s=3600.0, repairs_at_once=1)
            async with recovering(cluster, patient):
                for ledger_id in others:
                    while "b1" in (await metadata_of(cluster, ledger_id)).segments[0].bookies:
                        await asyncio.sleep(0)
            assert (await metadata_of(cluster, growing.id)).state is ClusterLedgerState.OPEN
            growing.abandon()

    run_with_cluster(tmp_path, 5, steps)


def test_49_a_returned_bookie_that_has_all_its_entries_gets_none() -> None:
    """BookKeeper's worker copied them although the bookies had returned (its issue 2766)."""
    world = world_of(ledger(2, 2, [(0, "123"), (4, "234")], 9))
    assert world.play(world.repair("b1", "b2"), Random(1)) == Repaired()
    assert (world.added, world.writes) == ([], 0)


# ── 50 to 52: checks and copies ───────────────────────────────────────────────────────────────────────────


def checked(
    metadata: ClusterLedgerMetadata, stores: dict[str, dict[int, bytes]], percent: int
) -> tuple[list[FragmentFinding], dict[FragmentKey, list[int]]]:
    """Check a ledger at these bookies; the findings, and which entries were read of each fragment."""
    read: dict[FragmentKey, list[int]] = {one.key: [] for one in fixed_fragments(metadata)}
    keys = {(one.bookie, one.key.index): one.key for one in fixed_fragments(metadata)}
    check = LedgerCheck(CODEC, fixed_fragments(metadata), stores.keys(), lambda _: percent)
    todo = [*check.begin()]
    while todo:
        send = todo.pop(0)
        assert isinstance(send.request, ReadEntry)
        entry_id = send.request.entry_id
        read[keys[send.bookie, send.token.bookie_index]].append(entry_id)
        data = stores[send.bookie].get(entry_id)
        answer: BookieAnswer = CodeAnswer(Code.NO_ENTRY) if data is None else FoundEntry(data, entry_id)
        todo += check.answered(send.token, answer)
    assert check.result is not None
    return check.result, read


@pytest.mark.parametrize(
    ("last", "percent", "expected"),
    [
        (-1, 0, []),
        (0, 0, [0]),
        (0, 100, [0]),
        (99, 0, [0, 99]),
        (3, 100, [0, 1, 2, 3]),
    ],
)
def test_50_the_first_and_the_last_entry_are_read_or_all(
    last: int, percent: int, expected: list[int]
) -> None:
    metadata = ledger(1, 1, [(0, "1")], last)
    found, read = checked(metadata, world_of(metadata).stores, percent)
    assert (found, read) == ([], {FragmentKey(0, 0): expected})


def test_50_a_percentage_reads_one_entry_of_each_part_too() -> None:
    metadata = ledger(1, 1, [(0, "1")], 99)
    _, read = checked(metadata, world_of(metadata).stores, 10)
    [ids] = read.values()
    assert {entry_id // 10 for entry_id in ids} == set(range(10))
    assert {0, 99} <= set(ids)
    assert 10 <= len(ids) <= 12


def test_50_a_stripe_that_is_shorter_than_the_ensemble_has_bookies_without_entries() -> None:
    metadata = ledger(2, 2, [(0, "1234")], 1)
    _, read = checked(metadata, world_of(metadata).stores, 0)
    assert [read[FragmentKey(0, index)] for index in range(4)] == [[0], [0, 1], [1], []]


def test_50_lost_files_are_found_by_the_ends_and_a_flipped_byte_by_reading_all() -> None:
    metadata = ledger(2, 2, [(0, "12")], 9)
    world = world_of(metadata)
    world.stores["b1"].clear()
    [lost], _ = checked(metadata, world.stores, 0)
    assert (lost.fragment.bookie, lost.missing) == ("b1", [0, 9])
    world = world_of(metadata)
    flipped = bytearray(data_of(5))
    flipped[-1] ^= 1
    world.stores["b2"][5] = bytes(flipped)
    assert checked(metadata, world.stores, 0)[0] == []
    [damaged], _ = checked(metadata, world.stores, 100)
    assert (damaged.fragment.bookie, damaged.damaged, damaged.missing) == ("b2", [5], [])


def test_51_each_missing_copy_is_counted_and_its_bookie_is_suspected() -> None:
    """BookKeeper's check of replicas reports entries with none, with too few and with one copy less."""
    metadata = ledger(3, 2, [(0, "123")], 9)
    world = world_of(metadata)
    for bookie, entry_id in (("b1", 4), ("b2", 4), ("b3", 4), ("b1", 5), ("b2", 5), ("b1", 6)):
        del world.stores[bookie][entry_id]
    found, _ = checked(metadata, world.stores, 100)
    missing = {one.fragment.bookie: one.missing for one in found}
    assert missing == {"b1": [4, 5, 6], "b2": [4, 5], "b3": [4]}
    assert audits.suspects_of(found) == ["b1", "b2", "b3"]


def copied(fragment: Fragment, limits: CopyLimits) -> tuple[list[AddEntry], int]:
    """Copy a fragment; the adds in their order, and the most requests that were under way."""
    copy = FragmentCopy(CODEC, fragment, fragment.entries(), "target", {"b1", "b2", "b3"}, limits)
    todo: list[Effect] = [*copy.begin()]
    adds, most = [], 0
    while todo:
        most = max(most, sum(isinstance(one, Send) for one in todo))
        assert copy.result is None, "it is over only when every add is answered"
        effect = todo.pop(0)
        if isinstance(effect, Wait):
            todo += copy.waited()
            continue
        assert isinstance(effect, Send)
        if isinstance(effect.request, AddEntry):
            adds.append(effect.request)
            todo += copy.answered(effect.token, CodeAnswer(Code.OK))
        else:
            assert isinstance(effect.request, ReadEntry)
            entry_id = effect.request.entry_id
            todo += copy.answered(effect.token, FoundEntry(data_of(entry_id), entry_id))
    assert isinstance(copy.result, Copied)
    return adds, most


@pytest.mark.parametrize("limits", [CopyLimits(4), CopyLimits(4, bytes_per_s=2000)])
def test_52_a_fragment_is_copied_in_batches_as_recovery_adds_and_with_its_own_entries_only(
    limits: CopyLimits,
) -> None:
    metadata = ledger(2, 2, [(0, "123"), (10, "132")], 40)
    fragment = list(fixed_fragments(metadata))[4]
    assert (fragment.key, fragment.bookie) == (FragmentKey(10, 1), "b3")
    adds, most = copied(fragment, limits)
    assert sorted(add.entry_id for add in adds) == [one for one in range(10, 41) if one % 3 in (0, 1)]
    assert all(add.options.is_recovery for add in adds)
    assert all(add.entry == data_of(add.entry_id) for add in adds)
    assert most <= 4


# ── 53 to 55: decommission, conflicts, the end of the process ─────────────────────────────────────────────


def test_53_a_bookie_is_decommissioned_with_open_ledgers_of_several_segments_and_empty_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decommission, "_LOOK_S", 0.01)

    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            await create_node(cluster.znodes, f"{ROOT}/cookies/b1")
            # All four bookies are in each ensemble; the fifth one comes when one of them is lost.
            quorums = Quorums(4, 2, 2)
            of_two_segments = await client.create(quorums)
            await of_two_segments.append(b"first")
            empty = await client.create(quorums)
            ids = [await closed(client, quorums), await closed(client, quorums, 0)]
            await lose(cluster, "b1")
            await cluster.start("b5")
            await of_two_segments.append_many([b"%d" % number for number in range(8)])
            assert len(of_two_segments.metadata.segments) == 2
            async with recovering(cluster):
                marked = await decommission.mark_ledgers_of(cluster.znodes, PATHS, "b1", print)
                assert marked == {*ids, empty.id, of_two_segments.id}
                left = await decommission.wait_until_empty(
                    cluster.znodes, PATHS, "b1", frozenset, lambda count: None
                )
            assert left == frozenset()
            await decommission.remove_cookie(cluster.znodes, PATHS, "b1")
            assert (await metadata_of(cluster, of_two_segments.id)).state is ClusterLedgerState.OPEN
            assert (await metadata_of(cluster, empty.id)).is_closed
            await of_two_segments.close()
            with pytest.raises(NoSuchBookie):
                await decommission.mark_ledgers_of(cluster.znodes, PATHS, "b1", print)
            empty.abandon()

    run_with_cluster(tmp_path, 4, steps)


def test_54_a_recovery_that_closes_the_ledger_during_a_repair_is_kept_and_the_bookie_replaced() -> None:
    world = world_of(ledger(2, 2, [(0, "123"), (6, "124")], None))
    world.down = {"b3"}

    def close() -> None:
        assert world.metadata is not None
        world.metadata, world.version = world.metadata.closed(5, 24), world.version + 1

    world.before_write = close
    assert world.play(world.repair("b3"), Random(1)) == Repaired()
    assert world.metadata is not None
    assert (world.metadata.is_closed, world.metadata.last_entry) == (True, 5)
    assert world.lacking() == []


@pytest.mark.parametrize(
    ("bookies", "writes"),
    [("126", 0), ("143", 1)],
    ids=["the bookie was replaced", "the target was added"],
)
def test_54_a_change_names_segment_index_and_old_bookie(bookies: str, writes: int) -> None:
    """BookKeeper replaced by value, and failed if the key was gone (defect C16)."""
    world = world_of(ledger(2, 2, [(0, "123")], 5), bookies=6)
    world.down = {"b3"}

    def change() -> None:
        other = ledger(2, 2, [(0, bookies)], 5)
        world.metadata, world.version = other, world.version + 1
        for one in fixed_fragments(other):
            for entry_id in one.entries():
                world.stores[one.bookie][entry_id] = data_of(entry_id)

    world.before_write = change
    assert world.play(world.repair("b3"), Random(1)) == Repaired()
    # Whatever was copied, the metadata name each bookie once, and none that is lost.
    assert world.metadata is not None
    [segment] = world.metadata.segments
    assert len(set(segment.bookies)) == 3
    assert "b3" not in segment.bookies
    assert world.writes == writes
    assert world.lacking() == []


def test_55_a_part_that_fails_again_and_again_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_PAUSE_S", 0.0)
    attempts = 0

    @asynccontextmanager
    async def connect() -> AsyncIterator[Znodes]:
        nonlocal attempts
        attempts += 1
        if attempts:
            raise RuntimeError("a broken part")
        yield None  # type: ignore[misc]

    with pytest.raises(PartFailed, match="has failed 10 times: a broken part"):
        asyncio.run(AutoRecovery(connect, ROOT, PATHS.tree, "name", FAST).run())
    assert attempts == 10


def test_55_an_unreachable_metadata_service_and_an_error_in_an_audit_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in BookKeeper's periodic audit ends its auditor (defect C18)."""
    monkeypatch.setattr("recovery.autorecovery.auditor._RETRY_S", 0.0)
    mark_lost, failures = audits.mark_lost, 0

    async def failing(*arguments: Any) -> audits.PassResult:
        nonlocal failures
        failures += 1
        if failures <= 20:
            raise MetadataUnavailable("no answer")
        return await mark_lost(*arguments)

    monkeypatch.setattr(audits, "mark_lost", failing)

    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            ledger_id = await closed(client, Quorums(2, 2, 2))
            lost = (await metadata_of(cluster, ledger_id)).segments[0].bookies[0]
            await lose(cluster, lost)
            async with recovering(cluster):
                await changes_until(cluster, lambda: marks_of(cluster) > 0)

    run_with_cluster(tmp_path, 2, steps)
    assert failures > 20

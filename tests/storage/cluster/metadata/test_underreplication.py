"""Marks of ledgers that must be repaired, locks and their owners, and the switches of auto-recovery."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from cluster_loops import collected, run, run_with_server
from fixtures import FIXTURES
from memory_znodes import Loss

from storage.cluster.errors import InvalidMetadata, ReplicationStateUnchanged, SessionExpired
from storage.cluster.metadata.underreplication import (
    CheckKind,
    RepairLock,
    UnderreplicationMark,
    disable,
    enable,
    encode_mark,
    initialize_delay,
    is_enabled,
    list_marked,
    lock_path,
    mark_ledger,
    mark_path,
    mark_repaired,
    prepare,
    read_check_time,
    read_delay,
    read_lock_holder,
    read_mark,
    release_lock,
    set_check_time,
    set_delay,
    take_any_lock,
    take_lock,
    unlock_if_held,
    wait_until_enabled,
)
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import CreateMode, Gone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_znodes import MemoryServer, MemoryZnodes

BASE = "/ledgers/underreplication"
NOW = 1_700_000_000_000


async def prepared(server: MemoryServer) -> MemoryZnodes:
    znodes = server.session()
    await prepare(znodes, "/ledgers")
    return znodes


async def locked(znodes: MemoryZnodes, ledger_id: int = 7) -> RepairLock:
    lock = await take_lock(znodes, "/ledgers", ledger_id, "worker")
    assert lock is not None
    return lock


# ── names and bytes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (7, f"{BASE}/ledgers/0000/0000/0000/0007/urL0000000007"),
        (0xABCD_1234_5678_9ABC >> 1, f"{BASE}/ledgers/55e6/891a/2b3c/4d5e/urL6189785483354852702"),
    ],
)
def test_a_mark_is_below_the_hexadecimal_id_and_has_the_decimal_one(ledger_id: int, path: str) -> None:
    assert mark_path("/ledgers", ledger_id) == path
    assert lock_path("/ledgers", 7) == f"{BASE}/locks/urL0000000007"


def test_a_mark_and_the_layout_have_bookkeeper_s_bytes() -> None:
    golden = (FIXTURES / "wire/zk-underreplicated.bin").read_bytes()
    assert encode_mark(["127.0.0.1:3181", "127.0.0.1:3182"], NOW) == golden

    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        await mark_ledger(znodes, "/ledgers", 7, ["bk4"], NOW)
        lock = await take_lock(znodes, "/ledgers", 7, "localhost")
        assert lock is not None
        found = server.paths()
        assert found[f"{BASE}/LAYOUT"] == (FIXTURES / "wire/zk-rereplication-layout.bin").read_bytes()
        assert found[lock.lock.path] == (FIXTURES / "wire/zk-lock.bin").read_bytes()

    run_with_server(test)


def test_another_layout_is_refused() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, f"{BASE}/LAYOUT", b'type: "BASIC"\nversion: 2\n')
        with pytest.raises(InvalidMetadata, match="layout BASIC 2"):
            await prepare(znodes, "/ledgers")
        await znodes.set(f"{BASE}/LAYOUT", b"junk {")
        with pytest.raises(InvalidMetadata, match=f"{BASE}/LAYOUT"):
            await prepare(znodes, "/ledgers")

    run(test)


def test_a_layout_whose_answer_is_lost_is_found_at_a_server_that_lags() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await create_node(znodes, BASE)
        znodes.lag()
        znodes.lose(Loss.DONE)
        await prepare(znodes, "/ledgers")
        assert f"{BASE}/locks" in server.paths()

    run_with_server(test)


# ── marks ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("loss", [None, *Loss])
def test_a_mark_names_every_bookie_that_was_suspected(loss: Loss | None) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        if loss is not None:
            # The first write of a renewal is a create that fails; the second is the change.
            znodes.lose(loss, after=1)
        await mark_ledger(znodes, "/ledgers", 7, ["bk2", "bk1"], NOW + 5)
        assert await read_mark(znodes, "/ledgers", 7) == UnderreplicationMark(7, ("bk1", "bk2"), NOW + 5, 1)

    run_with_server(test)


def test_a_mark_is_written_again_also_with_the_same_bookies() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        for version in range(3):
            await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
            mark = await read_mark(znodes, "/ledgers", 7)
            assert not isinstance(mark, Gone)
            assert (mark.replicas, mark.version) == (("bk1",), version)

    run_with_server(test)


def test_a_mark_of_a_newer_version_keeps_its_fields() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        await create_node(znodes, mark_path("/ledgers", 7), b'replica: "bk1"\nlater: 5\n')
        await mark_ledger(znodes, "/ledgers", 7, ["bk2"], NOW)
        data = server.paths()[mark_path("/ledgers", 7)]
        assert data == b'replica: "bk1"\nreplica: "bk2"\nctime: %d\nlater: 5\n' % NOW

    run_with_server(test)


def test_marked_ledgers_are_listed_in_order_and_junk_is_named() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        for ledger_id in (1 << 40, 7, 70_000):
            await mark_ledger(znodes, "/ledgers", ledger_id, ["bk1"], NOW)
        await create_node(znodes, f"{BASE}/ledgers/0000/0000/0000/0007/other")
        assert await collected(list_marked(znodes, "/ledgers")) == [7, 70_000, 1 << 40]
        await znodes.set(mark_path("/ledgers", 7), b"replica")
        with pytest.raises(InvalidMetadata, match="urL0000000007"):
            await read_mark(znodes, "/ledgers", 7)

    run_with_server(test)


# ── locks ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ledger_is_locked_by_one_session_and_only_if_it_is_marked() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = await prepared(server), server.session()
        assert await take_lock(znodes, "/ledgers", 7, "w") is None
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        lock = await locked(znodes)
        assert await take_lock(other, "/ledgers", 7, "x") is None
        assert await read_lock_holder(other, "/ledgers", 7) == "worker"
        await release_lock(znodes, lock)
        assert await read_lock_holder(other, "/ledgers", 7) == Gone()
        assert await take_lock(other, "/ledgers", 7, "x") is not None

    run_with_server(test)


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name)
def test_a_lock_whose_answer_is_lost_is_ours_if_the_node_is(loss: Loss) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        znodes.lose(loss)
        lock = await take_lock(znodes, "/ledgers", 7, "w")
        assert (lock is not None) == (loss is Loss.DONE)

    run_with_server(test)


def test_a_lock_whose_answer_is_lost_is_found_at_a_server_that_lags() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await prepare(znodes, "/ledgers")
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)

        async def lag() -> None:
            znodes.lag()

        znodes.before_write = lag
        znodes.lose(Loss.DONE)
        assert await take_lock(znodes, "/ledgers", 7, "worker") is not None

    run_with_server(test)


def test_a_lock_of_which_its_session_does_not_know_is_deleted_at_a_server_that_lags() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        znodes.lag()
        znodes.lose(Loss.DONE)
        await znodes.create(lock_path("/ledgers", 7), b"", CreateMode.EPHEMERAL)
        await unlock_if_held(znodes, "/ledgers", 7)
        assert lock_path("/ledgers", 7) not in server.paths()

    run_with_server(test)


def test_a_worker_whose_session_was_lost_leaves_the_lock_of_its_successor() -> None:
    async def test(server: MemoryServer) -> None:
        first, second = await prepared(server), server.session()
        await mark_ledger(first, "/ledgers", 7, ["bk1"], NOW)
        lost = await locked(first)
        first.expire()
        await locked(second)
        # The same process, with a new session, still has the lock of the old one in its memory.
        again = server.session()
        await release_lock(again, lost)
        assert await read_lock_holder(second, "/ledgers", 7) == "worker"
        with pytest.raises(SessionExpired):
            await release_lock(first, lost)

    run_with_server(test)


def test_a_lock_whose_delete_has_lost_its_answer_may_be_another_worker_s_by_then() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        await prepare(znodes, "/ledgers")
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        lock = await take_lock(znodes, "/ledgers", 7, "worker")
        assert lock is not None
        sync, taken = znodes.sync, []

        async def sync_later(path: str) -> None:
            taken.append(await take_lock(other, "/ledgers", 7, "other"))
            await sync(path)

        znodes.lose(Loss.DONE)
        znodes.sync = sync_later  # type: ignore[method-assign]
        await release_lock(znodes, lock)
        assert taken[0] is not None
        assert await read_lock_holder(other, "/ledgers", 7) == "other"

    run_with_server(test)


def test_a_repaired_ledger_loses_its_mark_and_its_empty_nodes() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        before = server.paths()
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        assert await mark_repaired(znodes, "/ledgers", await locked(znodes))
        assert server.paths() == before

    run_with_server(test)


def test_a_mark_that_was_renewed_meanwhile_stays() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, auditor = await prepared(server), server.session()
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        lock = await locked(znodes)
        await mark_ledger(auditor, "/ledgers", 7, ["bk1"], NOW)
        assert not await mark_repaired(znodes, "/ledgers", lock)
        assert not isinstance(await read_mark(znodes, "/ledgers", 7), Gone)
        assert await read_lock_holder(znodes, "/ledgers", 7) == Gone()

    run_with_server(test)


def test_a_mark_that_was_made_again_before_the_lock_is_the_one_that_counts() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = await prepared(server), server.session()
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        repaired = await locked(other)

        async def repair_and_mark() -> None:
            assert await mark_repaired(other, "/ledgers", repaired)
            await mark_ledger(other, "/ledgers", 7, ["bk2"], NOW + 1)

        znodes.before_write = repair_and_mark
        assert (await locked(znodes)).mark == UnderreplicationMark(7, ("bk2",), NOW + 1, 0)

    run_with_server(test)


def test_a_ledger_that_was_repaired_before_the_lock_is_not_locked() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = await prepared(server), server.session()
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        repaired = await locked(other)

        async def repair() -> None:
            assert await mark_repaired(other, "/ledgers", repaired)

        znodes.before_write = repair
        assert await take_lock(znodes, "/ledgers", 7, "w") is None
        assert await read_lock_holder(other, "/ledgers", 7) == Gone()

    run_with_server(test)


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name)
def test_a_repaired_ledger_loses_its_mark_also_if_the_answer_is_lost(loss: Loss) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        lock = await locked(znodes)
        znodes.lose(loss)
        assert await mark_repaired(znodes, "/ledgers", lock)
        assert await collected(list_marked(znodes, "/ledgers")) == []

    run_with_server(test)


def test_a_mark_that_was_made_after_a_delete_without_an_answer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the version of the mark before."""

    async def test(server: MemoryServer) -> None:
        znodes, auditor = await prepared(server), server.session()
        await mark_ledger(znodes, "/ledgers", 7, ["bk1"], NOW)
        lock = await locked(znodes)

        async def mark_again(_: str) -> None:
            await mark_ledger(auditor, "/ledgers", 7, ["bk1"], NOW + 1)

        znodes.lose(Loss.DONE)
        monkeypatch.setattr(znodes, "sync", mark_again)  # which the look after the lost answer begins with
        assert not await mark_repaired(znodes, "/ledgers", lock)
        assert await read_mark(znodes, "/ledgers", 7) == UnderreplicationMark(7, ("bk1",), NOW + 1, 0)

    run_with_server(test)


def test_a_worker_finds_a_ledger_that_is_not_locked() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = await prepared(server), server.session()
        for ledger_id in (7, 8):
            await mark_ledger(znodes, "/ledgers", ledger_id, ["bk1"], NOW)
        await locked(other, 7)

        def in_order(names: Sequence[str]) -> Sequence[str]:
            return names

        lock = await take_any_lock(znodes, "/ledgers", "w", in_order)
        assert lock is not None
        assert lock.mark.ledger_id == 8
        assert await take_any_lock(znodes, "/ledgers", "w", in_order) is None

    run_with_server(test)


# ── switches and times ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("loss", [None, *Loss])
def test_replication_is_disabled_and_enabled(loss: Loss | None) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        if loss is Loss.DONE:
            znodes.lose(loss)
        await disable(znodes, "/ledgers")
        assert not await is_enabled(znodes, "/ledgers")
        with pytest.raises(ReplicationStateUnchanged, match="already disabled"):
            await disable(znodes, "/ledgers")
        if loss is not None:
            znodes.lose(loss)
        await enable(znodes, "/ledgers")
        assert await is_enabled(znodes, "/ledgers")
        with pytest.raises(ReplicationStateUnchanged, match="already enabled"):
            await enable(znodes, "/ledgers")

    run_with_server(test)


def test_a_worker_waits_until_replication_is_enabled() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, admin = await prepared(server), server.session()
        await disable(admin, "/ledgers")
        waiting = asyncio.create_task(wait_until_enabled(znodes, "/ledgers"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        await enable(admin, "/ledgers")
        await waiting

    run_with_server(test)


@pytest.mark.parametrize("loss", [None, *Loss])
def test_the_node_of_the_delay_wins_over_the_configuration(loss: Loss | None) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        assert await read_delay(znodes, "/ledgers") == Gone()
        assert await initialize_delay(znodes, "/ledgers", 30) == 30
        if loss is not None:
            znodes.lose(loss)
        await set_delay(znodes, "/ledgers", 60)
        assert await initialize_delay(znodes, "/ledgers", 30) == 60
        assert server.paths()[f"{BASE}/lostBookieRecoveryDelay"] == b"60"

    run_with_server(test)


def test_the_same_delay_again_is_written_because_it_asks_for_an_audit() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        for _ in range(3):
            await set_delay(znodes, "/ledgers", 0)
        stat = await znodes.exists(f"{BASE}/lostBookieRecoveryDelay")
        assert not isinstance(stat, Gone)
        assert stat.version == 2
        await znodes.set(f"{BASE}/lostBookieRecoveryDelay", b"soon")
        with pytest.raises(InvalidMetadata, match="no number of seconds"):
            await read_delay(znodes, "/ledgers")

    run_with_server(test)


@pytest.mark.parametrize(
    ("kind", "golden"),
    [
        (CheckKind.ALL_LEDGERS, "zk-checkallledgersctime"),
        (CheckKind.PLACEMENT, "zk-placementpolicycheckctime"),
        (CheckKind.REPLICAS, "zk-replicascheckctime"),
    ],
)
def test_the_time_of_a_check_is_kept_in_binary_and_read_in_both_forms(kind: CheckKind, golden: str) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await prepared(server)
        path = f"{BASE}/{golden.removeprefix('zk-')}"
        assert await read_check_time(znodes, "/ledgers", kind) is None
        await set_check_time(znodes, "/ledgers", kind, NOW)
        assert server.paths()[path].hex() == "0880d095ffbc31"
        assert await read_check_time(znodes, "/ledgers", kind) == NOW
        await znodes.set(path, (FIXTURES / f"wire/{golden}.bin").read_bytes())
        assert await read_check_time(znodes, "/ledgers", kind) == NOW
        await znodes.set(path, b"\x08")
        with pytest.raises(InvalidMetadata, match=path):
            await read_check_time(znodes, "/ledgers", kind)

    run_with_server(test)

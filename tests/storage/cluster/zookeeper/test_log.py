"""The log of the server: what a restart finds, when snapshots are written, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from async_stores import AwaitedSite, run
from zookeeper_servers import LARGE_ENTRIES

from storage.cluster.zookeeper import log_format
from storage.cluster.zookeeper.jute import MalformedRecord, encode_request
from storage.cluster.zookeeper.log import (
    DamagedLog,
    DurableLog,
    LoadedLog,
    LogLimits,
    change_ledger,
    load,
    snapshot_ledger,
)
from storage.cluster.zookeeper.log_format import SnapshotEnd, TreeChange
from storage.cluster.zookeeper.records import OPEN_ACL, Acl, Create, CreateSession, Multi, OpCode, SetData
from storage.cluster.zookeeper.tree import DurableSession, Znode, new_tree

NEVER = LogLimits(changes=1 << 60, size=1 << 60)


def change(log: DurableLog, opcode: int, request: tuple[Any, ...], session_id: int = 7) -> bytes:
    """Make a change of the log's tree, and return its entry."""
    tree = log.tree
    outcome = tree.apply(tree.zxid + 1, 1000 + tree.zxid, session_id, opcode, request)
    assert outcome.is_applied
    body = encode_request(opcode, request)
    return log_format.encode_change(tree.zxid, 999 + tree.zxid, session_id, opcode, body)


def create(log: DurableLog, path: str, data: bytes = b"", flags: int = 0) -> bytes:
    return change(log, OpCode.CREATE, Create(path, data, OPEN_ACL, flags))


def test_a_restart_finds_the_tree_and_the_sessions() -> None:
    async def main() -> None:
        site = AwaitedSite(LARGE_ENTRIES)
        async with site.awaited() as store:
            await store.ledger(1).delete()  # which the site has made
            log = await DurableLog.open(store, NEVER)
            session = change(log, OpCode.CREATE_SESSION, CreateSession(5000, b"p" * 16))
            await log.append([session, create(log, "/a", b"data"), create(log, "/a/mine", flags=1)])
            parts = Multi(((OpCode.SET_DATA, SetData("/a", b"new", 0)),))
            await log.append([change(log, OpCode.MULTI, parts)])
            known = log.tree
            await log.close()
            found = load(store.blocking)
        assert found.tree.nodes == known.nodes
        assert found.tree.sessions == {7: DurableSession(5000, b"p" * 16)}
        assert found.tree.ephemerals(7) == ("/a/mine",)
        assert (found.tree.zxid, found.changes, found.generation) == (4, 4, 0)

    run(main())


@pytest.mark.parametrize("limits", [LogLimits(changes=10), LogLimits(size=600)])
def test_a_snapshot_is_written_after_so_many_changes_or_bytes_and_older_ledgers_are_deleted(
    limits: LogLimits,
) -> None:
    async def main() -> None:
        site = AwaitedSite(LARGE_ENTRIES)
        async with site.awaited() as store:
            await store.ledger(1).delete()
            log = await DurableLog.open(store, limits)
            for number in range(40):
                await log.append([create(log, f"/node{number}")])
                await log.close()  # only waits for a snapshot under way
            assert log.generation >= 2
            newest = log.generation
            assert await store.ledgers() == [snapshot_ledger(newest), change_ledger(newest)]
            found = load(store.blocking)
            assert found.tree.nodes == log.tree.nodes
            assert found.changes < 20

    run(main())


def test_changes_go_on_while_a_snapshot_is_written_and_both_are_found() -> None:
    async def main() -> None:
        site = AwaitedSite(LARGE_ENTRIES)
        async with site.awaited() as store:
            await store.ledger(1).delete()
            log = await DurableLog.open(store, NEVER)
            await log.append([create(log, f"/node{number:04}", bytes(200)) for number in range(600)])
            log = DurableLog(store, load(store.blocking), LogLimits(changes=1))
            # A change that was applied before the snapshot began, and is appended after it.
            early = create(log, "/early")
            await log.append([early])
            for number in range(5):
                await log.append([create(log, f"/late{number}"), create(log, f"/late{number}/child")])
            await log.close()
            found = load(store.blocking)
            assert found.tree.nodes == log.tree.nodes
            assert found.tree.zxid == log.tree.zxid

    run(main())


def test_a_snapshot_without_its_end_is_deleted_and_the_changes_are_read() -> None:
    async def main() -> None:
        site = AwaitedSite(LARGE_ENTRIES)
        async with site.awaited() as store:
            await store.ledger(1).delete()
            log = await DurableLog.open(store, NEVER)
            await log.append([create(log, "/a")])
            await store.ledger(snapshot_ledger(1)).append(log_format.encode_nodes([]))
            await store.ledger(change_ledger(1)).append(create(log, "/b"))
            again = await DurableLog.open(store, NEVER)
            assert again.tree.nodes == log.tree.nodes
            assert await store.ledgers() == [change_ledger(0), change_ledger(1)]
            await again.append([create(again, "/c")])
            assert load(store.blocking).tree.zxid == 3

    run(main())


def test_ledgers_that_are_no_log_are_refused() -> None:
    async def main() -> None:
        for entries, message in {
            (b"some payload of another program",): "opcode",
            (b"short",): "header",
            (log_format.encode_change(2, 0, 0, OpCode.CLOSE_SESSION, b""),): "after zxid 0 comes 2",
            (
                log_format.encode_change(
                    1, 0, 0, OpCode.SET_DATA, encode_request(OpCode.SET_DATA, SetData("/no", b"", 0))
                ),
            ): "cannot be applied",
        }.items():
            site = AwaitedSite(LARGE_ENTRIES)
            async with site.awaited() as store:
                await store.ledger(1).delete()
                await store.ledger(change_ledger(0)).append_many(entries)
                with pytest.raises(DamagedLog, match=message):
                    await DurableLog.open(store, NEVER)

    run(main())


def test_a_log_without_its_beginning_is_refused() -> None:
    async def main() -> None:
        site = AwaitedSite(LARGE_ENTRIES)
        async with site.awaited() as store:
            log = DurableLog(store, LoadedLog(new_tree(), 0, 0, 0, 0), NEVER)
            entries = [create(log, "/a"), create(log, "/b")]
            await store.ledger(1).delete()
            await store.ledger(change_ledger(3)).append(entries[1])
            with pytest.raises(DamagedLog, match="after zxid 0 comes 2"):
                load(store.blocking)

    run(main())


def test_a_snapshot_with_fewer_nodes_than_its_end_says_is_refused() -> None:
    async def main() -> None:
        site = AwaitedSite(LARGE_ENTRIES)
        async with site.awaited() as store:
            await store.ledger(1).delete()
            await store.ledger(snapshot_ledger(1)).append_many(
                [log_format.encode_nodes([]), log_format.encode_end(SnapshotEnd(9, 1, 0))]
            )
            with pytest.raises(DamagedLog, match="0 nodes"):
                load(store.blocking)

    run(main())


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_bytes_of_a_change() -> None:
    entry = log_format.encode_change(0x11, 0x22, 0x33, OpCode.CLOSE_SESSION, b"")
    assert entry.hex() == "000000000000001100000000000000220000000000000033fffffff5"
    assert log_format.decode_change(entry) == TreeChange(0x11, 0x22, 0x33, OpCode.CLOSE_SESSION, ())


def test_nodes_and_sessions_are_read_as_they_were_written() -> None:
    nodes = [
        ("/", Znode(b"", OPEN_ACL, 0, 0, 0, 0, 0, 5, 0, 0, 9)),
        ("/ä", Znode(None, (Acl(1, "world", "anyone"),), 1, 2, 3, 4, -5, -6, 7, 0x88, 9)),
        ("/a/b", Znode(b"data", (), 1 << 40, 2, 3, 4, 5, 6, 7, 0, 9)),
    ]
    entry = log_format.encode_nodes(nodes)
    assert list(log_format.decode_nodes(entry)) == nodes
    sessions = [(1, DurableSession(5000, b"p" * 16)), (2, DurableSession(40_000, b""))]
    assert list(log_format.decode_sessions(log_format.encode_sessions(sessions))) == sessions
    end = SnapshotEnd(1 << 40, 3, 2)
    assert log_format.decode_end(log_format.encode_end(end)) == end
    with pytest.raises(MalformedRecord):
        list(log_format.decode_nodes(entry[:-1]))
    with pytest.raises(MalformedRecord):
        log_format.decode_end(entry)

"""Changes of nodes: other clients that come first, and answers that are lost before or after the write."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cluster_loops import run, run_with_server
from fixtures import FIXTURES
from memory_znodes import Loss

from storage.cluster.errors import (
    InvalidMetadata,
    LedgerExists,
    MetadataConflict,
    NoSuchCluster,
    NoSuchLedgerExistsOnMetadataServer,
    OutcomeUnknown,
    SessionExpired,
)
from storage.cluster.metadata import ledger
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, ClusterLedgerState
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import (
    change_data,
    change_ledger,
    create_ledger,
    create_node,
    delete_ledger,
    delete_node,
    read_ledger,
)
from storage.cluster.metadata.znodes import Conflict, Created, Deleted, Exists, Gone, Node, Unknown

if TYPE_CHECKING:
    from memory_znodes import MemoryServer, MemoryZnodes

PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
SEVEN = "/ledgers/00/0000/L0007"
LOSSES = pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name)


def metadata(token: int = 5) -> ClusterLedgerMetadata:
    found = ledger.decode((FIXTURES / "wire/ledgermeta-v3-open.bin").read_bytes())
    assert isinstance(found, ClusterLedgerMetadata)
    return replace(found, creator_token=token)


def close(found: ClusterLedgerMetadata) -> ClusterLedgerMetadata:
    """Close the ledger at entry 9, as a recovery does: a ledger closed at another entry is a conflict."""
    if found.is_closed and found.last_entry != 9:
        raise MetadataConflict(SEVEN, f"closed at {found.last_entry}")
    return found.closed(9, 50)


async def data_of(znodes: MemoryZnodes, path: str) -> bytes:
    node = await znodes.get(path)
    assert isinstance(node, Node)
    return node.data


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_missing_parents_are_created() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        assert await create_node(znodes, "/a/b/c", b"x") == Created("/a/b/c")
        assert await create_node(znodes, "/a/b/c") == Exists()

    run(test)


def test_a_parent_that_is_deleted_at_the_same_time_is_created_again() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        await create_node(znodes, "/a/b")
        znodes.before_write = lambda: other.delete("/a/b")
        assert await create_node(znodes, "/a/b/c") == Created("/a/b/c")

    run_with_server(test)


def test_25_a_change_is_made_again_on_the_data_of_another_client() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        await znodes.create("/n", b"a")
        znodes.before_write = lambda: other.set("/n", b"b")
        done = await change_data(znodes, "/n", lambda data: data + b"!")
        assert not isinstance(done, Gone)
        assert (done.value, done.version) == (b"b!", 2)

    run_with_server(test)


@LOSSES
def test_a_change_whose_answer_is_lost_is_made_once(loss: Loss) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await znodes.create("/n", b"a")
        znodes.lose(loss)
        done = await change_data(znodes, "/n", lambda data: data + b"!")
        assert not isinstance(done, Gone)
        assert (done.value, done.version) == (b"a!", 1)

    run(test)


def test_a_change_that_has_become_unnecessary_keeps_its_lost_write_from_taking_place() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, "/a", b"x")
        znodes.lose(Loss.NOT_DONE)
        decisions = iter((b"y", b"x"))

        done = await change_data(znodes, "/a", lambda _: next(decisions))

        assert not isinstance(done, Gone)
        assert (done.value, done.version) == (b"x", 1)
        # The lost write arrives now.
        assert await znodes.set("/a", b"y", 0) == Conflict()

    run(test)


def test_25_ten_clients_that_change_one_node_lose_no_change() -> None:
    async def test(server: MemoryServer) -> None:
        await server.session().create("/n", b"")

        sessions = [server.session() for _ in range(10)]

        async def change(znodes: MemoryZnodes, letter: bytes) -> None:
            for _ in range(5):
                done = await change_data(znodes, "/n", lambda data: data + letter)
                assert not isinstance(done, Gone)

        await asyncio.gather(*(change(one, b"%d" % number) for number, one in enumerate(sessions)))

        data = await data_of(server.session(), "/n")
        assert sorted(data) == sorted(b"0123456789" * 5)
        assert sum(one.writes for one in sessions) > 50, "they have been in each other's way"

    run_with_server(test)


def test_25_a_change_to_the_same_value_is_not_written() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await znodes.create("/n", b"a")
        await change_data(znodes, "/n", lambda data: data)
        assert znodes.writes == 1

    run(test)


@LOSSES
def test_a_change_is_of_unknown_outcome_if_nothing_can_be_read_after_a_lost_answer(loss: Loss) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await znodes.create("/n", b"a")
        znodes.lose(loss)

        def change(data: bytes) -> bytes:
            znodes.lose_reads(1)
            return data + b"!"

        with pytest.raises(OutcomeUnknown, match="/n: it is not known"):
            await change_data(znodes, "/n", change)

    run(test)


@LOSSES
def test_a_delete_whose_answer_is_lost_deletes_once(loss: Loss) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await znodes.create("/n")
        znodes.lose(loss)
        assert await delete_node(znodes, "/n") == Deleted()
        assert await delete_node(znodes, "/n") == Gone()

    run(test)


def test_a_delete_names_what_prevents_it() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, "/n/child")
        assert await delete_node(znodes, "/n/child", 3) == Conflict()
        with pytest.raises(MetadataConflict, match="has children"):
            await delete_node(znodes, "/n")

    run(test)


# ── ledgers ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ledger_is_created_read_changed_and_deleted() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await znodes.create("/ledgers")
        created = await create_ledger(znodes, PATHS, 7, metadata())
        assert await read_ledger(znodes, PATHS, 7) == created
        closed = await change_ledger(znodes, PATHS, 7, close)
        assert (closed.value, closed.version) == (metadata().closed(9, 50), 1)
        await delete_ledger(znodes, PATHS, 7, closed.version)
        assert server.paths() == {"/ledgers": b""}
        with pytest.raises(NoSuchLedgerExistsOnMetadataServer):
            await read_ledger(znodes, PATHS, 7)

    run_with_server(test)


@LOSSES
def test_28_a_create_whose_answer_is_lost_is_known_by_its_token(loss: Loss) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, "/ledgers/00/0000")
        znodes.lose(loss)
        assert (await create_ledger(znodes, PATHS, 7, metadata())).value == metadata()

    run(test)


def test_28_a_ledger_of_another_client_is_not_taken_for_ours() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        await create_node(znodes, "/ledgers/00/0000")
        znodes.lose(Loss.NOT_DONE)

        async def first() -> None:
            await create_ledger(other, PATHS, 7, metadata(6))

        znodes.before_write = first
        with pytest.raises(LedgerExists, match="a ledger 7 already"):
            await create_ledger(znodes, PATHS, 7, metadata(5))

    run_with_server(test)


def test_a_ledger_without_a_token_is_that_of_another_client() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, SEVEN, (FIXTURES / "wire/ledgermeta-v1-open.bin").read_bytes())
        with pytest.raises(LedgerExists):
            await create_ledger(znodes, PATHS, 7, metadata())

    run(test)


@LOSSES
def test_a_close_whose_answer_is_lost_is_known_by_its_value(loss: Loss) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_ledger(znodes, PATHS, 7, metadata())
        znodes.lose(loss)
        done = await change_ledger(znodes, PATHS, 7, close)
        assert (done.value, done.version) == (metadata().closed(9, 50), 1)

    run(test)


def test_two_recoveries_that_close_at_different_entries_do_not_both_succeed() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        await create_ledger(znodes, PATHS, 7, metadata())
        znodes.lose(Loss.NOT_DONE)
        znodes.before_write = lambda: change_ledger(other, PATHS, 7, lambda found: found.closed(8, 40))
        with pytest.raises(MetadataConflict, match="closed at 8"):
            await change_ledger(znodes, PATHS, 7, close)
        assert (await read_ledger(znodes, PATHS, 7)).value.last_entry == 8

    run_with_server(test)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_change_keeps_the_format_of_the_ledger(version: int) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, SEVEN, (FIXTURES / f"wire/ledgermeta-v{version}-open.bin").read_bytes())
        done = await change_ledger(
            znodes, PATHS, 7, lambda found: replace(found.in_recovery(), format_version=3)
        )
        assert (done.value.format_version, done.value.state) == (version, ClusterLedgerState.IN_RECOVERY)
        assert (await data_of(znodes, SEVEN)).startswith(b"BookieMetadataFormatVersion\t%d\n" % version)

    run(test)


def test_junk_and_a_format_of_the_future_are_named_with_their_path() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, SEVEN, b"junk")
        await create_node(znodes, PATHS.path_of(8), b"BookieMetadataFormatVersion\t9\nnew")
        with pytest.raises(InvalidMetadata, match=f"{SEVEN}: no ledger metadata"):
            await read_ledger(znodes, PATHS, 7)
        with pytest.raises(InvalidMetadata, match="L0008: format version 9; this program knows 1 to 3"):
            await change_ledger(znodes, PATHS, 8, close)

    run(test)


def test_a_missing_ledger_and_a_missing_cluster_are_told_apart() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        with pytest.raises(NoSuchCluster, match="/ledgers"):
            await read_ledger(znodes, PATHS, 7)
        await znodes.create("/ledgers")
        for attempt in (
            read_ledger(znodes, PATHS, 7),
            change_ledger(znodes, PATHS, 7, close),
            delete_ledger(znodes, PATHS, 7),
        ):
            with pytest.raises(NoSuchLedgerExistsOnMetadataServer, match="no ledger 7"):
                await attempt

    run(test)


def test_a_delete_of_another_version_is_refused() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_ledger(znodes, PATHS, 7, metadata())
        with pytest.raises(MetadataConflict, match="no longer 4"):
            await delete_ledger(znodes, PATHS, 7, 4)

    run(test)


def test_nothing_is_done_after_the_session_has_expired() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_ledger(znodes, PATHS, 7, metadata())
        znodes.expire()
        with pytest.raises(SessionExpired):
            await change_ledger(znodes, PATHS, 7, close)

    run(test)


def test_an_answer_that_is_lost_for_ever_ends_as_an_error() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await znodes.create("/n", b"a")
        for after in range(200):
            znodes.lose(Loss.NOT_DONE, after)
        with pytest.raises(MetadataConflict):
            await change_data(znodes, "/n", lambda data: data + b"!")
        with pytest.raises(MetadataConflict, match="lost again and again"):
            await delete_node(znodes, "/n")
        assert isinstance(await znodes.create("/m"), Created | Unknown)

    run(test)

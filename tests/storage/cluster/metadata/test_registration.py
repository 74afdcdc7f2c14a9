"""Bookies that register, change their mode and go, and the clients that watch them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from cluster_loops import run, run_with_server
from fixtures import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from memory_znodes import Loss

from storage.cluster.errors import BookieRegistered, InvalidMetadata, NoSuchCluster, SessionExpired
from storage.cluster.metadata.registration import (
    BookieMode,
    Bookies,
    Endpoint,
    ServiceInfo,
    decode_service_info,
    encode_service_info,
    follow_bookies,
    follow_service_info,
    is_bookie_id,
    read_bookies,
    read_newest_bookies,
    read_service_info,
    register,
    unregister,
)
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import ChildNames, Gone, Node

if TYPE_CHECKING:
    from memory_znodes import MemoryServer, MemoryZnodes

WRITABLE, READ_ONLY = BookieMode.WRITABLE, BookieMode.READ_ONLY
INFO = ServiceInfo((Endpoint("bookie", "127.0.0.1", 3181, "bookie-rpc"),))
AVAILABLE = "/ledgers/available"


async def cluster(server: MemoryServer) -> MemoryZnodes:
    znodes = server.session()
    await create_node(znodes, AVAILABLE)
    return znodes


# ── service info ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "info"),
    [
        ("zk-bookieserviceinfo", INFO),
        (
            "zk-bookieserviceinfo-http-props",
            ServiceInfo((*INFO.endpoints, Endpoint("httpserver", "0.0.0.0", 8000, "http")), (("k", "v"),)),
        ),
    ],
)
def test_bookkeeper_s_service_info_is_decoded_and_encoded_to_the_same_bytes(
    name: str, info: ServiceInfo
) -> None:
    data = (FIXTURES / f"wire/{name}.bin").read_bytes()
    assert decode_service_info("/x", data) == info
    assert encode_service_info(info) == data


@given(
    st.builds(
        ServiceInfo,
        st.lists(
            st.builds(
                Endpoint,
                *(st.text(max_size=5),) * 2,
                st.integers(0, 65535),
                st.text(max_size=5),
                *(st.lists(st.text(max_size=5), max_size=2).map(tuple),) * 2,
                st.sampled_from([b"", b"\xf8\x01\x05"]),
            ),
            max_size=3,
        ).map(tuple),
        st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3).map(tuple),
        st.sampled_from([b"", b"\xf8\x01\x05"]),
    )
)
def test_every_service_info_survives_with_its_unknown_fields(info: ServiceInfo) -> None:
    assert decode_service_info("/x", encode_service_info(info)) == info


def test_a_bookie_that_says_nothing_has_its_id_as_address() -> None:
    empty = decode_service_info("/x", b"")
    assert empty.bookie_endpoint("10.0.0.1:3181") == Endpoint("bookie", "10.0.0.1", 3181, "bookie-rpc")
    assert INFO.bookie_endpoint("any name") == INFO.endpoints[0]
    for wrong in ("bk1", "bk1:x", "bk1:65536"):
        with pytest.raises(ValueError, match="has no address"):
            empty.bookie_endpoint(wrong)


def test_junk_in_a_bookie_s_node_is_named_with_its_path() -> None:
    with pytest.raises(InvalidMetadata, match="/ledgers/available/bk1: BookieServiceInfoFormat"):
        decode_service_info("/ledgers/available/bk1", b"\x32\x7f")


@pytest.mark.parametrize("good", ["bk1", "10.0.0.1:3181", "[::1]:3181", "a_b-c.d"])
def test_a_bookie_may_have_such_an_id(good: str) -> None:
    assert is_bookie_id(good)


@pytest.mark.parametrize("bad", ["", "readonly", "a/b", "a b", "\u00e4"])
def test_a_bookie_may_not_have_such_an_id(bad: str) -> None:
    assert not is_bookie_id(bad)


# ── the bookie's side ─────────────────────────────────────────────────────────────────────────────────────


def test_a_bookie_is_registered_while_its_session_lives() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, watcher = await cluster(server), server.session()
        await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 1)
        assert await read_bookies(watcher, "/ledgers") == Bookies(frozenset({"bk1"}), frozenset())
        assert await read_service_info(watcher, "/ledgers", "bk1") == INFO
        znodes.expire()
        assert (await read_bookies(watcher, "/ledgers")).all == frozenset()
        assert await read_service_info(watcher, "/ledgers", "bk1") == Gone()

    run_with_server(test)


def test_a_change_of_mode_shows_the_bookie_at_every_moment() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, watcher = await cluster(server), server.session()
        await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 1)
        seen = []
        for mode in (READ_ONLY, WRITABLE, READ_ONLY):
            for after in range(4):
                # Another client looks before each write of the change.
                count = znodes.writes

                async def look() -> None:
                    seen.append(await read_bookies(watcher, "/ledgers"))

                znodes.before_write = look
                await register(znodes, "/ledgers", "bk1", INFO, mode, 1)
                assert znodes.writes > count or after
        assert all("bk1" in bookies.all for bookies in seen)
        last = await read_bookies(watcher, "/ledgers")
        assert last == Bookies(frozenset(), frozenset({"bk1"}))

    run_with_server(test)


@pytest.mark.parametrize("mode", BookieMode)
def test_a_bookie_that_changes_its_mode_between_two_reads_of_the_lists_is_not_missed(
    mode: BookieMode,
) -> None:
    before = READ_ONLY if mode is WRITABLE else WRITABLE

    async def test(server: MemoryServer) -> None:
        znodes, watcher = await cluster(server), server.session()
        await register(znodes, "/ledgers", "bk1", INFO, before, 1)
        plain, changes = watcher.children, [mode]

        async def children(path: str) -> ChildNames | Gone:
            found = await plain(path)
            if path.endswith("readonly") and changes:
                await register(znodes, "/ledgers", "bk1", INFO, changes.pop(), 1)
            return found

        watcher.children = children  # type: ignore[method-assign]
        assert (await read_bookies(watcher, "/ledgers")).all == {"bk1"}

    run_with_server(test)


def test_the_newest_bookies_are_those_that_a_server_which_lags_does_not_show_yet() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, bookie = server.session(), server.session()
        await create_node(bookie, "/ledgers/available")
        znodes.lag()
        await register(bookie, "/ledgers", "bk1", ServiceInfo(), BookieMode.WRITABLE, 1)
        assert (await read_bookies(znodes, "/ledgers")).all == frozenset()
        assert (await read_newest_bookies(znodes, "/ledgers")).all == {"bk1"}

    run_with_server(test)


def test_the_first_read_only_bookie_s_info_is_the_data_of_the_parent() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await cluster(server)
        await register(znodes, "/ledgers", "bk1", INFO, READ_ONLY, 1)
        assert server.paths()[f"{AVAILABLE}/readonly"] == encode_service_info(INFO)

    run_with_server(test)


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name)
def test_a_registration_whose_answer_is_lost_is_made_once(loss: Loss) -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await cluster(server)
        znodes.lose(loss)
        await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 1)
        node = await znodes.get(f"{AVAILABLE}/bk1")
        assert isinstance(node, Node)
        assert node.stat.ephemeral_owner == znodes.session_id

    run_with_server(test)


def test_a_bookie_waits_for_the_end_of_its_earlier_run() -> None:
    async def test(server: MemoryServer) -> None:
        before, znodes = await cluster(server), server.session()
        await register(before, "/ledgers", "bk1", ServiceInfo(), WRITABLE, 1)
        waiting = asyncio.create_task(register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 20))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        before.expire()
        await waiting
        assert await read_service_info(znodes, "/ledgers", "bk1") == INFO

    run_with_server(test)


def test_a_bookie_that_another_process_has_registered_is_refused_after_the_wait() -> None:
    async def test(server: MemoryServer) -> None:
        other, znodes = await cluster(server), server.session()
        await register(other, "/ledgers", "bk1", INFO, WRITABLE, 1)
        with pytest.raises(BookieRegistered) as refused:
            await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 0.01)
        assert refused.value.owner == other.session_id

    run_with_server(test)


def test_a_registration_again_replaces_the_info() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = await cluster(server)
        await register(znodes, "/ledgers", "bk1", ServiceInfo(), WRITABLE, 1)
        await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 1)
        assert await read_service_info(znodes, "/ledgers", "bk1") == INFO

    run_with_server(test)


def test_a_bookie_takes_back_its_own_nodes_only() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = await cluster(server), server.session()
        await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 1)
        await unregister(other, "/ledgers", "bk1")
        assert (await read_bookies(znodes, "/ledgers")).writable == {"bk1"}
        await unregister(znodes, "/ledgers", "bk1")
        assert (await read_bookies(znodes, "/ledgers")).all == frozenset()

    run_with_server(test)


def test_a_missing_cluster_is_named() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        with pytest.raises(NoSuchCluster, match="/ledgers/available"):
            await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 1)
        with pytest.raises(NoSuchCluster, match="/ledgers/available"):
            await read_bookies(znodes, "/ledgers")

    run(test)


# ── the watcher's side ────────────────────────────────────────────────────────────────────────────────────


def test_a_watcher_sees_bookies_come_and_go_until_its_session_ends() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, watcher = await cluster(server), server.session()
        follow = follow_bookies(watcher, "/ledgers", WRITABLE)
        assert await anext(follow) == frozenset()
        await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 1)
        assert await anext(follow) == {"bk1"}
        znodes.expire()
        assert await anext(follow) == frozenset()
        watcher.expire()
        with pytest.raises(SessionExpired):
            await anext(follow)

    run_with_server(test)


def test_a_watcher_sees_a_change_of_address() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, watcher = await cluster(server), server.session()
        await register(znodes, "/ledgers", "bk1", ServiceInfo(), WRITABLE, 1)
        follow = follow_service_info(watcher, "/ledgers", "bk1", WRITABLE)
        assert await anext(follow) == ServiceInfo()
        await register(znodes, "/ledgers", "bk1", INFO, WRITABLE, 1)
        assert await anext(follow) == INFO
        znodes.expire()
        assert await anext(follow) == Gone()
        await follow.aclose()  # type: ignore[attr-defined]

    run_with_server(test)

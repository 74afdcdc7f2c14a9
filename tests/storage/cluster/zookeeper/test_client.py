"""The client of ZooKeeper: every verb, lost connections, expired sessions, and watches that come back.

The same facts hold on a real ZooKeeper: `make interop-metadata` runs these tests on one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from client_programs import (
    SHORT_SESSION_S,
    TIMEOUT_S,
    config,
    node,
    play_cuts,
    server_port,
    with_client,
    with_proxy,
)
from fault_proxy import FaultProxy, fault_proxy

from storage.cluster.errors import MetadataUnavailable, SessionExpired
from storage.cluster.metadata.znodes import (
    ChildNames,
    Conflict,
    Created,
    CreateMode,
    Deleted,
    Done,
    Exists,
    Gone,
    MultiCheck,
    MultiCreate,
    MultiDelete,
    MultiSet,
    Node,
    NodeStat,
    NoParent,
    NotEmpty,
    Rejected,
    Unchanged,
    Unknown,
    Written,
)
from storage.cluster.zookeeper.client import ZookeeperClient, connect, run
from storage.cluster.zookeeper.kazoo_connection import OncePerOutage

if TYPE_CHECKING:
    from storage.cluster.metadata.znodes import Operation, Znodes

# ── the verbs ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_create_says_what_was_done_or_why_not() -> None:
    async def test(client: ZookeeperClient, _: int) -> None:
        assert await client.create("/t/a", b"x") == Created("/t/a")
        assert await client.create("/t/a") == Exists()
        assert await client.create("/t/none/b") == NoParent()
        assert await client.create("/t/e", b"", CreateMode.EPHEMERAL) == Created("/t/e")
        assert await client.create("/t/e/below") == NoParent()
        assert await client.create("/t/s-", b"", CreateMode.PERSISTENT_SEQUENTIAL) == Created(
            "/t/s-0000000002"
        )
        assert await client.create("/t/s-", b"", CreateMode.EPHEMERAL_SEQUENTIAL) == Created(
            "/t/s-0000000003"
        )
        found = await node(client, "/t/a")
        assert (found.data, found.stat.version, found.stat.data_length) == (b"x", 0, 1)
        assert not found.stat.is_ephemeral
        assert (await node(client, "/t/e")).stat.ephemeral_owner == client.session_id
        parent = await client.exists("/t")
        assert isinstance(parent, NodeStat)
        assert (parent.children_count, parent.next_sequence) == (4, 4)

    with_client(test)


def test_a_set_and_a_delete_name_the_version_that_prevents_them() -> None:
    async def test(client: ZookeeperClient, _: int) -> None:
        await client.create("/t/a")
        assert await client.set("/t/a", b"1") == Written(1)
        assert await client.set("/t/a", b"2", 1) == Written(2)
        assert await client.set("/t/a", b"3", 1) == Conflict()
        assert await client.set("/t/none", b"") == Gone()
        assert await client.delete("/t/a", 1) == Conflict()
        assert await client.delete("/t") == NotEmpty()
        assert await client.delete("/t/a", 2) == Deleted()
        assert await client.delete("/t/a") == Gone()

    with_client(test)


def test_a_multi_is_done_whole_or_not_at_all_and_names_the_operation() -> None:
    async def test(client: ZookeeperClient, _: int) -> None:
        await client.create("/t/a")
        whole: list[Operation] = [
            MultiCreate("/t/b"),
            MultiCreate("/t/b/c"),
            MultiSet("/t/a", b"x", 0),
            MultiDelete("/t/b/c"),
            MultiCheck("/t/a", 1),
        ]
        assert await client.multi(whole) == Done()
        assert (await node(client, "/t/a")).data == b"x"
        refused: list[tuple[Rejected, list[Operation]]] = [
            (Rejected(1, Exists()), [MultiCreate("/t/d"), MultiCreate("/t/b")]),
            (Rejected(0, NoParent()), [MultiCreate("/t/none/x"), MultiCreate("/t/d")]),
            (Rejected(1, Conflict()), [MultiCreate("/t/d"), MultiSet("/t/a", b"", 7)]),
            (Rejected(1, Conflict()), [MultiCreate("/t/d"), MultiCheck("/t/a", 0)]),
            (Rejected(1, Gone()), [MultiCreate("/t/d"), MultiDelete("/t/none")]),
            (Rejected(1, NotEmpty()), [MultiCreate("/t/d"), MultiDelete("/t")]),
        ]
        for answer, operations in refused:
            assert await client.multi(operations) == answer
        assert await client.exists("/t/d") == Gone()

    with_client(test)


def test_many_nodes_are_read_at_the_same_time_in_the_order_of_their_paths() -> None:
    async def test(client: ZookeeperClient, _: int) -> None:
        names = [f"n{number:03}" for number in range(60)]
        await asyncio.gather(*(client.create(f"/t/{name}", name.encode()) for name in names))
        children = await client.children("/t")
        assert isinstance(children, ChildNames)
        assert [*children.names] == names
        paths = [f"/t/{name}" for name in (*reversed(names), "none")]
        nodes = await client.get_all(paths)
        assert [found.data.decode() for found in nodes if isinstance(found, Node)] == [*reversed(names)]
        assert nodes[-1] == Gone()
        several = await client.children_of_all(["/t", "/t/none", "/t/n000"])
        assert [type(one) for one in several] == [ChildNames, Gone, ChildNames]
        await client.sync("/t")
        assert await client.children("/t/none") == Gone()

    with_client(test)


def test_the_end_of_a_session_deletes_its_ephemeral_nodes() -> None:
    async def test(client: ZookeeperClient, port: int) -> None:
        async with connect(config(port)) as other:
            await other.create("/t/e", b"", CreateMode.EPHEMERAL)
            assert isinstance(await client.exists("/t/e"), NodeStat)
        assert await client.exists("/t/e") == Gone()
        with pytest.raises(MetadataUnavailable, match="the client was closed"):
            await other.get("/t")

    with_client(test)


def test_a_chroot_is_put_before_every_path() -> None:
    async def test(client: ZookeeperClient, port: int) -> None:
        async with connect(config(port, chroot="/t")) as below:
            assert await below.create("/a", b"x") == Created("/a")
            assert (await node(client, "/t/a")).data == b"x"
            assert await below.multi([MultiCreate("/b")]) == Done()
            children = await below.children("/")
            assert isinstance(children, ChildNames)
            assert children.names == ("a", "b")

    with_client(test)


def test_a_caller_without_a_loop_runs_a_coroutine() -> None:
    async def work(znodes: Znodes) -> str:
        return type(await znodes.exists("/")).__name__

    async def main() -> str:
        async with server_port() as port:
            return await asyncio.to_thread(run, config(port), work)

    assert asyncio.run(main()) == "NodeStat"


def test_no_server_at_all_is_said_within_the_time() -> None:
    async def main() -> None:
        with pytest.raises(MetadataUnavailable, match=r"no connection to 127\.0\.0\.1:1 within 0\.05 s"):
            async with connect(config(1, connect_timeout_s=0.05)):
                pass

    asyncio.run(main())


# ── watches ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_watch_sees_a_node_come_change_and_go() -> None:
    async def test(client: ZookeeperClient, _: int) -> None:
        watch = client.watch("/t/a")
        assert await watch.next() == Gone()
        assert await watch.next(0.01) == Unchanged()
        await client.create("/t/a", b"1")
        found = await watch.next()
        assert isinstance(found, Node)
        assert found.data == b"1"
        await client.set("/t/a", b"2")
        found = await watch.next()
        assert isinstance(found, Node)
        assert found.data == b"2"
        await client.delete("/t/a")
        assert await watch.next() == Gone()
        watch.close()

    with_client(test)


def test_a_watch_of_children_sees_also_a_child_that_was_replaced() -> None:
    async def test(client: ZookeeperClient, _: int) -> None:
        watch = client.watch_children("/t/a")
        assert await watch.next() == Gone()
        await client.create("/t/a")
        for names in (("x",), ("x", "y"), ("y",)):
            found = await watch.next()
            assert isinstance(found, ChildNames)
            if names == ("x",):
                assert found.names == ()
            await client.multi(
                [MultiCreate("/t/a/x")]
                if names == ("x",)
                else [MultiCreate("/t/a/y")]
                if len(names) == 2
                else [MultiDelete("/t/a/x")]
            )
        found = await watch.next()
        assert isinstance(found, ChildNames)
        assert found.names == ("y",)
        # Deleted and created between two looks: the names are the same, and the child is another one.
        await client.multi([MultiDelete("/t/a/y"), MultiCreate("/t/a/y")])
        found = await watch.next()
        assert isinstance(found, ChildNames)
        assert found.names == ("y",)

    with_client(test)


def test_a_watch_sees_what_happened_while_the_connection_was_lost() -> None:
    async def test(client: ZookeeperClient, proxy: FaultProxy, other: ZookeeperClient) -> None:
        watch, children = client.watch("/t/a"), client.watch_children("/t")
        await watch.next()
        await children.next()
        waiting = [asyncio.create_task(one.next()) for one in (watch, children)]
        proxy.is_closed = True
        proxy.cut_now()
        await other.create("/t/a", b"meanwhile")
        proxy.is_closed = False
        found, names = await asyncio.gather(*waiting)
        assert isinstance(found, Node)
        assert found.data == b"meanwhile"
        assert isinstance(names, ChildNames)
        assert names.names == ("a",)
        # They are set again, so that the next change is seen too.
        await other.set("/t/a", b"later")
        found = await watch.next()
        assert isinstance(found, Node)
        assert found.data == b"later"

    with_proxy(test)


# ── lost connections and sessions ─────────────────────────────────────────────────────────────────────────


def test_a_write_whose_answer_is_lost_is_unknown_and_a_read_says_so() -> None:
    async def test(client: ZookeeperClient, proxy: FaultProxy, _: ZookeeperClient) -> None:
        await client.create("/t/a")
        proxy.cut_after(None, 0)
        answers = await asyncio.gather(
            client.create("/t/b"),
            client.set("/t/a", b"x"),
            client.delete("/t/none"),
            client.multi([MultiCreate("/t/c")]),
            client.get("/t/a"),
            client.children("/t"),
            client.sync("/t"),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [*[Unknown] * 4, *[MetadataUnavailable] * 3]
        # The session goes on, with a new connection.
        assert isinstance(await client.get("/t/a"), Node)
        assert proxy.cuts == 1

    with_proxy(test)


def test_ephemeral_nodes_stay_when_the_connection_is_lost_and_the_session_lives() -> None:
    async def test(client: ZookeeperClient, proxy: FaultProxy, other: ZookeeperClient) -> None:
        await client.create("/t/e", b"", CreateMode.EPHEMERAL)
        before = client.session_id
        proxy.cut_now()
        assert (await _when_connected(client, "/t/e")).stat.ephemeral_owner == before
        assert client.session_id == before
        assert isinstance(await other.exists("/t/e"), NodeStat)

    with_proxy(test)


async def _when_connected(client: ZookeeperClient, path: str) -> Node:
    while True:
        try:
            return await node(client, path)
        except MetadataUnavailable:
            await client.connected()


def test_an_expired_session_says_so_for_ever() -> None:
    async def test(client: ZookeeperClient, proxy: FaultProxy, other: ZookeeperClient) -> None:
        await client.create("/t/e", b"", CreateMode.EPHEMERAL)
        watch = client.watch("/t/e")
        await watch.next()
        waiting = asyncio.create_task(watch.next())
        proxy.is_closed = True
        proxy.cut_now()
        gone = other.watch("/t/e")
        while not isinstance(await gone.next(), Gone):
            pass
        proxy.is_closed = False
        with pytest.raises(SessionExpired, match="the server has ended it"):
            await waiting
        for call in (client.get("/t"), client.create("/t/x"), client.sync("/t"), client.watch("/t").next()):
            with pytest.raises(SessionExpired):
                await call
        assert await other.exists("/t/x") == Gone()

    with_proxy(test, session_timeout_s=SHORT_SESSION_S)


def test_calls_do_not_wait_for_ever_for_a_connection() -> None:
    async def main() -> None:
        async with (
            server_port() as port,
            fault_proxy(port) as proxy,
            connect(config(proxy.port, session_timeout_s=0.1)) as client,
        ):
            proxy.is_closed = True
            proxy.cut_now()
            answers = await asyncio.gather(client.create("/x"), client.get("/"), return_exceptions=True)
            assert isinstance(answers[0], Unknown | MetadataUnavailable)
            assert isinstance(answers[1], MetadataUnavailable)
            while True:
                with pytest.raises(MetadataUnavailable) as error:
                    await client.get("/")
                if "no connection for 0.1 s" in str(error.value):
                    break

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_a_close_ends_the_calls_that_are_under_way() -> None:
    async def test(client: ZookeeperClient, proxy: FaultProxy, _: ZookeeperClient) -> None:
        proxy.cut_after(None, 1 << 30)
        calls = [asyncio.create_task(client.create(f"/t/{number}")) for number in range(20)]
        await asyncio.sleep(0)
        await client.close()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, Created | Unknown | MetadataUnavailable) for answer in answers)
        await client.close()

    with_proxy(test)


# ── cuts at random bytes ──────────────────────────────────────────────────────────────────────────────────


def test_every_call_ends_when_the_connection_is_cut_at_any_byte() -> None:
    async def test(client: ZookeeperClient, proxy: FaultProxy, other: ZookeeperClient) -> None:
        await play_cuts(client, proxy, other, 6, seed=1)

    with_proxy(test)


@pytest.mark.slow(60)
@pytest.mark.parametrize("seed", range(4))
def test_every_call_ends_in_hundreds_of_cuts(seed: int) -> None:
    async def test(client: ZookeeperClient, proxy: FaultProxy, other: ZookeeperClient) -> None:
        await play_cuts(client, proxy, other, 200, seed)

    with_proxy(test, timeout_s=300)


# ── the log ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_warning_that_each_attempt_to_connect_repeats_is_logged_once_until_there_is_a_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = OncePerOutage()
    for _ in range(3):
        log.warning("Connection dropped: %s", "refused")
    log.warning("Connection dropped: %s", "time-out")
    log.forget()
    log.warning("Connection dropped: %s", "refused")
    assert [(one.name, one.levelno) for one in caplog.records] == [
        ("ledgerstore.zookeeper", logging.WARNING)
    ] * 3
    assert [one.message.split()[-1] for one in caplog.records] == ["refused", "time-out", "refused"]


def test_warnings_are_logged_again_after_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten: list[OncePerOutage] = []

    def forget(log: OncePerOutage) -> None:
        forgotten.append(log)

    monkeypatch.setattr(OncePerOutage, "forget", forget)

    async def test(_client: ZookeeperClient, _: int) -> None:
        assert len(forgotten) == 1

    with_client(test)

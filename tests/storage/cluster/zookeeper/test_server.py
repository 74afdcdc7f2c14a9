"""The server over real sockets: several clients, sessions, watches, commits, and its restart."""

from __future__ import annotations

import asyncio

import pytest
from async_stores import passes, run
from stepped_store import Site
from zookeeper_client import ConnectionCut, open_client, session
from zookeeper_servers import LARGE_ENTRIES, InlineMetadataStore, serving, serving_inline

from recovery.crashlab import FailedSync, LoseAll, Verb, When
from storage.cluster.zookeeper.jute import REQUEST_HEADER, encode_frame, encode_request
from storage.cluster.zookeeper.log import LogLimits
from storage.cluster.zookeeper.records import (
    ALL_PERMISSIONS,
    OPEN_ACL,
    PING_XID,
    READ_PERMISSION,
    Acl,
    Create,
    ErrorCode,
    EventType,
    Multi,
    OpCode,
    PathAndVersion,
    PathAndWatch,
    SetData,
)
from storage.cluster.zookeeper.server import FRAME_SIZE_LIMIT, ServerConfig
from storage.errors import InvalidConfig, StoreFailed


def test_a_node_that_one_client_creates_is_read_by_another() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as one, session(server.port) as other:
            assert await one.create("/a", b"data") == "/a"
            assert await other.data("/a") == b"data"
            assert await other.children("/") == ["a", "zookeeper"]
            assert (await other.delete("/a", version=7)).error == ErrorCode.BAD_VERSION
            assert (await other.delete("/a", version=0)).error == 0
            assert not await one.exists("/a")

    run(main())


def test_a_watch_is_told_once_and_before_the_answer_of_the_change() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client:
            assert not await client.exists("/a", watch=True)
            await client.create("/a")
            await client.set_data("/a", b"changed")
            assert client.events == [(EventType.CREATED, "/a")]
            assert [type(one).__name__ for one in client.received] == ["Reply", "Notified", "Reply", "Reply"]

    run(main())


def test_the_watches_of_a_closed_connection_are_forgotten() -> None:
    async def main() -> None:
        async with serving() as server:
            async with session(server.port) as client:
                assert await client.exists("/", watch=True)
                assert server.service.watches.count == 1
            while server.connections:
                await passes()
            assert server.service.watches.count == 0

    run(main())


def test_a_client_that_may_not_read_a_node_is_told_nothing_of_it() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client, session(server.port) as other:
            assert not await client.exists("/hidden", watch=True)
            hidden = Create("/hidden", b"", (Acl(ALL_PERMISSIONS - READ_PERMISSION, "world", "anyone"),))
            assert (await other.ask(OpCode.CREATE, hidden)).error == 0
            assert (
                await client.ask(OpCode.GET_DATA, PathAndWatch("/hidden", False))
            ).error == ErrorCode.NO_AUTH
            assert client.events == []

    run(main())


def test_a_multi_is_whole_or_nothing_and_tells_the_error_of_each_part() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client:
            parts = (
                (OpCode.CREATE, Create("/a", b"", OPEN_ACL)),
                (OpCode.SET_DATA, SetData("/nothing", b"", -1)),
                (OpCode.DELETE, PathAndVersion("/a", -1)),
            )
            reply = await client.ask(OpCode.MULTI, Multi(parts))
            assert isinstance(reply.record, Multi)
            codes = [record[0] for _, record in reply.record.parts]
            assert codes == [ErrorCode.OK, ErrorCode.NO_NODE, ErrorCode.RUNTIME_INCONSISTENCY]
            assert not await client.exists("/a")

    run(main())


def test_nodes_and_sessions_survive_a_restart_and_ephemerals_go_with_their_session() -> None:
    async def main() -> None:
        site = Site(LARGE_ENTRIES)
        async with serving(site=site) as server, session(server.port) as client:
            await client.create("/kept", b"data")
            await client.create("/mine", flags=1)
            known = client.session
        async with serving(site=site) as server:
            client = await open_client(server.port)
            answer = await client.begin(10_000, known.session_id, known.password)
            assert answer.session_id == known.session_id
            assert await client.data("/kept") == b"data"
            assert await client.exists("/mine")
            await client.end()
            async with session(server.port) as other:
                assert await other.children("/") == ["kept", "zookeeper"]

    run(main())


@pytest.mark.slow(seconds=2)
def test_the_largest_frame_is_taken_survives_a_restart_and_is_in_a_snapshot() -> None:
    async def main() -> None:
        site, size = Site(LARGE_ENTRIES), FRAME_SIZE_LIMIT - 100
        config = ServerConfig(port=0, frame_size_max=FRAME_SIZE_LIMIT, log=LogLimits(changes=2))
        for number in range(2):
            async with serving(config, site) as server, session(server.port) as client:
                await client.create(f"/large{number}", bytes(size))
        async with serving(config, site) as server, session(server.port) as client:
            assert await client.data("/large0") == await client.data("/large1") == bytes(size)

    run(main())


@pytest.mark.parametrize("size", [0, FRAME_SIZE_LIMIT + 1])
def test_a_frame_size_that_a_store_cannot_keep_is_refused(size: int) -> None:
    with pytest.raises(InvalidConfig, match="frame_size_max"):
        ServerConfig(frame_size_max=size)


def test_a_session_expires_when_its_client_is_silent() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client, session(server.port, 40_000) as other:
            await client.create("/mine", flags=1)
            assert await other.exists("/mine", watch=True)
            server.expire(server.now_ms() + 20_000)
            await client.closed.wait()
            assert not await other.exists("/mine")
            assert other.events == [(EventType.DELETED, "/mine")]

    run(main())


# ── commits ───────────────────────────────────────────────────────────────────────────────────────────────


def test_changes_that_arrive_together_are_one_commit() -> None:
    async def main() -> None:
        store = InlineMetadataStore(Site(LARGE_ENTRIES).open())
        async with serving_inline(store) as server, session(server.port) as client:
            store.commits.clear()
            futures = [
                client.send(OpCode.CREATE, Create(f"/{number}", b"", OPEN_ACL)) for number in range(64)
            ]
            await asyncio.gather(*futures)
            assert sum(store.commits) == 64
            assert len(store.commits) <= 3
        store.blocking.close()

    run(main())


def test_while_a_commit_is_under_way_nothing_tells_of_its_changes_but_pings_are_answered() -> None:
    async def main() -> None:
        store = InlineMetadataStore(Site(LARGE_ENTRIES).open())
        async with (
            serving_inline(store) as server,
            session(server.port) as writer,
            session(server.port) as reader,
        ):
            assert not await reader.exists("/a", watch=True)
            zxid = reader.zxid_seen
            store.may_commit.clear()
            created = writer.send(OpCode.CREATE, Create("/a", b"", OPEN_ACL))
            await passes(20)
            found = reader.send(OpCode.EXISTS, PathAndWatch("/a", False))
            ping = await reader.send(OpCode.PING, b"", PING_XID)
            await passes(20)
            assert not created.done()
            assert not found.done()
            assert reader.events == []
            assert (ping.zxid, reader.zxid_seen) == (zxid, zxid)
            store.may_commit.set()
            assert (await created).error == (await found).error == 0
            assert reader.events == [(EventType.CREATED, "/a")]
        store.blocking.close()

    run(main())


def test_a_client_whose_answers_wait_for_a_commit_is_read_no_further_until_then() -> None:
    async def main() -> None:
        store = InlineMetadataStore(Site(LARGE_ENTRIES).open())
        async with serving_inline(store) as server, session(server.port) as client:
            await client.create("/large", bytes(400 << 10))
            store.may_commit.clear()
            futures = [client.send(OpCode.CREATE, Create("/a", b"", OPEN_ACL))]
            futures += [client.send(OpCode.GET_DATA, PathAndWatch("/large", False)) for _ in range(40)]
            (connection,) = server.connections.values()
            while connection not in server.stopped_reading:
                await passes()
            assert connection.held < 2 << 20
            store.may_commit.set()
            replies = await asyncio.gather(*futures)
            assert [reply.error for reply in replies] == [0] * 41
        store.blocking.close()

    run(main())


def test_a_request_that_arrives_byte_by_byte_is_answered() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client:
            frame = encode_frame(
                REQUEST_HEADER.pack(1, OpCode.EXISTS)
                + encode_request(OpCode.EXISTS, PathAndWatch("/", False))
            )
            future = client.expect(1, OpCode.EXISTS)
            for at in range(len(frame)):
                client.transport.write(frame[at : at + 1])
                await passes(2)
            assert (await future).error == 0

    run(main())


def test_when_the_log_fails_clients_are_cut_off_and_a_restart_has_what_was_answered() -> None:
    async def main() -> None:
        site = Site(LARGE_ENTRIES)
        store = InlineMetadataStore(site.open())
        async with serving_inline(store) as server:
            client, reader = await open_client(server.port), await open_client(server.port)
            await client.begin()
            await reader.begin()
            await client.create("/answered")
            site.disk.plant(FailedSync(When(verb=Verb.SYNC)))
            with pytest.raises(ConnectionCut):
                await client.ask(OpCode.CREATE, Create("/lost", b"", OPEN_ACL))
            await reader.closed.wait()
            with pytest.raises(StoreFailed):
                await server.serve()
        store.blocking.close()
        site.disk.power_cut(LoseAll())
        site.disk.mend()
        async with serving(site=site) as server, session(server.port) as client:
            assert await client.children("/") == ["answered", "zookeeper"]

    run(main())

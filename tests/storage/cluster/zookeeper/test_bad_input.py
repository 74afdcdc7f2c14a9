"""Wrong requests and hostile peers: ZooKeeper's own error, or a closed connection, in bounded memory."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import pytest
from async_stores import passes, run, until
from sampling import many
from zookeeper_client import ConnectionCut, RawClient, open_client, session
from zookeeper_processes import our_server
from zookeeper_servers import serving

from storage.cluster.zookeeper.jute import REQUEST_HEADER, MalformedRecord, encode_request
from storage.cluster.zookeeper.records import (
    OPEN_ACL,
    Create,
    ErrorCode,
    Multi,
    OpCode,
    PathAndMode,
    PathAndWatch,
    SetWatches,
)
from storage.cluster.zookeeper.server import ServerConfig
from storage.cluster.zookeeper.service import Client, Service
from storage.cluster.zookeeper.sessions import Sessions, TimeoutRange
from storage.cluster.zookeeper.tree import new_tree

if TYPE_CHECKING:
    from pathlib import Path

    from storage.cluster.zookeeper.server import Server

_MIB = 1 << 20
GROWTH_MAX = 64 * _MIB


async def is_served(server: Server) -> bool:
    """Return whether another client gets answers."""
    async with session(server.port) as client:
        return await client.exists("/")


# ── frames ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [(4 << 20) + 1, 0x7FFFFFFF, -1, -(1 << 31)])
def test_a_frame_that_is_too_long_or_negative_closes_its_connection(size: int) -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client:
            client.transport.write(struct.pack(">i", size))
            await client.closed.wait()
            assert await is_served(server)

    run(main())


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", 5000), struct.pack(">i", 0)])
def test_a_peer_that_does_not_ask_to_connect_is_closed(data: bytes) -> None:
    async def main() -> None:
        async with serving() as server:
            client = await open_client(server.port)
            client.transport.write(data)
            await client.closed.wait()
            assert await is_served(server)

    run(main())


def test_a_peer_that_sends_no_first_frame_is_closed_after_the_time_for_it() -> None:
    async def main() -> None:
        async with serving() as server:
            client = await open_client(server.port)
            await until(lambda: len(server.connections) == 1)
            server.expire(server.now_ms() + 9_000)
            assert len(server.connections) == 1
            server.expire(server.now_ms() + 11_000)
            await client.closed.wait()

    run(main())


def test_are_you_ok_is_answered() -> None:
    async def main() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"ruok")
            assert await reader.read() == b"imok"
            writer.close()

    run(main())


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">i", -2) + b"\x00",
        struct.pack(">i", -1) + b"\x00",
        struct.pack(">i", 1 << 30) + b"/a\x00",
        struct.pack(">i", 2) + b"\xff\xfe\x00",
        b"",
    ],
    ids=["negative length", "null", "longer than the frame", "not UTF-8", "empty"],
)
def test_a_string_that_cannot_be_read_is_a_marshalling_error_and_the_connection_stays(body: bytes) -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client:
            assert (await client.ask(OpCode.GET_DATA, body)).error == ErrorCode.MARSHALLING_ERROR
            assert (await client.ask(OpCode.DELETE, body)).error == ErrorCode.MARSHALLING_ERROR
            assert await client.exists("/")

    run(main())


@pytest.mark.parametrize("count", [0x7FFFFFFF, 1000, -2])
def test_a_vector_longer_than_its_frame_is_a_marshalling_error(count: int) -> None:
    async def main() -> None:
        body, opcode = struct.pack(">i2si", 2, b"/a", count), OpCode.SET_ACL
        async with serving() as server, session(server.port) as client:
            assert (await client.ask(opcode, body)).error == ErrorCode.MARSHALLING_ERROR

    run(main())


@pytest.mark.parametrize("opcode", [77, -5, OpCode.SASL])
def test_an_unknown_opcode_is_answered_and_the_connection_closed(opcode: int) -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client:
            assert (await client.ask(opcode, b"")).error == ErrorCode.UNIMPLEMENTED
            await client.closed.wait()

    run(main())


def test_an_unknown_authentication_scheme_fails_and_closes_the_connection() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as client:
            body = struct.pack(">ii4si", 0, 4, b"sasl", 0)
            assert (await client.send(OpCode.AUTH, body, -4)).error == ErrorCode.AUTH_FAILED
            await client.closed.wait()

    run(main())


# ── sessions of others ────────────────────────────────────────────────────────────────────────────────────


def test_a_session_of_another_server_and_a_wrong_password_are_answered_as_expired() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as owner:
            for session_id, password in [(12345, bytes(16)), (owner.session.session_id, b"x" * 16)]:
                other = await open_client(server.port)
                answer = await other.begin(10_000, session_id, password)
                assert (answer.session_id, answer.timeout_ms, answer.password) == (0, 0, bytes(16))
                await other.closed.wait()
            # The owner has lost nothing by that.
            assert await owner.exists("/")

    run(main())


def test_a_client_that_has_seen_a_later_zxid_is_closed() -> None:
    async def main() -> None:
        async with serving() as server:
            client = await open_client(server.port)
            with pytest.raises(ConnectionCut):
                await client.begin(10_000, last_zxid_seen=1 << 40)
            await client.closed.wait()

    run(main())


def test_a_session_moves_to_its_newest_connection_and_the_older_one_is_closed() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port) as older:
            newer = await open_client(server.port)
            answer = await newer.begin(10_000, older.session.session_id, older.session.password)
            assert answer == older.session
            await older.closed.wait()
            assert await newer.exists("/")

    run(main())


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────


def test_more_connections_of_one_peer_than_allowed_are_closed() -> None:
    async def main() -> None:
        async with serving(ServerConfig(port=0, connections_per_peer_max=5)) as server:
            clients = [await open_client(server.port) for _ in range(8)]
            await asyncio.gather(*(client.closed.wait() for client in clients[5:]))
            assert len(server.connections) == 5
            clients[0].close()
            await until(lambda: len(server.connections) < 5)
            assert await is_served(server)

    run(main())


def _pause(client: RawClient) -> None:
    """Let the client take nothing any more."""
    client.transport.pause_reading()


def test_a_peer_that_never_reads_is_not_answered_further_and_then_cut_off() -> None:
    async def main() -> None:
        async with serving() as server, session(server.port, 40_000) as client:
            await client.create("/large", bytes(_MIB))
            _pause(client)
            for _ in range(100):
                client.send(OpCode.GET_DATA, PathAndWatch("/large", False))
            (connection,) = server.connections.values()
            await until(lambda: connection.buffered > _MIB)
            await passes(50)
            assert connection.buffered < 4 * _MIB
            assert await is_served(server)
            server.expire(server.now_ms() + 29_000)
            assert connection in server.connections.values()
            server.expire(server.now_ms() + 31_000)
            assert connection not in server.connections.values()

    run(main())


def test_events_for_a_peer_that_never_reads_are_bounded() -> None:
    async def main() -> None:
        config = ServerConfig(port=0, buffered_size_max=_MIB, unsent_per_connection_max=64 << 10)
        path = "/" + "n" * 5000
        async with serving(config) as server, session(server.port) as writer, session(server.port) as client:
            await writer.create(path)
            await client.ask(OpCode.ADD_WATCH, PathAndMode(path, 0))
            _pause(client)
            while len(server.connections) == 2:
                await asyncio.gather(*(writer.set_data(path, b"") for _ in range(50)))
                assert max(one.buffered for one in server.connections.values()) < 2 * _MIB

    run(main())


def test_partial_frames_of_many_connections_are_bounded() -> None:
    async def main() -> None:
        config = ServerConfig(port=0, buffered_size_max=2 * _MIB)
        async with serving(config) as server:
            clients = [await open_client(server.port) for _ in range(6)]
            for client in clients:
                await client.begin()
                client.transport.write(struct.pack(">i", 4 << 20) + bytes(600 << 10))
            await until(lambda: len(server.connections) < 6)
            assert sum(one.buffered for one in server.connections.values()) <= 3 * _MIB
            assert await is_served(server)

    run(main())


@pytest.mark.slow(seconds=30)
def test_a_server_with_five_thousand_connections_and_silent_peers_grows_by_less_than_64_mib(
    tmp_path: Path,
) -> None:
    with our_server(tmp_path / "server") as server:
        before = server.memory
        with ExitStack() as held:
            for _ in range(5000):
                held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            asyncio.run(_never_read(server.port))
        assert server.memory - before < GROWTH_MAX


async def _never_read(port: int) -> None:
    """Ask for 40 GiB on twenty connections, and take nothing; another client is served meanwhile."""
    async with session(port, peer="127.0.0.2") as client:
        await client.create("/large", bytes(_MIB))
        silent = []
        for _ in range(20):
            peer = await open_client(port, "127.0.0.3")
            await peer.begin()
            _pause(peer)
            for _ in range(2000):
                peer.send(OpCode.GET_DATA, PathAndWatch("/large", False))
            silent.append(peer)
        for number in range(200):
            await client.create(f"/node{number}")
        for peer in silent:
            peer.close()
            await peer.closed.wait()


def test_a_multi_read_whose_answer_would_not_fit_into_memory_is_refused() -> None:
    service = Service(new_tree(), Sessions({}, 0, 1), TimeoutRange())
    client = Client("127.0.0.1", 5)
    create = encode_request(OpCode.CREATE, Create("/large", bytes(_MIB), OPEN_ACL))
    service.answer(client, REQUEST_HEADER.pack(1, OpCode.CREATE) + create, 1)
    part = (OpCode.GET_DATA, PathAndWatch("/large", False))

    def size_of_reply(parts: int) -> int:
        request = encode_request(OpCode.MULTI_READ, Multi((part,) * parts))
        return len(service.answer(client, REQUEST_HEADER.pack(2, OpCode.MULTI_READ) + request, 1).reply)

    assert 3 * _MIB < size_of_reply(3) < 4 * _MIB
    assert size_of_reply(64) < 100
    assert size_of_reply(100_000) < 100


# ── mutated requests ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sampled
def test_no_mutated_request_is_anything_but_an_answer_or_a_malformed_record() -> None:
    dice = Random(3)
    service = Service(new_tree(), Sessions({}, 0, 1), TimeoutRange())
    client = Client("127.0.0.1", 5)
    requests = [
        encode_request(OpCode.CREATE, Create("/a/b", b"data", OPEN_ACL)),
        encode_request(OpCode.GET_DATA, PathAndWatch("/a", True)),
        encode_request(OpCode.SET_WATCHES2, SetWatches(1, ("/a",), ("/b",), ("/",), ("/c",), ("/d",))),
        bytes(40),
    ]
    answers = refusals = 0
    for _ in range(many(50_000, 3000)):
        frame = bytearray(REQUEST_HEADER.pack(1, dice.choice(list(OpCode))) + dice.choice(requests))
        for _ in range(dice.choice([0, 1, 1, 3])):
            frame[dice.randrange(len(frame))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        frame = frame[: dice.randrange(len(frame) + 1)] if dice.random() < 0.3 else frame
        try:
            answers += bool(service.answer(client, bytes(frame), 1))
        except MalformedRecord:
            refusals += 1
    assert answers > refusals > 0

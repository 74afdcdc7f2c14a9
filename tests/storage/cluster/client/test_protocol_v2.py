"""A client that speaks version 2 with bookies, and what version 2 cannot do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from played_peer import played_peer
from running_cluster import RunningCluster, run_with_cluster

from storage.cluster.client import connections as client_connections
from storage.cluster.client.connections import CallLimits, ConnectionOptions, Connections
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.effects import NoAnswer
from storage.cluster.client.v2_calls import NO_CALL, V2Calls
from storage.cluster.metadata.registration import Endpoint
from storage.cluster.wire import frames, v2, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    AddEntry,
    AddOptions,
    AnswerTo,
    CodeAnswer,
    FoundEntry,
    Incoming,
    Protocol,
    ReadEntry,
    ReadLac,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.wire.messages import Answer, Request

THREE = Quorums(3, 3, 2)
READ = ReadEntry(7, 3)
FENCE = ReadEntry(7, 3, b"k" * 20, fences=True)


def test_a_ledger_is_written_followed_and_taken_over_with_version_2(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with (
            running.client(protocol=Protocol.V2) as first,
            running.client(protocol=Protocol.V2) as second,
        ):
            writer = await first.create(THREE, password=b"secret")
            followed = (await second.view(writer.id, b"secret")).follow()
            following = asyncio.ensure_future(anext(followed))
            assert await writer.append_many([b"one", b"two", b"three"]) == [0, 1, 2]
            assert await writer.append(b"four") == 3
            assert (await following).payload == b"one"
            await followed.aclose()

            reader = await second.take_over(writer.id, b"secret")
            found = [payload async for payload in reader.payloads()]
            assert found == [b"one", b"two", b"three", b"four"]

    run_with_cluster(tmp_path, 3, steps)


def answer_to(request: Request, answer: Answer) -> AnswerTo | object:
    incoming = v2.decode_request(v2.encode_request(request)[frames.LENGTH.size :])
    assert isinstance(incoming, Incoming)
    frame = v2.encode_answer(incoming, answer)
    assert frame is not None
    return frame[frames.LENGTH.size :]


def test_an_answer_belongs_to_the_call_with_its_operation_and_ids() -> None:
    calls = V2Calls()
    add = AddEntry(7, 3, b"k" * 20, bytes(7) + b"\7" + bytes(7) + b"\3" + b"rest", AddOptions(), b"")
    calls.encode(READ, 1)
    calls.encode(add, 2)
    calls.encode(ReadEntry(7, 4), 3)

    bodies = [answer_to(add, CodeAnswer(Code.OK)), answer_to(READ, FoundEntry(b"entry", 3))]
    found = [calls.decode(body) for body in bodies if isinstance(body, bytes)]

    assert [one.number for one in found if isinstance(one, AnswerTo)] == [2, 1]
    assert len(calls) == 1


def test_an_answer_without_a_call_ends_none() -> None:
    calls = V2Calls()
    body = answer_to(READ, FoundEntry(b"entry", 3))
    assert isinstance(body, bytes)

    found = calls.decode(body)

    assert isinstance(found, AnswerTo)
    assert found.number == NO_CALL


def test_a_read_that_fences_does_not_get_the_answer_of_one_that_does_not() -> None:
    """Also if that has ended without an answer before, and its answer comes while the fence is under way."""
    asked: list[Incoming] = []
    rest = b""

    def peer(data: bytes) -> bytes:
        """Answer a read of version 2 when the next request has come."""
        nonlocal rest
        found = frames.split(rest + data)
        rest = (rest + data)[found.consumed :]
        said: list[bytes] = []
        for body in found.bodies:
            is_v3 = frames.protocol_of(body) is Protocol.V3
            incoming = v3.decode_request(body) if is_v3 else v2.decode_request(body)
            assert isinstance(incoming, Incoming)
            asked.append(incoming)
            if is_v3:
                said.append(v3.encode_answer(incoming, CodeAnswer(Code.FENCED)))
            elif len(asked) > 1:
                said.append(v2.encode_answer(asked[0], CodeAnswer(Code.NO_ENTRY)) or b"")
        return b"".join(said)

    async def main() -> None:
        async with played_peer(b"", peer) as port:

            async def resolve(_: str) -> Endpoint:
                return Endpoint("bookie", "127.0.0.1", port, "bookie-rpc")

            options = ConnectionOptions(Protocol.V2, limits=CallLimits(call_timeout_s=0.2))
            connections = Connections(resolve, lambda: None, options)

            async def call(request: Request) -> BookieAnswer:
                done: asyncio.Future[BookieAnswer] = asyncio.get_running_loop().create_future()
                connections.call("b1", request, done.set_result)
                return await asyncio.wait_for(done, 30)

            assert await call(READ) == NoAnswer("timed out")
            assert await call(FENCE) == CodeAnswer(Code.FENCED)
            assert await call(ReadLac(7)) == CodeAnswer(Code.FENCED)
            await connections.close()
        assert [one.protocol for one in asked] == [Protocol.V2, Protocol.V3, Protocol.V3]

    asyncio.run(main())


def test_calls_end_with_their_time_while_a_connection_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if so many have ended that a connection which is open would be closed."""
    monkeypatch.setattr(client_connections, "_ENDED_V2_CALLS_MAX", 0)

    async def main() -> None:
        async def resolve(_: str) -> Endpoint:
            never: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()
            return await never

        options = ConnectionOptions(Protocol.V2, limits=CallLimits(call_timeout_s=0.02, connect_timeout_s=60))
        connections = Connections(resolve, lambda: None, options)
        for entry_id in range(2):
            done: asyncio.Future[BookieAnswer] = asyncio.get_running_loop().create_future()
            connections.call("b1", ReadEntry(7, entry_id), done.set_result)
            assert await asyncio.wait_for(done, 30) == NoAnswer("timed out")
        await connections.close()

    asyncio.run(main())

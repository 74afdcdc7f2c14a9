"""Each call to a bookie ends exactly once, whatever the peer does. The peers here are played by the tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from played_peer import played_peer

from storage.cluster.client.connections import BookieLink, CallLimits, ConnectionOptions, Connections
from storage.cluster.client.effects import NoAnswer, Sending
from storage.cluster.metadata.registration import Endpoint
from storage.cluster.wire import frames, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    AddEntry,
    AddOptions,
    BatchRead,
    CodeAnswer,
    FoundEntry,
    Incoming,
    LongPoll,
    Protocol,
    ReadEntry,
)
from storage.cluster.wire.protobuf import encode_varint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.wire.messages import Request

    Peer = Callable[[Incoming], list[bytes]]
    Steps = Callable[["Calls"], Awaitable[None]]

READ = ReadEntry(7, 3)
FOUND = FoundEntry(b"entry", 3)
PATIENCE_S = 30.0


class Timers:
    """The timers of connections that the running loop has been asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def noting(delay: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
            if not isinstance(getattr(callback, "__self__", None), BookieLink):
                return call_later(delay, callback, *arguments)

            def call() -> None:
                self._waiting.remove(timer)
                callback(*arguments)

            timer = call_later(delay, call)
            self._waiting.append(timer)
            return timer

        monkeypatch.setattr(loop, "call_later", noting)

    def left(self) -> int:
        """Return how many of them are still to come."""
        return sum(not one.cancelled() for one in self._waiting)


class Calls:
    """The calls of a test, and how each has ended."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.ended: list[BookieAnswer] = []

    async def call(self, request: Request) -> BookieAnswer:
        """Call the peer, and return how the call has ended."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answers: list[BookieAnswer] = []

        def answered(answer: BookieAnswer) -> None:
            answers.append(answer)
            self.ended.append(answer)
            if not done.done():
                done.set_result(None)

        self.connections.call("b1", request, answered)
        assert answers == [], "a call never ends before it returns"
        await asyncio.wait_for(done, PATIENCE_S)
        return answers[0]


def with_peer(peer: Peer | None, steps: Steps, limits: CallLimits | None = None) -> None:
    """Run the steps with a peer that answers each request with these frames; `None` for none at all."""

    received = b""

    def answer(data: bytes) -> bytes:
        nonlocal received
        assert peer is not None
        found = frames.split(received + data)
        received = (received + data)[found.consumed :]
        requests = [v3.decode_request(body) for body in found.bodies]
        return b"".join(frame for one in requests if isinstance(one, Incoming) for frame in peer(one))

    async def run(port: int) -> None:
        async def resolve(bookie: str) -> Endpoint:
            return Endpoint("bookie", "127.0.0.1", port, "bookie-rpc")

        connections = Connections(resolve, lambda: None, ConnectionOptions(limits=limits or CallLimits()))
        try:
            await steps(Calls(connections))
        finally:
            await connections.close()

    async def main() -> None:
        async with played_peer(b"", answer) as port:
            if peer is not None:
                await run(port)
        if peer is None:
            await run(port)  # where nothing listens any more

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE_S))


def test_many_calls_on_one_connection_each_get_their_answer() -> None:
    def peer(incoming: Incoming) -> list[bytes]:
        assert isinstance(incoming.request, ReadEntry)
        entry_id = incoming.request.entry_id
        return [v3.encode_answer(incoming, FoundEntry(b"%d" % entry_id, entry_id))]

    async def steps(calls: Calls) -> None:
        found = await asyncio.gather(*(calls.call(ReadEntry(7, number)) for number in range(100)))
        assert [one.entry for one in found if isinstance(one, FoundEntry)] == [b"%d" % n for n in range(100)]
        assert calls.connections.failed_lately() == frozenset()

    with_peer(peer, steps)


def test_an_answer_that_comes_twice_counts_once() -> None:
    async def steps(calls: Calls) -> None:
        assert await calls.call(READ) == FOUND
        assert await calls.call(READ) == FOUND
        assert calls.ended == [FOUND, FOUND]

    with_peer(lambda incoming: [v3.encode_answer(incoming, FOUND)] * 3, steps)


def test_every_copy_has_one_answer_also_of_a_bookie_that_takes_only_some() -> None:
    codes = {0: Code.OK, 1: Code.IO_ERROR, 2: Code.OK}

    def peer(incoming: Incoming) -> list[bytes]:
        assert isinstance(incoming.request, AddEntry)
        return [v3.encode_answer(incoming, CodeAnswer(codes[incoming.request.entry_id]))] * 2

    async def steps(calls: Calls) -> None:
        told: dict[int, BookieAnswer] = {}
        done = asyncio.Event()

        def answered(sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> None:
            assert sending == b1
            for entry_id in entry_ids:
                assert entry_id not in told
                told[entry_id] = answer
            if len(told) == len(codes):
                done.set()

        b1 = Sending("b1", 0, 0)
        adds = [AddEntry(7, one, bytes(20), b"entry", AddOptions(), b"") for one in codes]
        calls.connections.add([(one, (b1,)) for one in adds], answered)
        assert told == {}, "a call never ends before it returns"
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        assert told == {entry_id: CodeAnswer(code) for entry_id, code in codes.items()}
        assert calls.connections.failed_lately() == {"b1"}

        told.clear()
        done.clear()
        await calls.connections.close()
        calls.connections.add([(one, (b1,)) for one in adds], answered)
        assert told == {}, "a call never ends before it returns"
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        assert set(told.values()) == {NoAnswer("the client is closed")}

    with_peer(peer, steps)


def test_copies_end_with_their_time_and_with_their_connection() -> None:
    async def steps(calls: Calls) -> None:
        told: asyncio.Queue[BookieAnswer] = asyncio.Queue()

        def answered(_: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> None:
            assert list(entry_ids) == [0]
            told.put_nowait(answer)

        copies = [(AddEntry(7, 0, bytes(20), b"entry", AddOptions(), b""), (Sending("b1", 0, 0),))]
        calls.connections.add(copies, answered)
        assert await asyncio.wait_for(told.get(), PATIENCE_S) == NoAnswer("timed out")
        calls.connections.add(copies, answered)
        await calls.connections.close()
        assert await asyncio.wait_for(told.get(), PATIENCE_S) == NoAnswer("the client is closed")

    with_peer(lambda _: [], steps, CallLimits(call_timeout_s=0.2))


def unknown_status(incoming: Incoming) -> bytes:
    """Return an answer with a status that no version has."""
    good = v3.encode_answer(incoming, CodeAnswer(Code.NO_ENTRY))
    bad = good.replace(encode_varint(Code.NO_ENTRY.v3), encode_varint(999))
    assert len(bad) == len(good)
    return bad


@pytest.mark.parametrize(
    "peer",
    [
        pytest.param(lambda incoming: [unknown_status(incoming)], id="unknown status"),
        pytest.param(lambda _: [b"\xff\xff\xff\xff"], id="a frame of 4 GiB"),
        pytest.param(lambda _: [b"\0\0\0\x03\x0a\x01\x08"], id="half a header"),
        pytest.param(None, id="nothing listens"),
    ],
)
def test_a_peer_that_sends_no_answer_ends_all_calls_and_is_avoided(peer: Peer | None) -> None:
    async def steps(calls: Calls) -> None:
        ended = await asyncio.gather(*(calls.call(READ) for _ in range(5)))
        assert all(isinstance(one, NoAnswer) for one in ended)
        assert calls.connections.failed_lately() == {"b1"}

    with_peer(peer, steps)


def test_a_new_connection_is_opened_after_one_was_lost() -> None:
    seen: list[Incoming] = []

    def peer(incoming: Incoming) -> list[bytes]:
        seen.append(incoming)
        return [b"\xff\xff\xff\xff"] if len(seen) == 1 else [v3.encode_answer(incoming, FOUND)]

    async def steps(calls: Calls) -> None:
        assert isinstance(await calls.call(READ), NoAnswer)
        assert await calls.call(READ) == FOUND

    with_peer(peer, steps)


def test_calls_fail_at_once_while_a_bookie_cannot_be_reached() -> None:
    async def steps(calls: Calls) -> None:
        await calls.call(READ)
        assert await calls.call(READ) == NoAnswer("no connection")

    with_peer(None, steps, CallLimits(reconnect_delay_s=1000))


def test_a_call_ends_with_its_time_and_a_later_answer_is_dropped() -> None:
    late: list[bytes] = []

    def peer(incoming: Incoming) -> list[bytes]:
        late.append(v3.encode_answer(incoming, FOUND))
        return late if len(late) == 2 else []

    async def steps(calls: Calls) -> None:
        assert await calls.call(READ) == NoAnswer("timed out")
        assert await calls.call(LongPoll(7, -1, 3, 20_000, wants_entry=True)) != NoAnswer("timed out")
        assert len(calls.ended) == 2

    with_peer(peer, steps, CallLimits(call_timeout_s=0.2))


@pytest.mark.parametrize(("code", "avoided"), [(Code.IO_ERROR, {"b1"}), (Code.NO_ENTRY, set[str]())])
def test_a_bookie_whose_disk_fails_is_avoided(code: Code, avoided: set[str]) -> None:
    async def steps(calls: Calls) -> None:
        assert await calls.call(READ) == CodeAnswer(code)
        assert calls.connections.failed_lately() == avoided

    with_peer(lambda incoming: [v3.encode_answer(incoming, CodeAnswer(code))], steps)


def test_a_bookie_that_closes_the_connection_at_a_batch_read_stays_good_for_everything_else() -> None:
    def peer(data: bytes) -> bytes:
        body = data[frames.LENGTH.size :]
        if frames.protocol_of(body) is Protocol.V2:
            return b"\xff\xff\xff\xff"
        incoming = v3.decode_request(body)
        assert isinstance(incoming, Incoming)
        return v3.encode_answer(incoming, FOUND)

    async def main() -> None:
        async with played_peer(b"", peer) as port:

            async def resolve(_: str) -> Endpoint:
                return Endpoint("bookie", "127.0.0.1", port, "bookie-rpc")

            connections = Connections(resolve, lambda: None, ConnectionOptions())
            calls = Calls(connections)
            assert await calls.call(READ) == FOUND
            assert isinstance(await calls.call(BatchRead(7, 0, 0, 10, 1000)), NoAnswer)
            assert await calls.call(READ) == FOUND
            assert connections.failed_lately() == frozenset()
            await connections.close()

    asyncio.run(main())


def test_a_writer_learns_of_a_lost_connection_before_its_calls_end() -> None:
    happened: list[object] = []

    async def main() -> None:
        async with played_peer(b"", lambda _: b"\xff\xff\xff\xff") as port:

            async def resolve(_: str) -> Endpoint:
                return Endpoint("bookie", "127.0.0.1", port, "bookie-rpc")

            options = ConnectionOptions()
            connections = Connections(resolve, lambda: None, options, happened.append)
            happened.append(await Calls(connections).call(READ))
            await connections.close()

    asyncio.run(main())
    assert happened == ["b1", NoAnswer("the connection was lost")]


def test_calls_under_way_end_when_the_client_is_closed() -> None:
    async def steps(calls: Calls) -> None:
        under_way = asyncio.ensure_future(calls.call(READ))
        await asyncio.sleep(0)
        await calls.connections.close()
        assert await under_way == NoAnswer("the client is closed")

    with_peer(lambda _: [], steps)


def test_a_call_that_follows_from_the_close_ends_and_opens_no_connection() -> None:
    """A read asks another bookie when one does not answer, also if that is because the client is closed."""

    async def steps(calls: Calls) -> None:
        connections, ended = calls.connections, asyncio.Event()
        last: list[BookieAnswer] = []

        def ends(answer: BookieAnswer) -> None:
            last.append(answer)
            if len(last) == 2:
                ended.set()

        def asks_others(_: BookieAnswer) -> None:
            for bookie in ("b1", "b2"):
                connections.call(bookie, READ, ends)

        connections.call("b1", READ, asks_others)
        await connections.close()
        before = asyncio.all_tasks()
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        assert last == [NoAnswer("the client is closed")] * 2
        assert asyncio.all_tasks() == before

    with_peer(lambda _: [], steps)


def test_a_follower_that_polls_again_after_each_time_out_has_one_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(calls: Calls) -> None:
        ended, timers = asyncio.Event(), Timers(monkeypatch)
        left: list[int] = []

        def polls_again(answer: BookieAnswer) -> None:
            assert answer == NoAnswer("timed out")
            asyncio.get_running_loop().call_soon(lambda: left.append(timers.left()))
            if len(left) < 4:
                calls.connections.call("b1", LongPoll(7, -1, 3, 1, wants_entry=True), polls_again)
            else:
                ended.set()

        polls_again(NoAnswer("timed out"))
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        assert left[1:4] == [1, 1, 1]

    with_peer(lambda _: [], steps, CallLimits(call_timeout_s=0.04))


def test_no_timer_is_left_when_the_connection_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(calls: Calls) -> None:
        timers = Timers(monkeypatch)
        found = await calls.call(LongPoll(7, -1, 3, 60_000, wants_entry=True))
        assert isinstance(found, NoAnswer)
        assert timers.left() == 0

    with_peer(lambda _: [b"\xff" * 8], steps)


def test_a_writer_that_fails_keeps_no_other_from_being_written() -> None:
    async def steps() -> None:
        loop = asyncio.get_running_loop()
        errors: list[object] = []
        loop.set_exception_handler(lambda _, context: errors.append(context.get("exception")))

        async def resolve(_: str) -> Endpoint:
            raise AssertionError("no bookie is called")

        connections = Connections(resolve, lambda: None, ConnectionOptions())
        broken, written = AssertionError("a broken writer"), asyncio.Event()

        def fail() -> None:
            raise broken

        for _ in range(2):
            connections.write_soon(fail)
            connections.write_soon(written.set)
            await asyncio.wait_for(written.wait(), PATIENCE_S)
            written.clear()
        assert errors == [broken, broken]

    asyncio.run(steps())

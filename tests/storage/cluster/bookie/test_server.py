"""A bookie answers BookKeeper's protocol over a socket, in both versions."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bookie_connection import KEY, RawBookieConnection, add_of, entry_bytes, running_bookie

from storage.cluster.bookie.connection import ConnectionLimits, ConnectionState
from storage.cluster.bookie.served_connection import BookieConnection as ServedConnection
from storage.cluster.bookie.server import ServerLimits
from storage.cluster.wire import entry_list, v2, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.frames import LENGTH
from storage.cluster.wire.messages import (
    AddEntry,
    AddOptions,
    AddRun,
    Authenticate,
    BatchRead,
    BookieInfo,
    CodeAnswer,
    DiskSpaceAnswer,
    EntryList,
    ForceLedger,
    FoundEntries,
    FoundEntry,
    FoundLac,
    ListEntries,
    LongPoll,
    OperationCode,
    Protocol,
    ReadEntry,
    ReadLac,
    StartTls,
    WriteLac,
)
from storage.entry import format as entry_format
from storage.entry.digest import Digester, master_key
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from storage.aio.store import AsyncStore
    from storage.cluster.wire.messages import AnswerTo
    from storage.entry.credentials import Purpose

    Steps = Callable[[RawBookieConnection, AsyncStore], Awaitable[None]]

V2, V3 = Protocol.V2, Protocol.V3
both = pytest.mark.parametrize("protocol", [V2, V3])
OTHER_KEY = master_key(b"another")
RECOVERY = AddOptions(is_recovery=True)


def with_bookie(path: Path, steps: Steps, limits: ServerLimits | None = None) -> None:
    """Run the steps with one connection to a bookie of its own."""

    async def run() -> None:
        async with running_bookie(path, limits) as (store, _, port):
            connection = await RawBookieConnection.open(port)
            await steps(connection, store)
            await connection.close()

    asyncio.run(run())


@both
def test_an_add_is_answered_when_it_is_durable_and_can_be_read(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        for entry_id in range(3):
            added = await client.ask(add_of(7, entry_id, b"payload", lac=entry_id - 1), protocol)
            assert (added.operation, added.code) == (OperationCode.ADD_ENTRY, Code.OK)
            if protocol is V2:
                assert (added.ledger_id, added.entry_id) == (7, entry_id)
        found = await client.ask(ReadEntry(7, 1), protocol)
        lac = None if protocol is V2 else 1
        assert found.answer == FoundEntry(entry_bytes(7, 1, b"payload", 0), 1, lac)
        last = await client.ask(ReadEntry(7, -1), protocol)
        assert last.answer == FoundEntry(entry_bytes(7, 2, b"payload", 1), -1, lac)
        assert [entry.payload async for entry in store.ledger(7).entries()] == [b"payload"] * 3

    with_bookie(tmp_path / "store", steps)


@both
def test_an_add_that_comes_alone_is_answered_by_one_flush(
    tmp_path: Path, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = []

    class Counting(ServedConnection):
        def flush(self) -> None:
            flushes.append(self)
            super().flush()

    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"payload"), protocol)
        flushes.clear()
        await client.ask(add_of(7, 1, b"payload"), protocol)
        await client.ask(ReadEntry(7, 9), protocol)  # after all passes of the add

    monkeypatch.setattr("storage.cluster.bookie.server.BookieConnection", Counting)
    with_bookie(tmp_path / "store", steps)
    assert len(flushes) == 2  # one of the add, one of the read


@both
def test_many_adds_in_flight_share_syncs_and_each_has_one_answer(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"first"), protocol)
        before = (await store.stats()).groups
        numbers = [client.send(add_of(7, entry_id, b"more"), protocol) for entry_id in range(1, 301)]
        answers = [await client.answer() for _ in numbers]
        assert {one.code for one in answers} == {Code.OK}
        if protocol is V3:
            assert sorted(one.number for one in answers) == numbers
        else:
            assert sorted(one.entry_id for one in answers) == [*range(1, 301)]
        assert (await store.stats()).groups - before < 100

    with_bookie(tmp_path / "store", steps)


@both
def test_22_entries_whose_ids_the_writer_has_chosen_come_in_any_order_and_twice(
    tmp_path: Path, protocol: Protocol
) -> None:
    """Clients of the Java library may choose ids themselves; they refuse a second entry with one id."""

    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        order = [4, 0, 2, 4, 1, 0]
        for entry_id in order:
            client.send(add_of(7, entry_id, b"%d" % entry_id), protocol)
        found = [await client.answer() for _ in order]
        assert [one.code for one in found] == [Code.OK] * len(order)
        for entry_id in range(5):
            answer = await client.ask(ReadEntry(7, entry_id), protocol)
            assert answer.code is (Code.NO_ENTRY if entry_id == 3 else Code.OK)
        last = (await client.ask(ReadEntry(7, -1), protocol)).answer
        assert isinstance(last, FoundEntry)
        assert last.entry is not None
        assert last.entry.endswith(b"4")

    with_bookie(tmp_path / "store", steps)


@both
def test_an_entry_is_read_from_the_disk_after_a_checkpoint(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        for entry_id in range(100):
            client.send(add_of(7, entry_id, b"%d" % entry_id), protocol)
        for _ in range(100):
            assert (await client.answer()).code is Code.OK
        await store.checkpoint()
        for entry_id in range(100):
            client.send(ReadEntry(7, entry_id), protocol)
        found = [(await client.answer()).answer for _ in range(100)]
        wanted = {entry_bytes(7, entry_id, b"%d" % entry_id) for entry_id in range(100)}
        assert {one.entry for one in found if isinstance(one, FoundEntry)} == wanted

    with_bookie(tmp_path / "store", steps)


@both
def test_missing_entries_and_ledgers_have_their_codes(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        assert (await client.ask(ReadEntry(8, 0), protocol)).code is Code.NO_LEDGER
        assert (await client.ask(ReadEntry(8, -1), protocol)).code is Code.NO_LEDGER
        await client.ask(add_of(8, 5, b"five"), protocol)
        assert (await client.ask(ReadEntry(8, 4), protocol)).code is Code.NO_ENTRY

    with_bookie(tmp_path / "store", steps)


@both
def test_a_fence_is_durable_returns_the_last_entry_and_refuses_the_writer(
    tmp_path: Path, protocol: Protocol
) -> None:
    async def fence(client: RawBookieConnection, _: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"zero"), protocol)
        fenced = await client.ask(ReadEntry(7, -1, KEY, fences=True), protocol)
        assert fenced.answer == FoundEntry(entry_bytes(7, 0, b"zero"), -1)
        assert (await client.ask(add_of(7, 1, b"one"), protocol)).code is Code.FENCED
        assert (await client.ask(add_of(7, 1, b"one", options=RECOVERY), protocol)).code is Code.OK
        # A read of a recovery fences too, and reads the entry that it names.
        read = await client.ask(ReadEntry(7, 1, KEY, fences=True), protocol)
        assert isinstance(read.answer, FoundEntry)
        assert read.answer.entry == entry_bytes(7, 1, b"one")
        assert (await client.ask(ReadEntry(9, -1, KEY, fences=True), protocol)).code is Code.NO_ENTRY

    async def afterwards(client: RawBookieConnection, _: AsyncStore) -> None:
        assert (await client.ask(add_of(7, 2, b"two"), protocol)).code is Code.FENCED
        assert (await client.ask(add_of(9, 0, b"zero"), protocol)).code is Code.FENCED

    with_bookie(tmp_path / "store", fence)
    with_bookie(tmp_path / "store", afterwards)


@both
def test_another_key_is_unauthorized(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"zero"), protocol)
        refused = await client.ask(add_of(7, 1, b"one", OTHER_KEY), protocol)
        assert (refused.code, refused.answer) == (Code.UNAUTHORIZED, CodeAnswer(Code.UNAUTHORIZED))
        fence = await client.ask(ReadEntry(7, -1, OTHER_KEY, fences=True), protocol)
        assert fence.code is Code.UNAUTHORIZED

    with_bookie(tmp_path / "store", steps)


def test_a_fence_without_a_key_is_unauthorized(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"zero"), V3)
        assert (await client.ask(ReadEntry(7, -1, None, fences=True), V3)).code is Code.UNAUTHORIZED
        assert not store.blocking.bookie.is_fenced(7)

    with_bookie(tmp_path / "store", steps)


@both
def test_a_damaged_entry_and_one_with_other_ids_are_refused(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"zero"), protocol)
        good = add_of(7, 1, b"one")
        damaged = good._replace(entry=good.entry[:-1] + b"?")
        assert (await client.ask(damaged, protocol)).code is Code.BAD_REQUEST
        if protocol is V3:
            assert (await client.ask(good._replace(entry_id=2), protocol)).code is Code.BAD_REQUEST
        negative = good._replace(ledger_id=-7, entry=(-7).to_bytes(8, signed=True) + good.entry[8:])
        assert (await client.ask(negative, protocol)).code is Code.BAD_REQUEST
        assert (await client.ask(good, protocol)).code is Code.OK

    with_bookie(tmp_path / "store", steps)


@both
def test_adds_and_reads_in_runs_have_an_answer_each_from_memory_and_disk(
    tmp_path: Path, protocol: Protocol
) -> None:
    def add(entry_id: int, payload: bytes = b"twelve bytes") -> AddEntry:
        entry = entry_bytes(7, entry_id, payload, entry_id - 1, (entry_id + 1) * 12)
        return add_of(7, entry_id, b"")._replace(entry=entry)

    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        await client.ask(add(0), protocol)
        damaged = add(150)._replace(entry=add(150).entry[:-1] + b"?")
        for one in [*map(add, range(1, 150)), damaged, *map(add, range(151, 300))]:
            client.send(one, protocol)
        codes = {one.entry_id: one.code for one in [await client.answer() for _ in range(1, 300)]}
        assert codes == dict.fromkeys(range(1, 300), Code.OK) | {150: Code.BAD_REQUEST}
        for _ in range(2):
            for entry_id in range(310):
                client.send(ReadEntry(7, entry_id), protocol)
            answers = {one.entry_id: one for one in [await client.answer() for _ in range(310)]}
            lac = 298 if protocol is V3 else None
            for entry_id in (*range(150), *range(151, 300)):
                assert answers[entry_id].answer == FoundEntry(add(entry_id).entry, entry_id, lac)
            assert {answers[one].code for one in (150, *range(300, 310))} == {Code.NO_ENTRY}
            await store.checkpoint()
        await store.bookie.call(lambda: store.blocking.bookie.fence(7, KEY))
        for entry_id in range(300, 350):
            client.send(add(entry_id), protocol)
        assert {(await client.answer()).code for _ in range(50)} == {Code.FENCED}

    with_bookie(tmp_path / "store", steps)


def test_a_key_of_another_size_is_a_key_and_not_the_same(tmp_path: Path) -> None:
    """As for a Java bookie. Version 2 has no room for such a key."""

    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        assert (await client.ask(add_of(7, 0, b"zero", KEY[:19]), V3)).code is Code.OK
        assert (await client.ask(add_of(7, 1, b"one", KEY), V3)).code is Code.UNAUTHORIZED
        assert (await client.ask(add_of(8, 0, b"zero", KEY), V3)).code is Code.OK
        assert (await client.ask(add_of(8, 1, b"one", KEY[:19]), V3)).code is Code.UNAUTHORIZED
        fence = await client.ask(ReadEntry(8, -1, KEY[:19], fences=True), V3)
        assert fence.code is Code.UNAUTHORIZED
        assert (await client.ask(add_of(9, 0, b"zero", b""), V3)).code is Code.BAD_REQUEST

    with_bookie(tmp_path / "store", steps)


def test_a_batch_read_returns_entries_up_to_its_limits_or_a_gap(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        for entry_id in (0, 1, 2, 3, 5):
            await client.ask(add_of(7, entry_id, bytes(1000)), V2)
        entries = {entry_id: entry_bytes(7, entry_id, bytes(1000)) for entry_id in (0, 1, 2, 3, 5)}

        async def batch(first: int, count_max: int, size_max: int) -> AnswerTo:
            answer = await client.ask(BatchRead(7, first, 99, count_max, size_max), V2)
            assert answer.number == 99
            return answer

        assert (await batch(0, 2, 1 << 20)).answer == FoundEntries((entries[0], entries[1]))
        up_to_the_gap = FoundEntries(tuple(entries[one] for one in range(4)))
        assert (await batch(0, 0, 0)).answer == up_to_the_gap
        assert (await batch(1, 10, 2 * 1050 + 36)).answer == FoundEntries((entries[1], entries[2]))
        # The first one comes whatever its size is.
        assert (await batch(1, 10, 10)).answer == FoundEntries((entries[1],))
        assert (await batch(4, 10, 1 << 20)).code is Code.NO_ENTRY

    with_bookie(tmp_path / "store", steps)


def test_the_frame_of_a_batch_is_never_larger_than_the_client_takes(tmp_path: Path) -> None:
    limits = ServerLimits(ConnectionLimits(frame_size_max=5000), batch_size_max=20_000)

    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        for entry_id in range(10):
            await client.ask(add_of(7, entry_id, bytes(1000)), V2)

        async def frame_size(size_max: int) -> int:
            client.send(BatchRead(7, 0, 99, 0, size_max), V2)
            return LENGTH.size + len(await client.body())

        sizes = [await frame_size(size_max) for size_max in range(3000, 6000, 97)]
        assert all(size <= size_max for size, size_max in zip(sizes, range(3000, 6000, 97), strict=True))
        (third,) = {size for size in sizes if 3000 < size < 4000}
        assert (await frame_size(third), await frame_size(third - 1)) == (third, min(sizes))
        assert await frame_size(0) <= 5000, "a client that does not say what it takes"
        assert await frame_size(1 << 40) > 5000

    with_bookie(tmp_path / "store", steps, limits)


def lac_packet(ledger_id: int, lac: int) -> bytes:
    return entry_format.encode_lac(ledger_id, lac, Digester(DigestType.CRC32C))


def test_an_explicit_last_add_confirmed_is_stored_and_read(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        assert (await client.ask(ReadLac(7), V3)).code is Code.NO_LEDGER
        await client.ask(add_of(7, 0, b"zero"), V3)
        packet = lac_packet(7, 0)
        assert (await client.ask(WriteLac(7, 0, KEY, packet), V3)).code is Code.OK
        found = await client.ask(ReadLac(7), V3)
        assert found.answer == FoundLac(packet, entry_bytes(7, 0, b"zero"))
        refused = await client.ask(WriteLac(7, 0, OTHER_KEY, packet), V3)
        assert refused.code is Code.UNAUTHORIZED
        read = await client.ask(ReadEntry(7, 0), V3)
        assert isinstance(read.answer, FoundEntry)
        assert read.answer.lac == 0

    with_bookie(tmp_path / "store", steps)


def test_a_long_poll_is_answered_when_more_is_confirmed_and_when_its_time_is_over(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"zero"), V3)
        await client.ask(add_of(7, 1, b"one", lac=0), V3)
        at_once = await client.ask(LongPoll(7, -1, -1, 60_000, wants_entry=True), V3)
        assert isinstance(at_once.answer, FoundEntry)
        assert at_once.answer[:3] == (entry_bytes(7, 0, b"zero"), 0, 0)
        over = await client.ask(LongPoll(7, -1, 0, 20, wants_entry=True), V3)
        assert isinstance(over.answer, FoundEntry)
        assert over.answer[:3] == (None, -1, 0)
        number = client.send(LongPoll(7, -1, 0, 60_000, wants_entry=True), V3)
        added = client.send(add_of(7, 2, b"two", lac=1), V3)
        answers = {one.number: one.answer for one in (await client.answer(), await client.answer())}
        assert answers[added] == CodeAnswer(Code.OK)
        found = answers[number]
        assert isinstance(found, FoundEntry)
        assert found[:3] == (entry_bytes(7, 1, b"one", 0), 1, 1)
        bad = await client.ask(LongPoll(7, 3, 0, 20, wants_entry=True), V3)
        assert bad.code is Code.BAD_REQUEST
        # A fence ends the wait, because nothing more will be confirmed here.
        client.send(LongPoll(7, -1, 5, 60_000, wants_entry=True), V3)
        await store.bookie.call(lambda: store.blocking.bookie.fence(7, KEY))
        assert (await client.answer()).code is Code.OK

    with_bookie(tmp_path / "store", steps)


def test_many_waiting_long_polls_hold_up_no_request_after_them(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"zero"), V3)
        polls = {client.send(LongPoll(7, -1, -1, 60_000, wants_entry=True), V3) for _ in range(200)}
        added = client.send(add_of(7, 1, b"one"), V3)
        assert (await client.answer()).number == added
        client.send(ReadEntry(7, 1), V3)
        assert (await client.answer()).code is Code.OK
        client.send(add_of(7, 2, b"two", lac=0), V3)
        answers = [await client.answer() for _ in range(201)]
        assert {one.code for one in answers} == {Code.OK}
        assert polls < {one.number for one in answers}

    with_bookie(tmp_path / "store", steps)


def test_a_long_poll_above_the_limit_is_answered_as_if_its_time_were_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_bookie(tmp_path / "store", ServerLimits(polls_max=1)) as (_, _, port):
            first, client = await RawBookieConnection.open(port), await RawBookieConnection.open(port)
            await client.ask(add_of(7, 0, b"zero"), V3)
            waiting = LongPoll(7, -1, -1, 60_000, wants_entry=True)
            first.send(waiting, V3)
            await first.ask(add_of(7, 1, b"one"), V3)
            found = await client.ask(waiting, V3)
            assert isinstance(found.answer, FoundEntry)
            assert found.answer[:3] == (None, -1, -1)
            for one in (first, client):
                await one.close()

    asyncio.run(run())


def test_lists_of_entries_forced_ledgers_and_disk_space_are_answered(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        deferred = AddOptions(is_deferred=True)
        for entry_id in (0, 1, 2, 7):
            added = await client.ask(add_of(7, entry_id, b"x", options=deferred), V3)
            assert added.code is Code.OK
        assert (await client.ask(ForceLedger(7), V3)).code is Code.OK
        listed = await client.ask(ListEntries(7), V3)
        assert isinstance(listed.answer, EntryList)
        assert entry_list.decode(listed.answer.condensed) == [range(3), range(7, 8)]
        assert (await client.ask(ListEntries(8), V3)).code is Code.NO_LEDGER
        space = (await client.ask(BookieInfo(3), V3)).answer
        assert isinstance(space, DiskSpaceAnswer)
        assert space.total is not None
        assert space.free is not None
        assert 0 < space.free <= space.total
        only_free = (await client.ask(BookieInfo(2), V3)).answer
        assert isinstance(only_free, DiskSpaceAnswer)
        assert only_free.total is None

    with_bookie(tmp_path / "store", steps)


@both
def test_a_client_that_authenticates_without_need_is_told_so(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        answer = await client.ask(Authenticate("org.example.Plugin", b"hello"), protocol)
        assert answer.answer == Authenticate("AuthDisabledPlugin", b"")
        assert (await client.ask(add_of(7, 0, b"zero"), protocol)).code is Code.OK

    with_bookie(tmp_path / "store", steps)


def test_an_unknown_operation_is_a_bad_request_in_version_3_and_a_close_in_version_2(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        body = b"\x0a\x06\x08\x03\x10\x63\x18\x09"  # operation 99
        client.writer.write(LENGTH.pack(len(body)) + body)
        raw = await client.body()
        assert raw == body + b"\x10\x94\x03"
        assert (await client.ask(StartTls(), V3)).code is Code.BAD_REQUEST
        client.writer.write(LENGTH.pack(4) + bytes((2, 5, 0, 0)))
        with pytest.raises(ConnectionError):
            await client.body()

    with_bookie(tmp_path / "store", steps)


@pytest.mark.parametrize(
    "raw",
    [
        LENGTH.pack(0),
        LENGTH.pack((5 << 20) - 3),
        LENGTH.pack(0xFFFF_FFFF),
        LENGTH.pack(3) + b"\x07\x07\x07",
        LENGTH.pack(2) + b"\x02\x01",
        LENGTH.pack(14) + b"\x0a\x0c" + b"\x08" + b"\x80" * 10 + b"\x01",
        LENGTH.pack(12) + b"\x0a\x0c" + b"\x08" + b"\x80" * 9,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["empty", "oversized", "huge", "no version", "half a header", "long varint", "long header", "http"],
)
def test_bytes_that_are_no_request_close_the_connection_after_the_answers_before_them(
    tmp_path: Path, raw: bytes
) -> None:
    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        await store.ledger(7, password=b"secret").append(b"known")
        client.writer.write(v2.encode_request(ReadEntry(7, 0)) + raw)
        assert (await client.answer()).code is Code.OK
        with pytest.raises(ConnectionError):
            await client.body()

    with_bookie(tmp_path / "store", steps)


def test_a_request_that_arrives_byte_by_byte_is_answered(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        for byte in v3.encode_request(add_of(7, 0, b"slow"), 1):
            client.writer.write(bytes((byte,)))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.answer()).code is Code.OK

    with_bookie(tmp_path / "store", steps)


def test_a_large_request_in_very_small_pieces_is_put_together_in_linear_time() -> None:
    connection = ConnectionState(ConnectionLimits())
    frame = v2.encode_request(add_of(7, 0, bytes(1 << 20)))
    started = time.process_time()
    runs = [one for at in range(0, len(frame), 10) for one in connection.receive(frame[at : at + 10])[0]]
    # A copy of the whole beginning for each piece takes more than a second.
    assert time.process_time() - started < 0.4
    assert [[*one.requests()] for one in runs if isinstance(one, AddRun)] == [[v2.decode_request(frame[4:])]]
    assert connection.incomplete == 0


def test_beginnings_of_requests_that_take_too_much_memory_close_their_connection(tmp_path: Path) -> None:
    limits = ServerLimits(incomplete_max=1000)

    async def run() -> None:
        async with running_bookie(tmp_path / "store", limits) as (_, _, port):
            for _ in range(2):  # the second one finds the memory free again
                slow = await RawBookieConnection.open(port)
                slow.writer.write(v2.encode_request(add_of(7, 0, bytes(4000)))[:900])
                other = await RawBookieConnection.open(port)
                assert (await other.ask(ReadEntry(7, 0), V2)).code is Code.NO_LEDGER
                other.writer.write(v2.encode_request(add_of(7, 0, bytes(4000)))[:900])
                assert await codes_until_closed(other) == []
                await slow.close()
                await other.close()

    asyncio.run(run())


def test_a_connection_with_too_many_unanswered_requests_is_not_read_until_some_are_answered(
    tmp_path: Path,
) -> None:
    limits = ServerLimits(ConnectionLimits(unanswered_max=4096))

    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        for entry_id in range(200):
            client.send(add_of(7, entry_id, bytes(1000)), V2)
        answers = [await client.answer() for _ in range(200)]
        assert {one.code for one in answers} == {Code.OK}

    with_bookie(tmp_path / "store", steps, limits)


def test_a_connection_is_read_again_as_soon_as_the_bookie_has_room_and_not_only_half_empty(
    tmp_path: Path,
) -> None:
    limits = ServerLimits(unanswered_max=100_000)

    async def run() -> None:
        checks = {ledger_id: asyncio.Event() for ledger_id in (1, 2)}

        async def check_first(ledger_id: int, _: Purpose) -> Code:
            await checks[ledger_id].wait()
            return Code.OK

        async with running_bookie(tmp_path / "store", limits, check_first) as (_, _, port):
            busy, idle = await RawBookieConnection.open(port), await RawBookieConnection.open(port)
            assert (await idle.ask(ReadEntry(3, 0), V2)).code is Code.NO_LEDGER
            busy.send(add_of(1, 0, bytes(60_000)), V2)
            busy.send(add_of(2, 0, bytes(50_000)), V2)
            # Its answer comes before it is looked whether the connection may be read.
            assert (await idle.ask(ReadEntry(3, 0), V2)).code is Code.NO_LEDGER
            unread = idle.send(ReadEntry(3, 0), V3)
            checks[2].set()
            assert (await busy.answer()).ledger_id == 2
            # 60,000 of 100,000 bytes are unanswered.
            assert (await idle.answer()).number == unread
            checks[1].set()
            for client in (busy, idle):
                await client.close()

    asyncio.run(run())


def test_all_connections_that_wait_for_room_are_read_again_by_one_answer(tmp_path: Path) -> None:
    limits = ServerLimits(unanswered_max=100_000)

    async def run() -> None:
        is_checked = asyncio.Event()

        async def check_first(_: int, __: Purpose) -> Code:
            await is_checked.wait()
            return Code.OK

        async with running_bookie(tmp_path / "store", limits, check_first) as (_, _, port):
            busy, *idle = [await RawBookieConnection.open(port) for _ in range(4)]
            busy.send(add_of(1, 0, bytes(110_000)), V2)
            for client in idle:
                assert (await client.ask(ReadEntry(3, 0), V2)).code is Code.NO_LEDGER
            unread = idle[-1].send(ReadEntry(3, 0), V3)
            is_checked.set()
            assert (await busy.answer()).code is Code.OK
            assert (await idle[-1].answer()).number == unread
            for client in (busy, *idle):
                await client.close()

    asyncio.run(run())


def test_the_system_asks_silent_peers_whether_they_are_still_there(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        await client.ask(ReadEntry(7, 0), V2)
        here = client.writer.get_extra_info("sockname")
        kept_alive = []
        for path in Path("/proc/self/fd").iterdir():
            with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as found:
                if found.getpeername() == here:
                    kept_alive.append(found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        assert kept_alive == [1]

    with_bookie(tmp_path / "store", steps)


async def ask_without_reading(client: RawBookieConnection) -> None:
    """Send reads until the peer has closed the connection; no answer is read."""
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    try:
        while not client.writer.transport.is_closing():
            client.send(ReadEntry(7, 0), V2)
            await client.writer.drain()
            await asyncio.sleep(0)  # `drain` alone lets no other task run while the system takes the bytes
    except ConnectionError:
        return


async def codes_until_closed(client: RawBookieConnection) -> list[Code]:
    codes: list[Code] = []
    try:
        while True:
            codes.append((await client.answer()).code)
    except ConnectionError:
        return codes


def test_a_peer_that_takes_no_answers_is_closed_and_others_are_served(tmp_path: Path) -> None:
    limits = ServerLimits(ConnectionLimits(unsent_max=1 << 16, silence_s=0.05))

    async def run() -> None:
        async with running_bookie(tmp_path / "store", limits) as (_, _, port):
            greedy, other = await RawBookieConnection.open(port), await RawBookieConnection.open(port)
            await other.ask(add_of(7, 0, bytes(1 << 18)), V2)
            closed = asyncio.create_task(ask_without_reading(greedy))
            while not closed.done():
                assert (await other.ask(ReadEntry(7, 0), V2)).code is Code.OK
            assert (await other.ask(ReadEntry(7, 0), V2)).code is Code.OK
            for client in (greedy, other):
                await client.close()

    asyncio.run(run())


@both
def test_large_answers_from_the_disk_come_a_few_at_a_time_and_all_in_the_end(
    tmp_path: Path, protocol: Protocol
) -> None:
    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        for entry_id in range(12):
            await client.ask(add_of(7, entry_id, bytes((entry_id,)) * 1_000_000), protocol)
        await store.checkpoint()
        for entry_id in range(12):
            client.send(ReadEntry(7, entry_id), protocol)
        found = [(await client.answer()).answer for _ in range(12)]
        payloads = sorted(one.entry[-1] for one in found if isinstance(one, FoundEntry) and one.entry)
        assert payloads == list(range(12))

    with_bookie(tmp_path / "store", steps)


def test_answers_that_clients_do_not_take_are_bounded_for_all_of_them_together(tmp_path: Path) -> None:
    limits = ServerLimits(ConnectionLimits(unsent_max=1 << 16), unsent_max=1 << 16)

    async def run() -> None:
        async with running_bookie(tmp_path / "store", limits) as (store, _, port):
            greedy, other = await RawBookieConnection.open(port), await RawBookieConnection.open(port)
            for entry_id in range(4):
                await other.ask(add_of(7, entry_id, bytes(1_000_000)), V2)
            await store.checkpoint()
            greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(10):
                greedy.send(BatchRead(7, 0, 1, 4, 0), V2)
            for _ in range(30):  # meanwhile the bookie finds out
                assert (await other.ask(ReadEntry(7, 99), V2)).code is Code.NO_ENTRY
            greedy.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert len(await codes_until_closed(greedy)) < 10
            for client in (greedy, other):
                await client.close()

    asyncio.run(run())


def test_connections_that_are_lost_with_requests_under_way_leave_nothing_counted(tmp_path: Path) -> None:
    limits = ServerLimits(unanswered_max=60_000, polls_max=200)
    waiting = LongPoll(7, -1, 50, 60_000, wants_entry=True)

    async def run() -> None:
        async with running_bookie(tmp_path / "store", limits) as (_, _, port):
            for number in range(8):
                lost = await RawBookieConnection.open(port)
                await lost.ask(add_of(7, number, b"one"), V3)
                for _ in range(100):
                    lost.send(waiting, V3)
                await lost.ask(ReadEntry(7, 0), V3)  # by its answer all polls wait
                for entry_id in range(5):
                    lost.send(add_of(7, 100 + entry_id, b"lost"), V3)
                lost.writer.transport.abort()
            client = await RawBookieConnection.open(port)
            for entry_id in range(100):
                client.send(add_of(8, entry_id, bytes(1000)), V2)
            assert {(await client.answer()).code for _ in range(100)} == {Code.OK}
            client.send(waiting, V3)
            for _ in range(3):
                listed = client.send(ListEntries(8), V3)
                assert (await client.answer()).number == listed, "the poll waits"
            await client.close()

    asyncio.run(run())


def test_a_stopping_bookie_ends_the_waits_of_long_polls_with_their_answer(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_bookie(tmp_path / "store") as (_, server, port):
            client = await RawBookieConnection.open(port)
            await client.ask(add_of(7, 0, b"zero"), V3)
            client.send(LongPoll(7, -1, -1, 60_000, wants_entry=True), V3)
            await client.ask(add_of(7, 1, b"one"), V3)
            stopped = asyncio.create_task(server.stop(patience_s=60.0))
            assert (await client.answer()).code is Code.OK
            await stopped
            await client.close()

    asyncio.run(run())


def test_a_stopping_bookie_waits_until_a_slow_peer_has_its_answer(tmp_path: Path) -> None:
    size = 5_000_000  # four are more than the system keeps for both ends of a connection

    async def run() -> None:
        async with running_bookie(tmp_path / "store") as (_, server, port):
            client = await RawBookieConnection.open(port)
            await client.ask(add_of(7, 0, bytes(size)), V3)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(4):
                client.send(ReadEntry(7, 0), V3)
            other = await RawBookieConnection.open(port)
            await other.ask(add_of(8, 0, b"later"), V3)  # by then the reads have arrived
            await other.close()
            stopped = asyncio.create_task(server.stop(patience_s=60.0))
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for one in [await client.answer() for _ in range(4)]:
                assert isinstance(one.answer, FoundEntry)
                assert one.answer.entry is not None
                assert len(one.answer.entry) > size
            await stopped
            await client.close()

    asyncio.run(run())


def test_a_stopping_bookie_answers_what_it_has_taken(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_bookie(tmp_path / "store") as (_, server, port):
            client = await RawBookieConnection.open(port)
            await client.ask(add_of(7, 0, b"zero"), V3)
            numbers = [client.send(add_of(7, entry_id, b"more"), V3) for entry_id in range(1, 50)]
            assert (await client.answer()).code is Code.OK
            await server.stop()
            codes = await codes_until_closed(client)
            assert set(codes) == {Code.OK}
            assert len(codes) + 1 == len(numbers)
            await client.close()

    asyncio.run(run())

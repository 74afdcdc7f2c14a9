"""A read finds an entry that its connection has added before, also if the add is not durable yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from bookie_connection import RawBookieConnection, add_of, entry_bytes, running_bookie

from storage.cluster.bookie.unanswered_adds import UnansweredAdds
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import BatchRead, FoundEntries, FoundEntry, Protocol, ReadEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from storage.entry.credentials import Purpose

    Steps = Callable[[RawBookieConnection, RawBookieConnection, asyncio.Event], Awaitable[None]]

V2, V3 = Protocol.V2, Protocol.V3


def with_held_adds(path: Path, steps: Steps) -> None:
    """Run the steps with two connections to a bookie whose first adds to a ledger wait for an event."""
    allowed = asyncio.Event()

    async def check_first(_: int, __: Purpose) -> Code:
        await allowed.wait()
        return Code.OK

    async def run() -> None:
        async with running_bookie(path, check_first=check_first) as (_, _, port):
            client, other = [await RawBookieConnection.open(port) for _ in range(2)]
            await steps(client, other, allowed)
            await client.close()
            await other.close()

    asyncio.run(run())


@pytest.mark.parametrize("protocol", [V2, V3])
def test_a_read_after_an_add_of_its_entry_is_answered_with_the_entry(
    tmp_path: Path, protocol: Protocol
) -> None:
    async def steps(client: RawBookieConnection, other: RawBookieConnection, allowed: asyncio.Event) -> None:
        for entry_id in range(3):
            client.send(add_of(7, entry_id, b"x"), protocol)
        for entry_id in (0, 1, 2, 2, 5):  # a run, one by itself, and one that is not added
            client.send(ReadEntry(7, entry_id), protocol)
        client.send(ReadEntry(8, 0), protocol)
        assert (await client.answer()).ledger_id == 8, "a read of a ledger without adds waits for none"
        assert (await other.ask(ReadEntry(7, 0), protocol)).code is Code.NO_LEDGER, "another client"
        allowed.set()
        added = [await client.answer() for _ in range(3)]
        assert {one.code for one in added} == {Code.OK}
        found = [(await client.answer()) for _ in range(5)]
        entries = {one.answer.entry for one in found if isinstance(one.answer, FoundEntry)}
        assert entries == {entry_bytes(7, entry_id, b"x") for entry_id in range(3)}
        assert [one.code for one in found].count(Code.NO_ENTRY) == 1

    with_held_adds(tmp_path / "store", steps)


def test_a_batch_read_after_an_add_is_answered_with_the_entry(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: RawBookieConnection, allowed: asyncio.Event) -> None:
        client.send(add_of(7, 0, b"x"), V2)
        client.send(BatchRead(7, 0, 1, 10, 1 << 20), V2)
        assert (await client.ask(ReadEntry(8, 0), V2)).code is Code.NO_LEDGER
        allowed.set()
        assert (await client.answer()).code is Code.OK
        assert (await client.answer()).answer == FoundEntries((entry_bytes(7, 0, b"x"),))

    with_held_adds(tmp_path / "store", steps)


def test_a_client_that_is_gone_gets_no_read_after_its_adds(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, other: RawBookieConnection, allowed: asyncio.Event) -> None:
        client.send(add_of(7, 0, b"x"), V3)
        client.send(ReadEntry(7, 0), V3)
        assert (await client.ask(ReadEntry(8, 0), V3)).code is Code.NO_LEDGER
        client.writer.transport.abort()
        assert (await other.ask(ReadEntry(8, 0), V3)).code is Code.NO_LEDGER
        allowed.set()
        # Sent after the add that still waits, so it joins the same commit.
        assert (await other.ask(add_of(7, 1, b"y"), V3)).code is Code.OK
        assert (await other.ask(ReadEntry(7, 0), V3)).answer == FoundEntry(entry_bytes(7, 0, b"x"), 0, -1)

    with_held_adds(tmp_path / "store", steps)


def test_a_call_waits_for_the_adds_of_its_ledger_that_have_arrived_before_it() -> None:
    adds, calls = UnansweredAdds(), list[str]()
    assert not adds.call_after(1, lambda: calls.append("never"))
    adds.note_arrived(1, 3)
    adds.note_arrived(2, 1)
    assert adds.call_after(1, lambda: calls.append("three"))
    adds.note_arrived(1, 2)
    assert adds.call_after(1, lambda: calls.append("five"))
    adds.note_answered(1, 2)
    adds.note_answered(2, 1)
    assert calls == []
    adds.note_answered(1, 1)
    assert calls == ["three"]
    adds.note_arrived(1, 7)
    adds.note_answered(1, 2)
    assert calls == ["three", "five"]
    assert adds.call_after(1, lambda: calls.append("never"))
    adds.forget_calls()
    adds.note_answered(1, 7)
    assert calls == ["three", "five"]
    assert not adds.call_after(1, lambda: calls.append("never"))

"""The requests that a Java client sent to four Java bookies get the same answers from ours, byte for byte."""

from __future__ import annotations

import asyncio
import csv
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from bookie_connection import RawBookieConnection, running_bookie
from fixtures import FIXTURES

from storage.cluster.wire import frames, v2, v3
from storage.cluster.wire.frames import LENGTH
from storage.cluster.wire.messages import AnswerTo, DiskSpaceAnswer, FoundEntry, Protocol

if TYPE_CHECKING:
    from pathlib import Path

BODY = "body_hex(first 160 bytes, without the 4-byte length)"


def decoded(body: bytes) -> AnswerTo:
    found = (v3 if frames.protocol_of(body) is Protocol.V3 else v2).decode_answer(body)
    assert isinstance(found, AnswerTo), found
    return found


def identity(body: bytes) -> tuple[object, ...]:
    """Return what says to which request a body is the answer."""
    found = decoded(body)
    if found.protocol is Protocol.V3:
        return found.protocol, found.number
    return found.protocol, found.operation, found.ledger_id, found.entry_id


def is_same(body: bytes, captured: bytes) -> bool:
    """Return whether two answers are the same but for the time of a day and the size of a disk."""
    if body == captured:
        return True
    one, other = decoded(body), decoded(captured)
    if isinstance(one.answer, DiskSpaceAnswer) and isinstance(other.answer, DiskSpaceAnswer):
        return one.code is other.code
    if isinstance(one.answer, FoundEntry) and isinstance(other.answer, FoundEntry):
        times = (one.answer.lac_time_ms, other.answer.lac_time_ms)
        return None not in times and one.answer._replace(lac_time_ms=times[1]) == other.answer
    return False


class Replay:
    """Bookies of ours in the place of those of a capture."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self._path = path
        self._stack = stack
        self._ports: dict[str, int] = {}
        self._connections: dict[str, RawBookieConnection] = {}
        self._answers: dict[str, list[bytes]] = {}

    async def connection(self, bookie: str, name: str) -> RawBookieConnection:
        if bookie not in self._ports:
            running = running_bookie(self._path / bookie)
            _, _, self._ports[bookie] = await self._stack.enter_async_context(running)
        if name not in self._connections:
            self._connections[name] = await RawBookieConnection.open(self._ports[bookie])
            self._stack.push_async_callback(self._connections[name].close)
        return self._connections[name]

    async def answer(self, name: str, wanted: tuple[object, ...]) -> bytes:
        """Return the answer of this identity, which may come before or after others."""
        waiting = self._answers.setdefault(name, [])
        while True:
            for body in waiting:
                if identity(body) == wanted:
                    waiting.remove(body)
                    return body
            waiting.append(await self._connections[name].body())


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_captured_session_is_answered_with_the_same_bytes(tmp_path: Path, protocol: str) -> None:
    with (FIXTURES / "wire" / f"session-real-client-{protocol}.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))

    async def main() -> int:
        compared = 0
        async with AsyncExitStack() as stack:
            replay = Replay(tmp_path, stack)
            for row in rows:
                body, is_whole = bytes.fromhex(row[BODY]), len(row[BODY]) == 2 * int(row["frame_len"])
                if row["dir"] == "req":
                    if not is_whole:
                        break  # an entry of 1 MiB, of which the capture has only the beginning
                    client = await replay.connection(row["bookie"], row["conn"])
                    client.writer.write(LENGTH.pack(len(body)) + body)
                elif is_whole:
                    found = await replay.answer(row["conn"], identity(body))
                    assert is_same(found, body), (row, found.hex())
                    compared += 1
        return compared

    assert asyncio.run(main()) > 80

"""What callers, bookies and metadata may do wrong: each has a named error, and no call waits for ever.

The bookies are played, and the loop does not wait. So the time of a call can be compared with its time-out,
however busy the machine is.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from example_cluster import INSTANCE_ID, ROOT
from played_bookie import PlayedBookie, honestly
from played_peer import played_peer
from running_cluster import RunningCluster
from skipping_loop import run_skipping

from storage.cluster.client.connections import CallLimits
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.writer import WriterLimits
from storage.cluster.errors import (
    AddOutcomeUnknown,
    AddQuorumTimeout,
    ClusterError,
    CopiesUnreadable,
    InvalidMetadata,
    InvalidQuorums,
    LastAddConfirmedUnknown,
    LedgerClosed,
    LedgerNotClosed,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    RecoveryIncomplete,
    UnauthorizedAccess,
)
from storage.cluster.metadata import ledger
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import read_ledger
from storage.cluster.wire import v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, CodeAnswer, FoundEntry, FoundLac
from storage.cluster.wire.protobuf import encode_varint
from storage.errors import EntryTooLarge, NoSuchEntry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

    from played_bookie import Spoil

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.wire.messages import Answer, Incoming

    Call = Callable[[AsyncCluster, int], Awaitable[object]]

TIMEOUT_S = CallLimits().call_timeout_s
THREE = Quorums(3, 3, 2)
PATHS = LedgerPaths(ROOT, LedgerTree.HIERARCHICAL)


class PlayedCluster:
    """Three played bookies, and a client."""

    def __init__(self, running: RunningCluster, client: AsyncCluster, bookies: list[PlayedBookie]) -> None:
        self.running = running
        self.client = client
        self.bookies = bookies

    async def written(self, count: int = 3) -> int:
        """Return a ledger with so many entries, which is open."""
        writer = await self.client.create(THREE, b"secret")
        if count:
            await writer.append_many([b"abc"] * count)
        return writer.id

    def spoil(self, spoil: Spoil) -> None:
        for bookie in self.bookies:
            bookie.spoil = spoil


@asynccontextmanager
async def played_cluster(path: Path) -> AsyncIterator[PlayedCluster]:
    running = RunningCluster(path)
    await init_cluster(running.znodes, ROOT, INSTANCE_ID)
    bookies = [PlayedBookie() for _ in range(3)]
    async with AsyncExitStack() as stack:
        for number, bookie in enumerate(bookies, 1):
            port = await stack.enter_async_context(played_peer(b"", bookie.answer))
            await running.advertise(f"b{number}", port)
        client = await stack.enter_async_context(running.client())
        yield PlayedCluster(running, client, bookies)


def run(path: Path, steps: Callable[[PlayedCluster], Coroutine[object, object, None]]) -> None:
    async def main() -> None:
        async with played_cluster(path) as cluster:
            await steps(cluster)

    run_skipping(main())


async def ends_within(limit_s: float, call: Awaitable[object]) -> BaseException | None:
    """Return the error of a call, which has to end within this time and one second."""
    loop = asyncio.get_running_loop()
    since, found = loop.time(), None
    try:
        await asyncio.wait_for(call, 1000)
    except Exception as error:
        found = error
    assert loop.time() - since <= limit_s + 1, f"{loop.time() - since} s"
    return found


# ── bookies ──────────────────────────────────────────────────────────────────────────────────────────────


def never(incoming: Incoming, answer: Answer) -> list[bytes]:
    return []


def twice(incoming: Incoming, answer: Answer) -> list[bytes]:
    return honestly(incoming, answer) * 2


def unknown_code(incoming: Incoming, answer: Answer) -> list[bytes]:
    good = v3.encode_answer(incoming, CodeAnswer(Code.NO_ENTRY))
    return [good.replace(encode_varint(Code.NO_ENTRY.v3), encode_varint(999))]


def no_frame(incoming: Incoming, answer: Answer) -> list[bytes]:
    return [b"\xff" * 16]


def io_error(incoming: Incoming, answer: Answer) -> list[bytes]:
    return honestly(incoming, CodeAnswer(Code.IO_ERROR))


def changed(incoming: Incoming, answer: Answer, change: Callable[[bytes], bytes]) -> list[bytes]:
    match answer:
        case FoundEntry(bytes() as entry, entry_id):
            return honestly(incoming, FoundEntry(change(entry), entry_id))
        case FoundLac(packet, bytes() as entry):
            return honestly(incoming, FoundLac(packet, change(entry)))
        case _:
            return honestly(incoming, answer)


def wrong_digest(incoming: Incoming, answer: Answer) -> list[bytes]:
    return changed(incoming, answer, lambda entry: entry[:-1] + b"?")


def another_ledger(incoming: Incoming, answer: Answer) -> list[bytes]:
    return changed(incoming, answer, lambda entry: bytes(7) + b"\x63" + entry[8:])


def another_entry(incoming: Incoming, answer: Answer) -> list[bytes]:
    return changed(incoming, answer, lambda entry: entry[:15] + b"\x63" + entry[16:])


async def read(cluster: AsyncCluster, ledger_id: int) -> object:
    return await (await cluster.view(ledger_id, b"secret")).read(1)


async def read_batch(cluster: AsyncCluster, ledger_id: int) -> object:
    return await (await cluster.view(ledger_id, b"secret")).read_batch(1)


async def read_lac(cluster: AsyncCluster, ledger_id: int) -> object:
    return await (await cluster.view(ledger_id, b"secret")).read_last_add_confirmed()


async def take_over(cluster: AsyncCluster, ledger_id: int) -> object:
    return await cluster.take_over(ledger_id, b"secret")


SPECULATIVE_S = 2 * (THREE.write - 1)
"""A read asks the next bookie after two seconds, so the last one that it asks has so much less time."""
CALLS: list[tuple[Call, float, type[ClusterError]]] = [
    (read, TIMEOUT_S + SPECULATIVE_S, CopiesUnreadable),
    (read_batch, 2 + TIMEOUT_S + SPECULATIVE_S, CopiesUnreadable),
    (read_lac, TIMEOUT_S, LastAddConfirmedUnknown),
    (take_over, TIMEOUT_S, RecoveryIncomplete),
]
SPOILED = [never, unknown_code, no_frame, io_error, wrong_digest, another_ledger, another_entry]


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda one: one.__name__)
@pytest.mark.parametrize(("call", "limit_s", "error"), CALLS, ids=[one.__name__ for one, _, _ in CALLS])
def test_a_call_ends_in_its_time_with_its_error_when_no_bookie_gives_a_good_answer(
    tmp_path: Path, spoil: Spoil, call: Call, limit_s: float, error: type[ClusterError]
) -> None:
    async def steps(cluster: PlayedCluster) -> None:
        ledger_id = await cluster.written()
        cluster.spoil(spoil)
        assert type(await ends_within(limit_s, call(cluster.client, ledger_id))) is error

    run(tmp_path, steps)


@pytest.mark.parametrize("spoil", [never, unknown_code, no_frame, io_error], ids=lambda one: one.__name__)
def test_an_add_and_a_close_end_in_their_time_when_no_bookie_answers(tmp_path: Path, spoil: Spoil) -> None:
    async def steps(cluster: PlayedCluster) -> None:
        cluster.spoil(spoil)
        writer = await cluster.client.create(THREE)
        assert type(await ends_within(TIMEOUT_S, writer.append(b"abc"))) is NotEnoughBookies
        assert await ends_within(TIMEOUT_S, writer.close()) is None
        assert (await cluster.client.metadata(writer.id)).last_entry == -1

    run(tmp_path, steps)


@pytest.mark.parametrize("spoil", [never, twice, unknown_code, wrong_digest, another_entry, another_ledger])
def test_one_bad_bookie_of_three_changes_no_result(tmp_path: Path, spoil: Spoil) -> None:
    async def steps(cluster: PlayedCluster) -> None:
        cluster.bookies[0].spoil = spoil
        ledger_id = await cluster.written()
        reader = await cluster.client.take_over(ledger_id, b"secret")
        assert [payload async for payload in reader.payloads()] == [b"abc"] * 3
        assert reader.metadata.length == 9

    run(tmp_path, steps)


def test_an_entry_without_enough_copies_fails_in_its_own_time(tmp_path: Path) -> None:
    async def steps(cluster: PlayedCluster) -> None:
        cluster.spoil(never)
        limits = WriterLimits(add_quorum_timeout_s=1.5)
        writer = await cluster.client.create(THREE, limits=limits)
        assert type(await ends_within(1.5, writer.append(b"abc"))) is AddQuorumTimeout

    run(tmp_path, steps)


def test_a_fence_in_the_middle_of_an_add_leaves_its_outcome_unknown(tmp_path: Path) -> None:
    def fenced(incoming: Incoming, answer: Answer) -> list[bytes]:
        is_add = isinstance(incoming.request, AddEntry)
        return honestly(incoming, CodeAnswer(Code.FENCED) if is_add else answer)

    async def steps(cluster: PlayedCluster) -> None:
        writer = await cluster.client.create(THREE)
        cluster.spoil(fenced)
        assert type(await ends_within(TIMEOUT_S, writer.append(b"abc"))) is AddOutcomeUnknown

    run(tmp_path, steps)


# ── callers ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 2, 3), (0, 0, 0), (3, 3, 0), (3, 0, 0), (-1, -1, -1)])
def test_quorums_that_do_not_fit_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidQuorums, match="ack quorum") as caught:
        Quorums(*sizes)
    assert isinstance(caught.value, ValueError)


def test_a_caller_s_mistakes_have_errors_of_their_own_and_cost_no_time(tmp_path: Path) -> None:
    async def steps(cluster: PlayedCluster) -> None:
        client = cluster.client
        ledger_id = await cluster.written()
        reader = await client.view(ledger_id, b"secret")
        writer = await client.create(THREE)
        missing = ledger_id + 100
        for call, error in (
            (client.create(Quorums(4, 3, 2)), NotEnoughBookies),
            (client.view(ledger_id, b"guess"), UnauthorizedAccess),
            (client.take_over(ledger_id, b"guess"), UnauthorizedAccess),
            (client.view(missing), NoSuchLedgerExistsOnMetadataServer),
            (client.take_over(missing), NoSuchLedgerExistsOnMetadataServer),
            (client.delete(missing), NoSuchLedgerExistsOnMetadataServer),
            (client.delete(ledger_id), LedgerNotClosed),
            (anext(aiter(reader.entries())), LedgerNotClosed),
            (reader.read(99), NoSuchEntry),
            (writer.append(b"x" * (5 << 20)), EntryTooLarge),
            (writer.close(), None),
            (writer.append(b"abc"), LedgerClosed),
        ):
            found = await ends_within(0, call)
            assert (None if found is None else type(found)) is error

    run(tmp_path, steps)


# ── metadata and time ────────────────────────────────────────────────────────────────────────────────────


def test_metadata_with_an_ensemble_of_another_size_are_named(tmp_path: Path) -> None:
    async def steps(cluster: PlayedCluster) -> None:
        ledger_id = await cluster.written()
        found = await read_ledger(cluster.running.znodes, PATHS, ledger_id)
        (segment,) = found.value.segments
        wrong = replace(found.value, segments=(replace(segment, bookies=segment.bookies[:2]),))
        path = PATHS.path_of(ledger_id)
        await cluster.running.znodes.set(path, ledger.encode(wrong), found.version)
        for call in (cluster.client.view, cluster.client.take_over):
            error = await ends_within(0, call(ledger_id, b"secret"))
            assert isinstance(error, InvalidMetadata)
            assert error.path == path

    run(tmp_path, steps)


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(cluster: PlayedCluster) -> None:
        ledger_id = await cluster.written()
        writer = await cluster.client.create(THREE, limits=WriterLimits(add_quorum_timeout_s=1))
        now = time.time()
        for jump_s in (1e9, -1e9, 0.0):
            monkeypatch.setattr(time, "time", lambda: now + jump_s)  # noqa: B023 - used before the next jump
            assert await ends_within(0, writer.append(b"abc")) is None
        assert await ends_within(0, cluster.client.take_over(ledger_id, b"secret")) is None

    run(tmp_path, steps)

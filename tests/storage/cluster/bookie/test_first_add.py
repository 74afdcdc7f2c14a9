"""The first add of a writer to a ledger that is unknown here is checked against the metadata."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from bookie_connection import KEY, RawBookieConnection, add_of, running_bookie
from cluster_loops import run

from storage.cluster.bookie.first_add import EndedLedger, check_first_add
from storage.cluster.errors import MetadataUnavailable
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, ClusterLedgerState, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import change_ledger, create_ledger
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import LAST_ENTRY, AddOptions, Protocol, ReadEntry
from storage.entry.credentials import Purpose

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memory_znodes import MemoryZnodes

PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
HERE, ELSEWHERE = "here:3181", ("a:1", "b:1", "c:1")
RECOVERY = AddOptions(is_recovery=True)


def metadata(
    *ensembles: tuple[str, ...], state: ClusterLedgerState = ClusterLedgerState.OPEN
) -> ClusterLedgerMetadata:
    segments = tuple(LedgerSegment(10 * number, bookies) for number, bookies in enumerate(ensembles))
    return ClusterLedgerMetadata(3, 3, 2, segments, state, creator_token=1)


@pytest.mark.parametrize(
    ("stored", "code"),
    [
        (metadata((HERE, "b:1", "c:1")), Code.OK),
        (metadata(ELSEWHERE, (HERE, "b:1", "c:1")), Code.OK),
        (metadata((HERE, "b:1", "c:1"), ELSEWHERE), Code.FENCED),
        (metadata(ELSEWHERE), Code.FENCED),
        (metadata((HERE, "b:1", "c:1"), state=ClusterLedgerState.IN_RECOVERY), EndedLedger()),
        (metadata((HERE, "b:1", "c:1"), state=ClusterLedgerState.CLOSED), EndedLedger()),
        (None, EndedLedger()),
    ],
    ids=["named", "named last", "replaced", "never named", "in recovery", "closed", "no ledger"],
)
def test_only_an_open_ledger_whose_last_ensemble_names_the_bookie_takes_a_first_add(
    stored: ClusterLedgerMetadata | None, code: Code | EndedLedger
) -> None:
    async def check(znodes: MemoryZnodes) -> Code | EndedLedger:
        await init_cluster(znodes, "/ledgers", "an-instance")
        if stored is not None:
            await create_ledger(znodes, PATHS, 7, stored)
        return await check_first_add(znodes, PATHS, 7, HERE, Purpose.WRITING)

    assert run(check) == code


def test_of_a_closed_ledger_the_entries_up_to_the_last_are_taken_that_the_metadata_place_here() -> None:
    named_first = metadata((HERE, "b:1", "c:1"), ELSEWHERE).closed(12, 120)
    named_last = metadata(ELSEWHERE, (HERE, "b:1", "c:1")).closed(12, 120)
    named_for_none = metadata(ELSEWHERE, (HERE, "b:1", "c:1")).closed(9, 90)

    async def check(znodes: MemoryZnodes) -> list[Code | EndedLedger]:
        await init_cluster(znodes, "/ledgers", "an-instance")
        for ledger_id, stored in enumerate((named_first, named_last, named_for_none)):
            await create_ledger(znodes, PATHS, ledger_id, stored)
        return [
            await check_first_add(znodes, PATHS, ledger_id, HERE, Purpose.WRITING) for ledger_id in range(3)
        ]

    assert run(check) == [EndedLedger((range(10),)), EndedLedger((range(10, 13),)), EndedLedger()]


@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_bookie_that_was_slower_than_the_close_stores_its_copy_and_nothing_after_it(
    tmp_path: Path, protocol: Protocol
) -> None:
    async def closed_at_2(_: int, __: Purpose) -> EndedLedger:
        return EndedLedger((range(3),))

    async def main() -> None:
        async with running_bookie(tmp_path / "store", check_first=closed_at_2) as (store, _, port):
            client = await RawBookieConnection.open(port)
            for entry_id in (0, 1, 3):
                client.send(add_of(7, entry_id, b"x"), protocol)
            codes = [(await client.answer()).code for _ in range(3)]
            assert (codes.count(Code.OK), codes.count(Code.FENCED)) == (2, 1)
            # The second batch finds a ledger that has entries here.
            assert (await client.ask(add_of(7, 3, b"x"), protocol)).code is Code.FENCED
            assert (await client.ask(add_of(7, 2, b"x"), protocol)).code is Code.OK
            assert store.ledger(7, password=b"secret").is_fenced
            assert [entry.entry_id async for entry in store.ledger(7).entries()] == [0, 1, 2]
            await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_copy_that_a_repair_brings_back_is_fenced_before_it_has_entries(
    tmp_path: Path, protocol: Protocol
) -> None:
    """Its fence went with it when it was over-replicated, and its writer may still be there."""
    asked: list[Purpose] = []

    async def closed_elsewhere(_: int, purpose: Purpose) -> EndedLedger:
        asked.append(purpose)
        return EndedLedger()

    async def main() -> None:
        async with running_bookie(tmp_path / "store", check_first=closed_elsewhere) as (store, _, port):
            client = await RawBookieConnection.open(port)
            for entry_id in (0, 1):
                client.send(add_of(7, entry_id, b"x", options=RECOVERY), protocol)
            assert {(await client.answer()).code for _ in range(2)} == {Code.OK}
            assert (await client.ask(add_of(7, 2, b"late"), protocol)).code is Code.FENCED
            assert asked == [Purpose.RECOVERING]
            assert store.ledger(7, password=b"secret").is_fenced
            await client.close()

    asyncio.run(main())


def test_a_recovery_add_that_comes_during_the_check_of_a_writer_is_checked_itself(tmp_path: Path) -> None:
    """A server that lags behind may still show the ledger as open. A recovery add must not trust that."""
    asked: list[Purpose] = []
    allowed = asyncio.Event()

    async def lagging(_: int, purpose: Purpose) -> Code | EndedLedger:
        asked.append(purpose)
        await allowed.wait()
        return Code.OK if purpose is Purpose.WRITING else EndedLedger()

    async def main() -> None:
        async with running_bookie(tmp_path / "store", check_first=lagging) as (_, _, port):
            client = await RawBookieConnection.open(port)
            client.send(add_of(7, 0, b"x"), Protocol.V3)
            client.send(add_of(7, 1, b"x", options=RECOVERY), Protocol.V3)
            while not asked:
                await asyncio.sleep(0)
            assert (await client.ask(ReadEntry(8, 0), Protocol.V3)).code is Code.NO_LEDGER
            allowed.set()
            answers = {one.number: one.code for one in [await client.answer() for _ in range(2)]}
            assert answers == {1: Code.FENCED, 2: Code.OK}
            assert asked[-1] is Purpose.RECOVERING
            await client.close()

    asyncio.run(main())


class LaggingEnsemble:
    """A session whose server has not seen the last change yet, until a `sync`."""

    def __init__(
        self, znodes: MemoryZnodes, change: Callable[[ClusterLedgerMetadata], ClusterLedgerMetadata]
    ) -> None:
        self._znodes = znodes
        self._change = change
        self.syncs = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._znodes, name)

    async def sync(self, path: str) -> None:
        self.syncs += 1
        await change_ledger(self._znodes, PATHS, 7, self._change)
        await self._znodes.sync(path)


def test_a_lagging_server_is_synced_before_a_writer_is_refused() -> None:
    async def check(znodes: MemoryZnodes) -> None:
        await init_cluster(znodes, "/ledgers", "an-instance")
        await create_ledger(znodes, PATHS, 7, metadata(ELSEWHERE))
        lagging = LaggingEnsemble(znodes, lambda old: old.with_ensemble_change(10, (HERE, "b:1", "c:1")))
        assert await check_first_add(lagging, PATHS, 7, HERE, Purpose.WRITING) is Code.OK  # type: ignore[arg-type]
        assert lagging.syncs == 1

    run(check)


def test_the_metadata_are_synced_before_a_recovery_add_trusts_them() -> None:
    async def check(znodes: MemoryZnodes) -> None:
        await init_cluster(znodes, "/ledgers", "an-instance")
        await create_ledger(znodes, PATHS, 7, metadata((HERE, "b:1", "c:1")))
        lagging = LaggingEnsemble(znodes, lambda old: old.closed(9, 90))
        found = await check_first_add(lagging, PATHS, 7, HERE, Purpose.RECOVERING)  # type: ignore[arg-type]
        assert found == EndedLedger((range(10),))

    run(check)


def test_a_refused_first_add_is_not_stored_and_a_recovery_passes(tmp_path: Path) -> None:
    checked: list[int] = []

    async def refuse(ledger_id: int, _: Purpose) -> Code:
        checked.append(ledger_id)
        return Code.FENCED

    async def main() -> None:
        async with running_bookie(tmp_path / "store", check_first=refuse) as (_, _, port):
            client = await RawBookieConnection.open(port)
            for entry_id in range(3):
                client.send(add_of(7, entry_id, b"x"), Protocol.V3)
            assert {(await client.answer()).code for _ in range(3)} == {Code.FENCED}
            missing = await client.ask(ReadEntry(7, 0), Protocol.V3)
            assert missing.code is Code.NO_LEDGER
            assert (await client.ask(add_of(7, 0, b"x", options=RECOVERY), Protocol.V3)).code is Code.OK
            # The ledger has an entry here now, so that no more is checked. It is open, and not fenced.
            count = len(checked)
            assert (await client.ask(add_of(7, 1, b"x"), Protocol.V3)).code is Code.OK
            assert len(checked) == count
            await client.close()

    asyncio.run(main())


def test_a_ledger_is_checked_once_for_many_first_adds(tmp_path: Path) -> None:
    checked: list[int] = []

    async def allow(ledger_id: int, _: Purpose) -> Code:
        checked.append(ledger_id)
        await asyncio.sleep(0)
        return Code.OK

    async def main() -> None:
        async with running_bookie(tmp_path / "store", check_first=allow) as (_, _, port):
            client = await RawBookieConnection.open(port)
            for entry_id in range(50):
                client.send(add_of(7, entry_id, b"x"), Protocol.V2)
            assert {(await client.answer()).code for _ in range(50)} == {Code.OK}
            assert checked == [7]
            await client.close()

    asyncio.run(main())


def test_a_check_that_fails_unexpectedly_leaves_no_add_unanswered(tmp_path: Path) -> None:
    failures = [ValueError("a bug")]

    async def fail_once(_: int, __: Purpose) -> Code:
        if failures:
            raise failures.pop()
        return Code.OK

    async def main() -> None:
        async with running_bookie(tmp_path / "store", check_first=fail_once) as (_, _, port):
            client = await RawBookieConnection.open(port)
            assert (await client.ask(add_of(7, 0, b"x"), Protocol.V3)).code is Code.IO_ERROR
            assert (await client.ask(add_of(7, 0, b"x"), Protocol.V3)).code is Code.OK
            await client.close()

    asyncio.run(main())


def test_without_metadata_a_first_add_is_neither_taken_nor_fenced(tmp_path: Path) -> None:
    async def fail(_: int, __: Purpose) -> Code:
        raise MetadataUnavailable("no session with the metadata")

    async def main() -> None:
        async with running_bookie(tmp_path / "store", check_first=fail) as (store, _, port):
            client = await RawBookieConnection.open(port)
            assert (await client.ask(add_of(7, 0, b"x"), Protocol.V3)).code is Code.IO_ERROR
            assert not store.ledger(7, password=b"secret").is_fenced
            repaired = await client.ask(add_of(7, 0, b"x", KEY, RECOVERY), Protocol.V3)
            assert repaired.code is Code.IO_ERROR, "it may be the return of a copy whose fence was deleted"
            # A recovery that has fenced the ledger here needs no metadata.
            fence = ReadEntry(7, LAST_ENTRY, KEY, fences=True)
            assert (await client.ask(fence, Protocol.V3)).code is Code.NO_ENTRY
            assert (await client.ask(add_of(7, 0, b"x", KEY, RECOVERY), Protocol.V3)).code is Code.OK
            await client.close()

    asyncio.run(main())

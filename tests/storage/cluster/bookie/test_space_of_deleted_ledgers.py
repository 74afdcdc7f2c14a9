"""A ledger that is deleted in the metadata leaves the files of every bookie, and the other ledgers stay."""

from __future__ import annotations

from contextlib import AsyncExitStack, nullcontext
from typing import TYPE_CHECKING

import pytest
from cluster_loops import run

from recovery import open_async_store
from storage.cluster.bookie.deleted_ledgers import LedgerDeletion
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import create_ledger, delete_ledger
from storage.config import StoreConfig
from storage.errors import NoSuchLedger

if TYPE_CHECKING:
    from pathlib import Path

    from memory_znodes import MemoryZnodes

    from storage.aio.store import AsyncStore

BOOKIES = ("one:1", "two:2", "three:3")
PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
METADATA = ClusterLedgerMetadata(3, 3, 2, (LedgerSegment(0, BOOKIES),), creator_token=1)
CONFIG = StoreConfig(
    entry_log_size_max=256 << 10,
    journal_max_backups=0,
    checkpoint_interval_s=3600.0,
    collection_interval_s=None,  # only when the test asks for one
)
DELETED, KEPT = 5, 6
PAYLOAD = bytes(4096)
ENTRIES = {DELETED: 400, KEPT: 20}


async def fill(store: AsyncStore) -> None:
    """Add entries of both ledgers in turn, so that most logs have some of each."""
    turns = ENTRIES[KEPT]
    for _ in range(turns):
        await store.ledger(DELETED).append_many([PAYLOAD] * (ENTRIES[DELETED] // turns))
        await store.ledger(KEPT).append(PAYLOAD)
    await store.checkpoint()


class NoAdds:
    """The adds of a bookie that has no clients."""

    def held(self, _: int) -> nullcontext[bool]:
        return nullcontext(enter_result=True)


async def stored_size(store: AsyncStore) -> int:
    stats = await store.stats()
    return stats.entry_logs.bytes


@pytest.mark.slow
def test_a_deleted_ledger_is_gone_from_all_bookies_after_two_passes_and_its_space_returns(
    tmp_path: Path,
) -> None:
    async def main(znodes: MemoryZnodes) -> None:
        await init_cluster(znodes, "/ledgers", "an-instance")
        for ledger_id in (DELETED, KEPT):
            await create_ledger(znodes, PATHS, ledger_id, METADATA)
        async with AsyncExitStack() as held:
            stores = [
                await held.enter_async_context(open_async_store(tmp_path / name, CONFIG)) for name in BOOKIES
            ]
            passes = [LedgerDeletion(store.bookie, "an-instance", NoAdds()) for store in stores]
            for store in stores:
                await fill(store)
                assert await stored_size(store) > ENTRIES[DELETED] * len(PAYLOAD)

            await delete_ledger(znodes, PATHS, DELETED)
            for one in passes:
                assert (await one.make_pass(znodes, PATHS)).deleted == ()
            for one in passes:
                assert (await one.make_pass(znodes, PATHS)).deleted == (DELETED,)

            for store in stores:
                assert await store.ledgers() == [KEPT]
                with pytest.raises(NoSuchLedger):
                    await store.ledger(DELETED).read(0)
                await store.checkpoint()
                await store.collect()
                # The log that is written now is not collected, so that one log may stay beside what is live.
                assert await stored_size(store) < ENTRIES[KEPT] * len(PAYLOAD) + CONFIG.entry_log_size_max
                payloads = [payload async for payload in store.ledger(KEPT).payloads()]
                assert payloads == [PAYLOAD] * ENTRIES[KEPT]

    run(main)

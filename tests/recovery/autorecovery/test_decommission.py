"""When a bookie that is gone counts as empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_loops import run
from example_cluster import INSTANCE_ID, ROOT

from recovery.autorecovery.decommission import wait_until_empty
from storage.cluster.errors import InvalidMetadata
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import create_node

if TYPE_CHECKING:
    from memory_znodes import MemoryZnodes

PATHS = LedgerPaths(ROOT, LedgerTree.HIERARCHICAL)


def test_a_bookie_is_not_empty_while_the_metadata_of_a_ledger_cannot_be_read() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await init_cluster(znodes, ROOT, INSTANCE_ID)
        counts: list[int] = []

        async def left() -> frozenset[int]:
            return await wait_until_empty(znodes, PATHS, "gone:3181", frozenset, counts.append)

        # Another application's node is no ledger.
        await create_node(znodes, f"{ROOT}/other")
        assert (await left(), counts) == (frozenset(), [0])
        await create_node(znodes, PATHS.path_of(7), b"junk")
        with pytest.raises(InvalidMetadata, match=PATHS.path_of(7)):
            await left()

    run(test)

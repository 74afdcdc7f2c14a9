"""When a bookie that is gone counts as empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_loops import run, run_with_server
from example_cluster import INSTANCE_ID, ROOT, info

from recovery.autorecovery.decommission import remove_cookie, wait_until_empty
from storage.cluster.errors import BookiesRegistered, InvalidMetadata
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.registration import BookieMode, register
from storage.cluster.metadata.update import create_node

if TYPE_CHECKING:
    from memory_znodes import MemoryServer, MemoryZnodes

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


def test_the_cookie_of_a_bookie_stays_that_is_registered_at_a_server_which_lags() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        await init_cluster(znodes, ROOT, INSTANCE_ID)
        await create_node(znodes, f"{ROOT}/cookies/b1:3181")
        znodes.lag()
        await register(other, ROOT, "b1:3181", info(3181), BookieMode.WRITABLE, 1)
        with pytest.raises(BookiesRegistered):
            await remove_cookie(znodes, PATHS, "b1:3181")
        assert f"{ROOT}/cookies/b1:3181" in server.paths()

    run_with_server(test)

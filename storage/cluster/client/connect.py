"""A client of a cluster, by the address of its metadata."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from storage.cluster.client.cluster import open_cluster
from storage.cluster.metadata.address import parse_address
from storage.cluster.zookeeper import client as zookeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.connections import CallLimits


@asynccontextmanager
async def connect_async(uri: str, limits: CallLimits | None = None) -> AsyncIterator[AsyncCluster]:
    """Open a client of the cluster at an address such as zk://localhost:2181/ledgers, and close it."""
    address = parse_address(uri)
    async with (
        zookeeper.connect(zookeeper.ClientConfig(address.hosts)) as znodes,
        open_cluster(znodes, address.root, address.tree, limits) as cluster,
    ):
        yield cluster

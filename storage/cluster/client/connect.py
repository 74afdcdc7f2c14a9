"""A client of a cluster, by the address of its metadata."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from storage.cluster.client.cluster import open_cluster
from storage.cluster.client.connections import CallLimits, ConnectionOptions
from storage.cluster.metadata.address import parse_address
from storage.cluster.tls import client_context
from storage.cluster.wire.messages import Protocol
from storage.cluster.zookeeper import client as zookeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.placement import ZoneRules
    from storage.cluster.tls import ClientTls


@asynccontextmanager
async def connect_async(
    uri: str,
    limits: CallLimits | None = None,
    protocol: Protocol = Protocol.V3,
    tls: ClientTls | None = None,
    zones: ZoneRules | None = None,
    metadata_tls: ClientTls | None = None,
) -> AsyncIterator[AsyncCluster]:
    """Open a client of the cluster at an address such as zk://localhost:2181/ledgers, and close it.

    `protocol` is the version that bookies are asked in. With `tls` the connections to bookies have TLS,
    with `metadata_tls` the one to ZooKeeper, at its port for TLS. `zones` say where bookies are. Raise
    `InvalidConfig` if the files of TLS cannot be used.
    """
    address = parse_address(uri)
    context = None if tls is None else client_context(tls)
    options = ConnectionOptions(protocol, context, limits or CallLimits())
    async with (
        zookeeper.connect(zookeeper.ClientConfig(address.hosts, tls=metadata_tls)) as znodes,
        open_cluster(znodes, address.root, address.tree, options, zones) as cluster,
    ):
        yield cluster

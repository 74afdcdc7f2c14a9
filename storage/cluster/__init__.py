"""Everything that bookies and clients of a cluster share over the network.

    errors       the errors of this folder: the branch `ClusterError` of the one tree
    tls          the certificates of servers and clients, as contexts for new connections
    wire/        pure: the messages of BookKeeper's protocol, and protobuf's two forms by tables
    metadata/    what a cluster keeps in ZooKeeper, and how it is changed; drives nothing by itself
    bookie/      a bookie on the network
    client/      a client of ledgers over several bookies: `connect`, and `connect_async` for coroutines
    topics/      series of ledgers with messages, in the formats of Pulsar
    zookeeper/   the client of ZooKeeper behind the port `metadata/znodes.py`, and a server of its protocol

`import storage` loads none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.cluster.client.blocking import connect
    from storage.cluster.client.connect import connect_async

__all__ = ["connect", "connect_async"]

_LOADED_ON_USE = {
    "connect": "storage.cluster.client.blocking",
    "connect_async": "storage.cluster.client.connect",
}


def __dir__() -> list[str]:
    return list(__all__)


# Hidden from type checkers: to them a module with `__getattr__` has every attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # Loaded when it is first used, because bookies need neither a client nor its libraries.
        if name not in _LOADED_ON_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LOADED_ON_USE[name]), name)

"""The names of kazoo that we use, in the only module that imports it. It says how kazoo is installed."""

from __future__ import annotations

try:
    from kazoo.client import KazooClient, KazooState
    from kazoo.exceptions import (
        BadVersionError,
        ConnectionLoss,
        KazooException,
        NoChildrenForEphemeralsError,
        NodeExistsError,
        NoNodeError,
        NotEmptyError,
        RolledBackError,
        RuntimeInconsistency,
        SessionExpiredError,
        SessionMovedError,
    )
    from kazoo.handlers.threading import SequentialThreadingHandler
    from kazoo.protocol.states import KeeperState
    from kazoo.retry import KazooRetry
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the metadata of a cluster need kazoo: pip install 'ledgerstore[cluster]'", name=error.name
    ) from error

__all__ = [
    "BadVersionError",
    "ConnectionLoss",
    "KazooClient",
    "KazooException",
    "KazooRetry",
    "KazooState",
    "KeeperState",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
    "RolledBackError",
    "RuntimeInconsistency",
    "SequentialThreadingHandler",
    "SessionExpiredError",
    "SessionMovedError",
]

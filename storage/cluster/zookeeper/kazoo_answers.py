"""The answers and errors of kazoo as values of the port `metadata/znodes.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.cluster.errors import MetadataUnavailable, SessionExpired
from storage.cluster.metadata.znodes import (
    Conflict,
    CreateMode,
    Done,
    Exists,
    Gone,
    MultiCreate,
    NodeStat,
    NoParent,
    NotEmpty,
    Rejected,
    Unknown,
)
from storage.cluster.zookeeper.kazoo_names import (
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.metadata.znodes import MultiAnswer, Operation

CREATE_FLAGS: dict[CreateMode, dict[str, bool]] = {
    CreateMode.PERSISTENT: {},
    CreateMode.EPHEMERAL: {"ephemeral": True},
    CreateMode.PERSISTENT_SEQUENTIAL: {"sequence": True},
    CreateMode.EPHEMERAL_SEQUENTIAL: {"ephemeral": True, "sequence": True},
}


_IN_DOUBT = (ConnectionLoss, SessionExpiredError, SessionMovedError)
"""After these the server may have done what it was asked. A closed connection counts as an expired
session."""


def lost_answer(error: KazooException, path: str) -> Unknown:
    """Return the answer to a write whose own answer was lost, or raise if the server has refused it."""
    if isinstance(error, _IN_DOUBT):
        return Unknown(_words(error))
    raise unavailable(error, path) from error


def unavailable(error: KazooException, path: str) -> MetadataUnavailable:
    if isinstance(error, SessionExpiredError):
        return SessionExpired(_words(error))
    return MetadataUnavailable(f"{path}: {_words(error)}")


def _words(error: KazooException) -> str:
    return str(error) or type(error).__name__


def multi_answer(operations: Sequence[Operation], results: Sequence[object]) -> MultiAnswer:
    for index, (one, result) in enumerate(zip(operations, results, strict=True)):
        match result:
            case RolledBackError() | RuntimeInconsistency():
                continue
            case NodeExistsError():
                return Rejected(index, Exists())
            case NoNodeError() | NoChildrenForEphemeralsError():
                return Rejected(index, NoParent() if isinstance(one, MultiCreate) else Gone())
            case BadVersionError():
                return Rejected(index, Conflict())
            case NotEmptyError():
                return Rejected(index, NotEmpty())
            case KazooException():
                raise unavailable(result, one.path)
    return Done()


def node_stat(stat: Any) -> NodeStat:
    return NodeStat(
        created_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        version=stat.version,
        children_version=stat.cversion,
        acl_version=stat.aversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        children_count=stat.numChildren,
        children_zxid=stat.pzxid,
    )

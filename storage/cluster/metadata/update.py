"""Changes of nodes that survive other clients and lost answers.

A change is read, decide, write with the version that was read; another client's write in between lets it
begin anew. If the answer to the write is lost, the node is read again and its *content* decides:

* a create is ours if the node has our creator token;
* a change is done if the node has the value that we wanted to write;
* a delete is done if the node is gone;

and in all other cases the write is made again. This is safe also if the lost write takes place later: it
names the version that it was based on, and fails. A change that has become unnecessary meanwhile writes the
same data once again, so that this version is over. If the node cannot be read either, `OutcomeUnknown` is
raised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from storage.cluster.errors import (
    InvalidMetadata,
    LedgerExists,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchCluster,
    NoSuchLedgerExistsOnMetadataServer,
    OutcomeUnknown,
)
from storage.cluster.metadata import ledger
from storage.cluster.metadata.znodes import (
    ANY_VERSION,
    Conflict,
    Created,
    CreateMode,
    Deleted,
    Exists,
    Gone,
    Node,
    NoParent,
    NotEmpty,
    Unknown,
    Written,
)
from storage.cluster.wire.protobuf import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes

_T = TypeVar("_T")

_ATTEMPTS_MAX = 100
"""How often other clients may come first, or connections may be lost, before a change gives up."""


@dataclass(frozen=True, slots=True)
class Versioned(Generic[_T]):
    """A value, and the version of the node that it was read from."""

    value: _T
    version: int


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────


async def change_data(znodes: Znodes, path: str, change: Callable[[bytes], bytes]) -> Versioned[bytes] | Gone:
    """Replace the data of a node by what `change` makes of it, unless that is the same.

    `change` may raise, and is called again with what another client has written.
    """
    wanted, lost, base = b"", None, -1
    for _ in range(_ATTEMPTS_MAX):
        node = await _read(znodes, path, lost)
        if isinstance(node, Gone):
            return node
        if lost is not None and node.data == wanted:
            return Versioned(node.data, node.stat.version)
        may_still_be_written = lost is not None and node.stat.version == base
        wanted, lost, base = change(node.data), None, node.stat.version
        if wanted == node.data and not may_still_be_written:
            return Versioned(node.data, node.stat.version)
        match await znodes.set(path, wanted, node.stat.version):
            case Written(version):
                return Versioned(wanted, version)
            case Gone() as gone:
                return gone
            case Unknown() as unknown:
                lost = unknown
            case Conflict():
                continue
    raise MetadataConflict(path, f"changed by others {_ATTEMPTS_MAX} times before this change")


async def create_node(
    znodes: Znodes, path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT
) -> Created | Exists | Unknown:
    """Create a node, and before it those of its parents that are missing."""
    for _ in range(_ATTEMPTS_MAX):
        answer = await znodes.create(path, data, mode)
        if not isinstance(answer, NoParent):
            return answer
        parent = path.rpartition("/")[0]
        assert parent, path
        # Whatever the answer is, the next attempt shows whether the parent is there now: another client may
        # delete an empty parent at the same time.
        await create_node(znodes, parent)
    raise MetadataConflict(path, "its parent is deleted again and again")


async def delete_node(znodes: Znodes, path: str, version: int = ANY_VERSION) -> Deleted | Gone | Conflict:
    """Delete a node without children."""
    lost = None
    for _ in range(_ATTEMPTS_MAX):
        match await znodes.delete(path, version):
            case NotEmpty():
                raise MetadataConflict(path, "the node has children")
            case Unknown() as unknown:
                lost = unknown
                if isinstance(await _read(znodes, path, lost), Gone):
                    return Deleted()
            case Gone() if lost is not None:
                return Deleted()
            case answer:
                return answer
    raise MetadataConflict(path, "the connection is lost again and again")


async def delete_own(znodes: Znodes, path: str) -> None:
    """Delete an ephemeral node if it belongs to this session. A node of another session stays.

    After a delete whose answer was lost the owner is looked at again: the node may be gone, and another
    session may have made one of the same path.
    """
    for _ in range(_ATTEMPTS_MAX):
        stat = await znodes.exists(path)
        if isinstance(stat, Gone) or stat.ephemeral_owner != znodes.session_id:
            return
        if not isinstance(await znodes.delete(path), Unknown):
            return
        await znodes.sync(path)
    raise MetadataConflict(path, "the connection is lost again and again")


async def prune(znodes: Znodes, path: str, stop: str) -> None:
    """Delete the empty parents of a node that was deleted, up to and without `stop`.

    Best effort: a parent that stays does no harm.
    """
    parent = path.rpartition("/")[0]
    while parent.startswith(f"{stop}/"):
        if isinstance(await znodes.delete(parent), NotEmpty | Unknown):
            return
        parent = parent.rpartition("/")[0]


async def _read(znodes: Znodes, path: str, lost: Unknown | None) -> Node | Gone:
    """Read a node. After a lost write, read what is true now and not what a slow server still shows."""
    if lost is None:
        return await znodes.get(path)
    try:
        await znodes.sync(path)
        return await znodes.get(path)
    except MetadataUnavailable as error:
        raise OutcomeUnknown(path, lost.reason) from error


# ── ledgers ───────────────────────────────────────────────────────────────────────────────────────────────


async def read_ledger(znodes: Znodes, paths: LedgerPaths, ledger_id: int) -> Versioned[ClusterLedgerMetadata]:
    """Read the metadata of a ledger."""
    path = paths.path_of(ledger_id)
    node = await znodes.get(path)
    if isinstance(node, Gone):
        await _check_root(znodes, paths)
        raise NoSuchLedgerExistsOnMetadataServer(ledger_id)
    return decode_ledger(path, node)


def decode_ledger(path: str, node: Node) -> Versioned[ClusterLedgerMetadata]:
    """Decode the node of a ledger, or raise `InvalidMetadata` with its path."""
    return Versioned(_decode(path, node.data), node.stat.version)


def _decode(path: str, data: bytes) -> ClusterLedgerMetadata:
    metadata = ledger.decode(data)
    if isinstance(metadata, Malformed):
        raise InvalidMetadata(path, metadata.reason)
    return metadata


async def create_ledger(
    znodes: Znodes, paths: LedgerPaths, ledger_id: int, metadata: ClusterLedgerMetadata
) -> Versioned[ClusterLedgerMetadata]:
    """Create the metadata of a ledger, or raise `LedgerExists`.

    `creator_token` has to be a random number of this call, which is how a lost answer is resolved.
    """
    assert metadata.creator_token, "0 is the token of every ledger that BookKeeper has rewritten"
    path, data = paths.path_of(ledger_id), ledger.encode(metadata)
    for _ in range(_ATTEMPTS_MAX):
        answer = await create_node(znodes, path, data)
        if isinstance(answer, Created):
            return Versioned(metadata, 0)
        node = await _read(znodes, path, answer if isinstance(answer, Unknown) else None)
        if isinstance(node, Node):
            found = decode_ledger(path, node)
            if found.value.creator_token != metadata.creator_token:
                raise LedgerExists(ledger_id)
            return found
        if isinstance(answer, Exists):
            # Another client has deleted the ledger since: ids are not used again, so this is not ours.
            raise LedgerExists(ledger_id)
    raise MetadataConflict(path, "the connection is lost again and again")


async def change_ledger(
    znodes: Znodes,
    paths: LedgerPaths,
    ledger_id: int,
    change: Callable[[ClusterLedgerMetadata], ClusterLedgerMetadata],
) -> Versioned[ClusterLedgerMetadata]:
    """Change the metadata of a ledger.

    `change` gets the newest metadata, and decides by it: it returns what shall be written, or its argument if
    there is nothing to do, or raises `MetadataConflict`. The format of the stored metadata is kept.
    """
    path = paths.path_of(ledger_id)

    def changed(data: bytes) -> bytes:
        before = _decode(path, data)
        after = change(before)
        if after == before:
            return data
        return ledger.encode(replace(after, format_version=before.format_version))

    done = await change_data(znodes, path, changed)
    if isinstance(done, Gone):
        raise NoSuchLedgerExistsOnMetadataServer(ledger_id)
    return Versioned(_decode(path, done.value), done.version)


async def delete_ledger(
    znodes: Znodes, paths: LedgerPaths, ledger_id: int, version: int = ANY_VERSION
) -> None:
    """Delete the metadata of a ledger. Bookies find out, and delete its entries."""
    path = paths.path_of(ledger_id)
    match await delete_node(znodes, path, version):
        case Gone():
            raise NoSuchLedgerExistsOnMetadataServer(ledger_id)
        case Conflict():
            raise MetadataConflict(path, f"the version is no longer {version}")
        case Deleted():
            await prune(znodes, path, paths.root)


async def _check_root(znodes: Znodes, paths: LedgerPaths) -> None:
    if isinstance(await znodes.exists(paths.root), Gone):
        raise NoSuchCluster(paths.root)

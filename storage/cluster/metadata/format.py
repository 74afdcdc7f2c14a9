"""A cluster's metadata as a whole: made, erased, saved and brought back.

A backup is text, one JSON object in each line:

    {"format": "ledgerstore-metadata", "version": 1, "root": "/ledgers"}
    {"path": "", "data": "", "sequence": 0}          the root; data in base64
    {"path": "/idgen", "data": "", "sequence": 22}   and each node after its parent
    {"nodes": 2, "crc32c": "1a2b3c4d"}               of all lines before, newlines included

`sequence` is the number that the next sequential child of the node gets. A restore counts up to it, because
ledger ids come from there and must not be given out twice. Ephemeral nodes are left out: they belong to
sessions. Versions and times of nodes are not kept; both begin anew.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.cluster.errors import (
    BookiesRegistered,
    ClusterExists,
    ClusterNotNamed,
    InvalidMetadata,
    MetadataConflict,
    NoSuchCluster,
    OutcomeUnknown,
)
from storage.cluster.metadata.paths import (
    AVAILABLE,
    COOKIES,
    ID_GENERATOR,
    INSTANCE_ID,
    LAYOUT,
    LONG_ID_GENERATOR,
    READ_ONLY,
    LedgerTree,
    encode_layout,
    is_special,
)
from storage.cluster.metadata.registration import read_bookies
from storage.cluster.metadata.underreplication import base_path
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import (
    Done,
    Exists,
    Gone,
    MultiCreate,
    MultiDelete,
    MultiSet,
    Node,
    Rejected,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from storage.cluster.metadata.znodes import Operation, Znodes

_BATCH = 200
"""Operations of one multi. ZooKeeper takes at most a megabyte."""

_BATCH_BYTES = 256 * 1024

# ── making a cluster ──────────────────────────────────────────────────────────────────────────────────────


async def init_cluster(
    znodes: Znodes, root: str, instance_id: str, tree: LedgerTree = LedgerTree.HIERARCHICAL
) -> None:
    """Make a new cluster: all its nodes or none. Raise `ClusterExists` if the root is there.

    `instance_id` has to be a new random UUID.
    """
    parent = root.rpartition("/")[0]
    if parent:
        await create_node(znodes, parent)
    answer = await znodes.multi(
        [
            MultiCreate(root),
            MultiCreate(f"{root}/{AVAILABLE}"),
            MultiCreate(f"{root}/{AVAILABLE}/{READ_ONLY}"),
            MultiCreate(f"{root}/{INSTANCE_ID}", instance_id.encode()),
            MultiCreate(f"{root}/{LAYOUT}", encode_layout(tree)),
        ]
    )
    match answer:
        case Done():
            return
        case Rejected(0, Exists()):
            raise ClusterExists(root)
        case Unknown(reason):
            # The instance id is ours alone.
            if await read_instance_id(znodes, root) != instance_id:
                raise OutcomeUnknown(root, reason)
        case _:
            raise MetadataConflict(root, f"the cluster was not made: {answer}")


async def read_instance_id(znodes: Znodes, root: str) -> str | None:
    """Return the id of the cluster, or `None` if the node is missing."""
    node = await znodes.get(f"{root}/{INSTANCE_ID}")
    if isinstance(node, Gone):
        if isinstance(await znodes.exists(root), Gone):
            raise NoSuchCluster(root)
        return None
    try:
        return node.data.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidMetadata(f"{root}/{INSTANCE_ID}", f"no instance id: {node.data[:80]!r}") from None


# ── erasing a cluster ─────────────────────────────────────────────────────────────────────────────────────


async def format_cluster(
    znodes: Znodes, root: str, instance_id: str, erased: str | None, tree: LedgerTree
) -> None:
    """Make a cluster, or erase the ledgers, cookies and marks of the one that is there.

    The cluster that is there has to be named by its instance id, `erased`, and no bookie may be registered.
    Ids of ledgers go on from where they were.
    """
    if isinstance(await znodes.exists(root), Gone):
        await init_cluster(znodes, root, instance_id, tree)
        return
    instance_path = f"{root}/{INSTANCE_ID}"
    before = await _check_erasable(znodes, root, erased)
    children = await znodes.children(root)
    names = () if isinstance(children, Gone) else children.names
    for name in (*filter(lambda name: not is_special(name), names), COOKIES):
        await _delete_tree(znodes, f"{root}/{name}")
    for name in ("ledgers", "locks"):
        await _delete_tree(znodes, f"{base_path(root)}/{name}")
    await create_node(znodes, f"{root}/{AVAILABLE}/{READ_ONLY}")
    await create_node(znodes, f"{root}/{LAYOUT}")
    # At last, so that a format that was interrupted can be repeated with the same name.
    instance: Operation = MultiCreate(instance_path, instance_id.encode())
    if before is not None:
        instance = MultiSet(instance_path, instance_id.encode(), before.stat.version)
    answer = await znodes.multi([MultiSet(f"{root}/{LAYOUT}", encode_layout(tree)), instance])
    if isinstance(answer, Unknown) and await read_instance_id(znodes, root) == instance_id:
        return
    if not isinstance(answer, Done):
        raise MetadataConflict(instance_path, f"the cluster was changed at the same time: {answer}")


async def nuke_cluster(znodes: Znodes, root: str, named: str | None) -> int:
    """Delete a cluster with everything in it. Return the number of nodes.

    It has to be named by its instance id, and no bookie may be registered.
    """
    await _check_erasable(znodes, root, named)
    return await _delete_tree(znodes, root)


async def _check_erasable(znodes: Znodes, root: str, named: str | None) -> Node | None:
    """Return the node of the instance id, or raise because the cluster must not be erased."""
    instance_id = await read_instance_id(znodes, root)
    # A cluster without an id is named by its root.
    name = root if instance_id is None else instance_id
    if named != name:
        raise ClusterNotNamed(root, name, named)
    if not isinstance(await znodes.exists(f"{root}/{AVAILABLE}"), Gone):
        bookies = await read_bookies(znodes, root)
        if bookies.all:
            raise BookiesRegistered(root, tuple(sorted(bookies.all)))
    node = await znodes.get(f"{root}/{INSTANCE_ID}")
    return node if isinstance(node, Node) else None


async def _delete_tree(znodes: Znodes, path: str) -> int:
    """Delete a node and all below it, the deepest first. Return their number."""
    paths = [found async for found, _ in walk(znodes, path)]
    for batch in _divided(paths[::-1]):
        await _all_or_each(znodes, [MultiDelete(one) for one in batch])
    return len(paths)


async def _all_or_each(znodes: Znodes, operations: Sequence[Operation]) -> None:
    """Do the operations with one request, or one by one if some of them cannot or need not be done."""
    if isinstance(await znodes.multi(operations), Done):
        return
    for one in operations:
        answer = await znodes.multi([one])
        if isinstance(answer, Unknown):
            # Once more: the second answer tells whether the first request was done.
            answer = await znodes.multi([one])
        is_done = isinstance(answer, Done) or (
            isinstance(answer, Rejected) and isinstance(answer.reason, Exists | Gone)
        )
        if not is_done:
            raise MetadataConflict(one.path, f"{type(one).__name__.lower()}: {answer}")


def _divided(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    return (paths[first : first + _BATCH] for first in range(0, len(paths), _BATCH))


# ── all nodes ─────────────────────────────────────────────────────────────────────────────────────────────


async def walk(znodes: Znodes, root: str) -> AsyncIterator[tuple[str, Node]]:
    """Yield every node from the root down, each after its parent. A node that goes meanwhile is left out."""
    level = [root]
    while level:
        below: list[str] = []
        for batch in _divided(level):
            nodes = await znodes.get_all(batch)
            parents = [
                (path, node) for path, node in zip(batch, nodes, strict=True) if isinstance(node, Node)
            ]
            for path, node in parents:
                yield path, node
            # Most nodes are ledgers, and have no children: they are not asked for them.
            inner = [path for path, node in parents if node.stat.children_count]
            for path, children in zip(inner, await znodes.children_of_all(inner), strict=True):
                if not isinstance(children, Gone):
                    below += [f"{path}/{name}" for name in children.names]
        level = below


# ── backup and restore ────────────────────────────────────────────────────────────────────────────────────

_FORMAT, _VERSION = "ledgerstore-metadata", 1


@dataclass(frozen=True, slots=True)
class SavedNode:
    """A node of a backup. `path` is relative to the root, and empty for the root itself."""

    path: str
    data: bytes
    next_sequence: int = 0


async def save(znodes: Znodes, root: str) -> AsyncIterator[SavedNode]:
    """Yield every persistent node of a cluster, each after its parent."""
    await znodes.sync(root)
    found = False
    async for path, node in walk(znodes, root):
        found = True
        if not node.stat.is_ephemeral:
            relative = path.removeprefix(root)
            yield SavedNode(relative, node.data, node.stat.next_sequence if _counts(relative) else 0)
    if not found:
        raise NoSuchCluster(root)


def _counts(path: str) -> bool:
    """Return whether ledger ids come from the children of this node."""
    top = path.strip("/").partition("/")[0]
    return top == ID_GENERATOR or (top == LONG_ID_GENERATOR and path.count("/") == 2)


async def check_stopped(znodes: Znodes, root: str) -> None:
    """Raise `BookiesRegistered` if the cluster is in use, because a copy would not be of one moment."""
    bookies = await read_bookies(znodes, root)
    if bookies.all:
        raise BookiesRegistered(root, tuple(sorted(bookies.all)))


async def restore(znodes: Znodes, root: str, nodes: Iterable[SavedNode]) -> int:
    """Make a cluster of saved nodes. Return their number. Raise `ClusterExists` if the root is there.

    The instance id comes last, so that no bookie starts with a part of the cluster.
    """
    if not isinstance(await znodes.exists(root), Gone):
        raise ClusterExists(root)
    parent = root.rpartition("/")[0]
    if parent:
        await create_node(znodes, parent)
    count, last = 0, []
    for batch in _batches(nodes):
        kept = [one for one in batch if one.path != f"/{INSTANCE_ID}"]
        last += [one for one in batch if one.path == f"/{INSTANCE_ID}"]
        await _all_or_each(znodes, [MultiCreate(root + one.path, one.data) for one in kept])
        for one in kept:
            await _count_up(znodes, root + one.path, one.next_sequence)
        count += len(batch)
    await _all_or_each(znodes, [MultiCreate(root + one.path, one.data) for one in last])
    return count


def _batches(nodes: Iterable[SavedNode]) -> Iterator[list[SavedNode]]:
    batch: list[SavedNode] = []
    size = 0
    for one in nodes:
        if batch and (len(batch) == _BATCH or size + len(one.data) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one.data)
    if batch:
        yield batch


async def _count_up(znodes: Znodes, path: str, wanted: int) -> None:
    """Create and delete children until the next sequential one gets the number `wanted`."""
    while wanted:
        stat = await znodes.exists(path)
        missing = 0 if isinstance(stat, Gone) else wanted - stat.next_sequence
        if missing <= 0:
            return
        pairs: list[Operation] = []
        for _ in range(min(missing, _BATCH)):
            pairs += (MultiCreate(f"{path}/restoring"), MultiDelete(f"{path}/restoring"))
        answer = await znodes.multi(pairs)
        if isinstance(answer, Rejected):
            raise MetadataConflict(path, f"another client uses the node: {answer}")


def encode_backup(root: str, nodes: Iterable[SavedNode]) -> Iterator[bytes]:
    """Yield the lines of a backup."""
    line = _line({"format": _FORMAT, "version": _VERSION, "root": root})
    checksum, count = crc32c(line), 0
    yield line
    for one in nodes:
        data = b64encode(one.data).decode()
        line = _line({"path": one.path, "data": data, "sequence": one.next_sequence})
        checksum, count = crc32c(line, checksum), count + 1
        yield line
    yield _line({"nodes": count, "crc32c": f"{checksum:08x}"})


def decode_backup(name: str, lines: Iterable[bytes]) -> Iterator[SavedNode]:
    """Yield the nodes of a backup. Raise `InvalidMetadata` with the file's name and line if it is damaged.

    Only at the end it is known whether the backup is whole.
    """
    checksum, count = 0, 0
    number, end = 0, None
    for number, line in enumerate(lines, 1):
        fields = _fields(name, number, line)
        if end is not None:
            raise InvalidMetadata(f"{name}:{number}", "a line after the last one")
        if number == 1:
            _check_head(name, fields)
        elif "nodes" in fields:
            end = (fields["nodes"], fields.get("crc32c"))
            continue
        else:
            yield _saved_node(name, number, fields)
            count += 1
        checksum = crc32c(line, checksum)
    if end is None:
        raise InvalidMetadata(f"{name}:{number}", "the backup is cut off: its last line is missing")
    if end != (count, f"{checksum:08x}"):
        raise InvalidMetadata(f"{name}:{number}", "the checksum or the number of nodes does not match")


def _line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _fields(name: str, number: int, line: bytes) -> dict[str, object]:
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise InvalidMetadata(f"{name}:{number}", "not a line of a backup")
    return fields


def _check_head(name: str, fields: dict[str, object]) -> None:
    if fields.get("format") != _FORMAT:
        raise InvalidMetadata(f"{name}:1", "not a backup of metadata")
    if fields.get("version") != _VERSION:
        raise InvalidMetadata(f"{name}:1", f"version {fields.get('version')}; this program knows {_VERSION}")


def _saved_node(name: str, number: int, fields: dict[str, object]) -> SavedNode:
    match fields:
        case {"path": str(path), "data": str(data), "sequence": int(sequence)} if sequence >= 0:
            try:
                return SavedNode(path, b64decode(data, validate=True), sequence)
            except ValueError:
                pass
    raise InvalidMetadata(f"{name}:{number}", "not a node of a backup")

"""The port to the metadata over a tree of nodes, without servers in between.

A session says how a write reaches the tree and which tree its reads see. The rest of the port, from the nodes
of the tree to the answers that production code gets, is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from storage.cluster.metadata.znodes import (
    ANY_VERSION,
    ChildNames,
    Conflict,
    Created,
    CreateMode,
    Deleted,
    Done,
    Exists,
    Gone,
    MultiCheck,
    MultiCreate,
    MultiDelete,
    MultiSet,
    Node,
    NodeStat,
    NoParent,
    NotEmpty,
    Rejected,
    Unknown,
    Written,
)
from storage.cluster.zookeeper.records import (
    OPEN_ACL,
    Create,
    ErrorCode,
    Multi,
    OpCode,
    PathAndVersion,
    SetData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.cluster.metadata.znodes import (
        CreateAnswer,
        DeleteAnswer,
        MultiAnswer,
        Operation,
        SetAnswer,
    )
    from storage.cluster.zookeeper.tree import ZnodeTree

_T = TypeVar("_T")


class TreeSession:
    """A session with servers that keep one tree."""

    async def _written(self, opcode: OpCode, request: Any) -> tuple[int, Any] | Unknown:
        """Change the tree. Return the error code and the response, or that the answer was lost."""
        raise NotImplementedError

    async def _looked(self, look: Callable[[ZnodeTree], _T]) -> _T:
        """Return what the tree shows to this session now."""
        raise NotImplementedError

    # ── writes ────────────────────────────────────────────────────────────────────────────────────────────

    async def create(
        self, path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT
    ) -> CreateAnswer:
        answer = await self._written(OpCode.CREATE, Create(path, data, OPEN_ACL, mode.value))
        if isinstance(answer, Unknown):
            return answer
        code, response = answer
        return Created(response.path) if code == ErrorCode.OK else _NOT_CREATED[code]

    async def delete(self, path: str, version: int = ANY_VERSION) -> DeleteAnswer:
        answer = await self._written(OpCode.DELETE, PathAndVersion(path, version))
        return answer if isinstance(answer, Unknown) else _DELETED[answer[0]]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> SetAnswer:
        answer = await self._written(OpCode.SET_DATA, SetData(path, data, version))
        return answer if isinstance(answer, Unknown) else set_answer(answer)

    async def multi(self, operations: Sequence[Operation]) -> MultiAnswer:
        answer = await self._written(OpCode.MULTI, Multi(tuple(map(_part, operations))))
        if isinstance(answer, Unknown):
            return answer
        for index, (opcode, record) in enumerate(answer[1].parts):
            if opcode == OpCode.ERROR and record.error not in (0, ErrorCode.RUNTIME_INCONSISTENCY):
                is_create = isinstance(operations[index], MultiCreate)
                return Rejected(index, (_NOT_CREATED if is_create else _NOT_CHANGED)[record.error])
        return Done()

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, path: str) -> Node | Gone:
        return await self._looked(lambda tree: node_at(tree, path))

    async def get_all(self, paths: Sequence[str]) -> Sequence[Node | Gone]:
        return await self._looked(lambda tree: [node_at(tree, path) for path in paths])

    async def exists(self, path: str) -> NodeStat | Gone:
        node = await self.get(path)
        return node if isinstance(node, Gone) else node.stat

    async def children(self, path: str) -> ChildNames | Gone:
        return await self._looked(lambda tree: children_at(tree, path))

    async def children_of_all(self, paths: Sequence[str]) -> Sequence[ChildNames | Gone]:
        return await self._looked(lambda tree: [children_at(tree, path) for path in paths])


# ── the tree as the port shows it ─────────────────────────────────────────────────────────────────────────


def node_at(tree: ZnodeTree, path: str) -> Node | Gone:
    """Return a node."""
    found = tree.nodes.get(path)
    return Gone() if found is None else Node(found.data or b"", NodeStat(*tree.stat(path, found)))


def children_at(tree: ZnodeTree, path: str) -> ChildNames | Gone:
    """Return the children of a node."""
    found = tree.nodes.get(path)
    if found is None:
        return Gone()
    return ChildNames(tuple(sorted(tree.children(path))), NodeStat(*tree.stat(path, found)))


def set_answer(answer: tuple[int, Any]) -> Written | Gone | Conflict:
    """Return the answer to a write of data."""
    code, response = answer
    if code == ErrorCode.OK:
        return Written(response.stat.version)
    return Gone() if code == ErrorCode.NO_NODE else Conflict()


_NOT_CREATED: dict[int, Exists | NoParent] = {
    ErrorCode.NODE_EXISTS: Exists(),
    ErrorCode.NO_NODE: NoParent(),
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: NoParent(),
}
_NOT_CHANGED: dict[int, Gone | Conflict | NotEmpty] = {
    ErrorCode.NO_NODE: Gone(),
    ErrorCode.BAD_VERSION: Conflict(),
    ErrorCode.NOT_EMPTY: NotEmpty(),
}
_DELETED: dict[int, Deleted | Gone | Conflict | NotEmpty] = {ErrorCode.OK: Deleted(), **_NOT_CHANGED}


def _part(operation: Operation) -> tuple[OpCode, Any]:
    match operation:
        case MultiCreate(path, data, mode):
            return OpCode.CREATE, Create(path, data, OPEN_ACL, mode.value)
        case MultiDelete(path, version):
            return OpCode.DELETE, PathAndVersion(path, version)
        case MultiSet(path, data, version):
            return OpCode.SET_DATA, SetData(path, data, version)
        case MultiCheck(path, version):
            return OpCode.CHECK, PathAndVersion(path, version)

"""The port to ZooKeeper: few operations, with a value for each result that a call can have.

A *write* is `create`, `delete`, `set` or `multi`. It answers with a value: what was done, why it was not
done, or `Unknown` if the connection was lost before the answer came. Then the write may have happened or
not, and may even happen later; the caller reads and decides by the content. Nothing is repeated below this
port.

A *read* is everything else. It may be repeated, so it has no `Unknown`: it raises `MetadataUnavailable` if
the connection was lost. A write raises it if it was certainly not sent. Every call ends exactly once.

After the session has expired every call raises `SessionExpired`; a write that was under way at that moment
answers `Unknown`.

Writes and reads of one caller take effect in the order of their calls, as in ZooKeeper.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

ANY_VERSION = -1
"""The version for a write that ignores the version of the node."""


class CreateMode(enum.Enum):
    PERSISTENT = 0
    EPHEMERAL = 1
    """Deleted when the session ends."""
    PERSISTENT_SEQUENTIAL = 2
    """The server appends ten digits, which grow with every child that the parent ever had."""
    EPHEMERAL_SEQUENTIAL = 3


@dataclass(frozen=True, slots=True)
class NodeStat:
    """The stat of a node: the numbers that the server keeps besides its data."""

    created_zxid: int
    modified_zxid: int
    created_ms: int
    modified_ms: int
    version: int
    children_version: int
    acl_version: int
    ephemeral_owner: int
    """Number of the session whose end deletes the node; 0 for a persistent node."""
    data_length: int
    children_count: int
    children_zxid: int

    @property
    def is_ephemeral(self) -> bool:
        return self.ephemeral_owner != 0

    @property
    def next_sequence(self) -> int:
        """The number of the next sequential child.

        It is the count of all children ever made. The server counts creates and deletes together.
        """
        return (self.children_version + self.children_count) // 2


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Node:
    """The data of a node."""

    data: bytes
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class ChildNames:
    """The names of a node's children, in ascending order."""

    names: tuple[str, ...]
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no such node."""


@dataclass(frozen=True, slots=True)
class Created:
    """The node was created. `path` ends with the sequence number if there is one."""

    path: str


@dataclass(frozen=True, slots=True)
class Exists:
    """A node of this path was there already."""


@dataclass(frozen=True, slots=True)
class NoParent:
    """The parent is missing, or is ephemeral and may have no children."""


@dataclass(frozen=True, slots=True)
class Written:
    """The data was replaced."""

    version: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The node was deleted."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The node has another version than the caller named."""


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """The node has children, so it was not deleted."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The answer was lost. The write may have happened, or may still happen."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """All operations of a multi were done."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """No operation of a multi was done, because of the operation of this number."""

    index: int
    reason: Exists | NoParent | Gone | Conflict | NotEmpty


CreateAnswer = Created | Exists | NoParent | Unknown
DeleteAnswer = Deleted | Gone | Conflict | NotEmpty | Unknown
SetAnswer = Written | Gone | Conflict | Unknown
MultiAnswer = Done | Rejected | Unknown


# ── operations of a multi ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class MultiCreate:
    path: str
    data: bytes = b""
    mode: CreateMode = CreateMode.PERSISTENT


@dataclass(frozen=True, slots=True)
class MultiDelete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class MultiSet:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class MultiCheck:
    """The whole multi is rejected unless the node has this version."""

    path: str
    version: int


Operation = MultiCreate | MultiDelete | MultiSet | MultiCheck


# ── the port ──────────────────────────────────────────────────────────────────────────────────────────────

State_co = TypeVar("State_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The node did not change in the time given."""


class NodeWatch(Protocol[State_co]):
    """The state of one node, again and again.

    A change that is undone before it is looked at may not be seen. Watches are set again after the connection
    was lost, and a change that happened meanwhile is seen then.
    """

    async def next(self, timeout_s: float | None = None) -> State_co | Unchanged:
        """Return the present state the first time, and afterwards wait until it differs from the last answer.

        Wait at most `timeout_s`. Raise `SessionExpired` when the session is over.
        """
        ...

    def close(self) -> None:
        """Look at the node no longer."""
        ...


class Znodes(Protocol):
    """A session with ZooKeeper."""

    @property
    def session_id(self) -> int:
        """The number of the session: `ephemeral_owner` of the ephemeral nodes that it has created."""
        ...

    async def create(
        self, path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT
    ) -> CreateAnswer: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> DeleteAnswer: ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> SetAnswer: ...

    async def multi(self, operations: Sequence[Operation]) -> MultiAnswer:
        """Do all operations in their order, or none of them."""
        ...

    async def get(self, path: str) -> Node | Gone: ...

    async def get_all(self, paths: Sequence[str]) -> Sequence[Node | Gone]:
        """Return the nodes in the order of their paths. Many requests are under way at the same time."""
        ...

    async def exists(self, path: str) -> NodeStat | Gone: ...

    async def children(self, path: str) -> ChildNames | Gone: ...

    async def children_of_all(self, paths: Sequence[str]) -> Sequence[ChildNames | Gone]:
        """Return the children of each node in the order of the paths, as `get_all` does."""
        ...

    async def sync(self, path: str) -> None:
        """Let the server that is asked catch up, so that the next read sees all writes before this call."""
        ...

    def watch(self, path: str) -> NodeWatch[Node | Gone]:
        """Follow the data of a node, which need not exist."""
        ...

    def watch_children(self, path: str) -> NodeWatch[ChildNames | Gone]:
        """Follow the names of a node's children."""
        ...

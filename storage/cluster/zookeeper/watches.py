"""The watches of all clients, and the events that each client gets.

ZooKeeper has two tables of watches. A watch on data, which exists and getData leave, is for a node's
creation, deletion and change. A watch on children is for its deletion and for changes of its list of
children. One that was left by a read is gone after one event; a persistent one stays, and is in both tables.
A persistent recursive one is in the table of data only, and also sees the events of all nodes below its path.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Generic, TypeVar

from storage.cluster.zookeeper.paths import parent_of
from storage.cluster.zookeeper.records import EventType

if TYPE_CHECKING:
    from storage.cluster.zookeeper.tree import NodeEvent

W = TypeVar("W")

STANDARD, PERSISTENT, RECURSIVE = 1, 2, 4
"""How long a watch lasts and what it sees. One client may have several of them for one path, as bits."""


class WatchKind(enum.IntEnum):
    """Which watches a client removes or asks for, with the numbers of the protocol."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class WatchMode(enum.IntEnum):
    """Which watch `addWatch` adds, with the numbers of the protocol."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class _WatchTable(Generic[W]):
    def __init__(self) -> None:
        self._by_path: dict[str, dict[W, int]] = {}
        self._by_client: dict[W, dict[str, None]] = {}
        self._recursive = 0

    @property
    def count(self) -> int:
        return sum(map(len, self._by_path.values()))

    def add(self, path: str, client: W, mode: int) -> None:
        clients = self._by_path.setdefault(path, {})
        modes = clients.get(client, 0)
        if mode & RECURSIVE and not modes & RECURSIVE:
            self._recursive += 1
        clients[client] = modes | mode
        self._by_client.setdefault(client, {})[path] = None

    def has(self, path: str, client: W, modes: int) -> bool:
        return bool(self._by_path.get(path, {}).get(client, 0) & modes)

    def remove(self, path: str, client: W, modes: int) -> bool:
        """Remove the watches of these modes; return whether there was one."""
        clients = self._by_path.get(path, {})
        before = clients.get(client, 0)
        if not before & modes:
            return False
        if before & modes & RECURSIVE:
            self._recursive -= 1
        if left := before & ~modes:
            clients[client] = left
            return True
        del clients[client]
        if not clients:
            del self._by_path[path]
        paths = self._by_client[client]
        del paths[path]
        if not paths:
            del self._by_client[client]
        return True

    def remove_client(self, client: W) -> None:
        for path in tuple(self._by_client.get(client, ())):
            self.remove(path, client, STANDARD | PERSISTENT | RECURSIVE)

    def trigger(self, path: str) -> list[W]:
        """Return the clients that watch the path. Their watches that last for one event are gone."""
        clients = self._by_path.get(path)
        if clients is None:
            found = []
        else:
            found = list(clients)
            for client in found:
                self.remove(path, client, STANDARD)
        if self._recursive:
            while path != "/":
                path = parent_of(path)
                above = self._by_path.get(path, {})
                found += [one for one, modes in above.items() if modes & RECURSIVE and one not in found]
        return found


class Watches(Generic[W]):
    """The watches of all clients. `W` is what the caller uses for a client."""

    def __init__(self) -> None:
        self._data: _WatchTable[W] = _WatchTable()
        self._children: _WatchTable[W] = _WatchTable()

    @property
    def count(self) -> int:
        return self._data.count + self._children.count

    def watch_data(self, path: str, client: W) -> None:
        self._data.add(path, client, STANDARD)

    def watch_children(self, path: str, client: W) -> None:
        self._children.add(path, client, STANDARD)

    def add(self, path: str, client: W, mode: WatchMode) -> None:
        """Add a watch that stays until it is removed."""
        if mode is WatchMode.PERSISTENT_RECURSIVE:
            self._data.add(path, client, RECURSIVE)
        else:
            self._data.add(path, client, PERSISTENT)
            self._children.add(path, client, PERSISTENT)

    def has(self, path: str, client: W, kind: WatchKind) -> bool:
        """Return whether the client has a watch of that kind."""
        return any(table.has(path, client, modes) for table, modes in self._tables(kind))

    def remove(self, path: str, client: W, kind: WatchKind) -> bool:
        """Remove the client's watches of that kind; return whether there was one."""
        removed = [table.remove(path, client, modes) for table, modes in self._tables(kind)]
        return any(removed)

    def _tables(self, kind: WatchKind) -> list[tuple[_WatchTable[W], int]]:
        match kind:
            case WatchKind.CHILDREN:
                return [(self._children, STANDARD)]
            case WatchKind.DATA:
                return [(self._data, STANDARD)]
            case WatchKind.PERSISTENT:
                return [(self._data, PERSISTENT), (self._children, PERSISTENT)]
            case WatchKind.PERSISTENT_RECURSIVE:
                return [(self._data, RECURSIVE)]
            case WatchKind.ANY:
                modes = STANDARD | PERSISTENT | RECURSIVE
                return [(self._data, modes), (self._children, modes)]

    def remove_client(self, client: W) -> None:
        """Forget the client, whose connection is closed."""
        self._data.remove_client(client)
        self._children.remove_client(client)

    def trigger(self, event: NodeEvent) -> list[W]:
        """Return the clients that are told of the event, each once."""
        path = event.path
        if event.type is EventType.CHILDREN_CHANGED:
            return self._children.trigger(path)
        found = self._data.trigger(path)
        if event.type is EventType.DELETED:
            found += [client for client in self._children.trigger(path) if client not in found]
        return found

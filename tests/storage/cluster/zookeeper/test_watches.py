"""Which client is told of what: one-shot, persistent and recursive watches, in ZooKeeper's two tables."""

from __future__ import annotations

import pytest

from storage.cluster.zookeeper.records import EventType
from storage.cluster.zookeeper.tree import NodeEvent
from storage.cluster.zookeeper.watches import Watches, WatchKind, WatchMode

CREATED, DELETED, CHANGED, CHILDREN = (
    EventType.CREATED,
    EventType.DELETED,
    EventType.DATA_CHANGED,
    EventType.CHILDREN_CHANGED,
)


def told(watches: Watches[str], kind: EventType, path: str = "/a") -> list[str]:
    return sorted(watches.trigger(NodeEvent(kind, path)))


@pytest.mark.parametrize("kind", [CREATED, DELETED, CHANGED])
def test_a_watch_on_data_is_told_of_one_event(kind: EventType) -> None:
    watches: Watches[str] = Watches()
    watches.watch_data("/a", "client")
    assert told(watches, CHILDREN) == []
    assert told(watches, kind) == ["client"]
    assert told(watches, kind) == []
    assert watches.count == 0


@pytest.mark.parametrize("kind", [CHILDREN, DELETED])
def test_a_watch_on_children_is_told_of_one_event(kind: EventType) -> None:
    watches: Watches[str] = Watches()
    watches.watch_children("/a", "client")
    assert told(watches, CHANGED) == told(watches, CREATED) == []
    assert told(watches, kind) == ["client"]
    assert told(watches, kind) == []


def test_a_deletion_is_told_once_to_a_client_that_watches_data_and_children() -> None:
    watches: Watches[str] = Watches()
    watches.watch_data("/a", "client")
    watches.watch_children("/a", "client")
    assert told(watches, DELETED) == ["client"]
    assert watches.count == 0


def test_a_persistent_watch_stays_and_is_told_of_every_kind() -> None:
    watches: Watches[str] = Watches()
    watches.add("/a", "client", WatchMode.PERSISTENT)
    for kind in (CREATED, CHANGED, CHILDREN, DELETED, CREATED):
        assert told(watches, kind) == ["client"]
    assert told(watches, CHANGED, "/a/b") == []


def test_a_recursive_watch_is_told_of_everything_below_but_not_of_lists_of_children() -> None:
    watches: Watches[str] = Watches()
    watches.add("/a", "client", WatchMode.PERSISTENT_RECURSIVE)
    assert told(watches, CREATED, "/a/b/c") == told(watches, CHANGED, "/a") == ["client"]
    assert told(watches, CHILDREN, "/a") == told(watches, CREATED, "/ab") == []


def test_a_recursive_watch_on_the_root_is_told_of_all_nodes() -> None:
    watches: Watches[str] = Watches()
    watches.add("/", "client", WatchMode.PERSISTENT_RECURSIVE)
    assert told(watches, DELETED, "/a/b") == ["client"]


def test_one_client_with_two_watches_is_told_once_and_keeps_the_persistent_one() -> None:
    watches: Watches[str] = Watches()
    watches.watch_data("/a", "client")
    watches.add("/a", "client", WatchMode.PERSISTENT_RECURSIVE)
    watches.add("/", "client", WatchMode.PERSISTENT_RECURSIVE)
    assert told(watches, CHANGED) == ["client"]
    assert watches.has("/a", "client", WatchKind.PERSISTENT_RECURSIVE)
    assert not watches.has("/a", "client", WatchKind.DATA)


@pytest.mark.parametrize("kind", WatchKind)
def test_a_watch_of_each_kind_is_found_and_removed_once(kind: WatchKind) -> None:
    watches: Watches[str] = Watches()
    match kind:
        case WatchKind.CHILDREN | WatchKind.ANY:
            watches.watch_children("/a", "client")
        case WatchKind.DATA:
            watches.watch_data("/a", "client")
        case WatchKind.PERSISTENT:
            watches.add("/a", "client", WatchMode.PERSISTENT)
        case WatchKind.PERSISTENT_RECURSIVE:
            watches.add("/a", "client", WatchMode.PERSISTENT_RECURSIVE)
    watches.watch_data("/a", "other")
    assert watches.has("/a", "client", kind)
    assert watches.remove("/a", "client", kind)
    assert not watches.has("/a", "client", kind)
    assert not watches.remove("/a", "client", kind)
    assert told(watches, CHANGED) == ["other"]


def test_the_watches_of_a_client_that_is_gone_are_gone() -> None:
    watches: Watches[str] = Watches()
    watches.watch_data("/a", "client")
    watches.add("/", "client", WatchMode.PERSISTENT_RECURSIVE)
    watches.watch_children("/a", "other")
    watches.remove_client("client")
    assert told(watches, DELETED) == ["other"]
    assert watches.count == 0

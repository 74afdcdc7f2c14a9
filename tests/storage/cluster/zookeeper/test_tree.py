"""The znodes: what each change does to stats, names and versions, and that a refused one does nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from storage.cluster.zookeeper.paths import is_valid
from storage.cluster.zookeeper.records import (
    OPEN_ACL,
    Acl,
    Create,
    CreateSession,
    CreateTtl,
    ErrorCode,
    ErrorOnly,
    EventType,
    Multi,
    OpCode,
    PathAndStat,
    PathAndVersion,
    PathOnly,
    SetAcl,
    SetData,
    Stat,
)
from storage.cluster.zookeeper.tree import NodeEvent, Outcome, ZnodeTree, new_tree

SESSION = 0x51


class Changes:
    """Makes changes of a tree, each with the next zxid and a later time."""

    def __init__(self) -> None:
        self.tree = new_tree()
        self.time_ms = 1000

    def make(self, opcode: int, request: tuple[Any, ...], session_id: int = SESSION) -> Outcome:
        self.time_ms += 1
        return self.tree.apply(self.tree.zxid + 1, self.time_ms, session_id, opcode, request)

    def create(self, path: str, data: bytes | None = b"", flags: int = 0) -> Outcome:
        return self.make(OpCode.CREATE, Create(path, data, OPEN_ACL, flags))

    def name(self, path: str, flags: int) -> str:
        response = self.create(path, flags=flags).response
        assert isinstance(response, PathOnly)
        return response.path

    def delete(self, path: str, version: int = -1) -> Outcome:
        return self.make(OpCode.DELETE, PathAndVersion(path, version))

    def set(self, path: str, data: bytes, version: int = -1) -> Outcome:
        return self.make(OpCode.SET_DATA, SetData(path, data, version))

    def stat(self, path: str) -> Stat:
        return self.tree.stat(path, self.tree.nodes[path])


def contents(tree: ZnodeTree) -> tuple[object, ...]:
    """Return everything that a tree holds, without the order of children."""
    children = {path: sorted(tree.children(path)) for path in tree.nodes}
    owners = {node.owner for node in tree.nodes.values()}
    ephemerals = {owner: sorted(tree.ephemerals(owner)) for owner in owners}
    return tree.zxid, dict(tree.nodes), dict(tree.sessions), children, ephemerals, tree.data_size


def test_a_stat_is_that_of_zookeeper_field_by_field() -> None:
    changes = Changes()
    changes.create("/a", b"data")
    changes.create("/a/b")
    changes.create("/a/c", flags=1)
    changes.delete("/a/b")
    changes.set("/a", b"longer data")
    assert changes.stat("/a") == Stat(1, 5, 1001, 1005, 1, 3, 0, 0, 11, 1, 4)
    assert changes.stat("/a/c") == Stat(3, 3, 1003, 1003, 0, 0, 0, SESSION, 0, 0, 3)


def test_a_new_tree_has_the_nodes_of_a_new_zookeeper() -> None:
    changes = Changes()
    assert changes.tree.children("/") == ("zookeeper",)
    assert changes.stat("/") == Stat(0, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0)
    assert changes.stat("/zookeeper") == Stat(0, 0, 0, 0, 0, -2, 0, 0, 0, 2, 0)


def test_sequence_numbers_count_all_children_that_were_ever_created() -> None:
    changes = Changes()
    changes.create("/q")
    assert changes.name("/q/n-", 2) == "/q/n-0000000000"
    changes.create("/q/other")
    changes.delete("/q/n-0000000000")
    assert changes.name("/q/n-", 3) == "/q/n-0000000002"
    assert changes.name("/q/", 2) == "/q/0000000003"


def test_a_count_of_children_wraps_around_as_a_signed_integer() -> None:
    changes = Changes()
    changes.create("/q")
    changes.tree.nodes["/q"] = changes.tree.nodes["/q"]._replace(created=(1 << 31) - 1)
    assert changes.name("/q/n", 2) == "/q/n2147483647"
    assert changes.name("/q/n", 2) == "/q/n-2147483648"
    assert changes.stat("/q").cversion == 2 * (1 - (1 << 31)) + (1 << 32) - 2


def test_a_version_is_never_minus_one() -> None:
    changes = Changes()
    changes.create("/a")
    changes.tree.nodes["/a"] = changes.tree.nodes["/a"]._replace(version=-2)
    changes.set("/a", b"")
    assert changes.stat("/a").version == 0


@pytest.mark.parametrize(
    ("opcode", "request_", "error"),
    [
        (OpCode.CREATE, Create("/a", b"", OPEN_ACL), ErrorCode.NODE_EXISTS),
        (OpCode.CREATE, Create("/no/child", b"", OPEN_ACL), ErrorCode.NO_NODE),
        (OpCode.CREATE, Create("/mine/child", b"", OPEN_ACL), ErrorCode.NO_CHILDREN_FOR_EPHEMERALS),
        (OpCode.CREATE, Create("no slash", b"", OPEN_ACL), ErrorCode.BAD_ARGUMENTS),
        (OpCode.CREATE, Create("/a/../b", b"", OPEN_ACL), ErrorCode.NO_NODE),
        (OpCode.CREATE, Create("/a/..", b"", OPEN_ACL), ErrorCode.BAD_ARGUMENTS),
        (OpCode.CREATE, Create("/x", b"", OPEN_ACL, 7), ErrorCode.BAD_ARGUMENTS),
        (OpCode.CREATE, Create("/x", b"", OPEN_ACL, 5), ErrorCode.BAD_ARGUMENTS),
        (OpCode.CREATE, Create("/x", b"", ()), ErrorCode.INVALID_ACL),
        (OpCode.CREATE, Create("/x", b"", (Acl(31, "digest", "a:b"),)), ErrorCode.INVALID_ACL),
        (OpCode.CREATE, Create("/closed/x", b"", OPEN_ACL), ErrorCode.NO_AUTH),
        (OpCode.CREATE_TTL, CreateTtl("/x", b"", OPEN_ACL, 5, 0), ErrorCode.BAD_ARGUMENTS),
        (OpCode.CREATE_TTL, CreateTtl("/x", b"", OPEN_ACL, 0, 5), ErrorCode.BAD_ARGUMENTS),
        (OpCode.DELETE, PathAndVersion("/a", 0), ErrorCode.NOT_EMPTY),
        (OpCode.DELETE, PathAndVersion("/a", 1), ErrorCode.BAD_VERSION),
        (OpCode.DELETE, PathAndVersion("/no", -1), ErrorCode.NO_NODE),
        (OpCode.DELETE, PathAndVersion("/zookeeper", -1), ErrorCode.BAD_ARGUMENTS),
        (OpCode.DELETE, PathAndVersion("/", -1), ErrorCode.BAD_ARGUMENTS),
        (OpCode.SET_DATA, SetData("/a", b"", 4), ErrorCode.BAD_VERSION),
        (OpCode.SET_DATA, SetData("/no", b"", -1), ErrorCode.NO_NODE),
        (OpCode.SET_DATA, SetData("/a//b", b"", -1), ErrorCode.BAD_ARGUMENTS),
        (OpCode.SET_DATA, SetData("/closed", b"", -1), ErrorCode.NO_AUTH),
        (OpCode.SET_ACL, SetAcl("/a", OPEN_ACL, 1), ErrorCode.BAD_VERSION),
        (OpCode.CHECK, PathAndVersion("/a", 7), ErrorCode.BAD_VERSION),
    ],
)
def test_a_wrong_change_is_refused_with_the_error_of_zookeeper(
    opcode: OpCode, request_: tuple[Any, ...], error: ErrorCode
) -> None:
    changes = Changes()
    changes.create("/a")
    changes.create("/a/child")
    changes.create("/mine", flags=1)
    changes.make(OpCode.CREATE, Create("/closed", b"", (Acl(1, "world", "anyone"),)))
    before = contents(changes.tree)
    outcome = changes.make(opcode, request_)
    assert (outcome.error, outcome.events, outcome.is_applied) == (error, [], False)
    assert contents(changes.tree) == before


def test_containers_and_nodes_with_a_time_to_live_are_kept_as_persistent_nodes() -> None:
    changes = Changes()
    for opcode, request in (
        (OpCode.CREATE_CONTAINER, Create("/container", b"", OPEN_ACL, 4)),
        (OpCode.CREATE_TTL, CreateTtl("/ttl", b"", OPEN_ACL, 5, 1000)),
    ):
        response = changes.make(opcode, request).response
        assert isinstance(response, PathAndStat)
        assert response.stat.ephemeral_owner == 0
        assert changes.create(f"{request.path}/child").is_applied


def test_the_end_of_a_session_deletes_its_nodes_and_tells_of_each() -> None:
    changes = Changes()
    changes.make(OpCode.CREATE_SESSION, CreateSession(10_000, b"p" * 16))
    assert changes.tree.sessions[SESSION].timeout_ms == 10_000
    changes.create("/a")
    changes.create("/a/mine", flags=1)
    changes.make(OpCode.CREATE, Create("/theirs", b"", OPEN_ACL, 1), session_id=9)
    outcome = changes.make(OpCode.CLOSE_SESSION, ())
    assert outcome.events == [
        NodeEvent(EventType.DELETED, "/a/mine"),
        NodeEvent(EventType.CHILDREN_CHANGED, "/a"),
    ]
    assert changes.tree.sessions == {}
    assert "/theirs" in changes.tree.nodes
    assert changes.stat("/a").pzxid == changes.tree.zxid


def test_events_name_the_node_and_its_parent() -> None:
    changes = Changes()
    assert changes.create("/a").events == [
        NodeEvent(EventType.CREATED, "/a"),
        NodeEvent(EventType.CHILDREN_CHANGED, "/"),
    ]
    assert changes.set("/a", b"").events == [NodeEvent(EventType.DATA_CHANGED, "/a")]
    assert changes.delete("/a").events == [
        NodeEvent(EventType.DELETED, "/a"),
        NodeEvent(EventType.CHILDREN_CHANGED, "/"),
    ]


def test_a_multi_sees_its_own_changes_and_has_one_zxid() -> None:
    changes = Changes()
    outcome = changes.make(
        OpCode.MULTI,
        Multi(
            (
                (OpCode.CREATE, Create("/a", b"", OPEN_ACL)),
                (OpCode.CREATE, Create("/a/b", b"", OPEN_ACL)),
                (OpCode.CHECK, PathAndVersion("/a/b", 0)),
                (OpCode.DELETE, PathAndVersion("/a/b", 0)),
            )
        ),
    )
    assert outcome.is_applied
    assert changes.stat("/a") == Stat(1, 1, 1001, 1001, 0, 2, 0, 0, 0, 0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_multi_that_is_refused_leaves_no_trace_and_names_the_part(seed: int) -> None:
    dice, changes = Random(seed), Changes()
    for _ in range(40):
        parts = tuple(_random_change(dice) for _ in range(dice.randrange(1, 6)))
        before = contents(changes.tree)
        outcome = changes.make(OpCode.MULTI, Multi(parts))
        if outcome.is_applied:
            continue
        assert contents(changes.tree) == before
        assert isinstance(outcome.response, Multi)
        codes = [record[0] for _, record in outcome.response.parts if isinstance(record, ErrorOnly)]
        failed = next(at for at, code in enumerate(codes) if code)
        assert codes[failed] != ErrorCode.RUNTIME_INCONSISTENCY
        assert set(codes[failed + 1 :]) <= {ErrorCode.RUNTIME_INCONSISTENCY}
        assert len(codes) == len(parts)


def _random_change(dice: Random) -> tuple[int, tuple[Any, ...]]:
    path = dice.choice(["/a", "/b", "/a/x", "/a/y", "/b/x"])
    return dice.choice(
        [
            (
                OpCode.CREATE,
                Create(path, dice.choice([None, b"data"]), OPEN_ACL, dice.choice([0, 0, 1, 2])),
            ),
            (OpCode.DELETE, PathAndVersion(path, -1)),
            (OpCode.SET_DATA, SetData(path, b"changed", dice.choice([-1, 0]))),
        ]
    )


def test_an_unreadable_node_uses_up_its_watches_and_tells_nothing() -> None:
    changes = Changes()
    hidden = (Acl(2, "world", "anyone"),)
    outcome = changes.make(OpCode.CREATE, Create("/hidden", b"", hidden))
    assert [event.is_shown for event in outcome.events] == [False, True]


@pytest.mark.parametrize(
    "path", ["/", "/a", "/a/b", "/a b", "/ä", "/...", "/.a", "/a..", "/\ue000"[:1] + "x"]
)
def test_valid_paths(path: str) -> None:
    assert is_valid(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "/a/",
        "//",
        "/a//b",
        "/.",
        "/..",
        "/a/./b",
        "/a\n",
        "/\x00",
        "/\x7f",
        "/\ue000",
        "/\uffff",
        "/𝄞",
    ],
)
def test_paths_that_zookeeper_refuses(path: str) -> None:
    assert not is_valid(path)

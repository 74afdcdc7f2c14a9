"""The state file of a cluster, and what a request makes of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from recovery.local_cluster.state import (
    ClusterRequest,
    ClusterState,
    LocalClusterError,
    Member,
    ProcessKey,
    decode,
    encode,
    planned,
)

URI = "zk://127.0.0.1:2181/ledgers"
NEW = ClusterState(
    URI,
    (
        Member("metadata", 2181),
        Member("bookie-1", 3181),
        Member("bookie-2", 3182),
        Member("bookie-3", 3183),
    ),
)


def plan(state: ClusterState | None, **request: object) -> ClusterState:
    return planned(state, ClusterRequest(**request), count(50_000))  # type: ignore[arg-type]


def ports(state: ClusterState) -> list[int]:
    return [member.port for member in state.members]


def test_a_new_cluster_has_a_metadata_server_and_three_bookies() -> None:
    assert plan(None) == NEW


def test_given_ports_are_taken_and_zero_is_any_free_port() -> None:
    assert ports(plan(None, bookies=2, metadata_port=7, bookie_port=9)) == [7, 9, 10]
    assert ports(plan(None, bookies=2, metadata_port=0, bookie_port=0)) == [50_000, 50_001, 50_002]
    assert plan(None, metadata_port=0).uri == "zk://127.0.0.1:50000/ledgers"


@pytest.mark.parametrize("request_ports", [{"metadata_port": 3182}, {"bookie_port": 65534}])
def test_ports_that_two_would_have_or_that_do_not_exist_are_refused(request_ports: dict[str, int]) -> None:
    with pytest.raises(LocalClusterError, match="cannot be used"):
        plan(None, **request_ports)


def test_as_many_free_ports_are_reserved_as_a_request_can_need() -> None:
    for request in (
        ClusterRequest(),
        ClusterRequest(metadata_port=0),
        ClusterRequest(bookie_port=0),
        ClusterRequest(5, None, 0, 0),
    ):
        state = planned(None, request, iter(range(50_000, 50_000 + request.any_ports)))
        assert sum(port >= 50_000 for port in ports(state)) == request.any_ports


def test_a_cluster_that_joins_the_metadata_of_others_has_only_bookies() -> None:
    state = plan(None, uri="zk://elsewhere/ledgers", bookies=1)
    assert state == ClusterState("zk://elsewhere/ledgers", (Member("bookie-1", 3181),))
    assert not state.has_own_metadata


def test_a_second_request_keeps_what_was_decided_and_may_add_bookies() -> None:
    running = NEW.with_processes({"bookie-2": ProcessKey(7, "then")})
    assert plan(running) == plan(running, bookies=3, uri=URI, metadata_port=2181) == running
    assert plan(running, bookies=5).members == (
        *running.members,
        Member("bookie-4", 3184),
        Member("bookie-5", 3185),
    )
    assert ports(plan(running, bookies=4, bookie_port=0))[-1] == 50_000


@pytest.mark.parametrize(
    ("request_words", "reason"),
    [
        ({"bookies": 2}, "has 3 bookies, and none can be taken away"),
        ({"uri": "zk://elsewhere/ledgers"}, "the metadata of this cluster are at zk://127.0.0.1:2181"),
        ({"metadata_port": 2182}, "has port 2181"),
    ],
)
def test_a_request_that_contradicts_the_cluster_is_refused(
    request_words: dict[str, object], reason: str
) -> None:
    with pytest.raises(LocalClusterError, match=reason):
        plan(NEW, **request_words)


def test_a_member_is_named_by_its_number_or_name() -> None:
    assert NEW.member("2") == NEW.member("bookie-2") == NEW.members[2]
    assert NEW.member("metadata") == NEW.members[0]
    for word in ("4", "0", "bookie-02", "", "²"):
        with pytest.raises(LocalClusterError, match="metadata, bookie-1, bookie-2, bookie-3"):
            NEW.member(word)


def test_a_cluster_is_stopped_when_no_member_has_a_process() -> None:
    assert NEW.is_stopped
    assert not NEW.with_processes({"bookie-3": ProcessKey(7, "then")}).is_stopped


def test_a_bookie_that_is_lost_for_good_stays_so() -> None:
    lost = NEW.with_lost("bookie-2")
    assert [member.is_lost for member in lost.members] == [False, False, True, False]
    more = planned(lost, ClusterRequest(bookies=4), iter(()))
    assert [member.is_lost for member in more.members] == [False, False, True, False, False]


@pytest.mark.parametrize(
    "state", [NEW, NEW.with_processes({"metadata": ProcessKey(7, "then")}), NEW.with_lost("bookie-2")]
)
def test_the_state_file_gives_back_what_was_written(state: ClusterState) -> None:
    assert decode(encode(state)) == state
    joined = replace(state, members=state.bookies)
    assert decode(encode(joined)) == joined


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"format": 1', b'"format": 2'),
        (b'"bookie-2"', b'"bookie-4"'),
        (b'"metadata"', b'"../metadata"'),
        (b'"pid": 7', b'"pid": 0'),
        (b'"pid": 7', b'"pid": -1'),
        (b'"pid": 7', b'"pid": true'),
        (b'"started": "then"', b'"started": null'),
        (b'"port": 3182', b'"port": "x"'),
        (b'"uri": "zk', b'"url": "zk'),
        (b"}", b""),
    ],
)
def test_a_file_that_is_no_state_is_refused_with_a_reason(before: bytes, after: bytes) -> None:
    data = encode(NEW.with_processes({"bookie-1": ProcessKey(7, "then")}))
    assert before in data
    assert isinstance(decode(data.replace(before, after)), str)

"""One change of a topic's list: what a lost answer, and a write that takes place later, mean."""

from __future__ import annotations

import pytest

from storage.cluster.errors import MetadataUnavailable, OutcomeUnknown
from storage.cluster.metadata.znodes import Conflict, Created, Exists, Gone, Node, NodeStat, Unknown, Written
from storage.cluster.topics.errors import TopicFenced
from storage.cluster.topics.list_change import ListChange, ReadList, WriteList

LOST = Unknown("lost")


def node(data: bytes, version: int) -> Node:
    return Node(data, NodeStat(0, 0, 0, 0, version, 0, 0, 0, 0, 0, 0))


def begun_change(known: bytes = b"before") -> ListChange:
    """Return a change whose write is under way."""
    change = ListChange("a topic", b"wanted", 4, known)
    assert change.begin() == [ReadList()]
    assert change.read(node(known, 4)) == [WriteList(b"wanted", 4)]
    return change


def lost_change(known: bytes = b"before") -> ListChange:
    """Return a change whose first write has no answer."""
    change = begun_change(known)
    assert change.written(LOST) == [ReadList()]
    return change


def test_a_write_that_is_answered_is_done() -> None:
    change = begun_change()
    assert change.written(Written(5)) == []
    assert change.result == 5


def test_a_new_list_is_created() -> None:
    change = ListChange("a topic", b"wanted", None)
    assert change.begin() == [WriteList(b"wanted", None)]
    change.written(Created("/path"))
    assert change.result == 0


@pytest.mark.parametrize("answer", [Conflict(), Exists(), Gone()])
def test_a_list_that_another_owner_has_written_ends_the_change(answer: Conflict | Exists | Gone) -> None:
    change = begun_change()
    assert change.written(answer) == []
    assert isinstance(change.result, TopicFenced)


@pytest.mark.parametrize("found", [node(b"another", 4), node(b"before", 5), node(b"wanted", 5), Gone()])
def test_a_list_that_is_not_the_known_one_is_not_written(found: Node | Gone) -> None:
    """A topic that was deleted and made again has the same versions, and other ledgers."""
    change = ListChange("a topic", b"wanted", 4, b"before")
    change.begin()
    assert change.read(found) == []
    assert isinstance(change.result, TopicFenced)


def test_nothing_is_written_before_the_known_list_was_read() -> None:
    change = ListChange("a topic", b"wanted", 4, b"before")
    effects = change.begin()
    while effects:
        assert effects == [ReadList()]
        effects = change.read(LOST)
    assert isinstance(change.result, MetadataUnavailable)


def test_a_lost_write_that_took_place_is_known_by_its_content() -> None:
    change = lost_change()
    assert change.read(node(b"wanted", 5)) == []
    assert change.result == 5


def test_a_lost_write_that_did_not_take_place_is_made_again() -> None:
    change = lost_change()
    assert change.read(node(b"before", 4)) == [WriteList(b"wanted", 4)]
    change.written(Written(5))
    assert change.result == 5


def test_a_lost_write_that_takes_place_after_the_read_is_still_this_owners() -> None:
    change = lost_change()
    change.read(node(b"before", 4))
    assert change.written(Conflict()) == [ReadList()]
    change.read(node(b"wanted", 5))
    assert change.result == 5


@pytest.mark.parametrize("found", [node(b"another", 4), node(b"another", 5), node(b"another", 6), Gone()])
def test_another_content_after_a_lost_write_is_that_of_another_owner(found: Node | Gone) -> None:
    change = lost_change()
    assert change.read(found) == []
    assert isinstance(change.result, TopicFenced)


def test_the_same_content_with_the_old_version_was_not_written_by_this_change() -> None:
    change = lost_change(b"wanted")
    assert change.read(node(b"wanted", 4)) == [WriteList(b"wanted", 4)]


def test_a_lost_create_is_made_again_if_there_is_no_node() -> None:
    change = ListChange("a topic", b"wanted", None)
    change.begin()
    assert change.written(LOST) == [ReadList()]
    assert change.read(Gone()) == [WriteList(b"wanted", None)]
    assert change.written(Exists()) == [ReadList()]
    change.read(node(b"wanted", 0))
    assert change.result == 0


def test_a_change_gives_up_if_the_metadata_never_answer() -> None:
    change = lost_change()
    reads = 0
    while change.result is None:
        reads += 1
        change.read(LOST)
    assert isinstance(change.result, OutcomeUnknown)
    assert reads < 40

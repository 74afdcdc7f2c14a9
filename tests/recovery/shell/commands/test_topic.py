"""`ledgerstore topic`: what it writes, shows and refuses, on a cluster of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_in_a_thread import cluster_in_a_thread
from shell_samples import rows, run, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUORUMS = ("--quorums", "1/1/1")


@pytest.fixture(scope="module", params=["cluster", "store"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("topics")
    if request.param == "store":
        yield str(path)
        return
    with cluster_in_a_thread(path, 1) as address:
        yield address


def produced(place: str, name: str, *arguments: str) -> list[str]:
    """Write messages, and return their ids."""
    return [row["id"] for row in rows("topic", "produce", place, name, *arguments, *QUORUMS)]


def payloads(place: str, name: str, *arguments: str) -> list[str]:
    return [row["payload"] for row in rows("topic", "read", place, name, *arguments)]


def test_messages_are_written_and_read_with_their_ids_keys_and_properties(place: str) -> None:
    ids = produced(place, "written", "one", "two", "--key", "k", "--property", "a=b")
    found = rows("topic", "read", place, "written")
    assert [row["id"] for row in found] == ids
    assert [row["payload"] for row in found] == ["one", "two"]
    assert {(row["key"], row["properties"], row["size"]) for row in found} == {("k", "a=b", 3)}
    assert payloads(place, "written", "--after", ids[0]) == ["two"]
    assert payloads(place, "written", "--from", ids[1]) == ["two"]
    assert payloads(place, "written", "--from", "latest") == []
    assert payloads(place, "written", "--since", "2001-01-01", "--limit", "1") == ["one"]
    assert payloads(place, "written", "--payload", "hex") == [b"one".hex(), b"two".hex()]
    table = run("topic", "read", place, "written")
    assert "one" in table.stdout
    assert verdict(table) == "topic read: 2 messages of persistent://public/default/written"


def test_a_batch_is_one_entry_also_compressed(place: str) -> None:
    ids = produced(place, "batch", "a", "b", "c", "--batch", "3", "--compression", "zlib")
    assert [one.rpartition(":")[2] for one in ids] == ["0", "1", "2"]
    assert len({one.rpartition(":")[0] for one in ids}) == 1
    assert payloads(place, "batch", "--after", ids[0]) == ["b", "c"]


def test_a_subscription_goes_on_where_it_was(place: str) -> None:
    produced(place, "consumed", *"abcd")
    arguments = ("topic", "subscribe", place, "consumed", "s", "--from", "earliest", *QUORUMS)
    assert [row["payload"] for row in rows(*arguments, "--limit", "3")] == ["a", "b", "c"]
    (subscription,) = [
        row for row in rows("topic", "stats", place, "consumed") if row["kind"] == "subscription"
    ]
    assert (subscription["name"], subscription["entries"]) == ("s", 1)
    assert [row["payload"] for row in rows(*arguments, "--wait", "0.2")] == ["d"]
    assert run("topic", "delete", place, "consumed", "--subscription", "s").exit_code == 0
    again = run("topic", "delete", place, "consumed", "--subscription", "s")
    assert (again.exit_code, "has no subscription 's'" in again.stderr) == (3, True)


def test_a_follower_ends_at_its_limit(place: str) -> None:
    ids = produced(place, "followed", "a", "b")
    found = rows("topic", "follow", place, "followed", "--from", ids[0], "--limit", "2")
    assert [row["payload"] for row in found] == ["a", "b"]


def test_a_topic_is_listed_rolled_over_trimmed_and_deleted(place: str) -> None:
    produced(place, "a/b/kept", "x")
    produced(place, "a/b/kept", "y")
    (listed,) = [row for row in rows("topic", "list", place) if row["topic"] == "persistent://a/b/kept"]
    assert (listed["ledgers"], listed["entries"], listed["subscriptions"]) == (2, 2, 0)
    rolled = run("topic", "roll-over", place, "a/b/kept", *QUORUMS)
    assert verdict(rolled) == "topic roll-over: persistent://a/b/kept has 2 closed ledgers"
    ledgers = [row["name"] for row in rows("topic", "stats", place, "a/b/kept")]
    kept = run("topic", "trim", place, "a/b/kept", "--age", "3600", *QUORUMS)
    assert verdict(kept) == "topic trim: 0 ledgers of persistent://a/b/kept deleted"
    unsaid = run("topic", "trim", place, "a/b/kept", *QUORUMS)
    assert (unsaid.exit_code, "say which ledgers: --age, --size or both" in unsaid.stderr) == (2, True)
    trimmed = run("topic", "trim", place, "a/b/kept", "--size", "0", *QUORUMS)
    assert verdict(trimmed).endswith(f"2 ledgers of persistent://a/b/kept deleted: {', '.join(ledgers)}")
    assert verdict(run("topic", "delete", place, "a/b/kept")).startswith(
        "topic delete: persistent://a/b/kept"
    )
    gone = run("topic", "read", place, "a/b/kept")
    assert "there is no topic persistent://a/b/kept" in gone.stderr
    assert gone.exit_code == 3


def test_messages_of_a_key_are_in_one_partition(place: str) -> None:
    assert run("topic", "create", place, "parts", "--partitions", "3").exit_code == 0
    keyed = produced(place, "parts", "a", "b", "c", "--key", "hello")
    assert {one.split(":")[2] for one in keyed} == {str(99162322 % 3)}
    round_robin = produced(place, "parts", "d", "e", "f")
    assert [one.split(":")[2] for one in round_robin] == ["0", "1", "2"]
    assert sorted(payloads(place, "parts")) == ["a", "b", "c", "d", "e", "f"]
    subscribed = ("topic", "subscribe", place, "parts", "s", "--from", "earliest", "--limit", "2", *QUORUMS)
    assert len(rows(*subscribed)) == 2
    assert len(rows("topic", "follow", place, "parts", "--from", "earliest", "--limit", "6")) == 6
    whole, subscription, *parts = rows("topic", "stats", place, "parts")
    assert (whole["kind"], whole["name"], whole["entries"]) == ("partitions", "3", 6)
    assert (subscription["name"], subscription["entries"]) == ("s", 4)
    assert sum(one["size"] for one in parts if one["kind"] == "ledger") == whole["size"]
    other = run("topic", "create", place, "parts", "--partitions", "4")
    assert "it has 3 partitions" in other.stderr
    assert "with" in verdict(run("topic", "delete", place, "parts"))
    assert [row for row in rows("topic", "list", place) if "parts" in row["topic"]] == []


def test_a_partition_without_messages_is_read_as_an_empty_one(place: str) -> None:
    assert run("topic", "create", place, "parts", "--partitions", "2").exit_code == 0
    assert rows("topic", "read", place, "parts") == []
    (whole,) = rows("topic", "stats", place, "parts")
    assert (whole["entries"], whole["size"]) == (0, 0)
    produced(place, "parts-partition-1", "a")
    assert payloads(place, "parts") == ["a"]


def test_a_copy_says_where_each_entry_is(place: str) -> None:
    ids = produced(place, "source", "a", "b", "--batch", "2")
    copied = rows("topic", "copy", place, "source", place, "--as", "target", *QUORUMS)
    assert [(row["source"], row["messages"]) for row in copied] == [(":".join(ids[0].split(":")[:2]), 2)]
    found = rows("topic", "read", place, "target")
    assert [row["id"].rsplit(":", 2)[0] for row in found] == [copied[0]["target"]] * 2
    assert [row["payload"] for row in found] == ["a", "b"]
    again = run("topic", "copy", place, "source", place, "--as", "target", *QUORUMS)
    assert "there is a topic persistent://public/default/target already" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("read", "PLACE", "a/b"), "expected name"),
        (("read", "PLACE", "t", "--from", "1:2"), "message id '1:2'"),
        (("read", "PLACE", "t", "--from", "1:2:3:4:5"), "message id '1:2:3:4:5'"),
        (("read", "PLACE", "t", "--from", "1:2:-1:-1", "--after", "1:2:-1:-1"), "cannot be used together"),
        (("read", "PLACE", "t", "--since", "yesterday"), "--since"),
        (("produce", "PLACE", "t", "m", "--quorums", "3"), "three numbers"),
        (("produce", "PLACE", "t", "m", "--quorums", "1/2/3"), "at least as large"),
        (("produce", "PLACE", "t", "m", "--property", "a"), "NAME=VALUE"),
        (("create", "PLACE", "t", "--partitions", "0"), "partitions"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(place: str, arguments: tuple[str, ...], reason: str) -> None:
    done = run("topic", *(place if one == "PLACE" else one for one in arguments))
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


def test_a_place_that_is_neither_a_directory_nor_an_address_is_refused(tmp_path: Path) -> None:
    done = run("topic", "list", tmp_path / "nothing")
    assert done.exit_code == 3
    assert "neither a directory nor the address of a cluster's metadata" in done.stderr


def test_what_is_not_there_is_named(place: str) -> None:
    for command in (["read"], ["stats"], ["roll-over"], ["trim", "--age", "0"], ["delete"]):
        done = run("topic", *command, place, "nothing")
        assert done.exit_code == 3, done.stderr
        assert "there is no topic persistent://public/default/nothing" in done.stderr
    produced(place, "short", "a")
    done = run("topic", "read", place, "short", "--from", "9223372036854775806:0:-1:-1")
    assert "has no message 9223372036854775806:0:-1:-1" in done.stderr

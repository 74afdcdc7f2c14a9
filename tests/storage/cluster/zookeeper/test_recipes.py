"""kazoo's own recipes on the server: lock, election, queues of watchers; they were written for ZooKeeper."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, RolledBackError
from zookeeper_servers import serving_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_S = 20.0


@pytest.fixture
def port() -> Iterator[int]:
    with serving_in_a_thread() as port:
        yield port


@contextmanager
def kazoo(port: int) -> Iterator[Any]:
    client = KazooClient(f"127.0.0.1:{port}", timeout=10)
    client.start(_PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_a_lock_has_one_owner_and_goes_to_the_next_that_waits(port: int) -> None:
    with kazoo(port) as one, kazoo(port) as other:
        first, second = one.Lock("/lock", "first"), other.Lock("/lock", "second")
        assert first.acquire(timeout=_PATIENCE_S)
        assert not second.acquire(blocking=False)
        acquired = threading.Event()

        def wait() -> None:
            second.acquire(timeout=_PATIENCE_S)
            acquired.set()

        thread = threading.Thread(target=wait)
        thread.start()
        contenders = iter(lambda: len(first.contenders()), 2)
        assert set(contenders) <= {1}
        assert not acquired.is_set()
        first.release()
        assert acquired.wait(_PATIENCE_S)
        thread.join()
        assert first.contenders() == ["second"]
        second.release()


def test_a_lock_is_free_when_the_session_of_its_owner_ends(port: int) -> None:
    with kazoo(port) as other:
        with kazoo(port) as one:
            assert one.Lock("/lock").acquire(timeout=_PATIENCE_S)
        assert other.Lock("/lock").acquire(timeout=_PATIENCE_S)


def test_an_election_has_one_leader_at_a_time_and_all_in_turn(port: int) -> None:
    leaders: list[str] = []
    with kazoo(port) as one, kazoo(port) as other:
        elections = [
            (client.Election("/election", name), name) for client, name in ((one, "one"), (other, "other"))
        ]
        threads = [
            threading.Thread(target=election.run, args=(leaders.append, name)) for election, name in elections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_PATIENCE_S)
    assert sorted(leaders) == ["one", "other"]


def test_watchers_of_data_and_children_see_each_state(port: int) -> None:
    with kazoo(port) as one, kazoo(port) as other:
        data: queue.Queue[bytes | None] = queue.Queue()
        children: queue.Queue[list[str]] = queue.Queue()
        one.create("/watched", b"first")
        one.DataWatch("/watched", lambda value, _: data.put(value))
        one.ChildrenWatch("/watched", children.put)
        assert (data.get(timeout=_PATIENCE_S), children.get(timeout=_PATIENCE_S)) == (b"first", [])
        other.set("/watched", b"second")
        assert data.get(timeout=_PATIENCE_S) == b"second"
        other.create("/watched/child")
        assert children.get(timeout=_PATIENCE_S) == ["child"]
        other.delete("/watched/child")
        assert children.get(timeout=_PATIENCE_S) == []
        other.delete("/watched")
        assert data.get(timeout=_PATIENCE_S) is None


def test_a_transaction_of_kazoo_is_whole_or_nothing(port: int) -> None:
    with kazoo(port) as client:
        client.create("/a", b"")
        transaction = client.transaction()
        transaction.create("/b")
        transaction.check("/a", 3)
        refused = transaction.commit()
        assert isinstance(refused[0], RolledBackError)
        assert isinstance(refused[1], BadVersionError)
        transaction = client.transaction()
        transaction.create("/b")
        transaction.set_data("/a", b"changed")
        assert transaction.commit()[0] == "/b"
        assert client.get("/a")[0] == b"changed"

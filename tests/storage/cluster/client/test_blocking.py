"""The client for threads."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from cluster_in_a_thread import cluster_in_a_thread

from storage.cluster import connect
from storage.cluster.client.distribution import Quorums
from storage.cluster.errors import LedgerClosed, LedgerNotClosed, NoSuchCluster, OutcomeUnknown, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.cluster.client.blocking import Cluster

THREE = Quorums(3, 3, 2)


@contextmanager
def a_cluster(path: Path) -> Iterator[tuple[str, Cluster]]:
    with cluster_in_a_thread(path, 3) as address, connect(address) as cluster:
        yield address, cluster


def test_a_ledger_is_written_taken_over_and_deleted(tmp_path: Path) -> None:
    with a_cluster(tmp_path) as (_, cluster):
        with cluster.create(THREE, b"secret") as ledger:
            assert ledger.append(b"one") == 0
            assert ledger.append_many([b"two", b"three"]) == [1, 2]
            pending = [ledger.submit(b"four"), ledger.submit(b"five")]
            assert [one.result(20) for one in pending] == [3, 4]
            assert (ledger.last_add_confirmed, ledger.length) == (4, 19)
            shown = f"<ClusterLedgerWriter of ledger {ledger.id}: open, confirmed up to 4, 0 adds under way>"
            assert repr(ledger) == shown
        with pytest.raises(LedgerClosed):
            ledger.append(b"six")

        reader = cluster.take_over(ledger.id, b"secret")
        assert (reader.last_entry, reader.metadata.length) == (4, 19)
        assert repr(reader) == f"<ClusterLedgerReader of ledger {ledger.id}: closed after entry 4>"
        assert repr(cluster) == "<Cluster at /ledgers: 3 bookies take adds, 0 writers>"
        assert list(reader.payloads(1, 3)) == [b"two", b"three", b"four"]
        assert reader.read(0).payload == b"one"
        cluster.delete(ledger.id)
        assert len(cluster.bookies().writable) == 3


@pytest.mark.slow(3)
def test_a_ledger_is_followed_by_one_thread_while_another_writes_it(tmp_path: Path) -> None:
    with a_cluster(tmp_path) as (address, cluster):
        ledger = cluster.create(THREE)
        shown: list[bytes] = []

        def follow() -> None:
            with connect(address) as other:
                shown.extend(entry.payload for entry in other.view(ledger.id).follow())

        following = threading.Thread(target=follow, daemon=True)
        following.start()
        for number in range(20):
            ledger.append(b"%d" % number)
        ledger.close()
        following.join(60)

        assert shown == [b"%d" % number for number in range(20)]


def test_a_reader_that_stops_in_the_middle_leaves_the_client_usable(tmp_path: Path) -> None:
    with a_cluster(tmp_path) as (_, cluster):
        with cluster.create(THREE) as ledger:
            ledger.append_many([b"one", b"two"])
        for entry in cluster.view(ledger.id).follow():
            assert entry.payload == b"one"
            break
        assert list(cluster.view(ledger.id).payloads()) == [b"one", b"two"]


def test_a_writer_that_was_fenced_fails_its_futures(tmp_path: Path) -> None:
    with a_cluster(tmp_path) as (address, cluster):
        ledger = cluster.create(THREE)
        ledger.append(b"one")
        with connect(address) as other:
            other.take_over(ledger.id)
        with pytest.raises(OutcomeUnknown):
            ledger.submit(b"two").result(20)
        with pytest.raises(WriterFenced):
            ledger.close()
        open_one = cluster.create(THREE)
        with pytest.raises(LedgerNotClosed):
            cluster.delete(open_one.id)
        cluster.delete_open(open_one.id)


def test_a_block_that_raises_closes_its_ledger(tmp_path: Path) -> None:
    with a_cluster(tmp_path) as (_, cluster):
        ledger = cluster.create(THREE)

        def fail_in_the_block() -> None:
            with ledger:
                ledger.append(b"one")
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail_in_the_block()
        assert cluster.metadata(ledger.id).last_entry == 0


def test_an_address_without_a_cluster_leaves_no_thread(tmp_path: Path) -> None:
    with (
        cluster_in_a_thread(tmp_path, 0) as address,
        pytest.raises(NoSuchCluster),
        connect(f"{address}/other"),
    ):
        raise AssertionError
    # Not all threads: those of the server's loop may end later than the block.
    assert "ledgerstore-client" not in [one.name for one in threading.enumerate()]

"""All contenders get the same work."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from contenders import our_store, peers, raw
from contenders.our_store import Ours, OursAsync
from contest.run_size import TINY
from contest.workload import Work
from store_internals import StoreInternals, store_of

from recovery.opening.open_store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from contenders.adding_contender import AddingContender

BATCH = Work(size=100, batch=10)


def sqlite_entries(path: Path) -> dict[bytes, bytes]:
    with closing(peers.open_sqlite(path)) as connection:
        return dict(connection.execute("SELECT k, v FROM entries").fetchall())


READERS: Mapping[str, Callable[[Path], dict[bytes, bytes]]] = {
    "LevelDb": lambda path: dict(iter(peers.open_leveldb(path))),
    "RocksDb": lambda path: dict(map(tuple, peers.open_rocksdb(path).items())),
    "Sqlite": sqlite_entries,
    "Lmdb": lambda path: dict(peers.open_lmdb(path).begin().cursor()),
}
PACKAGES = {"LevelDb": "plyvel", "RocksDb": "rocksdict"}


def adder(name: str, place: Path, work: Work) -> AddingContender:
    pytest.importorskip(PACKAGES.get(name, "lmdb"))
    made: AddingContender = getattr(peers, name)(place, **work.settings())
    return made


def expected(work: Work, calls: int) -> dict[bytes, bytes]:
    """Return the entries in a peer after some calls of one writer."""
    found: dict[bytes, bytes] = {}
    runs, batches = work.runs(0), work.batches()
    for _ in range(calls):
        ledger_id, ids = next(runs)
        found |= dict(zip(peers.keys_of(ledger_id, ids), next(batches), strict=True))
    return found


@pytest.mark.parametrize("work", [Work(size=100), BATCH, Work(size=100, batch=2, ledgers=3)])
@pytest.mark.parametrize("name", READERS)
def test_a_peer_gets_every_entry_under_its_key(tmp_path: Path, name: str, work: Work) -> None:
    one = adder(name, tmp_path, work)
    assert one.add(seconds=60, calls=5)["count"] == 5 * work.batch
    one.close()
    assert READERS[name](tmp_path / "db") == expected(work, 5)


@pytest.mark.parametrize("name", READERS)
def test_threads_of_a_peer_write_to_ledgers_of_their_own(tmp_path: Path, name: str) -> None:
    one = adder(name, tmp_path, Work(size=10, writers=3))
    one.add(seconds=60, calls=12)
    one.close()
    keys = sorted(READERS[name](tmp_path / "db"))
    assert [peers.KEY.unpack(key) for key in keys] == [
        (writer, entry) for writer in (1, 2, 3) for entry in range(4)
    ]


def test_our_store_gets_the_same_entries(tmp_path: Path) -> None:
    work = Work(size=100, batch=2, ledgers=3)
    one = Ours(tmp_path, "default", TINY.raw_size, **work.settings())
    one.add(seconds=60, calls=6)
    one.close()
    with open_store(tmp_path / "store") as store:
        found = {
            next(peers.keys_of(ledger_id, [entry_id])): payload
            for ledger_id in store.ledgers()
            for entry_id, payload in enumerate(store.ledger(ledger_id).payloads())
        }
    assert found == expected(work, 6)


def test_payloads_depend_only_on_the_seed() -> None:
    random.seed(1)
    first = BATCH.payloads()
    random.seed(2)
    assert BATCH.payloads() == first
    assert Work(size=100, batch=10, seed=2).payloads() != first
    assert len(set(first)) == 10


@pytest.mark.parametrize(
    ("size", "count"), [(100, 1), (1024, 1), (1024, 64), (65536, 1), (100, 1000), (1965, 2)]
)
def test_the_raw_file_gets_as_many_bytes_as_our_journal(tmp_path: Path, size: int, count: int) -> None:
    payloads = Work(size=size, batch=count).payloads()
    with open_store(tmp_path / "store", our_store.config_of("journals-only", 64 << 20)) as store:
        ledger, engine = store.ledger(1), StoreInternals(store)
        ledger.append(b"the key of the ledger comes with the first entry")
        assert engine.journal is not None
        before = engine.journal.end
        ledger.append_many(payloads)
        grown = engine.journal.end - before
    assert len(raw.group(payloads)) == grown


@pytest.mark.parametrize("size", [1 << 20, 2 << 20])
def test_no_roll_and_no_filling_falls_into_a_turn(tmp_path: Path, size: int) -> None:
    work = Work(size=1024, batch=64)
    one = Ours(tmp_path, "journals-only", 16 << 20, **work.settings())
    engine = StoreInternals(store_of(one))
    for _ in range(5):
        one.prepare(size)
        before = engine.journal
        assert before is not None
        one.add(seconds=60, calls=work.calls(size))
        assert engine.journal is before
        assert not before.is_half_full
    one.close()


@pytest.mark.bench
def test_no_checkpoint_falls_into_a_turn_of_the_one_without(tmp_path: Path) -> None:
    work = Work(size=1 << 20, batch=4)
    one = Ours(tmp_path, "no-checkpoints", TINY.raw_size, **work.settings())
    one.add(seconds=60, calls=40)
    assert StoreInternals(store_of(one)).table_sizes[0] > 128 << 20
    one.prepare(1)
    assert StoreInternals(store_of(one)).table_sizes[0] == 0
    one.close()


def test_tasks_of_one_loop_write_to_ledgers_of_their_own(tmp_path: Path) -> None:
    work = Work(size=10, writers=3)
    one = OursAsync(tmp_path, "journals-only", TINY.raw_size, **work.settings())
    one.prepare(1 << 20)
    assert one.add(seconds=60, calls=12)["count"] == 12
    one.close()
    with open_store(tmp_path / "store") as store:
        for ledger_id in (1, 2, 3):
            assert list(store.ledger(ledger_id).payloads()) == [
                work.payloads(number)[0] for number in range(4)
            ]

"""The programs in docs/examples do what they promise."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ledgerstore

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(name: str, *arguments: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ledgerstore.Store]:
    with ledgerstore.open(tmp_path / "data") as store:
        yield store


# ── job_queue.py ─────────────────────────────────────────────────────────────────────────────────────


def test_jobs_are_taken_in_the_order_in_which_they_were_put(store: ledgerstore.Store) -> None:
    queue = example("job_queue").JobQueue(store)
    for payload in (b"one", b"two", b"three"):
        queue.put(payload)
    assert [queue.take().payload for _ in range(3)] == [b"one", b"two", b"three"]
    assert queue.take() is None


def test_an_unfinished_job_is_there_after_the_next_opening_and_a_finished_one_is_not(
    tmp_path: Path,
) -> None:
    job_queue = example("job_queue")
    with ledgerstore.open(tmp_path) as store:
        queue = job_queue.JobQueue(store, segment_size=2)
        for number in range(5):
            queue.put(b"%d" % number)
        taken = [queue.take() for _ in range(4)]
        queue.done(taken[0])
        queue.done(taken[3])
    with ledgerstore.open(tmp_path) as store:
        queue = job_queue.JobQueue(store, segment_size=2)
        assert len(queue) == 3
        assert [queue.take().payload for _ in range(3)] == [b"1", b"2", b"4"]


def test_a_segment_is_deleted_when_all_its_jobs_are_done(store: ledgerstore.Store) -> None:
    queue = example("job_queue").JobQueue(store, segment_size=2)
    for number in range(5):
        queue.put(b"%d" % number)
    for _ in range(4):
        queue.done(queue.take())
    assert store.ledgers() == [4]


def test_a_segment_whose_deletion_was_interrupted_is_deleted_by_the_next_opening(tmp_path: Path) -> None:
    job_queue = example("job_queue")
    with ledgerstore.open(tmp_path) as store:
        queue = job_queue.JobQueue(store, segment_size=1)
        queue.put(b"finished")
        queue.put(b"next")
        store.ledger(1).append((0).to_bytes(8, "big"))  # finished, and killed before the segment was deleted
    with ledgerstore.open(tmp_path) as store:
        queue = job_queue.JobQueue(store, segment_size=1)
        assert [queue.take().payload, queue.take()] == [b"next", None]
        assert store.ledgers() == [2]


def test_the_queue_s_program_runs_its_jobs(tmp_path: Path) -> None:
    assert printed("job_queue", str(tmp_path)) == ["0 jobs left from the last run", "100 jobs done"]


@pytest.mark.parametrize("name", ["job_queue", "audit_trail", "event_store"])
def test_a_program_without_arguments_says_how_it_is_run(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert f"python docs/examples/{name}.py" in ended.stderr
    assert "Traceback" not in ended.stderr


# ── audit_trail.py ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_trail_is_shown_while_another_process_has_the_store_open(tmp_path: Path) -> None:
    audit_trail = example("audit_trail")
    assert [audit_trail.write(str(tmp_path), event) for event in ("ada logs in", "ada reads")] == [0, 1]
    with ledgerstore.open(tmp_path) as store:
        store.ledger(audit_trail.TRAIL).append(b"ada logs out")
        assert printed("audit_trail", "show", str(tmp_path)) == ["ada logs in", "ada reads", "ada logs out"]


# ── event_store.py ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def event_store(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], HTTPConnection]]:
    """Start the program on a free port, and connect to it."""
    command = [sys.executable, str(EXAMPLES / "event_store.py"), str(tmp_path / "data"), "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            lines = iter(server.stderr.readline, "")
            port = next(found[1] for line in lines if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
            with closing(HTTPConnection("127.0.0.1", int(port), timeout=30)) as connection:
                yield server, connection
        finally:
            server.kill()


def asked(connection: HTTPConnection, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


@pytest.mark.slow(3)
def test_events_are_appended_read_and_followed_over_http(
    event_store: tuple[subprocess.Popen[str], HTTPConnection], tmp_path: Path
) -> None:
    server, connection = event_store
    assert asked(connection, "POST", "/streams/7", b"first") == (201, {"event": 0})
    assert asked(connection, "POST", "/streams/7", b"second") == (201, {"event": 1})
    assert asked(connection, "GET", "/streams/7?first=1") == (200, ["second"])
    assert asked(connection, "GET", "/streams/8") == (404, {"error": "there is no stream 8"})
    for method, path, body in (("POST", "/streams/8", b"\xff"), ("GET", "/streams/7?first=one", None)):
        connection.request(method, path, body)
        refused = connection.getresponse()
        assert (refused.status, bool(refused.read())) == (400, True)

    connection.request("GET", "/streams/7/live?first=1")
    stream = connection.getresponse()
    assert [stream.readline() for _ in range(3)] == [b"id: 1\n", b"data: second\n", b"\n"]
    with closing(HTTPConnection("127.0.0.1", connection.port, timeout=30)) as other:
        assert asked(other, "POST", "/streams/7", b"third\nevent") == (201, {"event": 2})
    assert [stream.readline() for _ in range(4)] == [b"id: 2\n", b"data: third\n", b"data: event\n", b"\n"]

    # The live stream is still open, and must not keep the server from a clean stop.
    server.terminate()
    assert stream.read() == b""
    server.wait(timeout=30)
    with ledgerstore.open(tmp_path / "data") as store:
        assert store.opened.records_replayed == 0, "the server closed its store"
        assert store.ledger(7).last_entry_id == 2


# ── key_value_store.py ───────────────────────────────────────────────────────────────────────────────


def test_changes_of_keys_are_there_after_the_next_opening(tmp_path: Path) -> None:
    key_value_store = example("key_value_store")
    with ledgerstore.open(tmp_path) as store:
        values = key_value_store.KeyValueStore(store)
        values.snapshot()
        values.set("a", "1")
        values.set("b", "2")
        values.snapshot()
        values.set("a", "3")
        values.delete("b")
    with ledgerstore.open(tmp_path) as store:
        values = key_value_store.KeyValueStore(store)
        assert (values["a"], "b" in values, len(values)) == ("3", False, 1)
        assert store.ledger(1).first_entry_id == 2
        values.snapshot()
        assert store.ledger(1).first_entry_id == 6


@pytest.mark.slow
def test_the_program_of_the_key_value_store_gives_space_back(tmp_path: Path) -> None:
    printed("key_value_store", str(tmp_path))
    lines = printed("key_value_store", str(tmp_path))
    assert lines[0].startswith("199 keys are there")


@pytest.mark.slow
def test_fifty_snapshots_take_less_than_three_times_the_live_state(tmp_path: Path) -> None:
    key_value_store = example("key_value_store")
    config = ledgerstore.StoreConfig(
        memtable_size_max=1 << 20,
        group_size_max=256 << 10,
        entry_size_max=64 << 10,
        entry_log_size_max=1 << 20,
        journal_size=1 << 20,
        journal_max_backups=0,
        compaction_rate=None,
    )
    worst = 0.0
    with ledgerstore.open(tmp_path, config) as store:
        values = key_value_store.KeyValueStore(store)
        for lap in range(50):
            for number in range(lap % 7, 400, 7):
                values.set(f"key {number}", f"{lap}" * 5000)
            values.snapshot()
            live = sum(len(key_value_store.encode(*item)) for item in values.items())
            files = [path for path in tmp_path.rglob("*") if path.suffix in (".log", ".txn", ".mdb")]
            if lap > 10:
                worst = max(worst, sum(path.stat().st_size for path in files) / live)
    assert worst < 3

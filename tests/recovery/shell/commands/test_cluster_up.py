"""`ledgerstore cluster up` and the commands beside it: processes, their ends, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from bookie_connection import RawBookieConnection, add_of
from shell_samples import rows, run, verdict
from zookeeper_servers import serving_in_a_thread

from recovery import open_store
from recovery.local_cluster.cluster import LocalCluster
from recovery.local_cluster.processes import ProcessState, state_of
from recovery.local_cluster.state import ClusterRequest, ClusterState, decode, encode, planned
from recovery.shell import local_cluster
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import create_ledger
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import Protocol, ReadEntry
from storage.cluster.zookeeper.client import ClientConfig
from storage.cluster.zookeeper.client import run as run_client
from storage.disk.posix import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from storage.cluster.metadata.znodes import Znodes

WAIT_S = 120
PROGRAM = [sys.executable, "-m", "ledgerstore", "cluster"]
ANY_PORTS = ("--port", "0", "--bookie-port", "0")
CPU_FACTOR = float(os.environ.get("TEST_CPU_FACTOR", "1"))


def cluster(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)


def state_in(path: Path) -> ClusterState:
    found = decode((path / "cluster.json").read_bytes())
    assert isinstance(found, ClusterState)
    return found


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(cluster("status", path, "--json").stdout)}


def states(path: Path) -> list[str]:
    return [row["state"] for row in rows_of(path).values()]


@contextmanager
def attached(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run `cluster up` in the foreground, and yield it when all are ready. Nothing of it stays."""
    process = subprocess.Popen(
        [*PROGRAM, "up", str(path), *ANY_PORTS, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if " processes up after " in line:
                break
        else:
            pytest.fail("".join(said))
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(WAIT_S)
        process.stderr.close()
        cluster("down", path)


@contextmanager
def detached(path: Path, *options: str) -> Iterator[ClusterState]:
    """Run a cluster until the end of the block."""
    try:
        done = cluster("up", path, "--detach", *ANY_PORTS, *options)
        assert done.returncode == 0, done.stderr
        yield state_in(path)
    finally:
        cluster("down", path)


def add_and_read(state: ClusterState) -> None:
    """Make a ledger on all bookies, add an entry to each of them, and read it."""
    port = int(state.uri.split(":")[2].partition("/")[0])

    async def make(znodes: Znodes) -> None:
        paths = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
        ensemble = tuple(f"127.0.0.1:{bookie.port}" for bookie in state.bookies)
        count = len(ensemble)
        ledger = ClusterLedgerMetadata(count, count, count, (LedgerSegment(0, ensemble),), creator_token=1)
        await create_ledger(znodes, paths, 7, ledger)

    run_client(ClientConfig((f"127.0.0.1:{port}",)), make)
    for bookie in state.bookies:
        assert asyncio.run(_ask(bookie.port)) == (Code.OK, Code.OK)


async def _ask(port: int) -> tuple[Code, Code]:
    client = await RawBookieConnection.open(port)
    added = await client.ask(add_of(7, 0, b"payload"), Protocol.V3)
    found = await client.ask(ReadEntry(7, 0), Protocol.V3)
    await client.close()
    return added.code, found.code


# ── a life ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_processes_in_order_and_the_next_up_serves_the_same_entries(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "new" / "cluster"
    with attached(path, "--bookies", "2") as process:
        before = state_in(path)
        add_and_read(before)
        process.send_signal(number)
        assert process.stderr is not None
        assert process.stderr.read() == "cluster up: stopped\n"
        assert process.wait(WAIT_S) == 0
    assert all(state_of(one.process) is ProcessState.DOWN for one in before.members)
    assert state_in(path).is_stopped
    # Nothing is left to replay, and no node of a bookie that could not unregister any more.
    for bookie in state_in(path).bookies:
        with open_store(path / bookie.name) as store:
            assert store.opened.records_replayed == 0
            assert [entry.entry_id for entry in store.ledger(7, password=b"secret").entries()] == [0]
    [metadata] = rows("metadata", "status", path / "metadata")
    assert metadata["ephemerals"] == 0
    with detached(path) as after:
        assert [one.port for one in after.members] == [one.port for one in before.members]
        assert asyncio.run(_ask(after.bookies[0].port))[1] is Code.OK


@pytest.mark.slow(seconds=10)
def test_a_cluster_is_ready_within_five_seconds_of_processor_time(tmp_path: Path) -> None:
    """With one processor of its own it is ready after these seconds; with several, sooner."""
    times = os.times()
    with attached(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        # `up` waits for all that it has started, so that their time counts.
        assert process.wait(WAIT_S) == 0
    used = os.times()
    seconds = used.children_user + used.children_system - times.children_user - times.children_system
    assert 0.5 < seconds < 5 * CPU_FACTOR


@pytest.mark.parametrize(("bookies", "which"), [(1, 1), (3, 2)])
def test_the_hint_about_failures_names_a_bookie_of_the_cluster(bookies: int, which: int) -> None:
    state = planned(None, ClusterRequest(bookies=bookies), iter(()))
    hints = dict(local_cluster.hints(state, ".", "Ctrl-C"))
    assert hints["failures"].startswith(f"ledgerstore cluster kill {which} ")


@pytest.mark.slow(seconds=20)
def test_processes_can_be_killed_paused_and_started_again(tmp_path: Path) -> None:
    with detached(tmp_path, "--bookies", "2") as state:
        # Not at once if a machine is so slow that a session expires.
        while cluster("status", tmp_path).returncode == 1:
            assert states(tmp_path) == ["up", "up", "up"]
        assert [row["registered"] for row in rows_of(tmp_path).values()] == [None, "writable", "writable"]
        again = cluster("up", tmp_path)
        assert (again.returncode, "already up" in again.stderr) == (3, True)

        killed = cluster("kill", 2, tmp_path)
        assert (killed.returncode, killed.stderr) == (0, "cluster kill: bookie-2 is down\n")
        assert states(tmp_path) == ["up", "up", "down"]
        status = cluster("status", tmp_path)
        assert status.returncode == 1
        assert verdict_of(status) == f"cluster status: 2 of 3 processes up, {state.uri}"
        assert "bookie-2 is not running" in cluster("kill", "bookie-2", tmp_path).stderr

        assert cluster("pause", 1, tmp_path).returncode == 0
        assert states(tmp_path) == ["up", "paused", "down"]
        assert cluster("resume", 1, tmp_path).returncode == 0
        assert cluster("resume", 1, tmp_path).returncode == 3

        assert cluster("restart", 2, tmp_path).stderr == "cluster restart: bookie-2 is up\n"
        before = state_in(tmp_path)
        assert cluster("restart", "metadata", tmp_path).returncode == 0
        after = state_in(tmp_path)
        assert [one.process for one in after.bookies] == [one.process for one in before.bookies]
        assert after.members[0].process != before.members[0].process
        assert states(tmp_path) == ["up", "up", "up"]

        # `up` starts what is down, and leaves the others alone; it can add bookies.
        cluster("kill", 1, tmp_path)
        more = cluster("up", tmp_path, "--detach", "--bookies", 3, "--bookie-port", 0)
        assert more.returncode == 0, more.stderr
        assert states(tmp_path) == ["up"] * 4
        assert state_in(tmp_path).bookies[1] == after.bookies[1]

        # One that was killed for good is not started again.
        assert cluster("kill", 3, tmp_path, "--for-good").stderr == "cluster kill: bookie-3 is lost\n"
        assert states(tmp_path) == ["up", "up", "up", "lost"]
        assert "killed for good" in cluster("restart", 3, tmp_path).stderr
        assert "already up" in cluster("up", tmp_path).stderr
        assert cluster("kill", "metadata", tmp_path, "--for-good").returncode == 3

        # A paused process is stopped too.
        cluster("pause", "metadata", tmp_path)
        assert "bookie-3" in rows_of(tmp_path)
        assert cluster("down", tmp_path).stderr == "cluster down: stopped\n"
        assert states(tmp_path) == ["down"] * 3 + ["lost"]


def verdict_of(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


@pytest.mark.slow(seconds=10)
def test_a_cluster_that_was_stopped_by_another_command_ends_up(tmp_path: Path) -> None:
    with attached(tmp_path, "--bookies", "1") as process:
        assert cluster("kill", 1, tmp_path).returncode == 0
        assert process.stderr is not None
        assert process.stderr.readline() == "bookie-1 is down\n"
        assert cluster("down", tmp_path).returncode == 0
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read().splitlines()[-1] == "cluster up: stopped"


@pytest.mark.slow(seconds=10)
def test_processes_whose_directory_was_removed_are_stopped(tmp_path: Path) -> None:
    with attached(tmp_path / "c", "--bookies", "1") as process:
        state = state_in(tmp_path / "c")
        shutil.rmtree(tmp_path / "c")
        assert process.wait(WAIT_S) == 3
        assert all(state_of(one.process) is ProcessState.DOWN for one in state.members)


def test_down_waits_for_a_command_that_is_under_way(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_bytes(encode(planned(None, ClusterRequest(), iter(()))))
    directory = LocalCluster(tmp_path)
    other = PosixDirectory(tmp_path).lock("LOCK")
    calls = count()

    def watch(_state: ClusterState, _doing: str, _names: Collection[str]) -> None:
        if next(calls) == 2:
            other.close()

    assert directory.down(watch) == []
    assert next(calls) == 3


@pytest.mark.slow(seconds=10)
def test_an_interrupted_start_leaves_no_process(tmp_path: Path) -> None:
    with subprocess.Popen([*PROGRAM, "up", str(tmp_path), *ANY_PORTS], stderr=subprocess.PIPE) as process:
        # The second process is under way as soon as the state file names it.
        while process.poll() is None and not _has_two_processes(tmp_path):
            pass
        state = state_in(tmp_path)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
    assert process.returncode in (0, 130)  # 0 if it was ready just then
    assert all(state_of(one.process) is ProcessState.DOWN for one in state.members)
    assert state_in(tmp_path).is_stopped


def _has_two_processes(path: Path) -> bool:
    try:
        return sum(one.process is not None for one in state_in(path).members) > 1
    except FileNotFoundError:
        return False


# ── what does not become ready ────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(seconds=10)
def test_the_end_of_the_log_says_why_a_bookie_did_not_start_and_the_others_are_stopped(
    tmp_path: Path,
) -> None:
    with detached(tmp_path, "--bookies", "2"):
        pass
    shutil.rmtree(tmp_path / "bookie-2")
    (tmp_path / "bookie-2").mkdir()
    # A bookie whose store has ledgers may not come back without them, so its cookie is kept in the metadata.
    done = cluster("up", tmp_path)
    left = [state_of(one.process) for one in state_in(tmp_path).members]
    cluster("down", tmp_path)
    assert (done.returncode, left) == (3, [ProcessState.DOWN] * 3)
    first, second, *rest = done.stderr.splitlines()
    log = tmp_path / "logs" / "bookie-2.log"
    assert first == f"ledgerstore: bookie-2 has ended. The end of {log}:"
    assert second.startswith("    ledgerstore: bookie 127.0.0.1:")
    assert rest == []


@pytest.mark.slow(seconds=10)
def test_a_cluster_of_others_is_joined_and_a_missing_one_is_named(tmp_path: Path) -> None:
    async def prepare(znodes: Znodes) -> None:
        await init_cluster(znodes, "/ledgers", "their-instance")

    with serving_in_a_thread() as port:
        uri = f"zk://127.0.0.1:{port}"
        missing = cluster("up", tmp_path / "other", "--metadata", f"{uri}/other", "--bookie-port", 0)
        assert (missing.returncode, "there is no cluster at /other" in missing.stderr) == (3, True)
        assert not (tmp_path / "other" / "cluster.json").exists()
        run_client(ClientConfig((f"127.0.0.1:{port}",)), prepare)
        path = tmp_path / "joined"
        words = ("--metadata", f"{uri}/ledgers", "--bookies", "2", "--bookie-port", "0", "--detach")
        try:
            assert cluster("up", path, *words).returncode == 0
            add_and_read(state_in(path))
            found = rows_of(path)
            assert [(name, row["ledgers"]) for name, row in found.items()] == [
                ("bookie-1", 1),
                ("bookie-2", 1),
            ]
            for row in found.values():
                with urlopen(f"{row['http']}/state", timeout=WAIT_S) as page:
                    assert json.load(page)["bookie_id"] == row["address"]
        finally:
            assert cluster("down", path).returncode == 0


def test_a_port_that_is_taken_is_named_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = run("cluster", "up", tmp_path / "new", "--port", port, "--bookie-port", 0)
    assert done.exit_code == 3
    assert f"another program listens on port {port}, which metadata needs" in verdict(done)
    assert "--port 0" in verdict(done)
    assert not (tmp_path / "new" / "metadata").exists()


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "store"):
        pass
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.tex").write_text("…")
    (tmp_path / "file").write_text("")
    for name, reason in (
        ("store", "is a store or a bookie's directory"),
        ("papers", "holds thesis.tex"),
        ("file", "not a directory"),
    ):
        before = sorted(tmp_path.rglob("*"))
        for words in (("up",), ("status",), ("down",), ("kill", 1), ("restart", 1)):
            done = run("cluster", *words, tmp_path / name)
            assert (done.exit_code, done.stdout) == (3, "")
            missing = f"there is no cluster in {tmp_path / name}"
            assert (reason if words == ("up",) else missing) in verdict(done)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_state_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    for words in (("up",), ("status",), ("down",)):
        done = run("cluster", *words, tmp_path)
        assert done.exit_code == 3
        assert f"{tmp_path / 'cluster.json'}: not the state of a cluster" in verdict(done)


def test_options_that_do_not_fit_are_a_usage_error(tmp_path: Path) -> None:
    for options in (
        ("--bookies", 0),
        ("--port", -1),
        ("--metadata", "zk://localhost/ledgers", "--port", 2181),
        ("--metadata", "localhost", "--bookie-port", 0),
    ):
        assert run("cluster", "up", tmp_path / "new", *options).exit_code == 2


# ── on a terminal ─────────────────────────────────────────────────────────────────────────────────────────


ON_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.slow(seconds=10)
def test_a_terminal_shows_a_table_that_is_drawn_again_and_ctrl_c_stops_the_cluster(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    variables = os.environ | {"TERM": "xterm", "COLUMNS": "110", "LINES": "30"}
    command = [*PROGRAM, "up", str(tmp_path), *ANY_PORTS, "--bookies", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", ON_OWN_TERMINAL, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        shown = _until(ours, r"bookie-1\s+up\s+writable")
        assert re.search(r"metadata\S*\s.*starting", shown)
        assert 'conf.setMetadataServiceUri("zk://127.0.0.1:' in shown
        assert cluster("pause", 1, tmp_path).returncode == 0
        _until(ours, r"bookie-1\S*\s+\S*paused")
        os.write(ours, b"\x03")
        assert "cluster up: stopped" in _until(ours, r"cluster up: stopped")
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait(WAIT_S)
        os.close(ours)
        cluster("down", tmp_path)


def _until(terminal: int, pattern: str) -> str:
    """Return what the terminal shows up to a pattern, without the codes for colours."""
    shown = ""
    while not re.search(pattern, shown):
        piece = os.read(terminal, 1 << 16).decode(errors="replace")
        shown += re.sub(r"\x1b\[[0-9;]*m", "", piece)
    return shown

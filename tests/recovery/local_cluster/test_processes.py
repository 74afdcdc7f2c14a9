"""Processes of a cluster: which one is meant, whether it runs, and ports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from recovery.local_cluster import processes
from recovery.local_cluster.ports import free_ports, is_taken
from recovery.local_cluster.processes import ProcessState, send, state_of
from recovery.local_cluster.state import HOST, ProcessKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 60


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[str]]:
    """Run a process that waits for the end of its input."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def key_of(pid: int) -> ProcessKey:
    found = processes.look_up(pid)
    assert found is not None
    return ProcessKey(pid, found[0])


def wait_for(process: ProcessKey, state: ProcessState) -> None:
    """Return when the kernel has done what a signal asks for, which the sender does not wait for."""
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WCONTINUED | os.WEXITED | os.WNOWAIT)
    assert state_of(process) is state


def test_a_process_is_up_paused_and_down() -> None:
    with sleeper() as child:
        process = key_of(child.pid)
        assert state_of(process) is ProcessState.UP
        send(process, signal.SIGSTOP)
        wait_for(process, ProcessState.PAUSED)
        send(process, signal.SIGCONT)
        send(process, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now, which counts as down
        assert state_of(process) is ProcessState.DOWN
        send(process, signal.SIGKILL)
    assert state_of(None) is ProcessState.DOWN


ZOMBIE = """
import os, subprocess
child = subprocess.Popen(["true"])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print(child.pid, flush=True)
input()
"""


def test_a_process_that_has_ended_and_that_its_parent_has_not_waited_for_is_down() -> None:
    """In a container the first process often waits for none of those that it inherits."""
    with subprocess.Popen(
        [sys.executable, "-c", ZOMBIE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        ended = key_of(int(parent.stdout.readline()))
        assert state_of(ended) is ProcessState.DOWN
        parent.communicate("\n", timeout=WAIT_S)


@pytest.mark.parametrize("start", ["earlier", "a tick of another boot"])
def test_a_process_that_has_got_the_number_of_an_earlier_one_is_neither_taken_for_it_nor_signalled(
    start: str,
) -> None:
    with sleeper() as child:
        now = key_of(child.pid)
        words = {"earlier": "1 " + now.started.split()[-1], "a tick of another boot": now.started + "0"}
        earlier = ProcessKey(child.pid, words[start])
        assert state_of(earlier) is ProcessState.DOWN
        send(earlier, signal.SIGKILL)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("still there\n")
        child.stdin.close()
        assert child.stdout.read() == "still there\n"


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps here")
def test_ps_tells_the_same_where_there_is_no_proc() -> None:
    with sleeper() as child:
        first = processes.look_up_by_ps(child.pid)
        assert first is not None
        assert first == processes.look_up_by_ps(child.pid)
        assert first[1] is ProcessState.UP
        send(key_of(child.pid), signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert processes.look_up_by_ps(child.pid) == (first[0], ProcessState.PAUSED)
    assert processes.look_up_by_ps(child.pid) is None


def test_a_started_process_has_a_session_of_its_own_and_its_output_is_appended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    process = processes.start(["--version"], log)
    assert os.getsid(process.pid) == process.pid
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert state_of(process) is ProcessState.DOWN
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)  # it was waited for, so that no zombie stays
    assert log.read_text().startswith("before\nledgerstore ")


# ── ports ─────────────────────────────────────────────────────────────────────────────────────────────────

LISTEN = """
import asyncio

async def main():
    server = await asyncio.start_server(lambda *_: None, {host!r}, {port})
    print("listens", flush=True)
    input()

asyncio.run(main())
"""


def test_a_server_can_listen_on_a_port_while_it_is_reserved() -> None:
    with free_ports(2) as (first, second):
        assert first != second
        assert not is_taken(first)
        program = LISTEN.format(host=HOST, port=first)
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "listens\n"
            assert is_taken(first)
            assert not is_taken(second)
            server.communicate("\n", timeout=WAIT_S)
        assert not is_taken(first)


def test_a_reserved_port_is_given_to_no_other_program() -> None:
    with free_ports(100) as reserved:
        for _ in range(10):  # not all at once, because a process may have few open files
            with free_ports(300) as others:
                assert set(reserved) & set(others) == set()

"""Servers of ZooKeeper's protocol as processes of their own: the real one, and ours."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jvm import MADE, classpath, tool

from storage.cluster.zookeeper.jute import encode, encode_frame
from storage.cluster.zookeeper.records import ConnectRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_START_S = 180.0
_JVM_OPTIONS = (
    *("-Xmx512m", "-XX:+UseSerialGC"),
    # It takes nodes with a time to live, and deletes them and empty containers never, as ours does.
    *("-Dzookeeper.extendedTypesEnabled=true", f"-Dznode.container.checkIntervalMs={10**9}"),
)
TICK_MS = 500
"""The tick of the real server, which grants session time-outs of 2 to 20 ticks."""


@contextmanager
def real_zookeeper(directory: Path = MADE / "zookeeper", *options: str) -> Iterator[int]:
    """Run the real server on an empty directory; yield its port. `NotAvailable` without Java or Maven."""
    command = [tool("java"), *_JVM_OPTIONS, *options, "-cp", classpath()]
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    port = free_port()
    lines = {
        "dataDir": directory / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "tickTime": TICK_MS,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
    }
    settings = directory / "zoo.cfg"
    settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    with running([*command, main, str(settings)], directory / "log", port):
        _wait_until(lambda: _begins_sessions(port))
        yield port


class OurServer(NamedTuple):
    """A running server of ours."""

    port: int
    pid: int

    @property
    def memory(self) -> int:
        """The largest number of bytes that it has had in memory so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) << 10


@contextmanager
def our_server(directory: Path, *options: str) -> Iterator[OurServer]:
    """Run `ledgerstore metadata serve` on an empty directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with our_server_again(directory, free_port(), *options) as server:
        yield server


@contextmanager
def our_server_again(directory: Path, port: int, *options: str) -> Iterator[OurServer]:
    """Run `ledgerstore metadata serve` on a directory that may have been used before."""
    timeouts = f"{2 * TICK_MS}..{20 * TICK_MS}"
    arguments = ["metadata", "serve", str(directory / "store"), "--session-timeouts", timeouts, *options]
    command = [str(Path(sys.executable).with_name("ledgerstore")), *arguments, "--port", str(port)]
    with running(command, directory / "log", port) as pid:
        yield OurServer(port, pid)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, port: int) -> Iterator[int]:
    """Run a server until the end of the block; yield its process id once it listens on the port."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _wait_until(lambda: process.poll() is not None or _listens(port))
            if process.poll() is not None:
                raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
            yield process.pid
        finally:
            process.terminate()
            process.wait(30)


class KillableServer:
    """A server that is killed and started again, until its stack ends."""

    def __init__(self, run: Callable[[], AbstractContextManager[int]], held: ExitStack) -> None:
        """`run` runs the server for a block, and yields its process id."""
        self._run = run
        self._running = held.enter_context(ExitStack())
        self._pid = 0
        self.start()

    def start(self) -> None:
        """Start it, after the process before has ended."""
        self.wait_for_end()
        self._pid = self._running.enter_context(self._run())

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    def wait_for_end(self) -> None:
        """Return when the killed process has ended."""
        self._running.close()


def _wait_until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + _START_S
    while not is_so():
        assert time.monotonic() < give_up_at, "the server did not start in time"
        time.sleep(0.05)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _begins_sessions(port: int) -> bool:
    """Return whether a ZooKeeper server answers. It listens before, and closes connections until then."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(encode_frame(encode(ConnectRequest(0, 0, 10_000, 0, bytes(16)))))
            return bool(connection.recv(1))
    except OSError:
        return False

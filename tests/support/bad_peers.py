"""A bookie as a process of its own, and peers that misuse their connections to it."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bookie_connection import add_of

from storage.cluster.wire import v2, v3
from storage.cluster.wire.frames import split
from storage.cluster.wire.messages import ReadEntry, StartTls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from certificates import CertificateFiles

_PROGRAM = """
import asyncio, sys
from pathlib import Path
from bookie_connection import running_bookie
from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.tls import TlsConfig, TlsContexts

async def main():
    path, *files = sys.argv[1:]
    tls = TlsContexts(TlsConfig(*files)) if files else None
    policy = AccessPolicy(Channels.PLAIN_OR_TLS if files else Channels.PLAIN_ONLY)
    async with running_bookie(Path(path), policy=policy, tls=tls) as (store, _, port):
        print(port, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await store.checkpoint()
            print("done", flush=True)

asyncio.run(main())
"""
_WAIT_S = 60.0
_OTHER_FILES = 500


class BookieProcess:
    """A bookie that runs as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.port = int(process.stdout.readline())

    @property
    def memory(self) -> int:
        """The bytes that it has in memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) << 10

    def checkpoint(self) -> None:
        """Have it write all entries to entry logs, so that reads come from the disk."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("checkpoint\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), _WAIT_S)


@contextmanager
def bookie_process(path: Path, certificate: CertificateFiles | None = None) -> Iterator[BookieProcess]:
    """Run a bookie until the end of the block; with a certificate it offers TLS."""
    files = () if certificate is None else (str(certificate.key), str(certificate.certificate))
    command = [sys.executable, "-c", _PROGRAM, str(path), *files]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield BookieProcess(process)
    finally:
        process.kill()
        process.wait(_WAIT_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


class OneByOneWriter:
    """A client that adds entries to one ledger, one at a time."""

    def __init__(self, bookie: BookieProcess, ledger_id: int) -> None:
        self._connection = bookie.connect()
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ledger_id, self._next_id = ledger_id, 0

    def add(self, payload: bytes = bytes(1024)) -> float:
        """Add an entry; return how many seconds it took."""
        frame = v2.encode_request(add_of(self._ledger_id, self._next_id, payload))
        self._next_id += 1
        started = time.perf_counter()
        self._connection.sendall(frame)
        arrived = b""
        while not (bodies := split(arrived).bodies):
            arrived += self._connection.recv(1 << 16)
        took_s = time.perf_counter() - started
        assert bodies[0][4:8] == bytes(4), "the add has failed"
        return took_s

    def close(self) -> None:
        self._connection.close()


class Crowd(NamedTuple):
    """Connections that stay open."""

    connections: list[socket.socket]

    def send(self, data: bytes) -> None:
        """Send the same from each of them."""
        for connection in self.connections:
            connection.sendall(data)


@contextmanager
def crowd(bookie: BookieProcess, count: int) -> Iterator[Crowd]:
    """Open so many connections, or as many as this process may have files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most != resource.RLIM_INFINITY:
        count = min(count, most - _OTHER_FILES)
    with ExitStack() as held:
        yield Crowd([held.enter_context(bookie.connect()) for _ in range(count)])


def connect_with_tls(bookie: BookieProcess, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Connect, and return when the bookie has answered a request over TLS."""
    plain = bookie.connect()
    plain.sendall(v3.encode_request(StartTls(), 1))
    assert plain.recv(1 << 16)
    secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
    secure.sendall(v2.encode_request(ReadEntry(7, 0)))
    assert secure.recv(1 << 16)
    return secure


def ask_without_reading(connection: socket.socket, ledger_id: int, entry_id: int, count: int) -> int:
    """Send reads until all are sent or the bookie takes no more for a second; return how many."""
    frame = v2.encode_request(ReadEntry(ledger_id, entry_id))
    connection.settimeout(1.0)
    sent = 0
    try:
        while sent < count * len(frame):
            at = sent % len(frame)
            sent += connection.send(frame[at:])
    except TimeoutError:
        pass
    return sent // len(frame)

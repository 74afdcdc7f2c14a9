"""Ports of this machine's loopback interface."""

from __future__ import annotations

import errno
import socket
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from recovery.local_cluster.state import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Yield ports that are free, and keep other programs from getting them by chance until the block ends.

    A socket that is bound and does not listen keeps its port from being given out, but on Linux does not
    keep a server from listening there that asks for exactly this port. Elsewhere it would, and the sockets
    are closed before the block.
    """
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            one = held.enter_context(_bound(0))
            ports.append(int(one.getsockname()[1]))
        if not sys.platform.startswith("linux"):
            held.close()
        yield ports


def is_taken(port: int) -> bool:
    """Return whether a server listens on the port, so that another one could not."""
    try:
        with _bound(port) as one:
            one.listen()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return True
    return False


def _bound(port: int) -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # As asyncio does: without it a port could not be used for a minute after its server has ended.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((HOST, port))
    except BaseException:
        one.close()
        raise
    return one

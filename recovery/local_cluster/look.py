"""The facts about the bookies: those in the metadata, and those that the bookies give over HTTP."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.local_cluster.processes import ProcessState, state_of
from storage.cluster.errors import ClusterError
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.registration import read_bookies, read_http_endpoints
from storage.cluster.zookeeper.client import ClientConfig, run

if TYPE_CHECKING:
    from recovery.local_cluster.state import ClusterState, Member
    from storage.cluster.metadata.registration import Bookies
    from storage.cluster.metadata.znodes import Znodes


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The facts about a cluster at one moment."""

    registered: Bookies
    ledgers: dict[str, int]
    """By id of the bookies that answer: how many ledgers they have."""
    pages: dict[str, str]
    """By id of the bookies that are registered: the address of their metrics and state over HTTP."""

    def registration_of(self, member: Member) -> str | None:
        """Return writable, read-only or no for a bookie; `None` for a metadata server."""
        if not member.is_bookie:
            return None
        if member.address in self.registered.writable:
            return "writable"
        return "read-only" if member.address in self.registered.read_only else "no"


def look_at(state: ClusterState, timeout_s: float) -> ClusterLook | None:
    """Ask the metadata and the bookies; `None` if the metadata do not answer.

    The time is that for the connection with the metadata, and that for each bookie which runs.
    """
    if any(state_of(one.process) is not ProcessState.UP for one in state.members if not one.is_bookie):
        return None
    address = parse_address(state.uri)

    async def read(znodes: Znodes) -> tuple[Bookies, dict[str, tuple[str, int]]]:
        bookies = [member.address for member in state.bookies]
        endpoints = await read_http_endpoints(znodes, address.root, bookies)
        pages = {bookie: (one.host, one.port) for bookie, one in endpoints.items() if one is not None}
        return await read_bookies(znodes, address.root), pages

    try:
        registered, pages = run(ClientConfig(address.hosts, connect_timeout_s=timeout_s), read)
    except ClusterError:
        return None
    # A paused bookie would take a connection and answer nothing, and a killed one is registered for a while.
    running = [one.address for one in state.bookies if state_of(one.process) is ProcessState.UP]
    found = {bookie: _ledgers(*pages[bookie], timeout_s) for bookie in running if bookie in pages}
    ledgers = {bookie: count for bookie, count in found.items() if count is not None}
    served = {bookie: f"http://{host}:{port}" for bookie, (host, port) in pages.items()}
    return ClusterLook(registered, ledgers, served)


def _ledgers(host: str, port: int, timeout_s: float) -> int | None:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/state")
        return int(json.loads(connection.getresponse().read())["ledgers"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()

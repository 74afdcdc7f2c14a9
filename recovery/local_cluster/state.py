"""The state file of a cluster: its members, their ports and their processes. Pure.

    {"format": 1, "uri": "zk://127.0.0.1:2181/ledgers",
     "members": [{"name": "metadata", "port": 2181, "pid": 4711, "started": "81512 …"},
                 {"name": "bookie-1", "port": 3181, "pid": null, "started": null}]}

A process is named by its number and by when it was started, because the system uses numbers again. A bookie
that was killed for good has `"lost": true`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STATE_FILE = "cluster.json"
METADATA = "metadata"
"""The name of the metadata server."""

HOST = "127.0.0.1"
"""The address that all listen on, and that clients get."""
METADATA_PORT = 2181
BOOKIE_PORT = 3181
BOOKIES = 3

_FORMAT = 1


class LocalClusterError(Exception):
    """The request cannot be fulfilled; the text says why, and what can be done."""


@dataclass(frozen=True, slots=True)
class ProcessKey:
    """Identifies a process of this machine. A later process with the same number has another key."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class Member:
    """The metadata server, or one bookie."""

    name: str
    port: int
    process: ProcessKey | None = None
    """The process that was started last; `None` before the first one and after an orderly stop."""
    is_lost: bool = False
    """Whether it was killed for good: no command starts it again."""

    @property
    def address(self) -> str:
        """The address that it listens on. That of a bookie is also the id under which it is registered."""
        return f"{HOST}:{self.port}"

    @property
    def is_bookie(self) -> bool:
        return self.name != METADATA


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The content of the state file."""

    uri: str
    """The address of the metadata."""
    members: tuple[Member, ...]
    """The metadata server first, if the cluster has one of its own; then the bookies by number."""

    @property
    def bookies(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.is_bookie)

    @property
    def has_own_metadata(self) -> bool:
        return any(not member.is_bookie for member in self.members)

    @property
    def is_stopped(self) -> bool:
        """Whether every member was stopped in order, or never started."""
        return all(member.process is None for member in self.members)

    def member(self, word: str) -> Member:
        """Return the member of a name such as bookie-2 or metadata; a number is that of a bookie."""
        name = bookie_name(int(word)) if word.isascii() and word.isdecimal() else word
        for member in self.members:
            if member.name == name:
                return member
        raise LocalClusterError(f"there is no {name}: {', '.join(member.name for member in self.members)}")

    def with_lost(self, name: str) -> ClusterState:
        """Return the state in which a member is lost for good."""
        members = (replace(one, is_lost=one.is_lost or one.name == name) for one in self.members)
        return replace(self, members=tuple(members))

    def with_processes(self, processes: dict[str, ProcessKey | None]) -> ClusterState:
        """Return the state with these processes, by name of member."""
        members = (replace(one, process=processes.get(one.name, one.process)) for one in self.members)
        return replace(self, members=tuple(members))


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """The wanted settings. `None` keeps the present one, or takes the default for a new cluster."""

    bookies: int | None = None
    uri: str | None = None
    """The metadata of others, in place of a server of its own."""
    metadata_port: int | None = None
    """0 for any free one."""
    bookie_port: int | None = None
    """The port of the first bookie; the next ones have the next ports. 0 for any free ones."""

    @property
    def any_ports(self) -> int:
        """How many free ports could be needed."""
        of_bookies = (self.bookies or BOOKIES) if self.bookie_port == 0 else 0
        return of_bookies + (self.metadata_port == 0)


def planned(state: ClusterState | None, request: ClusterRequest, free: Iterator[int]) -> ClusterState:
    """Return the cluster that fulfils the request. The decisions of earlier requests are kept."""
    if state is None:
        own_port = None
        if request.uri is None:
            own_port = next(free) if request.metadata_port == 0 else request.metadata_port or METADATA_PORT
        members: tuple[Member, ...] = () if own_port is None else (Member(METADATA, own_port),)
        uri = request.uri or f"zk://{HOST}:{own_port}/ledgers"
    else:
        members, uri = state.members, state.uri
        own_port = next((one.port for one in members if not one.is_bookie), None)
        if request.uri not in (None, uri):
            raise LocalClusterError(f"the metadata of this cluster are at {uri}, not at {request.uri}")
        if own_port is not None and request.metadata_port not in (None, 0, own_port):
            raise LocalClusterError(f"the metadata server of this cluster has port {own_port}")
    ports = [member.port for member in members if member.is_bookie]
    missing = (request.bookies or len(ports) or BOOKIES) - len(ports)
    if missing < 0:
        raise LocalClusterError(f"the cluster has {len(ports)} bookies, and none can be taken away")
    first = request.bookie_port or (ports[-1] + 1 if ports else BOOKIE_PORT)
    ports += islice(free, missing) if request.bookie_port == 0 else range(first, first + missing)
    names = [bookie_name(number) for number in range(1, len(ports) + 1)]
    added = [Member(name, port) for name, port in zip(names, ports, strict=True)][len(ports) - missing :]
    shared = [port for port in ports if port == own_port or ports.count(port) > 1]
    if shared or max(ports) >= 1 << 16:
        raise LocalClusterError(f"these ports cannot be used: {own_port or ''} {ports}")
    return ClusterState(uri, (*members, *added))


def bookie_name(number: int) -> str:
    return f"bookie-{number}"


def encode(state: ClusterState) -> bytes:
    members = [
        {
            "name": member.name,
            "port": member.port,
            "pid": member.process and member.process.pid,
            "started": member.process and member.process.started,
            **({"lost": True} if member.is_lost else {}),
        }
        for member in state.members
    ]
    fields = {"format": _FORMAT, "uri": state.uri, "members": members}
    return json.dumps(fields, indent=1).encode() + b"\n"


def decode(data: bytes) -> ClusterState | str:
    """Return the state, or what is wrong with the bytes."""
    try:
        fields = json.loads(data)
        if fields["format"] != _FORMAT:
            return f"format {fields['format']} is not known: another version of ledgerstore wrote it"
        members = tuple(_members(fields["members"]))
        uri = fields["uri"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"not the state of a cluster: {error!r}"
    names = [member.name for member in members]
    expected = [bookie_name(number) for number in range(1, len(names) + 1)]
    if not isinstance(uri, str) or names not in (expected, [METADATA, *expected[:-1]]):
        return f"not the state of a cluster: {uri!r}, {names}"
    return ClusterState(uri, members)


def _members(rows: Iterable[dict[str, Any]]) -> Iterable[Member]:
    for row in rows:
        pid, started = row["pid"], row["started"]
        # A signal to a number below 1 would reach other processes than this one.
        if pid is not None and not (type(pid) is int and pid > 0 and isinstance(started, str)):
            raise ValueError(f"{row}")
        process = None if pid is None else ProcessKey(pid, started)
        yield Member(str(row["name"]), int(row["port"]), process, row.get("lost") is True)

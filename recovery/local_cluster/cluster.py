"""The verbs of a cluster on one machine.

    DIR/cluster.json    the state file: replaced as a whole, so that every command reads a whole one
    DIR/LOCK            held by a command that starts or stops members
    DIR/metadata        the store of the metadata server, if the cluster has one of its own
    DIR/bookie-1 …      the stores of the bookies
    DIR/logs            what each process has printed

A start goes from the metadata server to the nodes of the cluster to the bookies, a stop goes back. A process
is written to the state file as soon as it is started, so that an interrupted command leaves none unnamed.
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from recovery.local_cluster import processes
from recovery.local_cluster.ports import free_ports, is_taken
from recovery.local_cluster.processes import ProcessState
from recovery.local_cluster.state import (
    STATE_FILE,
    ClusterState,
    LocalClusterError,
    Member,
    decode,
    encode,
    planned,
)
from storage.cluster.errors import ClusterExists
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.format import init_cluster, read_instance_id
from storage.cluster.zookeeper.client import ClientConfig, run
from storage.disk import filenames, replace
from storage.disk.posix import PosixDirectory
from storage.errors import StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from recovery.local_cluster.state import ClusterRequest, ProcessKey
    from storage.cluster.metadata.znodes import Znodes

    Watch = Callable[[ClusterState, str, Collection[str]], None]
    """Called many times a second while a command waits: what for, such as starting, and the members."""

LOGS = "logs"
READY_S = 60.0
"""How long a member may take until it serves clients. The opening of a large store is in it."""
STOP_S = 30.0
"""How long a member may take to stop in order. Then it is killed."""

_POLL_S = 0.03
_SESSION_S = 4
"""The shortest that a ZooKeeper grants, so that a killed bookie is soon gone, and soon back."""
_METADATA_S = 20.0
_LOG_LINES = 10
_BOOKIE_READY = b" serves clients on "
_METADATA_READY = b"listens on "
"""Each prints this when it is ready."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member at this moment."""

    member: Member
    state: ProcessState
    size: int
    """Bytes of the blocks that the files below its directory occupy."""


class LocalCluster:
    """The cluster below one directory. Every verb reads the state file again."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._directory = PosixDirectory(self.path)

    def load(self) -> ClusterState:
        """Return what the state file says."""
        try:
            data = (self.path / STATE_FILE).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise LocalClusterError(
                f"there is no cluster in {self.path}: `ledgerstore cluster up` makes one"
            ) from None
        state = decode(data)
        if not isinstance(state, ClusterState):
            raise LocalClusterError(f"{self.path / STATE_FILE}: {state}")
        return state

    def log_of(self, member: Member) -> Path:
        """Return the file with what the member's processes have printed."""
        return self.path / LOGS / f"{member.name}.log"

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> list[MemberStatus]:
        """Return the state of every member."""
        return [
            MemberStatus(member, processes.state_of(member.process), _size_of(self.path / member.name))
            for member in self.load().members
        ]

    # ── starting ──────────────────────────────────────────────────────────────────────────────────────

    def up(self, request: ClusterRequest, watch: Watch) -> ClusterState:
        """Make the cluster if there is none, and start every member that is down; return when all serve.

        If one does not become ready, those that were started here are stopped again.
        """
        self._make_directory()
        with self._locked(), free_ports(request.any_ports) as ports:
            before = self.load() if (self.path / STATE_FILE).exists() else None
            state = planned(before, request, iter(ports))
            down = [
                one
                for one in state.members
                if not one.is_lost and processes.state_of(one.process) is ProcessState.DOWN
            ]
            if not down:
                raise LocalClusterError(f"the cluster in {self.path} is already up")
            return self._start(state, down, watch)

    def restart(self, word: str, watch: Watch) -> ClusterState:
        """Stop one member in order if it runs, and start it; return when it serves."""
        self.load()  # before the lock is made in a directory that is none of a cluster
        with self._locked():
            state = self.load()
            member = state.member(word)
            if member.is_lost:
                raise LocalClusterError(f"{member.name} was killed for good: no command starts it again")
            self._stop(state, [member], watch)
            return self._start(state, [member], watch)

    def _make_directory(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise LocalClusterError(f"not a directory: {self.path}")
        self.path.mkdir(parents=True, exist_ok=True)
        names = self._directory.names()
        strange = sorted(set(names) - {filenames.LOCK, filenames.draft(STATE_FILE)})
        if strange and STATE_FILE not in names:
            is_store = {filenames.JOURNAL_DIRECTORY, filenames.LEDGER_DIRECTORY} & set(names)
            holds = "is a store or a bookie's directory" if is_store else f"holds {', '.join(strange[:3])}"
            raise LocalClusterError(
                f"{self.path} {holds}, and is no cluster of `ledgerstore cluster up`: name an empty directory"
            )

    def _start(self, state: ClusterState, members: Sequence[Member], watch: Watch) -> ClusterState:
        for member in members:
            if is_taken(member.port):
                option = "--bookie-port" if member.is_bookie else "--port"
                raise LocalClusterError(
                    f"another program listens on port {member.port}, which {member.name} needs "
                    f"(a new cluster takes others with {option} N, or any free ones with {option} 0)"
                )
        if not state.has_own_metadata:
            # Before anything is decided for ever: the address may have been a wrong one.
            _check_nodes(state)
        (self.path / LOGS).mkdir(exist_ok=True)
        self._save(state)
        started: dict[str, ProcessKey | None] = {}
        try:
            for group in (
                [member for member in members if not member.is_bookie],
                [member for member in members if member.is_bookie],
            ):
                if group and group[0].is_bookie and state.has_own_metadata:
                    _make_nodes(state)
                ends = {member.name: self._log_size(member) for member in group}
                for member in group:
                    key = processes.start(self._arguments(state, member), self.log_of(member))
                    started[member.name] = key
                    state = state.with_processes(started)
                    self._save(state)
                self._wait_until_ready(state, ends, watch)
        except BaseException:
            state = state.with_processes(started)
            self._stop(state, [state.member(name) for name in started], watch)
            raise
        return state

    def _arguments(self, state: ClusterState, member: Member) -> list[str]:
        place, port = str(self.path / member.name), ["--port", str(member.port)]
        if not member.is_bookie:
            return ["metadata", "serve", place, *port]
        http = ["--http-port", "0"]  # for `ledgerstore top`
        session = ["--session-timeout", str(_SESSION_S), "--auto-recovery"]
        return ["bookie", place, "--metadata", state.uri, *port, *http, *session]

    def _wait_until_ready(self, state: ClusterState, log_ends: dict[str, int], watch: Watch) -> None:
        waiting = {name: state.member(name) for name in log_ends}
        give_up_at = time.monotonic() + READY_S
        while waiting:
            watch(state, "starting", waiting)
            for name, member in tuple(waiting.items()):
                # Its state is read first: if the process has ended, the log is complete by then.
                has_ended = processes.state_of(member.process) is ProcessState.DOWN
                with self.log_of(member).open("rb") as log:
                    log.seek(log_ends[name])
                    printed = log.read()
                if has_ended or time.monotonic() > give_up_at:
                    what = "has ended" if has_ended else f"was not ready after {READY_S:.0f} s"
                    raise LocalClusterError(f"{name} {what}. {_end_of(self.log_of(member), printed)}")
                if (_BOOKIE_READY if member.is_bookie else _METADATA_READY) in printed:
                    del waiting[name]
            time.sleep(_POLL_S)

    def _log_size(self, member: Member) -> int:
        try:
            return self.log_of(member).stat().st_size
        except FileNotFoundError:
            return 0

    # ── stopping ──────────────────────────────────────────────────────────────────────────────────────

    def down(self, watch: Watch) -> list[str]:
        """Stop all members in order, bookies before the metadata; return those that had to be killed.

        Another command that starts or stops members at this moment is waited for.
        """
        state = self.load()  # before the lock is made in a directory that is none of a cluster
        give_up_at = time.monotonic() + READY_S
        while True:
            try:
                with self._locked():
                    state = self.load()
                    return self._stop(state, state.members, watch)
            except StoreLocked:
                if time.monotonic() > give_up_at:
                    raise
            watch(state, "stopping", ())
            time.sleep(_POLL_S)

    def stop_unrecorded(self, state: ClusterState, watch: Watch) -> None:
        """Stop all members of a cluster whose state file is gone."""
        _stop_processes(state, state.members, watch)

    def _stop(self, state: ClusterState, members: Sequence[Member], watch: Watch) -> list[str]:
        killed = _stop_processes(state, members, watch)
        self._save(state.with_processes({member.name: None for member in members}))
        return killed

    # ── failures ──────────────────────────────────────────────────────────────────────────────────────

    def kill(self, word: str) -> Member:
        """Kill one member, without notice."""
        member = self._running(word)
        self._signal(member, signal.SIGKILL, ProcessState.DOWN)
        return member

    def kill_for_good(self, word: str) -> Member:
        """Kill one bookie, running or not, and never start it again, as if its machine was lost.

        Its files stay, and no command uses them.
        """
        self.load()  # before the lock is made in a directory that is none of a cluster
        with self._locked():
            state = self.load()
            member = state.member(word)
            if not member.is_bookie:
                raise LocalClusterError(f"{member.name} cannot be lost for good: the others need it")
            # Written first. Otherwise an interrupted command would leave a bookie that `up` starts again.
            self._save(state.with_lost(member.name))
            if processes.state_of(member.process) is not ProcessState.DOWN:
                self._signal(member, signal.SIGKILL, ProcessState.DOWN)
        return member

    def pause(self, word: str) -> Member:
        """Stop the time of one member: its connections stay, and nothing is answered."""
        member = self._running(word)
        self._signal(member, signal.SIGSTOP, ProcessState.PAUSED)
        return member

    def resume(self, word: str) -> Member:
        """Let a paused member go on."""
        member = self._running(word)
        if processes.state_of(member.process) is not ProcessState.PAUSED:
            raise LocalClusterError(f"{member.name} is not paused")
        self._signal(member, signal.SIGCONT, ProcessState.UP)
        return member

    def _running(self, word: str) -> Member:
        state = self.load()
        member = state.member(word)
        if processes.state_of(member.process) is ProcessState.DOWN:
            command = "up` starts all that is down" if state.is_stopped else "restart` starts it again"
            raise LocalClusterError(f"{member.name} is not running: `ledgerstore cluster {command}")
        return member

    def _signal(self, member: Member, number: signal.Signals, expected: ProcessState) -> None:
        assert member.process is not None
        processes.send(member.process, number)
        give_up_at = time.monotonic() + STOP_S
        while processes.state_of(member.process) is not expected:
            if time.monotonic() > give_up_at:
                raise LocalClusterError(f"{member.name} does not react to {number.name}")
            time.sleep(_POLL_S)

    # ── the state file ────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._directory.lock(filenames.LOCK):
            yield

    def _save(self, state: ClusterState) -> None:
        replace.write_draft(self._directory, STATE_FILE, [encode(state)])
        replace.publish_draft(self._directory, STATE_FILE)


def _stop_processes(state: ClusterState, members: Sequence[Member], watch: Watch) -> list[str]:
    """Stop the bookies and then the metadata server, with which they unregister; return which were killed."""
    killed: list[str] = []
    for is_bookie in (True, False):
        group = {one.name: one.process for one in members if one.is_bookie is is_bookie}
        running = {name: process for name, process in group.items() if process is not None}
        for process in running.values():
            processes.send(process, signal.SIGTERM)
            # A paused process gets the other signal only when it goes on.
            processes.send(process, signal.SIGCONT)
        kill_at = time.monotonic() + STOP_S
        while running := {
            name: process
            for name, process in running.items()
            if processes.state_of(process) is not ProcessState.DOWN
        }:
            watch(state, "stopping", running)
            if time.monotonic() > kill_at:
                killed += [name for name in running if name not in killed]
                for process in running.values():
                    processes.send(process, signal.SIGKILL)
            time.sleep(_POLL_S)
    return killed


def _check_nodes(state: ClusterState) -> None:
    """Raise if the metadata of others have no cluster at the address."""
    address = parse_address(state.uri)
    config = ClientConfig(address.hosts, connect_timeout_s=_METADATA_S)
    run(config, lambda znodes: read_instance_id(znodes, address.root))


def _make_nodes(state: ClusterState) -> None:
    """Make the nodes of a new cluster on its own metadata server, unless they are there."""
    address = parse_address(state.uri)
    for member in state.members:
        found = processes.state_of(member.process)
        if not member.is_bookie and found is not ProcessState.UP:
            command = "resume" if found is ProcessState.PAUSED else "restart"
            raise LocalClusterError(
                f"{member.name} is {found.value}: `ledgerstore cluster {command} {member.name}` comes first"
            )

    async def work(znodes: Znodes) -> None:
        with suppress(ClusterExists):
            await init_cluster(znodes, address.root, str(uuid4()))

    run(ClientConfig(address.hosts, connect_timeout_s=_METADATA_S), work)


def _size_of(path: Path) -> int:
    size = 0
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):  # the process has removed it
            size += file.stat().st_blocks * 512
    return size


def _end_of(log: Path, printed: bytes) -> str:
    lines = printed.decode(errors="backslashreplace").splitlines()[-_LOG_LINES:]
    return "\n".join([f"The end of {log}:", *(f"    {line}" for line in lines)] if lines else [f"See {log}"])

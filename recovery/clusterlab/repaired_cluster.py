"""The cluster of a schedule of auto-recovery: bookies, ledgers, processes, and their metadata.

Two processes of auto-recovery watch up to three ledgers. Some are closed, others are written by their
clients, which die or go on. Bookies that check first adds collect copies that are not needed, as ours do.
"""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from recovery.autorecovery.config import AutoRecoveryConfig
from recovery.clusterlab.bookies import StoredLedger
from recovery.clusterlab.clients import WriterClient
from recovery.clusterlab.collection import INSTANCE, CollectedBookie, collect
from recovery.clusterlab.metadata_ensemble import MetadataEnsemble
from recovery.clusterlab.network import Network
from recovery.clusterlab.recovery_hosts import PATHS, ROOT, Host, LedgerNodeInTree, NodesAtOnce
from recovery.clusterlab.repair_oracles import ClusterOracles, LedgerOracles
from recovery.clusterlab.virtual_loop import VirtualLoop
from recovery.clusterlab.workload import QUORUMS, Schedule
from recovery.clusterlab.world import EventKind
from storage.cluster.client.effects import UnderReplicated
from storage.cluster.client.entries import entry_codec
from storage.cluster.client.placement import Candidates, choose_ensemble
from storage.cluster.client.writer import LedgerWriter, WriterLimits
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment, encode
from storage.cluster.metadata.paths import INSTANCE_ID
from storage.cluster.metadata.registration import BookieMode, bookie_path
from storage.cluster.metadata.underreplication import base_path, marks_path
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, CodeAnswer
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.clusterlab.clients import RecovererClient
    from recovery.clusterlab.recovery_hosts import Command
    from recovery.clusterlab.world import Choices, World
    from recovery.clusterlab.znodes import ZnodeSession
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.effects import Effect
    from storage.cluster.wire.messages import Answer, Request

HORIZON = 400
"""Clients write in this time."""

_EVENTS_MAX = 200_000

_LOSSES = (0.0, 0.02, 0.1)
_LAGS = (1.0, 10.0, 50.0, 200.0)
_DELAYS_S = (0, 0, 0, 10)
_GRACES_S = (0.0, 2.0, 10.0)

_FIRST_LEDGER = 7

_LOG = logging.getLogger("ledgerstore")


class RegisteredBookie(CollectedBookie):
    """A model bookie with a session, by which it is registered."""

    session_id = 0
    """0 while it has none."""
    is_read_only = False
    is_full = False
    """Registered as writable, and refusing adds."""
    is_lost = False
    """Whether its disk is gone, and it does not come back."""

    def take(self, request: Request, reply: Callable[[Answer], None]) -> None:
        if isinstance(request, AddEntry) and (self.is_full or self.is_read_only):
            reply(CodeAnswer(Code.READ_ONLY))
        else:
            super().take(request, reply)


class MarkingWriter(WriterClient):
    """A writer that marks its ledger when it has closed it with too few copies of an entry."""

    mark: Callable[[frozenset[str]], None]

    def report(self, effect: Effect) -> None:
        super().report(effect)
        if isinstance(effect, UnderReplicated):
            self.mark(effect.bookies)


class WrittenLedger:
    """A ledger, and the clients that write and recover it."""

    def __init__(self, oracles: LedgerOracles, node: LedgerNodeInTree) -> None:
        self.oracles = oracles
        self.node = node
        self.writer: WriterClient | None = None
        self.recoverers: list[RecovererClient] = []


class RepairedCluster(Schedule):
    """The cluster of a schedule: its bookies, ledgers, processes and metadata."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self._loop = VirtualLoop(self.world)  # type: ignore[abstract]  # it has what coroutines need
        self._hosts: list[Host] = []
        self._commands: list[Host] = []
        self._ledgers: list[WrittenLedger] = []
        self._bookies: dict[str, RegisteredBookie] = {}
        self._collectors: dict[str, Host] = {}
        """By bookie: the process that deletes copies there, which ends with the bookie."""
        self._checks_first_adds = True

    def play(self) -> None:
        """Play it. Raise `InvariantViolated` if an invariant does not hold."""
        level = _LOG.level
        handler = _TraceHandler(self.world)
        _LOG.setLevel(logging.CRITICAL if self.world.trace is None else logging.INFO)
        _LOG.addHandler(handler)
        is_passed_on, _LOG.propagate = _LOG.propagate, False
        try:
            super().play()
        finally:
            # After a violation coroutines are in the middle of something.
            self.stop()
            self._loop.finish()
            _LOG.setLevel(level)
            _LOG.propagate = is_passed_on
            _LOG.removeHandler(handler)

    # ── the beginning ─────────────────────────────────────────────────────────────────────────────────

    def _set_up(self) -> None:
        """Draw a cluster with its ledgers, and start its processes."""
        world, pick = self.world, self._choices.pick
        # Coroutines of production take their chances from the random source that all share.
        random.seed(pick(1 << 20))
        kind = pick(2 * len(QUORUMS) - 2)
        quorums = QUORUMS[kind if kind < len(QUORUMS) else 0]
        self._checks_first_adds = bool(pick(2))
        self._config = AutoRecoveryConfig(
            lost_bookie_recovery_delay_s=_DELAYS_S[pick(len(_DELAYS_S))],
            open_ledger_grace_s=_GRACES_S[pick(len(_GRACES_S))],
            pause_max_s=20.0,
            check_interval_s=0.0,
        )
        lags = [_LAGS[pick(len(_LAGS))] for _ in range(pick(3))]
        self._build(quorums, quorums.ensemble + pick(4), lags, hosts=2)
        self._fill(self._new_ledger(_FIRST_LEDGER))
        for number in range(1, 1 + pick(3)):
            at = pick(2) * pick(HORIZON)
            if at:
                world.after(at, self._make_later, _FIRST_LEDGER + number)
            else:
                self._fill(self._new_ledger(_FIRST_LEDGER + number))
        self._network.loss = _LOSSES[pick(len(_LOSSES))]
        self.ensemble.loss = _LOSSES[pick(len(_LOSSES))]
        for host in self._hosts:
            world.after(pick(20), self._start_host, host)
        if self._checks_first_adds:
            for bookie in self._bookies.values():
                self._collectors[bookie.name] = self._new_host(f"collector of {bookie.name}")
                self._start_collector(bookie)

    def _build(self, quorums: Quorums, bookies: int, lags: Sequence[float], hosts: int) -> None:
        """Make a cluster with its bookies and processes, and without ledgers."""
        self._quorums = quorums
        self._names = [f"b{number}" for number in range(1, bookies + 1)]
        self.oracles_of_all = oracles = ClusterOracles(self.world)
        self.ensemble = ensemble = MetadataEnsemble(self.world, oracles.committing)
        oracles.looked_at = ensemble.looked_at
        self._make_cluster()
        for lag in lags:
            ensemble.add_follower(lag)
        for name in self._names:
            metadata = NodesAtOnce(ensemble) if self._checks_first_adds else None
            self._bookies[name] = RegisteredBookie(name, self.world, oracles, metadata)
            ensemble.put(f"{ROOT}/cookies/{name}")
            self._register_bookie(self._bookies[name])
        self._network = Network(self.world, {**self._bookies})
        self._hosts = [self._new_host(f"recovery{number}") for number in range(hosts)]
        oracles.repairers = {host.name for host in self._hosts}

    def _make_cluster(self) -> None:
        under = base_path(ROOT)
        for path in (ROOT, f"{ROOT}/available", f"{ROOT}/available/readonly", f"{ROOT}/cookies", under):
            self.ensemble.put(path)
        for path in (f"{under}/locks", marks_path(ROOT)):
            self.ensemble.put(path)
        self.ensemble.put(f"{ROOT}/{INSTANCE_ID}", INSTANCE.encode())

    def _new_ledger(self, ledger_id: int) -> WrittenLedger:
        """Make an open ledger without entries."""
        pick, quorums = self._choices.pick, self._quorums
        codec = entry_codec(ledger_id, DigestType.CRC32C, b"")
        chosen = choose_ensemble(self._candidates(), quorums, pick(1000))
        created = ClusterLedgerMetadata(
            quorums.ensemble,
            quorums.write,
            quorums.ack,
            (LedgerSegment(0, chosen),),
            digest_type=DigestType.CRC32C,
            password=b"",
        )
        path = PATHS.path_of(ledger_id)
        for parent in (path.rsplit("/", 2)[0], path.rsplit("/", 1)[0]):
            if parent not in self.ensemble.tree.nodes:
                self.ensemble.put(parent)
        oracles = LedgerOracles(self.world, quorums, codec, created)
        node = oracles.node = LedgerNodeInTree(ledger_id, self.ensemble, created)
        self.oracles_of_all.add(oracles)
        self.ensemble.put(path, encode(created))
        oracles.bookies = {**self._bookies}
        if not self.world.now:
            for server in self.ensemble.servers:
                self.ensemble.catch_up(server)
        self._ledgers.append(WrittenLedger(oracles, node))
        return self._ledgers[-1]

    def _make_later(self, ledger_id: int) -> None:
        """Let a client make a ledger when others are repaired. Servers that lag do not show it yet."""
        if len(self._candidates().writable) >= self._quorums.ensemble:
            self._start_writer_of(self._new_ledger(ledger_id))

    def _fill(self, ledger: WrittenLedger) -> None:
        """Close a ledger with entries, or let a client write it."""
        if self._choices.pick(3) == 0:
            self._close(ledger)
        else:
            self._start_writer_of(ledger)

    def _close(self, ledger: WrittenLedger) -> None:
        """Let a ledger have been written and closed long ago, with up to two segments."""
        pick, metadata = self._choices.pick, ledger.oracles.metadata
        count = pick(7)
        if count > 1 and pick(2):
            other = choose_ensemble(Candidates(frozenset(self._names)), self._quorums, pick(1000))
            metadata = metadata.with_ensemble_change(1 + pick(count - 1), other)
        self._close_with(ledger, metadata.segments, count)

    def _close_with(self, ledger: WrittenLedger, segments: tuple[LedgerSegment, ...], count: int) -> None:
        """Let a ledger have these segments and so many entries, of which every copy is there."""
        oracles, metadata = ledger.oracles, replace(ledger.oracles.metadata, segments=segments)
        payloads = [b"%d" % number * 3 for number in range(count)]
        oracles.added(payloads)
        length = 0
        for entry_id, payload in enumerate(payloads):
            length += len(payload)
            data = oracles.codec.encode(entry_id, entry_id - 1, length, payload)
            bookies = metadata.segment_of(entry_id).bookies
            for index in self._quorums.write_set(entry_id):
                kept = self._bookies[bookies[index]].ledgers.setdefault(oracles.ledger_id, StoredLedger())
                kept.entries[entry_id] = data
        oracles.acknowledged = count - 1
        ledger.node.write_at_once(metadata.closed(count - 1, length))

    def _start_writer_of(self, ledger: WrittenLedger) -> None:
        pick, world = self._choices.pick, self.world
        name = f"writer{ledger.oracles.ledger_id}"
        writer = MarkingWriter(name, world, self._network, ledger.node, ledger.oracles)
        writer.mark = partial(self._mark_by_writer, ledger)
        ledger.writer = writer
        limits = WriterLimits(ensemble_changes_max=20)
        machine = LedgerWriter(ledger.oracles.codec, ledger.node.node, self._candidates(), pick(1000), limits)
        writer.start(machine)
        at = 0.0
        for _ in range(1 + pick(3)):
            world.after(at, writer.deliver, writer.add, 1 + pick(3))
            at += pick(HORIZON // 2)
        if pick(3) == 0:
            world.after(at + pick(HORIZON), writer.deliver, writer.close)

    def _mark_by_writer(self, ledger: WrittenLedger, bookies: frozenset[str]) -> None:
        async def mark(session: ZnodeSession, cluster: AsyncCluster) -> None:  # noqa: ARG001
            cluster.mark(ledger.oracles.ledger_id, bookies)

        self._command(f"marker{ledger.oracles.ledger_id}", mark)

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────

    def _new_host(self, name: str) -> Host:
        return Host(name, self._loop, self.world, self._network, self.ensemble)

    def _start_host(self, host: Host) -> None:
        if not host.is_running:
            self.world.note(EventKind.MENDED, host.name, "starts")
            host.start_recovery(self._config)

    def _command(self, name: str, command: Command) -> Host:
        host = self._new_host(name)
        self._commands.append(host)
        host.start_command(command)
        return host

    # ── bookies ───────────────────────────────────────────────────────────────────────────────────────

    def _register_bookie(self, bookie: RegisteredBookie) -> None:
        """Let a bookie have a session and a node."""
        if bookie.session_id:
            self._unregister(bookie)
        bookie.session_id = self.ensemble.new_session_id()
        mode = BookieMode.READ_ONLY if bookie.is_read_only else BookieMode.WRITABLE
        self.ensemble.put(bookie_path(ROOT, bookie.name, mode), b"", bookie.session_id)
        self._tell_candidates()

    def _unregister(self, bookie: RegisteredBookie) -> None:
        if bookie.session_id:
            session_id, bookie.session_id = bookie.session_id, 0
            self.ensemble.end_session(session_id)
            self._tell_candidates()

    def _expire(self, bookie: RegisteredBookie, session_id: int) -> None:
        if bookie.session_id == session_id:
            self._unregister(bookie)

    def _candidates(self) -> Candidates:
        there = (one for one in self._bookies.values() if one.session_id and not one.is_read_only)
        return Candidates(frozenset(one.name for one in there))

    def _tell_candidates(self) -> None:
        """Let the writers know, some time later, which bookies take adds."""
        for ledger in self._ledgers:
            if ledger.writer is not None:
                self.world.after(
                    self.world.delay(), setattr, ledger.writer.machine, "candidates", self._candidates()
                )

    def _restart_bookie(self, bookie: RegisteredBookie) -> None:
        if bookie.is_lost:
            return
        bookie.restart()
        self.world.note(EventKind.MENDED, bookie.name, "starts again")
        self._register_bookie(bookie)
        self._start_collector(bookie)

    def _start_collector(self, bookie: RegisteredBookie) -> None:
        host = self._collectors.get(bookie.name)
        if host is not None and not host.is_running:
            host.start(collect(bookie, host, self.world, self.oracles_of_all))

    def stop(self) -> None:
        """End all processes that run coroutines."""
        for host in (*self._hosts, *self._commands, *self._collectors.values()):
            host.stop()

    def _run(self) -> None:
        self.world.run(_EVENTS_MAX)


class _TraceHandler(logging.Handler):
    """Puts what auto-recovery tells its log into the trace."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note(EventKind.REPORT, "log", record.getMessage())

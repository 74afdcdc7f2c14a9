"""One schedule: a ledger, its clients, and what goes wrong. All of it follows from the choices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from recovery.clusterlab.bookies import ModelBookie
from recovery.clusterlab.clients import ReaderClient, RecovererClient, WriterClient
from recovery.clusterlab.metadata import FOLLOWERS, ModelMetadata
from recovery.clusterlab.network import Network
from recovery.clusterlab.oracles import InvariantViolated, Oracles
from recovery.clusterlab.world import BusyForEver, EventKind, World
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.entries import entry_codec
from storage.cluster.client.placement import Candidates, choose_ensemble
from storage.cluster.client.tailer import LedgerTailer
from storage.cluster.client.writer import LedgerWriter, WriterLimits, WriterState
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from recovery.clusterlab.world import Choices

QUORUMS = (Quorums(3, 3, 2), Quorums(3, 2, 2), Quorums(4, 3, 2), Quorums(3, 3, 3), Quorums(3, 2, 1))
"""The first is the usual one, and is chosen as often as all others together."""

_ENTRIES = entry_codec(7, DigestType.CRC32C, b"")
_LIMITS = WriterLimits(ensemble_changes_max=20)

HORIZON = 160
"""Clients begin and faults happen before this time."""

_MENDED = 600.0
"""From now on nothing goes wrong, and the ledger is recovered."""

_POLL_S = 100.0

_LOSSES = (0.0, 0.02, 0.1, 0.25)
_METADATA_LOSSES = (0.0, 0.1, 0.3)
_LAGS = (1.0, 10.0, 50.0, 200.0)


class Schedule:
    """One schedule, as far as it has been played."""

    bookie_kind = ModelBookie
    network_kind = Network
    oracles_kind = Oracles
    writer_kind = WriterClient
    machine_kind: type[LedgerWriter] = LedgerWriter

    def __init__(self, choices: Choices) -> None:
        self.world = World(choices)
        self._choices = choices

    def play(self) -> None:
        """Play it. Raise `InvariantViolated` if an invariant does not hold."""
        try:
            self._set_up()
            self._run()
            self._check()
        except BusyForEver:
            raise InvariantViolated("O8", "events go on without an end") from None
        except InvariantViolated:
            raise
        except Exception as error:
            raise InvariantViolated("O8", f"a client has failed: {error!r}") from error

    def _run(self) -> None:
        """Let everything happen."""
        self.world.run()

    def _set_up(self) -> None:
        world, pick = self.world, self._choices.pick
        kind = pick(2 * len(QUORUMS) - 2)
        quorums = QUORUMS[kind if kind < len(QUORUMS) else 0]
        names = [f"b{number}" for number in range(1, quorums.ensemble + 1 + pick(3))]
        candidates = Candidates(frozenset(names))
        self._registered = set(names)
        seed = pick(1000)
        ensemble = choose_ensemble(candidates, quorums, seed)
        created = ClusterLedgerMetadata(
            quorums.ensemble, quorums.write, quorums.ack, (LedgerSegment(0, ensemble),)
        )
        self.oracles = oracles = self.oracles_kind(quorums, _ENTRIES, created)
        self.metadata = ModelMetadata(world, oracles, created)
        # Bookies of Apache BookKeeper do not check first adds.
        checked = self.metadata if pick(2) else None
        self.bookies = {name: self.bookie_kind(name, world, oracles, checked) for name in names}
        oracles.bookies = self.bookies
        self.network = self.network_kind(world, self.bookies)
        for _ in range(pick(FOLLOWERS + 1)):
            self.metadata.add_follower(_LAGS[pick(len(_LAGS))])
        self.network.loss = _LOSSES[pick(len(_LOSSES))]
        self.metadata.loss = _METADATA_LOSSES[pick(len(_METADATA_LOSSES))]
        self._environment = world, self.network, self.metadata, oracles
        self._start_writer(self.machine_kind(_ENTRIES, self.metadata.node, candidates, seed, _LIMITS))
        self._recoverers = [RecovererClient(f"recoverer{n}", *self._environment) for n in range(pick(3))]
        for recoverer in self._recoverers:
            start = partial(recoverer.start, _ENTRIES, self._candidates, attempts=1 + pick(3))
            world.after(pick(HORIZON), recoverer.deliver, start)
        self._readers = [ReaderClient(f"reader{n}", *self._environment) for n in range(pick(3))]
        for reader in self._readers:
            world.after(pick(HORIZON), self._start_reader, reader)
        for _ in range(pick(4)):
            world.after(pick(HORIZON), self._go_wrong)
        world.after(_MENDED, self._mend)

    def _start_writer(self, machine: LedgerWriter) -> None:
        pick = self._choices.pick
        self.writer = self.writer_kind("writer", *self._environment)
        self.writer.start(machine)
        at = 0.0
        for _ in range(1 + pick(4)):
            self.world.after(at, self.writer.deliver, self.writer.add, 1 + pick(3))
            at += pick(HORIZON // 3)
        if pick(2):
            self.world.after(at + pick(HORIZON), self.writer.deliver, self.writer.close)

    def _start_reader(self, reader: ReaderClient) -> None:
        known = self.metadata.shown_to(reader.name)
        reader.deliver(reader.start, LedgerTailer(_ENTRIES, known, 0, _POLL_S))

    # ── what goes wrong ───────────────────────────────────────────────────────────────────────────────

    def _go_wrong(self) -> None:
        """Crash a bookie, cut a link, pause or kill a client, or let a session expire."""
        world, pick = self.world, self._choices.pick
        bookie = list(self.bookies.values())[pick(len(self.bookies))]
        processes = [self.writer, *self._recoverers, *self._readers]
        process = processes[pick(len(processes))]
        lasts = 10 + pick(150)
        match pick(10):
            case 0 | 1 | 2 | 3:
                if bookie.is_up:
                    self.network.crash(bookie.name)
                    self._tell_candidates()
                    world.after(lasts, self._restart, bookie)
            case 4 | 5:
                self.network.cut(process.name, bookie.name)
                world.after(lasts, self.network.mend, process.name, bookie.name)
            case 6:
                process.paused_until = world.now + lasts
                world.note(EventKind.FAULT, process.name, f"is paused until {process.paused_until:.0f}")
            case 7:
                self.metadata.expire(process.name, lasts / 4)
            case 8:
                self._registered.discard(bookie.name)
                world.note(EventKind.FAULT, bookie.name, "loses its registration")
                self._tell_candidates()
                world.after(lasts, self._register, bookie.name)
            case _:
                process.is_alive = False
                world.note(EventKind.FAULT, process.name, "is killed")

    def _restart(self, bookie: ModelBookie) -> None:
        bookie.restart()
        self.world.note(EventKind.MENDED, bookie.name, "starts again")
        self._tell_candidates()

    def _register(self, name: str) -> None:
        """Let a bookie have a session again. It has served all the time."""
        self._registered.add(name)
        self.world.note(EventKind.MENDED, name, "is registered again")
        self._tell_candidates()

    def _tell_candidates(self) -> None:
        """Let the writer know, some time later, which bookies are registered."""
        self.world.after(self.world.delay(), setattr, self.writer.machine, "candidates", self._candidates())

    def _candidates(self) -> Candidates:
        up = {name for name, bookie in self.bookies.items() if bookie.is_up}
        return Candidates(frozenset(up & self._registered))

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def _mend(self) -> None:
        """Repair everything, and recover the ledger."""
        self.network.mend_all()
        self.metadata.loss = 0.0
        for bookie in self.bookies.values():
            bookie.restart()
        self._last = RecovererClient("last", *self._environment)
        self._last.start(_ENTRIES, self._candidates, 1)

    def _check(self) -> None:
        self.writer.check_done()
        for process in (self.writer, self._last, *self._recoverers, *self._readers):
            if process.is_alive and not process.is_done:
                raise InvariantViolated("O8", f"{process.name} waits for ever")
        self.oracles.check_end(self.metadata.node.value)
        if self.writer.is_alive and self.writer.machine.state is WriterState.CLOSED:
            self.oracles.check_reported(self.writer.name, self.writer.lacking)
        for reader in self._readers:
            if reader.is_alive:
                self.oracles.check_shown(reader.name, reader.shown)

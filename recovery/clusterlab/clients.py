"""Processes that drive the state machines. They can be paused and killed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from recovery.clusterlab.world import EventKind
from storage.cluster.client.effects import (
    AddsAcknowledged,
    AddsFailed,
    FollowEnded,
    ReadMetadata,
    Recovered,
    RecoveryFailed,
    Send,
    SendAdds,
    ShowEntry,
    UnderReplicated,
    Wait,
    WriteMetadata,
    WriterClosed,
    WriterLost,
)
from storage.cluster.client.recoverer import LedgerRecoverer
from storage.cluster.client.writer import LedgerWriter, WriterState
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.clusterlab.metadata import Watch
    from recovery.clusterlab.network import Network
    from recovery.clusterlab.oracles import Oracles
    from recovery.clusterlab.world import World
    from storage.cluster.client.effects import Effect, LedgerMachine, MetadataRead, MetadataWritten
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.client.placement import Candidates
    from storage.cluster.client.tailer import LedgerTailer
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.update import Versioned


_RETRY = 40.0
_READ_AHEAD = 3


class LedgerNode(Protocol):
    """The metadata of the ledger, as processes use them."""

    def write(
        self,
        process: ClientProcess,
        metadata: ClusterLedgerMetadata,
        version: int,
        answered: Callable[[MetadataWritten], None],
    ) -> None: ...
    def read(self, process: ClientProcess, answered: Callable[[MetadataRead], None]) -> None: ...
    def shown_to(self, name: str) -> Versioned[ClusterLedgerMetadata]: ...
    def watch(self, name: str, changed: Watch) -> None: ...


class ModelProcess:
    """A process that can be paused and killed."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.is_alive = True
        self.paused_until = 0.0

    def deliver(self, event: Callable[..., None], *arguments: object) -> None:
        """Deliver an event to the process: later if it is paused, never if it was killed."""
        if not self.is_alive:
            return
        if self.world.now < self.paused_until:
            self.world.after(self.paused_until - self.world.now, self.deliver, event, *arguments)
        else:
            event(*arguments)


class Process(ModelProcess):
    """A process that calls bookies."""

    def __init__(self, name: str, world: World, network: Network) -> None:
        super().__init__(name, world)
        self.network = network


class ClientProcess(Process):
    """One client process, with one state machine at a time."""

    def __init__(
        self, name: str, world: World, network: Network, metadata: LedgerNode, oracles: Oracles
    ) -> None:
        super().__init__(name, world, network)
        self.metadata = metadata
        self.oracles = oracles
        self.is_done = False
        """Whether it has nothing more to do."""

    def drive(self, machine: LedgerMachine) -> None:
        """Drive this machine from now on."""
        self._machine = machine

    def perform(self, effects: Sequence[Effect]) -> None:
        """Do what the machine asks for, in its order."""
        machine = self._machine
        for effect in effects:
            match effect:
                case Send(bookie, request, token):
                    answered = partial(self._happened, machine, machine.answered, token)
                    self.network.call(self, bookie, request, answered)
                case SendAdds(copies):
                    for add, sendings in copies:
                        for sending in sendings:
                            answered = partial(
                                self._happened, machine, machine.added, sending, (add.entry_id,)
                            )
                            self.network.call(self, sending.bookie, add, answered)
                case WriteMetadata(metadata, version):
                    written = partial(self._happened, machine, machine.metadata_written)
                    self.metadata.write(self, metadata, version, written)
                case ReadMetadata():
                    self.metadata.read(self, partial(self._happened, machine, machine.metadata_read))
                case Wait(seconds):
                    self.world.after(seconds, self.deliver, self._happened, machine, machine.waited)
                case report:
                    if self.world.trace is not None:
                        self.world.note(EventKind.REPORT, self.name, str(report))
                    self.report(report)

    def _happened(self, machine: LedgerMachine, event: Callable[..., list[Effect]], *answer: object) -> None:
        """Pass an event to the machine, unless the process drives another machine by now."""
        if machine is self._machine:
            self.perform(event(*answer))

    def report(self, effect: Effect) -> None:
        """Take a report of the machine."""
        raise NotImplementedError


class WriterClient(ClientProcess):
    """Writes entries, and closes the ledger or not."""

    def start(self, machine: LedgerWriter) -> None:
        self.drive(machine)
        self.machine = machine
        self._added = 0
        self.lacking: frozenset[str] = frozenset()
        self._reported = 0
        """The entries that were acknowledged or have failed."""

    def add(self, count: int) -> None:
        """Add some entries, unless the writer has ended."""
        payloads = [b"%d" % number * 3 for number in range(self._added, self._added + count)]
        try:
            effects = self.machine.add(payloads)
        except StoreError:
            return
        self._added += count
        self.oracles.added(payloads)
        self.perform(effects)

    def close(self) -> None:
        self.perform(self.machine.close())

    def report(self, effect: Effect) -> None:
        match effect:
            case AddsAcknowledged(first, last):
                self._reported += last - first + 1
                self.oracles.entries_acknowledged(first, last)
            case AddsFailed(first, last):
                self._reported += last - first + 1
            case WriterClosed(metadata):
                self.oracles.knows_closed(self.name, metadata.value)
            case UnderReplicated(bookies):
                self.lacking = bookies
            case WriterLost(error):
                self.oracles.writer_lost(self.name, error)
            case _:
                raise AssertionError(effect)

    def check_done(self) -> None:
        """Note whether every call has ended."""
        is_quiet = self.machine.state not in (WriterState.CHANGING, WriterState.CLOSING)
        self.is_done = is_quiet and self._reported == self._added


class RecovererClient(ClientProcess):
    """Takes the ledger over. After a failure it tries again with a new machine."""

    def start(
        self,
        entries: EntryCodec,
        candidates: Callable[[], Candidates],
        attempts: int,
        read_ahead: int = _READ_AHEAD,
    ) -> None:
        """Begin with the metadata that its server shows, which may be old."""
        self._read_ahead = read_ahead
        self._entries = entries
        self._candidates = candidates
        self._attempts = attempts
        self._begin()

    def _begin(self) -> None:
        self._attempts -= 1
        known = self.metadata.shown_to(self.name)
        seed = self.world.choices.pick(100)
        machine = LedgerRecoverer(self._entries, known, self._candidates(), seed, self._read_ahead)
        self.drive(machine)
        self.perform(machine.begin())

    def report(self, effect: Effect) -> None:
        match effect:
            case Recovered(metadata):
                self.is_done = True
                self.oracles.knows_closed(self.name, metadata.value)
            case RecoveryFailed() if self._attempts:
                self.world.after(_RETRY, self.deliver, self._begin)
            case RecoveryFailed():
                self.is_done = True
            case _:
                raise AssertionError(effect)


class ReaderClient(ClientProcess):
    """Follows the ledger."""

    shown = 0
    """The number of entries that it was shown."""

    def start(self, machine: LedgerTailer) -> None:
        self.drive(machine)
        self.metadata.watch(
            self.name, partial(self.deliver, self._happened, machine, machine.metadata_changed)
        )
        self.perform(machine.begin())

    def report(self, effect: Effect) -> None:
        match effect:
            case ShowEntry(entry):
                self.shown += 1
                self.oracles.shown(self.name, entry)
            case FollowEnded(error):
                self.is_done = True
                self.oracles.reader_ended(self.name, error)
            case _:
                raise AssertionError(effect)

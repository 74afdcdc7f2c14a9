"""Schedules of ledgers whose last add confirmed moves by itself: deferred syncs, and explicit packets.

A bookie answers an add with a deferred sync when it has the entry in memory. A crash loses what no later sync
has made durable. In all invariants the entries that a writer confirms take the place of those that it
acknowledges: readers are shown only confirmed entries, and these must have Qa durable copies at that moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.clusterlab.bookies import ModelBookie
from recovery.clusterlab.clients import WriterClient
from recovery.clusterlab.network import Network
from recovery.clusterlab.oracles import Oracles
from recovery.clusterlab.workload import HORIZON, Schedule
from storage.cluster.client.deferred_writer import DeferredLedgerWriter
from storage.cluster.client.effects import AddsAcknowledged, EntriesForced, ForceFailed, NoAnswer
from storage.cluster.client.writer import LedgerWriter, Replacement
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, CodeAnswer, ForceLedger, WriteLac
from storage.entry.format import HEAD
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.clusterlab.bookies import BookieMetadata, BookieOracles
    from recovery.clusterlab.world import World
    from storage.cluster.client.effects import Effect
    from storage.cluster.wire.messages import Answer, Request

    Reply = Callable[[Answer], None]

_OK = CodeAnswer(Code.OK)


class DeferredBookie(ModelBookie):
    """A bookie whose readers see what it has in memory. One journal makes everything durable in its order."""

    def __init__(
        self, name: str, world: World, oracles: BookieOracles, metadata: BookieMetadata | None = None
    ) -> None:
        super().__init__(name, world, oracles, metadata)
        self.in_memory: set[tuple[int, int]] = set()
        """The ledger and id of each entry that no sync has made durable."""

    def take(self, request: Request, reply: Reply) -> None:
        match request:
            case AddEntry() if request.options.is_deferred:
                self._add_to_memory(request, reply)
            case ForceLedger():
                crashes = self._crashes
                self._world.after(self._world.choices.pick(3), self._force, crashes, reply)
            case WriteLac():
                self._raise_lac(request.ledger_id, request.lac)
                reply(_OK)
            case _:
                super().take(request, reply)

    def _add_to_memory(self, request: AddEntry, reply: Reply) -> None:
        ledger = self._ledger(request.ledger_id)
        if ledger.is_fenced:
            reply(CodeAnswer(Code.FENCED))
            return
        if request.entry_id not in ledger.entries:
            ledger.entries[request.entry_id] = request.entry
            self.in_memory.add((request.ledger_id, request.entry_id))
        self._oracles.add_stored(self.name, request.ledger_id, request.entry_id)
        self._raise_lac(request.ledger_id, HEAD.unpack_from(request.entry)[2])
        reply(_OK)

    def _raise_lac(self, ledger_id: int, lac: int) -> None:
        ledger = self._ledger(ledger_id)
        if lac > ledger.last_add_confirmed:
            ledger.last_add_confirmed = lac
            polls, ledger.polls = ledger.polls, []
            for poll, reply in polls:
                self._poll(poll, reply)

    def _force(self, crashes: int, reply: Reply) -> None:
        if crashes == self._crashes:
            self.in_memory.clear()
            reply(_OK)

    def _sync(self, crashes: int) -> None:
        if crashes == self._crashes:
            self.in_memory.clear()
        super()._sync(crashes)

    def crash(self) -> None:
        for ledger_id, entry_id in sorted(self.in_memory):
            # The system may have written it before.
            if not self._world.choices.happens(0.3):
                del self._ledger(ledger_id).entries[entry_id]
        self.in_memory.clear()
        super().crash()


class DeferredOracles(Oracles):
    """Counts durable copies only."""

    def _copy(self, bookie: str, entry_id: int) -> bytes | None:
        one = self.bookies[bookie]
        assert isinstance(one, DeferredBookie)
        is_durable = (self._ledger_id, entry_id) not in one.in_memory
        return super()._copy(bookie, entry_id) if is_durable else None


class DeferredNetwork(Network):
    """Links whose loss the writer notices before it gets an answer of the restarted bookie."""

    writer: DeferredWriter

    def crash(self, name: str) -> None:
        super().crash(name)
        self.writer.deliver(self.writer.lose_connection, name)
        for call in list(self._open[name]):
            if call.process is self.writer:
                self._end(call, NoAnswer("connection lost"))


class DeferredWriter(WriterClient):
    """Writes entries, and forces them or tells explicitly what is confirmed."""

    def force(self) -> None:
        """Force, or tell what is confirmed, as the ledger needs it."""
        machine = self.machine
        try:
            forced = machine.force() if isinstance(machine, DeferredLedgerWriter) else []
        except StoreError:
            return
        self.perform(forced)
        self.perform(machine.tell_confirmed())

    def lose_connection(self, bookie: str) -> None:
        self.perform(self.machine.connection_lost(bookie))

    def report(self, effect: Effect) -> None:
        match effect:
            case AddsAcknowledged(first, last) if isinstance(self.machine, DeferredLedgerWriter):
                self._reported += last - first + 1
            case EntriesForced(last):
                self.oracles.entries_acknowledged(self.oracles.acknowledged + 1, last)
            case ForceFailed():
                pass
            case _:
                super().report(effect)


class DeferredSchedule(Schedule):
    """One schedule of a ledger with deferred syncs, or with explicit packets."""

    bookie_kind = DeferredBookie
    network_kind = DeferredNetwork
    oracles_kind = DeferredOracles
    writer_kind = DeferredWriter

    def _set_up(self) -> None:
        self.machine_kind = LedgerWriter if self._choices.pick(4) == 0 else DeferredLedgerWriter
        super()._set_up()

    def _start_writer(self, machine: LedgerWriter) -> None:
        super()._start_writer(machine)
        writer, network = self.writer, self.network
        assert isinstance(writer, DeferredWriter)
        assert isinstance(network, DeferredNetwork)
        network.writer = writer
        if self._choices.pick(2):
            machine.limits = replace(machine.limits, replacement=Replacement.WHEN_NEEDED)
        for _ in range(1 + self._choices.pick(6)):
            self.world.after(self._choices.pick(HORIZON), writer.deliver, writer.force)

"""Schedules that are written by hand, because chance needs very many to find them.

Every message waits until the scenario lets it arrive, lets its answer arrive, or loses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.clusterlab.bookies import ModelBookie
from recovery.clusterlab.clients import RecovererClient, WriterClient
from recovery.clusterlab.metadata import ModelMetadata
from recovery.clusterlab.network import Network
from recovery.clusterlab.oracles import Oracles
from recovery.clusterlab.world import Choices, World
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.effects import NoAnswer
from storage.cluster.client.entries import entry_codec
from storage.cluster.client.placement import Candidates
from storage.cluster.client.writer import LedgerWriter
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.wire.messages import LAST_ENTRY, AddEntry, ReadEntry
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from recovery.clusterlab.clients import Process
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.wire.messages import Request

_BOOKIES = ("b1", "b2", "b3")
_CANDIDATES = Candidates(frozenset(_BOOKIES))
_QUORUMS = Quorums(3, 3, 2)
_ENTRIES = entry_codec(7, DigestType.CRC32C, b"")


class HeldNetwork(Network):
    """Links on which nothing moves by itself."""

    def __init__(self, world: World, bookies: dict[str, ModelBookie]) -> None:
        super().__init__(world, bookies)
        self._bookies = bookies
        self._held: dict[tuple[str, str, int], tuple[Process, Request, Callable[[BookieAnswer], None]]] = {}
        """By client, bookie and entry id: the calls that are not over."""
        self._answers: dict[tuple[str, str, int], BookieAnswer] = {}

    def call(
        self, process: Process, name: str, request: Request, answered: Callable[[BookieAnswer], None]
    ) -> None:
        assert isinstance(request, AddEntry | ReadEntry)
        self._held[process.name, name, request.entry_id] = process, request, answered

    def arrive(self, client: str, bookie: str, entry_id: int) -> None:
        """Let a request arrive. Its answer waits."""
        call = client, bookie, entry_id
        _, request, _ = self._held[call]
        self._bookies[bookie].take(request, lambda answer: self._answers.__setitem__(call, answer))
        self._world.run()

    def answer(self, client: str, bookie: str, entry_id: int) -> None:
        """Let a request arrive, unless it has, and then its answer."""
        call = client, bookie, entry_id
        if call not in self._answers:
            self.arrive(*call)
        self._finish(call, self._answers.pop(call))

    def lose(self, client: str, bookie: str, entry_id: int) -> None:
        """Let a call end without an answer. Its request never arrives."""
        self._finish((client, bookie, entry_id), NoAnswer("timed out"))

    def _finish(self, call: tuple[str, str, int], answer: BookieAnswer) -> None:
        process, _, answered = self._held.pop(call)
        process.deliver(answered, answer)
        self._world.run()


class DirectedSchedule:
    """A ledger at three bookies with its writer, and one recovery of it."""

    def __init__(self) -> None:
        self.world = World(Choices(0, ()))
        created = ClusterLedgerMetadata(3, 3, 2, (LedgerSegment(0, _BOOKIES),))
        oracles = Oracles(_QUORUMS, _ENTRIES, created)
        bookies = {name: ModelBookie(name, self.world, oracles) for name in _BOOKIES}
        oracles.bookies = bookies
        self.network = HeldNetwork(self.world, bookies)
        self._metadata = ModelMetadata(self.world, oracles, created)
        self.writer = WriterClient("writer", self.world, self.network, self._metadata, oracles)
        self.writer.start(LedgerWriter(_ENTRIES, self._metadata.node, _CANDIDATES, 1))
        self._recoverer = RecovererClient("recoverer", self.world, self.network, self._metadata, oracles)

    def recover(self) -> None:
        """Begin the recovery, up to its fence."""
        self._recoverer.start(_ENTRIES, lambda: _CANDIDATES, 1)
        self.world.run()


def late_add() -> None:
    """An add arrives at a bookie after a recovery has read there, and before the fence, which is lost.

    Entry 0 is at b1 when it is fenced. b2 never gets it. The recovery hears of b2 and b3 only that they do
    not have it, and closes the ledger before it. If the read at b3 has not fenced, b3 stores the entry then,
    and the writer has two copies.
    """
    scenario = DirectedSchedule()
    network = scenario.network
    scenario.writer.add(1)
    network.answer("writer", "b1", 0)
    scenario.recover()
    network.answer("recoverer", "b1", LAST_ENTRY)
    network.answer("recoverer", "b2", LAST_ENTRY)
    network.answer("recoverer", "b2", 0)
    network.answer("recoverer", "b3", 0)
    network.answer("writer", "b3", 0)


SCENARIOS: Mapping[str, Callable[[], None]] = {"late-add": late_add}

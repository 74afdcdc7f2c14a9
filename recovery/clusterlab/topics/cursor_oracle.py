"""The invariant of a subscription whose consumers take it over from each other.

O16  the consumer that opens a subscription finds what a save of the one before it has answered, and
     nothing that no consumer has acknowledged; a save of a former consumer is refused
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.clusterlab.oracles import InvariantViolated
from recovery.clusterlab.topics.oracles import TOPIC
from storage.cluster.topics.managed_ledger import Position, decode_cursor

if TYPE_CHECKING:
    from recovery.clusterlab.topics.oracles import TopicOracles
    from storage.cluster.topics.cursor import Cursor

BATCH = 2
"""Messages of each entry, as consumers see it. So a cursor has parts of batches, which are in a ledger."""

_MARK = 3
"""The bytes before the mark of the consumer in the fields that the node has besides."""

_Acknowledgements = frozenset[tuple[Position, int]]


class CursorSave(NamedTuple):
    """A save that has begun."""

    openings: int
    """The take-overs before it."""
    acknowledged: _Acknowledgements


class CursorOracle:
    """Compares what consumers find with what others have acknowledged."""

    def __init__(self, topic: TopicOracles) -> None:
        self._topic = topic
        self._acknowledged: dict[str, set[tuple[Position, int]]] = {}
        """By life of a consumer that has opened it: entry and index of what it has found or acknowledged."""
        self._saved: set[tuple[Position, int]] = set()
        self._ever: set[tuple[Position, int]] = set()
        """What any consumer has acknowledged, since the subscription was deleted last."""
        self._under_way: dict[str, _Acknowledgements] = {}
        """By life: what it wants to make durable, as long as it is not known that it has ended."""
        self._openings = 0
        self._newest = ""
        """The life that has taken the subscription over last."""
        self._late: set[str] = set()
        """Those with a write under way when the subscription was deleted."""

    def begin_opening(self, life: str) -> _Acknowledgements:
        """Return what an opening that begins now has to find."""
        self._under_way[life] = frozenset(self._ever)
        return frozenset(self._saved)

    def written(self, _: str, data: bytes) -> None:
        """Note a write of the node. Those of a consumer that opens the subscription take it over."""
        life = decode_cursor(TOPIC, data).unknown[_MARK:].decode()
        if life not in self._acknowledged:
            self._newest = life
            self._openings += 1
        elif life != self._newest and life not in self._late:
            raise InvariantViolated("O16", f"{life} writes the node of {self._newest or 'a deletion'}")

    def forgotten(self) -> None:
        """Note that the subscription was deleted."""
        self._saved.clear()
        # A write that is under way may come when there is a new node, which has the same version by chance.
        self._ever = set().union(*self._under_way.values())
        self._late = {*self._under_way}
        self._openings += 1
        self._newest = ""

    def opened(self, life: str, cursor: Cursor, known: _Acknowledgements) -> None:
        """Check what a consumer has found, which knew of these acknowledgements when it began."""
        found: set[tuple[Position, int]] = set()
        for ledger_id in self._topic.listed:
            for entry_id in range(len(self._topic.ledgers.by_id[ledger_id].entries)):
                position = Position(ledger_id, entry_id)
                left = cursor.remaining(position, BATCH)
                found |= {(position, index) for index in range(BATCH) if not left >> index & 1}
        lost = {one for one in known & self._saved if one not in found}
        if lost:
            raise InvariantViolated("O16", f"{life} does not find {min(lost)}, which was saved")
        invented = {one for one in found - self._ever if one[0].ledger_id not in self._topic.trimmed}
        if invented:
            raise InvariantViolated("O16", f"{life} finds {min(invented)}, which is not acknowledged")
        self._under_way.pop(life, None)
        self._acknowledged[life] = found & self._ever

    def acknowledges(self, life: str, position: Position, index: int) -> None:
        self._acknowledged[life].add((position, index))
        self._ever.add((position, index))

    def begin_save(self, life: str) -> CursorSave:
        self._under_way[life] = frozenset(self._acknowledged[life])
        return CursorSave(self._openings, self._under_way[life])

    def saved(self, life: str, save: CursorSave) -> None:
        """Note that a save has ended well."""
        self._under_way.pop(life, None)
        if self._newest == life:
            self._saved |= save.acknowledged
        elif save.openings == self._openings and life not in self._late:
            raise InvariantViolated("O16", f"{life} saves after {self._newest or 'a deletion'}")

"""The invariants of a topic.

    T5   the topic is one sequence: every acknowledged message is where its acknowledgement said, no message
         is there twice, and those of one producer are in the order of its numbers
    T7   a message that has failed for certain is not in the topic
    O1   what a reader was shown stays, and a reader misses nothing between two messages but what was trimmed
    O3   the list has the entries and the bytes that its closed ledgers have
    O5   the ledgers of the list are in the order of their ids
    O8   every call ends, and nothing is busy for ever
    O11  an owner is fenced only if another one has opened the topic
    O13  the list names no ledger that is deleted, and none that takes entries but the last
    O14  only what all cursors have passed, and retention lets go, is taken out of the list
    O15  a ledger is left outside the list only by a crash or by an answer that was lost
    O16  of a subscription: see `cursor_oracle`

T7 and the numbers from O13 on are only about topics; the others mean what they mean for one ledger.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from recovery.clusterlab.metadata import METADATA
from recovery.clusterlab.oracles import InvariantViolated
from recovery.clusterlab.topics.ledgers import LedgerEvents
from recovery.clusterlab.world import EventKind
from storage.cluster.topics.managed_ledger import (
    LedgerInfo,
    ManagedLedgerInfo,
    Position,
    decode_managed_ledger,
)

if TYPE_CHECKING:
    from recovery.clusterlab.topics.ledgers import ModelLedgers
    from recovery.clusterlab.world import World
    from storage.cluster.topics.policies import Retention

TOPIC_INVARIANTS = ("T5", "T7", "O1", "O3", "O5", "O8", "O11", "O13", "O14", "O15", "O16")

TOPIC = "persistent://public/default/topic"


class SentMessage(NamedTuple):
    """A message of a producer, which numbers its messages from 0 on."""

    producer: str
    number: int

    @classmethod
    def of(cls, payload: bytes) -> SentMessage:
        producer, number = payload.decode().split()
        return cls(producer, int(number))

    @property
    def payload(self) -> bytes:
        return f"{self.producer} {self.number}".encode()


class TopicOracles(LedgerEvents):
    """Compares the answers that processes got with the list and the ledgers of the topic."""

    def __init__(self, world: World, retention: Retention) -> None:
        self._world = world
        self._retention = retention
        self.ledgers: ModelLedgers
        self.list = ManagedLedgerInfo()
        self.listed: list[int] = []
        """All ledgers that were ever in the list, in its order."""
        self.trimmed: set[int] = set()
        self.cursors: dict[str, Position] = {}
        """By cursor: the last entry that it has passed."""
        self.acknowledged: dict[SentMessage, Position] = {}
        self._failed: set[SentMessage] = set()
        """Messages that are certainly not in the topic."""
        self._last: dict[str, Position] = {}
        """By life of an owner: the last position that it has acknowledged."""
        self._changes: Counter[str] = Counter()
        """By life of an owner: the lists that it has written, and the ledgers that it has recovered."""

    # ── what processes are told ───────────────────────────────────────────────────────────────────────

    def message_acknowledged(self, owner: str, message: SentMessage, at: Position) -> None:
        ledger = self.ledgers.by_id[at.ledger_id]
        if at.entry_id >= len(ledger.entries) or ledger.payloads[at.entry_id] != message.payload:
            raise InvariantViolated("T5", f"{message} is acknowledged at {at}, where it is not")
        if self.acknowledged.setdefault(message, at) != at:
            raise InvariantViolated("T5", f"{message} is acknowledged at {at} and elsewhere")
        if self._last.get(owner, Position(-1, -1)) >= at:
            raise InvariantViolated("T5", f"{owner} acknowledges {at} after {self._last[owner]}")
        self._last[owner] = at
        if at.ledger_id not in self.listed:
            raise InvariantViolated("T5", f"{message} is acknowledged at {at}, which no list names")

    def message_failed(self, message: SentMessage) -> None:
        """Note that a message has failed for certain. Its producer may send it once more."""
        self._failed.add(message)

    def message_sent(self, message: SentMessage) -> None:
        self._failed.discard(message)

    def changes_by_others(self, owner: str) -> int:
        return self._changes.total() - self._changes[owner]

    def owner_fenced(self, owner: str, changes_before: int) -> None:
        """Check that others have done something since an owner has begun, which is fenced now."""
        if self.changes_by_others(owner) == changes_before:
            raise InvariantViolated("O11", f"{owner} is fenced, and no other owner has done anything")

    # ── what takes place ──────────────────────────────────────────────────────────────────────────────

    def ledger_deleted(self, process: str, ledger_id: int) -> None:
        if ledger_id in (one.ledger_id for one in self.list.ledgers):
            raise InvariantViolated("O13", f"{process} has deleted ledger {ledger_id}, which the list names")

    def ledger_recovered(self, owner: str) -> None:
        self._changes[owner] += 1

    def list_written(self, owner: str, data: bytes) -> None:
        self._changes[owner] += 1
        before, self.list = self.list, decode_managed_ledger(TOPIC, data)
        ids = [one.ledger_id for one in self.list.ledgers]
        if self._world.trace is not None:
            self._world.note(EventKind.REQUEST, owner, f"writes the list {ids}", METADATA)
        for one in self.list.ledgers:
            self._check_listed(owner, one, ids[-1])
        for ledger_id in ids:
            if ledger_id not in self.listed:
                self.listed.append(ledger_id)
        if self.listed != sorted(self.listed) or ids != sorted(ids):
            raise InvariantViolated("O5", f"{owner} lists {ids} after {self.listed}")
        for one in before.ledgers:
            if one.ledger_id not in ids:
                self._check_trim(owner, one.ledger_id, ids)

    def _check_listed(self, owner: str, listed: LedgerInfo, last: int) -> None:
        ledger = self.ledgers.by_id[listed.ledger_id]
        told = f"{owner} lists ledger {ledger.id}"
        if ledger.is_deleted:
            raise InvariantViolated("O13", f"{told}, which is deleted")
        if ledger.id != last and ledger.end is None:
            raise InvariantViolated("O13", f"{told}, which takes entries and is not the last")
        if listed.timestamp_ms:
            found = None if ledger.end is None else (ledger.closed.entries, ledger.closed.size)
            if (listed.entries, listed.size) != found:
                raise InvariantViolated("O3", f"{told} with {listed.entries} entries and {listed.size} bytes")

    def _check_trim(self, owner: str, ledger_id: int, left: list[int]) -> None:
        ledger = self.ledgers.by_id[ledger_id]
        told = f"{owner} has taken ledger {ledger_id} out of the list"
        if ledger.end is None:
            raise InvariantViolated("O14", f"{told}, which is not closed")
        if not ledger.end:
            return
        self.trimmed.add(ledger_id)
        last = Position(ledger_id, ledger.end - 1)
        for name, position in self.cursors.items():
            if position < last:
                raise InvariantViolated("O14", f"{told}, and {name} is at {position}")
        size = sum(len(payload) for one in left for payload in self.ledgers.by_id[one].entries)
        is_old = 0 <= self._retention.age_s < self._world.now - ledger.closed_at
        # The entries that are under way count too: the owner cannot know which will be acknowledged.
        under_way = sum(len(payload) for one in left for payload in self.ledgers.by_id[one].payloads)
        is_large = 0 <= self._retention.size <= max(size, under_way)
        if not is_old and not is_large:
            raise InvariantViolated("O14", f"{told}, which retention keeps")
        if any(one < ledger_id for one in left):
            raise InvariantViolated("O14", f"{told}, and older ones are still there: {left}")

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def last_numbers(self) -> dict[str, int]:
        """Return the number of the last message of each producer in ledgers that are closed."""
        found: dict[str, int] = {}
        for ledger_id in self.listed:
            for payload in self.ledgers.by_id[ledger_id].entries:
                message = SentMessage.of(payload)
                found[message.producer] = max(message.number, found.get(message.producer, -1))
        return found

    def check_end(self) -> None:
        """Check the whole topic, the trimmed part included."""
        positions = {
            Position(ledger_id, entry_id): SentMessage.of(payload)
            for ledger_id in self.listed
            for entry_id, payload in enumerate(self.ledgers.by_id[ledger_id].entries)
        }
        for message, count in Counter(positions.values()).items():
            if count > 1:
                raise InvariantViolated("T5", f"{message} is there {count} times")
            if message in self._failed:
                raise InvariantViolated("T7", f"{message} has failed, and is there")
        for message, at in self.acknowledged.items():
            if positions.get(at) != message:
                raise InvariantViolated("T5", f"{message} was acknowledged at {at}: {positions.get(at)}")
            if at.ledger_id not in self.trimmed and at.ledger_id not in [
                one.ledger_id for one in self.list.ledgers
            ]:
                raise InvariantViolated("T5", f"{message} was acknowledged at {at}, which is not listed")
        last: dict[str, SentMessage] = {}
        for message in positions.values():
            before = last.get(message.producer)
            if before is not None and before.number > message.number:
                raise InvariantViolated("T5", f"{message} is there after {before}")
            last[message.producer] = message

    def check_shown(self, reader: str, shown: list[Position]) -> None:
        """Check what a reader was shown: a part of the topic without gaps, but for trimmed ledgers."""
        whole = [
            Position(ledger_id, entry_id)
            for ledger_id in self.listed
            for entry_id in range(len(self.ledgers.by_id[ledger_id].entries))
        ]
        places = {position: number for number, position in enumerate(whole)}
        for position in shown:
            if position not in places:
                raise InvariantViolated("O1", f"{reader} was shown {position}, which is not there")
        for first, second in pairwise(shown):
            missed = whole[places[first] + 1 : places[second]]
            if places[second] <= places[first] or any(one.ledger_id not in self.trimmed for one in missed):
                raise InvariantViolated("O1", f"{reader} was shown {second} after {first}")

    def check_leftovers(self) -> None:
        """Check a schedule without crashes and without lost answers."""
        named = {one.ledger_id for one in self.list.ledgers}
        for ledger in self.ledgers.by_id.values():
            if not ledger.is_deleted and ledger.id not in named:
                raise InvariantViolated("O15", f"ledger {ledger.id} of {ledger.creator} is in no list")

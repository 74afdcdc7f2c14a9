"""Bookies and the metadata of one ledger as dictionaries, in which a repair is played in any order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.autorecovery.fragments import fixed_fragments
from recovery.autorecovery.repair import LedgerRepair
from storage.cluster.client.effects import NoAnswer, ReadMetadata, Send, Wait, WriteMetadata
from storage.cluster.client.entries import entry_codec
from storage.cluster.client.placement import Candidates
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, ClusterLedgerState, LedgerSegment
from storage.cluster.metadata.registration import Bookies
from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Conflict, Gone, Unknown, Written
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import LAST_ENTRY, AddEntry, CodeAnswer, FoundEntry, ReadEntry
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from recovery.autorecovery.repair import RepairResult
    from storage.cluster.client.effects import BookieAnswer, Effect

LEDGER = 7
CODEC = entry_codec(LEDGER, DigestType.CRC32C, b"secret")
STEPS_MAX = 20_000


class Violated(AssertionError):
    """A rule of repairs is broken."""


def data_of(entry_id: int) -> bytes:
    """Return the bytes of an entry, all of whose payloads have four bytes."""
    return CODEC.encode(entry_id, entry_id - 1, 4 * (entry_id + 1), b"%4d" % entry_id)


@dataclass
class RepairWorld:
    """The truth: what each bookie has, and what the metadata say."""

    metadata: ClusterLedgerMetadata | None
    stores: dict[str, dict[int, bytes]]
    version: int = 0
    down: set[str] = field(default_factory=set)
    """Not registered, and not reachable."""
    silent: set[str] = field(default_factory=set)
    """Registered, and without an answer."""
    busy: set[str] = field(default_factory=set)
    """Refusing reads, and taking adds."""
    read_only: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)
    """Registered as writable, and refusing each add."""
    forgetful: set[str] = field(default_factory=set)
    """Answering adds, and storing nothing."""
    loss: float = 0.0
    """The probability that an answer is lost, before or after the request took place."""
    added: list[tuple[str, int]] = field(default_factory=list)
    read: list[tuple[str, int]] = field(default_factory=list)
    writes: int = 0
    key: bytes = CODEC.master_key
    """The key that bookies check."""
    before_write: Callable[[], None] | None = None
    """Called once, before a change of the metadata takes place."""
    before_wait: Callable[[], None] | None = None
    """Called before the end of each pause."""

    @property
    def bookies(self) -> Bookies:
        there = frozenset(self.stores) - self.down
        return Bookies(there - self.read_only, frozenset(self.read_only) - self.down)

    def repair(self, *suspects: str, seed: int = 1) -> LedgerRepair:
        writable = self.bookies.writable
        return LedgerRepair(LEDGER, suspects, self.bookies, Candidates(writable), seed)

    def play(self, repair: LedgerRepair, random: Random, steps_max: int | None = None) -> RepairResult | None:
        """Play a repair to its end, or so many steps of it. Return its result if it has one."""
        todo: list[Effect] = [*repair.begin()]
        steps = 0
        while repair.result is None:
            if not todo or steps > STEPS_MAX:
                raise Violated("the repair does not end")
            if steps == steps_max:
                return None
            steps += 1
            todo += self._answered(repair, todo.pop(random.randrange(len(todo))), random)
        if todo:
            raise Violated("something is under way after the end")
        return repair.result

    def _answered(self, repair: LedgerRepair, effect: Effect, random: Random) -> list[Effect]:
        match effect:
            case Send():
                return repair.answered(effect.token, self._answer(effect, random))
            case ReadMetadata():
                if random.random() < self.loss:
                    return repair.metadata_read(Unknown("lost"))
                if self.metadata is None:
                    return repair.metadata_read(Gone())
                return repair.metadata_read(Versioned(self.metadata, self.version))
            case WriteMetadata():
                return repair.metadata_written(self._write(effect, random))
            case Wait():
                if self.before_wait is not None:
                    self.before_wait()
                return repair.waited()
        raise AssertionError(effect)

    # ── bookies ───────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, send: Send, random: Random) -> BookieAnswer:
        bookie, request = send.bookie, send.request
        if bookie in self.down | self.silent:
            return NoAnswer("no connection")
        is_lost = random.random() < self.loss
        if is_lost and random.random() < 0.5:
            return NoAnswer("lost before it was done")
        answer = self._done(bookie, request)
        return NoAnswer("lost after it was done") if is_lost else answer

    def _done(self, bookie: str, request: object) -> BookieAnswer:
        store = self.stores[bookie]
        match request:
            case ReadEntry() if bookie in self.busy:
                return CodeAnswer(Code.TOO_MANY_REQUESTS)
            case ReadEntry(_, entry_id):
                self.read.append((bookie, entry_id))
                data = store.get(max(store, default=entry_id) if entry_id == LAST_ENTRY else entry_id)
                return CodeAnswer(Code.NO_ENTRY) if data is None else FoundEntry(data, entry_id)
            case AddEntry(_, entry_id, key, data, options):
                if bookie in self.read_only | self.full:
                    return CodeAnswer(Code.READ_ONLY)
                if not options.is_recovery:
                    return CodeAnswer(Code.FENCED)
                if key != self.key:
                    return CodeAnswer(Code.UNAUTHORIZED)
                self.added.append((bookie, entry_id))
                if bookie not in self.forgetful:
                    store[entry_id] = data
                return CodeAnswer(Code.OK)
        raise AssertionError(request)

    # ── metadata ──────────────────────────────────────────────────────────────────────────────────────

    def _write(self, write: WriteMetadata, random: Random) -> Written | Gone | Conflict | Unknown:
        before, self.before_write = self.before_write, None
        if before is not None:
            before()
        lost = random.random() < self.loss
        if lost and random.random() < 0.5:
            return Unknown("lost before it was done")
        if self.metadata is None:
            return Gone()
        if write.version != self.version:
            return Conflict()
        self.check_change(self.metadata, write.metadata)
        self.metadata, self.version = write.metadata, self.version + 1
        self.writes += 1
        return Unknown("lost after it was done") if lost else Written(self.version)

    def check_change(self, before: ClusterLedgerMetadata, after: ClusterLedgerMetadata) -> None:
        """Check that a change replaces bookies of fixed segments by others that have the entries."""
        if [one.first_entry for one in before.segments] != [one.first_entry for one in after.segments]:
            raise Violated("a segment was added or removed")
        if not before.is_closed and before.segments[-1] != after.segments[-1]:
            raise Violated("the segment of a writer was changed")
        for fragment, old in zip(fixed_fragments(after), fixed_fragments(before), strict=True):
            if len(set(fragment.bookies)) < len(fragment.bookies):
                raise Violated(f"a bookie is twice in {fragment.bookies}")
            if fragment.bookie == old.bookie:
                continue
            if old.bookie in self.bookies.writable - self.forgetful - self.full:
                raise Violated(f"{old.bookie}, which takes adds, was replaced")
            if fragment.bookie in self.forgetful:
                continue
            for entry_id in fragment.entries():
                if self.stores[fragment.bookie].get(entry_id) != data_of(entry_id):
                    raise Violated(f"{fragment.bookie} is named and does not have entry {entry_id}")

    # ── the state ─────────────────────────────────────────────────────────────────────────────────────

    def lacking(self) -> list[tuple[str, int]]:
        """Return the copies that the metadata promise and that are not there."""
        assert self.metadata is not None
        return [
            (one.bookie, entry_id)
            for one in fixed_fragments(self.metadata)
            for entry_id in one.entries()
            if one.bookie in self.down or self.stores[one.bookie].get(entry_id) != data_of(entry_id)
        ]

    def names_lost(self) -> bool:
        """Return whether a fixed fragment is at a bookie that is down."""
        assert self.metadata is not None
        return any(one.bookie in self.down for one in fixed_fragments(self.metadata))

    def superfluous(self) -> list[tuple[str, int]]:
        """Return the copies that the repairs have made and that the metadata do not name."""
        assert self.metadata is not None
        promised = {(one.bookie, id_) for one in fixed_fragments(self.metadata) for id_ in one.entries()}
        return [one for one in self.added if one not in promised]


def ledger(
    write: int,
    ack: int,
    segments: list[tuple[int, str]],
    last_entry: int | None,
) -> ClusterLedgerMetadata:
    """Return metadata; a segment's bookies are written as digits, such as 123 for b1, b2 and b3."""
    made = tuple(LedgerSegment(first, tuple(f"b{digit}" for digit in names)) for first, names in segments)
    state = ClusterLedgerState.OPEN if last_entry is None else ClusterLedgerState.CLOSED
    size = len(made[0].bookies)
    return ClusterLedgerMetadata(
        size,
        write,
        ack,
        made,
        state,
        -1 if last_entry is None else last_entry,
        digest_type=DigestType.CRC32C,
        password=b"secret",
    )


def world_of(metadata: ClusterLedgerMetadata, bookies: int = 6) -> RepairWorld:
    """Return a world in which every promised copy is there."""
    world = RepairWorld(metadata, {f"b{number}": {} for number in range(1, bookies + 1)})
    for fragment in fixed_fragments(metadata):
        for entry_id in fragment.entries():
            world.stores[fragment.bookie][entry_id] = data_of(entry_id)
    return world


def random_ledger(random: Random) -> ClusterLedgerMetadata:
    size = random.randint(1, 4)
    write = random.randint(1, size)
    firsts = sorted(random.sample(range(1, 9), random.choice([0, 0, 1, 2])))
    segments = [(first, "".join(random.sample("123456", size))) for first in (0, *firsts)]
    if random.random() < 0.2:  # equal lists of bookies name different segments
        segments = [(first, segments[0][1]) for first, _ in segments]
    last = random.choice([None, random.randint(segments[-1][0] - 1, 10)])
    return ledger(write, random.randint(1, write), segments, last)


def random_world(random: Random) -> RepairWorld:
    """Return a world with lost bookies, and lost and damaged copies, of which each entry has a good one."""
    metadata = random_ledger(random)
    world = world_of(metadata)
    world.down = set(random.sample(sorted(world.stores), random.choice([0, 0, 1, 1, 2])))
    for bookie, store in world.stores.items():
        if random.random() < 0.3:
            for entry_id in list(store):
                if random.random() < 0.4 and _copies(world, entry_id) - {bookie}:
                    if random.random() < 0.5:
                        del store[entry_id]
                    else:
                        store[entry_id] = data_of(entry_id)[:-1] + b"!"
    return world


def _copies(world: RepairWorld, entry_id: int) -> set[str]:
    return {
        one
        for one, store in world.stores.items()
        if one not in world.down and store.get(entry_id) == data_of(entry_id)
    }


def is_readable(world: RepairWorld) -> bool:
    """Return whether each entry has a good copy at a bookie of its write set that is there."""
    assert world.metadata is not None
    good = {
        entry_id
        for one in fixed_fragments(world.metadata)
        for entry_id in one.entries()
        if one.bookie not in world.down and world.stores[one.bookie].get(entry_id) == data_of(entry_id)
    }
    return all(entry_id in good for one in fixed_fragments(world.metadata) for entry_id in one.entries())

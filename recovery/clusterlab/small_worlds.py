"""Worlds so small that every order of their messages is played.

Time does not exist here. Any message that is under way may be the next one to arrive, except that a bookie
gets the requests of one client in the order in which they were sent. Beside that, the writer may add or
close, a recovery may begin, a bookie may crash for good, and a call may end without an answer although its
request arrives later, each as often as the world says.

Two orders that lead to the same state have the same future. So each state is entered once. Its key is what
all clients, bookies and messages know of each other, and not how they came to know it.

There is no reader, because a reader may look at any time: no bookie may ever have a last add confirmed that
a reader must not see.
"""

from __future__ import annotations

import enum
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from recovery.clusterlab.bookies import ModelBookie
from recovery.clusterlab.clients import ClientProcess, Process, RecovererClient, WriterClient
from recovery.clusterlab.metadata import shown
from recovery.clusterlab.oracles import InvariantViolated, Oracles
from recovery.clusterlab.unordered import PossibleEvent, UnorderedMetadata, UnorderedNetwork
from recovery.clusterlab.world import Choices, EventKind, World
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.entries import EntryCodec, entry_codec
from storage.cluster.client.placement import Candidates
from storage.cluster.client.writer import LedgerWriter, WriterLimits
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

_ENTRIES = entry_codec(7, DigestType.CRC32C, b"")


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """The parts of a small world, and how often each kind of event may happen."""

    quorums: Quorums
    bookies: int
    entries: int
    recoveries: int
    crashes: int = 0
    """Bookies that crash for good."""
    losses: int = 0
    """Calls that end without an answer. The request may arrive nevertheless, at any time."""
    lost_writes: int = 0
    """Writes of metadata without an answer. The write may take place nevertheless, at any time."""
    closes: int = 0
    """1 if the writer may close the ledger."""


_TWO = Quorums(2, 2, 2)
_ONE_OF_TWO = Quorums(2, 2, 1)

SMALL_WORLDS: Mapping[str, SmallWorld] = {
    "take-over": SmallWorld(_TWO, bookies=2, entries=2, recoveries=1),
    "take-over-with-ack-quorum-1": SmallWorld(_ONE_OF_TWO, bookies=2, entries=2, recoveries=1),
    "take-over-and-crash": SmallWorld(_TWO, bookies=3, entries=1, recoveries=1, crashes=1),
    "take-over-and-lost-call": SmallWorld(_TWO, bookies=2, entries=1, recoveries=1, losses=1),
    "ensemble-changes": SmallWorld(
        _TWO, bookies=3, entries=1, recoveries=0, crashes=1, losses=1, lost_writes=1, closes=1
    ),
}
"""By name. All of them together take less than a minute."""

LARGER_WORLDS: Mapping[str, SmallWorld] = {
    "two-entries-and-crash": SmallWorld(_TWO, bookies=3, entries=2, recoveries=1, crashes=1),
    "two-entries-and-crash-with-ack-quorum-1": SmallWorld(
        _ONE_OF_TWO, bookies=3, entries=2, recoveries=1, crashes=1
    ),
    "three-bookies": SmallWorld(Quorums(3, 3, 2), bookies=3, entries=1, recoveries=1),
    "two-take-overs": SmallWorld(_TWO, bookies=2, entries=1, recoveries=2),
}
"""Each takes minutes or hours."""


class SmallSchedule:
    """One order of the messages of a small world, as far as it has been played."""

    def __init__(self, small: SmallWorld, ignored: dict[int, bool]) -> None:
        """`ignored` is shared by all schedules of a world: whether a state of a machine ignores an answer."""
        self._small = small
        self._ignored = ignored
        self.world = World(Choices(0, ()))
        names = [f"b{number}" for number in range(1, small.bookies + 1)]
        quorums = small.quorums
        created = ClusterLedgerMetadata(
            quorums.ensemble,
            quorums.write,
            quorums.ack,
            (LedgerSegment(0, tuple(names[: quorums.ensemble])),),
        )
        self._oracles = Oracles(quorums, _ENTRIES, created)
        self._bookies = {name: ModelBookie(name, self.world, self._oracles) for name in names}
        self._oracles.bookies = self._bookies
        self._network = UnorderedNetwork(self.world, self._bookies)
        self._metadata = UnorderedMetadata(self.world, self._oracles, created)
        environment = self.world, self._network, self._metadata, self._oracles
        self._candidates = Candidates(frozenset(names))
        self._writer = WriterClient("writer", *environment)
        self._writer.start(LedgerWriter(_ENTRIES, self._metadata.node, self._candidates, 1))
        self._recoverers = [RecovererClient(f"recoverer{n}", *environment) for n in range(small.recoveries)]
        self._known: dict[str, int] = {}
        """By client: the key of its machine, if it was computed since it has changed."""
        self._begun = 0
        self._added = 0
        self._closes = self._crashes = self._losses = self._lost_writes = 0

    # ── what may happen ───────────────────────────────────────────────────────────────────────────────

    def moves(self) -> list[PossibleEvent]:
        """Return what may happen next, always in the same order."""
        small = self._small
        moves = [*self._network.moves(), *self._metadata.moves()]
        if self._added < small.entries:
            moves.append(PossibleEvent(f"writer: adds {self._added}", ("writer",), self._add))
        elif self._closes < small.closes:
            moves.append(PossibleEvent("writer: closes the ledger", ("writer",), self._close))
        if self._begun < small.recoveries:
            name = self._recoverers[self._begun].name
            moves.append(PossibleEvent(f"{name}: begins", ("begin", name, "metadata"), self._recover))
        if self._crashes < small.crashes:
            moves += [
                PossibleEvent(f"{name} crashes", ("crashes", name), partial(self._crash, name))
                for name, bookie in self._bookies.items()
                if bookie.is_up
            ]
        if self._losses < small.losses:
            moves += [one._replace(action=partial(self._lose, one.action)) for one in self._network.losses()]
        if self._lost_writes < small.lost_writes:
            moves += [
                one._replace(action=partial(self._lose_write, one.action)) for one in self._metadata.losses()
            ]
        return moves

    def play(self, move: PossibleEvent) -> None:
        """Make a move, and check what must hold in every state."""
        self.world.note(EventKind.REQUEST, "", move.text)
        try:
            move.action()
        except InvariantViolated:
            raise
        except Exception as error:
            raise InvariantViolated("O8", f"a client has failed: {error!r}") from error
        for name in move.touches:
            self._known.pop(name, None)
        self._drop_ignored()
        self._oracles.check_now()

    def _machine_key(self, process: Process) -> int:
        """Return the key of a client's machine."""
        known = self._known.get(process.name)
        if known is None:
            known = self._known[process.name] = hash(frozen(vars(process).get("_machine")))
        return known

    def _drop_ignored(self) -> None:
        """Deliver the answers that change nothing, such as those to a fence that is complete.

        A machine that ignores an answer ignores it for ever, so that the time of its arrival makes no
        difference.
        """
        for call in [one for one in self._network.calls if one.answer is not None and not one.has_ended]:
            answer = call.answer
            assert answer is not None
            known = self._machine_key(call.process)
            key = hash((call.process.name, known, call.ids, answer))
            if key not in self._ignored:
                copied = deepcopy(call.machine)
                effects = call.answer_to(copied, answer)
                self._ignored[key] = not effects and hash(frozen(copied)) == known
            if self._ignored[key]:
                self._network.end(call, answer)

    def _add(self) -> None:
        self._added += 1
        self._writer.add(1)

    def _close(self) -> None:
        self._closes += 1
        self._writer.close()

    def _recover(self) -> None:
        self._begun += 1
        self._recoverers[self._begun - 1].start(_ENTRIES, lambda: self._candidates, 1, read_ahead=1)

    def _crash(self, name: str) -> None:
        self._crashes += 1
        self._network.crash(name)

    def _lose(self, action: Callable[[], None]) -> None:
        self._losses += 1
        action()

    def _lose_write(self, action: Callable[[], None]) -> None:
        self._lost_writes += 1
        action()

    # ── the state ─────────────────────────────────────────────────────────────────────────────────────

    def check_end(self) -> None:
        """Check a state in which nothing can happen any more."""
        self._writer.check_done()
        for process in (self._writer, *self._recoverers):
            if not process.is_done:
                raise InvariantViolated("O8", f"{process.name} waits for ever")

    def key(self) -> int:
        """Return a number that states with the same future have in common."""
        return hash(
            (
                self._machine_key(self._writer),
                tuple(map(self._machine_key, self._recoverers)),
                tuple((name, one.is_up, frozen(one.ledgers)) for name, one in self._bookies.items()),
                frozen(self._network.calls),
                frozen(self._metadata.calls),
                frozen(self._metadata.node),
                self._oracles.state,
                self._added,
                self._begun,
                (self._closes, self._crashes, self._losses, self._lost_writes),
            )
        )


_CONSTANT = (
    FunctionType,
    MethodType,
    BuiltinFunctionType,
    partial,
    EntryCodec,
    Quorums,
    WriterLimits,
    Candidates,
)


def frozen(value: object) -> Hashable:
    """Return a value that is equal for equal states. Parts that are the same in all states are left out."""
    kind = type(value)
    known = _KINDS.get(kind)
    if known is None:
        known = _KINDS[kind] = _kind_of(value)
    return known(value)


def _kind_of(value: object) -> Callable[[Any], Hashable]:
    """Return how values of this type are frozen."""
    match value:
        case int() | str() | bytes() | float() | range() | None | enum.Enum():
            return _as_it_is
        case list() | tuple() | deque():
            return lambda value: tuple(map(frozen, value))
        case dict():
            return lambda value: frozenset((key, frozen(item)) for key, item in value.items())
        case set() | frozenset():
            return frozenset
        case ClientProcess():
            return _name_of
        case ClusterLedgerMetadata():
            return shown
        case BaseException():
            return str
        case _ if isinstance(value, _CONSTANT):
            return _left_out
    kind = type(value).__name__
    names: tuple[str, ...] | None = getattr(type(value), "__slots__", None)
    return lambda value: (
        kind,
        *(frozen(getattr(value, name, None)) for name in (names if names is not None else vars(value))),
    )


def _left_out(value: object) -> None:
    """Freeze what is the same in all states."""


def _as_it_is(value: Hashable) -> Hashable:
    return value


def _name_of(process: ClientProcess) -> str:
    return process.name


_KINDS: dict[type, Callable[[Any], Hashable]] = {}


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class SmallWorldResult:
    """The result of playing every order."""

    states: int = 0
    steps: int = 0
    ends: int = 0
    """States in which nothing can happen any more."""
    violation: str = ""
    path: list[str] = field(default_factory=list)
    """The moves up to the violation."""


def explore_all(small: SmallWorld, states_max: int = 50_000_000) -> SmallWorldResult:
    """Play every order of a small world, up to the first violation.

    Two moves that touch nothing in common lead to the same state in both orders. The second order is not
    played: after one of them was tried, the other one *sleeps* until a move wakes it that it depends on. All
    states are entered nevertheless. In a state that is met again only those moves are tried that have slept
    each time before.
    """
    result = SmallWorldResult()
    ignored: dict[int, bool] = {}
    slept: dict[int, frozenset[str]] = {}
    """By state: the moves that were not tried there."""
    waiting: list[tuple[tuple[int, ...], dict[str, PossibleEvent]]] = [((), {})]
    path: tuple[int, ...] = ()
    try:
        while waiting:
            path, sleeping = waiting.pop()
            schedule = SmallSchedule(small, ignored)
            for number in path:
                schedule.play(schedule.moves()[number])
            result.steps += 1
            while True:
                key, moves = schedule.key(), schedule.moves()
                before = slept.get(key)
                awake = [
                    (number, move)
                    for number, move in enumerate(moves)
                    if move.text not in sleeping and (before is None or move.text in before)
                ]
                slept[key] = frozenset(sleeping) if before is None else before & sleeping.keys()
                if before is None and not moves:
                    result.ends += 1
                    schedule.check_end()
                if not awake:
                    break
                if len(slept) > states_max:
                    raise RuntimeError(f"the world has more than {states_max:,} states")
                tried = dict(sleeping)
                nexts: list[tuple[int, PossibleEvent, dict[str, PossibleEvent]]] = []
                for number, move in awake:
                    left = {text: one for text, one in tried.items() if one.is_independent_of(move)}
                    nexts.append((number, move, left))
                    tried[move.text] = move
                # The search continues with the last of them, because that needs no replay.
                waiting += [((*path, number), left) for number, _, left in nexts[:-1]]
                number, move, sleeping = nexts[-1]
                path = (*path, number)
                result.steps += 1
                schedule.play(move)
    except InvariantViolated as violation:
        result.violation = str(violation)
        result.path = trace_of(small, path)
    result.states = len(slept)
    return result


def trace_of(small: SmallWorld, path: tuple[int, ...]) -> list[str]:
    """Return what happens on a path, line by line."""
    schedule = SmallSchedule(small, {})
    schedule.world.trace = []
    try:
        for number in path:
            schedule.play(schedule.moves()[number])
        schedule.check_end()
    except InvariantViolated as violation:
        schedule.world.note(EventKind.VIOLATION, "", str(violation))
    return [one.text for one in schedule.world.trace]

"""The messages of a small world. None arrives by itself: the search chooses which one is the next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.clusterlab.metadata import ModelMetadata, shown
from recovery.clusterlab.network import Network, shown_answer, shown_request
from storage.cluster.client.effects import NoAnswer, Sending, Token
from storage.cluster.metadata.znodes import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.clusterlab.bookies import ModelBookie
    from recovery.clusterlab.clients import ClientProcess, Process
    from recovery.clusterlab.oracles import Oracles
    from recovery.clusterlab.world import World
    from storage.cluster.client.effects import (
        BookieAnswer,
        Effect,
        LedgerMachine,
        MetadataRead,
        MetadataWritten,
    )
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.wire.messages import Request


class PossibleEvent(NamedTuple):
    """Something that may happen next."""

    text: str
    touches: tuple[str, ...]
    """The parts of the world that it changes or reads. Moves that share none may change places."""
    action: Callable[[], None]

    def is_independent_of(self, other: PossibleEvent) -> bool:
        return not any(one in other.touches for one in self.touches)


@dataclass(slots=True, eq=False)
class CallUnderWay:
    """A request to a bookie, as far as it has come."""

    process: Process
    bookie: str
    request: Request
    answered: Callable[[BookieAnswer], None]
    has_arrived: bool = False
    answer: BookieAnswer | None = None
    has_ended: bool = False

    def describe(self) -> str:
        number = next(one.number if isinstance(one, Sending) else one.sending for one in self.ids[:1])
        return f"{self.process.name}: {shown_request(self.request)} at {self.bookie} ({number})"

    @property
    def machine(self) -> LedgerMachine:
        assert isinstance(self.answered, partial)
        return self.answered.args[0]  # type: ignore[no-any-return]

    @property
    def ids(self) -> tuple[Any, ...]:
        """The ids by which the machine knows the call: a token, or a sending and entry ids."""
        assert isinstance(self.answered, partial)
        ids = self.answered.args[2:]
        assert isinstance(ids[0], Token | Sending)
        return ids

    def answer_to(self, machine: LedgerMachine, answer: BookieAnswer) -> list[Effect]:
        """Give the answer to a machine, which may be a copy of the one that waits for it."""
        match self.ids:
            case (Sending() as sending, entry_ids):
                return machine.added(sending, entry_ids, answer)
            case (token,):
                return machine.answered(token, answer)
            case ids:
                raise AssertionError(ids)


class UnorderedNetwork(Network):
    """Links on which a message arrives when the search says so."""

    def __init__(self, world: World, bookies: dict[str, ModelBookie]) -> None:
        super().__init__(world, bookies)
        self._bookies = bookies
        self.calls: list[CallUnderWay] = []

    def call(
        self, process: Process, name: str, request: Request, answered: Callable[[BookieAnswer], None]
    ) -> None:
        self.calls.append(CallUnderWay(process, name, request, answered))

    def moves(self) -> Iterator[PossibleEvent]:
        """Return which messages may arrive next."""
        heads: set[tuple[str, str]] = set()
        for call in self.calls:
            link = call.process.name, call.bookie
            if not call.has_arrived and link not in heads:
                heads.add(link)
                if self._bookies[call.bookie].is_up:
                    yield PossibleEvent(
                        f"{call.describe()} arrives", (call.bookie,), partial(self._let_arrive, call)
                    )
                elif not call.has_ended:
                    yield PossibleEvent(
                        f"{call.describe()} has no connection",
                        (call.process.name,),
                        partial(self.end, call, NoAnswer("no connection")),
                    )
            elif call.answer is not None and not call.has_ended:
                yield PossibleEvent(
                    f"{call.describe()} is answered: {shown_answer(call.answer)}",
                    (call.process.name,),
                    partial(self.end, call, call.answer),
                )

    def losses(self) -> Iterator[PossibleEvent]:
        """Return which calls may end without an answer."""
        for call in self.calls:
            if not call.has_ended:
                yield PossibleEvent(
                    f"{call.describe()} times out",
                    (call.process.name, "losses"),
                    partial(self.end, call, NoAnswer("timed out")),
                )

    def _let_arrive(self, call: CallUnderWay) -> None:
        call.has_arrived = True
        self._bookies[call.bookie].take(call.request, partial(setattr, call, "answer"))
        self._world.run()
        self._forget(call)

    def end(self, call: CallUnderWay, answer: BookieAnswer) -> None:
        """Give a call its answer."""
        call.has_ended = True
        self._forget(call)
        call.answered(answer)
        self._world.run()

    def _forget(self, call: CallUnderWay) -> None:
        is_over = call.has_arrived or not self._bookies[call.bookie].is_up
        if call.has_ended and is_over and call in self.calls:
            self.calls.remove(call)

    def crash(self, name: str) -> None:
        """Crash a bookie. Calls that it has not answered have no answer; its answers may still arrive."""
        self._bookies[name].crash()
        for call in [one for one in self.calls if one.bookie == name]:
            self._forget(call)


@dataclass(slots=True, eq=False)
class MetadataCallUnderWay:
    """A write or read of metadata, as far as it has come."""

    process: ClientProcess
    wanted: tuple[ClusterLedgerMetadata, int] | None
    """The metadata to write, and the version that they replace; `None` for a read."""
    answered: Callable[..., None]
    answer: MetadataWritten | MetadataRead | None = None
    has_ended: bool = False


class UnorderedMetadata(ModelMetadata):
    """Metadata that are read and written when the search says so."""

    def __init__(self, world: World, oracles: Oracles, created: ClusterLedgerMetadata) -> None:
        super().__init__(world, oracles, created)
        self.calls: list[MetadataCallUnderWay] = []

    def write(
        self,
        process: ClientProcess,
        metadata: ClusterLedgerMetadata,
        version: int,
        answered: Callable[[MetadataWritten], None],
    ) -> None:
        self.calls.append(MetadataCallUnderWay(process, (metadata, version), answered))

    def read(self, process: ClientProcess, answered: Callable[[MetadataRead], None]) -> None:
        self.calls.append(MetadataCallUnderWay(process, None, answered))

    def moves(self) -> Iterator[PossibleEvent]:
        for call in self.calls:
            name = call.process.name
            if call.answer is None:
                what = (
                    "reads"
                    if call.wanted is None
                    else f"writes {shown(call.wanted[0])} over {call.wanted[1]}"
                )
                yield PossibleEvent(f"{name}: {what}", ("metadata",), partial(self._take_place, call))
            elif not call.has_ended:
                text = f"{name}: the metadata answer {type(call.answer).__name__}"
                yield PossibleEvent(text, (name,), partial(self._answer, call))

    def losses(self) -> Iterator[PossibleEvent]:
        for call in self.calls:
            if not call.has_ended and call.wanted is not None:
                name = call.process.name
                text = f"{name}: the answer of the metadata is lost"
                yield PossibleEvent(text, (name, "lost writes"), partial(self._lose, call))

    def _take_place(self, call: MetadataCallUnderWay) -> None:
        call.answer = self.node if call.wanted is None else self._write(call.process, *call.wanted)
        self._forget(call)

    def _answer(self, call: MetadataCallUnderWay) -> None:
        self._end_with(call, call.answer)

    def _lose(self, call: MetadataCallUnderWay) -> None:
        self._end_with(call, Unknown("the connection was lost"))

    def _end_with(self, call: MetadataCallUnderWay, answer: object) -> None:
        call.has_ended = True
        self._forget(call)
        call.answered(answer)
        self._world.run()

    def _forget(self, call: MetadataCallUnderWay) -> None:
        if call.answer is not None and call.has_ended:
            self.calls.remove(call)

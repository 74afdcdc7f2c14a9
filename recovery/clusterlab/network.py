"""Calls from clients to bookies.

A link is one connection from a client to a bookie: requests arrive in the order in which they were sent.
The faults of a call, each by chance:

    the request is lost        the client learns nothing
    the answer is lost         the bookie has done what was asked
    the request is late        the client has given up, and the bookie does it afterwards
    the request is repeated    the bookie does it a second time, later

A link can be cut for a while: then nothing passes. Each call ends exactly once for the client, with an answer
or with `NoAnswer`; so do calls to a bookie that crashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.clusterlab.world import EventKind
from storage.cluster.client.effects import NoAnswer
from storage.cluster.wire.messages import LAST_ENTRY, AddEntry, CodeAnswer, FoundEntry, LongPoll, ReadEntry
from storage.entry.format import HEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.clusterlab.bookies import ModelBookie
    from recovery.clusterlab.clients import Process
    from recovery.clusterlab.world import World
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.wire.messages import Answer, Request

CALL_TIMEOUT = 50.0


class _ModelCall:
    """One call, which is answered or has ended without an answer."""

    __slots__ = ("answered", "bookie", "has_ended", "process", "request")

    def __init__(
        self,
        process: Process,
        bookie: ModelBookie,
        request: Request,
        answered: Callable[[BookieAnswer], None],
    ) -> None:
        self.process = process
        self.bookie = bookie
        self.request = request
        self.answered = answered
        self.has_ended = False


class Network:
    """All links."""

    def __init__(self, world: World, bookies: dict[str, ModelBookie]) -> None:
        self._world = world
        self._bookies = bookies
        self.loss = 0.0
        """The probability that something goes wrong with a call."""
        self._cut: set[tuple[str, str]] = set()
        self._last_arrival: dict[tuple[str, str], float] = {}
        self._open: dict[str, dict[_ModelCall, None]] = {name: {} for name in bookies}

    def has(self, name: str) -> bool:
        """Return whether there is such a bookie."""
        return name in self._bookies

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────

    def call(
        self, process: Process, name: str, request: Request, answered: Callable[[BookieAnswer], None]
    ) -> None:
        """Call a bookie for a process."""
        world, choices = self._world, self._world.choices
        bookie = self._bookies[name]
        call = _ModelCall(process, bookie, request, answered)
        link = process.name, name
        if not bookie.is_up or link in self._cut:
            world.after(CALL_TIMEOUT / 10, self._end, call, NoAnswer("no connection"))
            return
        self._open[name][call] = None
        # Not before the requests that were sent earlier on this connection.
        arrival = max(world.now + world.delay(), self._last_arrival.get(link, 0.0))
        self._last_arrival[link] = arrival
        if not choices.happens(self.loss):
            world.after(arrival - world.now, self._arrive, call)
            return
        match choices.pick(4):
            case 0:
                if world.trace is not None:
                    world.note(EventKind.LOST, process.name, shown_request(request), name)
            case 1:
                world.after(arrival - world.now, self._arrive_unanswered, call)
            case 2:
                world.after(CALL_TIMEOUT + choices.pick(100), self._arrive_unanswered, call)
            case _:
                world.after(arrival - world.now, self._arrive, call)
                world.after(CALL_TIMEOUT + choices.pick(100), self._arrive_unanswered, call)
                return
        world.after(CALL_TIMEOUT, self._end, call, NoAnswer("timed out"))

    def _arrive(self, call: _ModelCall) -> None:
        if call.bookie.is_up and not call.has_ended:
            self._note_arrival(call)
            call.bookie.take(call.request, lambda answer: self._answer(call, answer))

    def _arrive_unanswered(self, call: _ModelCall) -> None:
        if call.bookie.is_up:
            self._note_arrival(call)
            call.bookie.take(call.request, _ignore)

    def _note_arrival(self, call: _ModelCall) -> None:
        if self._world.trace is not None:
            text = shown_request(call.request)
            self._world.note(EventKind.REQUEST, call.process.name, text, call.bookie.name)

    def _answer(self, call: _ModelCall, answer: Answer) -> None:
        if (call.process.name, call.bookie.name) in self._cut:
            self._world.after(CALL_TIMEOUT, self._end, call, NoAnswer("timed out"))
        else:
            self._world.after(self._world.delay(), self._end, call, answer)

    def _end(self, call: _ModelCall, answer: BookieAnswer) -> None:
        """End a call that has not ended yet."""
        if call.has_ended:
            return
        call.has_ended = True
        self._open[call.bookie.name].pop(call, None)
        if self._world.trace is not None:
            kind = EventKind.NO_ANSWER if isinstance(answer, NoAnswer) else EventKind.ANSWER
            text = f"{shown_request(call.request)}: {shown_answer(answer)}"
            self._world.note(kind, call.bookie.name, text, call.process.name)
        call.process.deliver(call.answered, answer)

    # ── what goes wrong ───────────────────────────────────────────────────────────────────────────────

    def crash(self, name: str) -> None:
        """Crash a bookie, and end the calls that it has not answered."""
        self._bookies[name].crash()
        self._world.note(EventKind.FAULT, name, "crashes")
        for call in list(self._open[name]):
            self._world.after(self._world.delay(), self._end, call, NoAnswer("connection lost"))

    def cut(self, client: str, bookie: str) -> None:
        self._cut.add((client, bookie))
        self._world.note(EventKind.FAULT, client, f"the link to {bookie} is cut")

    def mend(self, client: str, bookie: str) -> None:
        self._cut.discard((client, bookie))
        self._world.note(EventKind.MENDED, client, f"the link to {bookie} works again")

    def mend_all(self) -> None:
        """Let nothing go wrong any more."""
        self._cut.clear()
        self.loss = 0.0


def _ignore(answer: Answer) -> None:
    """Drop an answer that cannot reach its client."""


def shown_request(request: Request) -> str:
    """Return a request as a part of a trace's line."""
    match request:
        case AddEntry(_, entry_id, _, _, options):
            return f"add {entry_id}{' again' if options.is_recovery else ''}"
        case ReadEntry(_, entry_id, _, fences):
            what = "the last entry" if entry_id == LAST_ENTRY else f"{entry_id}"
            return f"{'fence and read' if fences else 'read'} {what}"
        case LongPoll(_, _, previous_lac):
            return f"poll for more than {previous_lac}"
        case _:
            return str(request)


def shown_answer(answer: BookieAnswer) -> str:
    """Return an answer as a part of a trace's line."""
    match answer:
        case NoAnswer(reason):
            return reason
        case CodeAnswer(code):
            return code.name
        case FoundEntry(None, _, lac):
            return f"no entry, last add confirmed {lac}"
        case FoundEntry(bytes() as entry, _, lac):
            _, entry_id, header_lac, length = HEAD.unpack_from(entry)
            told = "" if lac is None else f", last add confirmed {lac}"
            return f"entry {entry_id} (lac {header_lac}, length {length}){told}"
        case _:
            return str(answer)

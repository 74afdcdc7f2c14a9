"""Model bookies: dictionaries with a volatile and a durable half.

A bookie syncs the adds and fences that have arrived since its last sync together, and answers them then. A
crash loses what is not synced, or keeps some of it without an answer. Reads see durable entries only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

from storage.cluster.bookie.first_add import EndedLedger, check_first_add
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    LAST_ENTRY,
    AddEntry,
    CodeAnswer,
    FoundEntry,
    FoundLac,
    LongPoll,
    ReadEntry,
    ReadLac,
)
from storage.entry.credentials import Purpose
from storage.entry.format import HEAD
from storage.entry.model import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.clusterlab.world import World
    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.wire.messages import Answer, Request

    Reply = Callable[[Answer], None]

_OK = CodeAnswer(Code.OK)


class BookieMetadata(Protocol):
    """The metadata, as bookies read them."""

    def znodes_of(self, name: str) -> object:
        """Return the nodes as a bookie sees them in its session. No read of them waits."""
        ...


class BookieOracles(Protocol):
    """The events of bookies that the oracles need."""

    def fence_answered(self, bookie: str, ledger_id: int) -> None: ...
    def add_stored(self, bookie: str, ledger_id: int, entry_id: int) -> None: ...


@dataclass(slots=True)
class StoredLedger:
    """The state of one ledger at a bookie."""

    entries: dict[int, bytes] = field(default_factory=dict)
    """Durable entries."""
    is_fenced: bool = False
    """Whether the bookie refuses adds of a writer: from the arrival of a fence on."""
    is_fenced_durably: bool = False
    last_add_confirmed: int = NO_ENTRY
    """The largest last add confirmed of any durable entry."""
    polls: list[tuple[LongPoll, Reply]] = field(default_factory=list)


class ModelBookie:
    """One bookie."""

    def __init__(
        self, name: str, world: World, oracles: BookieOracles, metadata: BookieMetadata | None = None
    ) -> None:
        """With metadata, the bookie checks the first ordinary add to a ledger that is unknown to it."""
        self.name = name
        self._metadata = metadata
        self._world = world
        self._oracles = oracles
        self.ledgers: dict[int, StoredLedger] = {}
        self._unsynced: list[tuple[AddEntry | ReadEntry, Reply]] = []
        self._unchecked: dict[int, list[tuple[AddEntry, Reply]]] = {}
        """By ledger: adds that wait until its metadata are read."""
        self._crashes = 0
        self.is_up = True

    def take(self, request: Request, reply: Reply) -> None:
        """Take a request. It is answered at once, later, or never if the bookie crashes."""
        match request:
            case AddEntry():
                self._add(request, reply)
            case ReadEntry(fences=True):
                self._ledger(request.ledger_id).is_fenced = True
                self._sync_with_others(request, reply)
            case ReadEntry():
                reply(self._read(request))
            case ReadLac():
                reply(self._read_lac(request))
            case LongPoll():
                self._poll(request, reply)
            case _:
                raise AssertionError(request)

    def _ledger(self, ledger_id: int) -> StoredLedger:
        return self.ledgers.setdefault(ledger_id, StoredLedger())

    # ── what has to be durable ────────────────────────────────────────────────────────────────────────

    def _add(self, request: AddEntry, reply: Reply) -> None:
        is_known = request.ledger_id in self.ledgers or request.options.is_recovery
        if self._metadata is not None and not is_known:
            self._check_first(request, reply, self._metadata)
        elif self._ledger(request.ledger_id).is_fenced and not request.options.is_recovery:
            reply(CodeAnswer(Code.FENCED))
        else:
            self._sync_with_others(request, reply)

    def _check_first(self, request: AddEntry, reply: Reply, metadata: BookieMetadata) -> None:
        waiting = self._unchecked.setdefault(request.ledger_id, [])
        waiting.append((request, reply))
        if len(waiting) == 1:
            self._world.after(self._world.delay(), self._checked, metadata, request.ledger_id, self._crashes)

    def _checked(self, metadata: BookieMetadata, ledger_id: int, crashes: int) -> None:
        """Take the adds that wait, or refuse them, as the check of our bookies says."""
        if crashes != self._crashes:
            return
        waiting = self._unchecked.pop(ledger_id)
        found = first_add(metadata.znodes_of(self.name), ledger_id, self.name, Purpose.WRITING)
        for request, reply in waiting:
            if found is Code.OK or (isinstance(found, EndedLedger) and found.has(request.entry_id)):
                self._ledger(ledger_id)
                self._add(request, reply)
            else:
                reply(CodeAnswer(Code.FENCED))

    def _sync_with_others(self, request: AddEntry | ReadEntry, reply: Reply) -> None:
        self._unsynced.append((request, reply))
        if len(self._unsynced) == 1:
            self._world.after(self._world.choices.pick(3), self._sync, self._crashes)

    def _sync(self, crashes: int) -> None:
        if crashes != self._crashes:
            return  # the process that has begun this sync is gone
        synced, self._unsynced = self._unsynced, []
        for request, _ in synced:
            self._make_durable(request)
        for request, reply in synced:
            if isinstance(request, ReadEntry):
                self._oracles.fence_answered(self.name, request.ledger_id)
                reply(self._read(request))
            else:
                if not request.options.is_recovery:
                    self._oracles.add_stored(self.name, request.ledger_id, request.entry_id)
                reply(_OK)

    def _make_durable(self, request: AddEntry | ReadEntry) -> None:
        ledger = self._ledger(request.ledger_id)
        if isinstance(request, ReadEntry):
            ledger.is_fenced_durably = True
            return
        ledger.entries[request.entry_id] = request.entry
        lac: int = HEAD.unpack_from(request.entry)[2]
        if lac > ledger.last_add_confirmed:
            ledger.last_add_confirmed = lac
            polls, ledger.polls = ledger.polls, []
            for poll, reply in polls:
                self._poll(poll, reply)

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, request: ReadEntry) -> Answer:
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None or not ledger.entries:
            return CodeAnswer(Code.NO_LEDGER if ledger is None else Code.NO_ENTRY)
        entry_id = max(ledger.entries) if request.entry_id == LAST_ENTRY else request.entry_id
        entry = ledger.entries.get(entry_id)
        if entry is None:
            return CodeAnswer(Code.NO_ENTRY)
        return FoundEntry(entry, request.entry_id, None if request.fences else ledger.last_add_confirmed)

    def _read_lac(self, request: ReadLac) -> Answer:
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None:
            return CodeAnswer(Code.NO_LEDGER)
        if not ledger.entries:
            return CodeAnswer(Code.NO_ENTRY)
        return FoundLac(None, ledger.entries[max(ledger.entries)])

    def _poll(self, request: LongPoll, reply: Reply) -> None:
        ledger = self._ledger(request.ledger_id)
        if ledger.last_add_confirmed > request.previous_lac or request.timeout_ms is None:
            entry_id = request.previous_lac + 1
            entry = ledger.entries.get(entry_id)
            found = LAST_ENTRY if entry is None else entry_id
            reply(FoundEntry(entry, found, ledger.last_add_confirmed))
        else:
            waiting = request, reply
            ledger.polls.append(waiting)
            self._world.after(request.timeout_ms / 1000, self._end_poll, waiting)

    def _end_poll(self, waiting: tuple[LongPoll, Reply]) -> None:
        request, reply = waiting
        ledger = self._ledger(request.ledger_id)
        if waiting in ledger.polls:
            ledger.polls.remove(waiting)
            reply(FoundEntry(None, LAST_ENTRY, ledger.last_add_confirmed))

    # ── crashes ───────────────────────────────────────────────────────────────────────────────────────

    def crash(self) -> None:
        """Stop, and lose what is volatile."""
        self.is_up = False
        self._crashes += 1
        unsynced, self._unsynced = self._unsynced, []
        self._unchecked.clear()
        for request, _ in unsynced:
            # The system may have written it before.
            if self._world.choices.happens(0.3):
                self._make_durable(request)
        for ledger in self.ledgers.values():
            ledger.is_fenced = ledger.is_fenced_durably
            ledger.polls.clear()

    def restart(self) -> None:
        self.is_up = True


def first_add(znodes: object, ledger_id: int, bookie: str, purpose: Purpose) -> Code | EndedLedger:
    """Return what the check of a first add says. Nothing in it waits, because the answers are there."""
    check = check_first_add(cast("Znodes", znodes), _PATHS, ledger_id, bookie, purpose)
    try:
        check.send(None)
    except StopIteration as done:
        return cast("Code | EndedLedger", done.value)
    raise AssertionError("the check waits")


_PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)

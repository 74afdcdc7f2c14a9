"""The adds of one pass of the loop, as one commit.

    arrival    the adds of all connections are collected until the loop's next pass, in runs of one writer
    work       each run becomes a piece of work; a damaged or unauthorised add is answered at once
    commit     all of them join one group: one write and one sync
    answer     when the group is durable, each connection gets all its answers with one write

An add to a ledger without entries here waits until its end is looked up, and until the metadata allow it
(`first_add`); an add for which there is no room waits for room. Neither holds up the others.
"""

from __future__ import annotations

import logging
import struct
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from storage.cluster.bookie.first_add import EndedLedger
from storage.cluster.bookie.traffic import RequestKind
from storage.cluster.wire.codes import Code, code_of
from storage.cluster.wire.messages import Protocol
from storage.entry.credentials import Purpose
from storage.errors import NoSuchEntry, NoSuchLedger, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from storage.aio.bookie import AsyncBookie
    from storage.cluster.bookie.served_connection import BookieConnection
    from storage.cluster.bookie.traffic import Traffic
    from storage.cluster.wire.messages import AddRun
    from storage.commit.pending import PendingEntries

    Add = tuple[BookieConnection, AddRun]
    Work = tuple[BookieConnection, AddRun, PendingEntries]
    FirstAddCheck = Callable[[int, Purpose], Awaitable[Code | EndedLedger]]

_LOG = logging.getLogger("ledgerstore.bookie")
T = TypeVar("T")

_CHECKED_MAX = 10_000
_IDS = struct.Struct(">qq")


class Adds:
    """Collects adds and commits them. For the thread of the loop."""

    def __init__(
        self,
        bookie: AsyncBookie,
        call_soon: Callable[[Callable[[], None]], object],
        run: Callable[[Coroutine[object, object, None]], object],
        check_first: FirstAddCheck,
        throttle_timeout_s: float,
        traffic: Traffic,
    ) -> None:
        """`call_soon` makes a call in the loop's next pass, `run` runs a coroutine beside its other work."""
        self._bookie = bookie
        self._call_soon = call_soon
        self._run = run
        self._check_first = check_first
        self._throttle_timeout_s = throttle_timeout_s
        self._traffic = traffic
        self.is_read_only = False
        """Whether only recoveries may add, because the operator has said so."""
        self._arrived: list[Add] = []
        self._arrived_at = 0.0
        """When the first of these adds arrived."""
        self._first: dict[int, list[Add]] = {}
        """Adds to ledgers that are being looked up and checked, or are held. All adds to them wait there."""
        self._recovered: set[int] = set()
        """Ledgers that got a recovery add since `take_recovered`."""
        self._checked: dict[int, None] = {}
        """Ledgers without entries to which writers may add, the oldest first."""
        self._ended: dict[int, EndedLedger] = {}
        """Ledgers that were closed before their first add came here, the oldest first."""

    def take(self, client: BookieConnection, run: AddRun) -> None:
        """Take adds that have arrived. They are answered when they are durable, or refused."""
        if not self._arrived:
            self._arrived_at = self._traffic.clock()
            self._call_soon(self._commit)
        self._arrived.append((client, run))

    def take_recovered(self) -> set[int]:
        """Return the ledgers that got a recovery add since the last call."""
        recovered, self._recovered = self._recovered, set()
        return recovered

    @contextmanager
    def held(self, ledger_id: int) -> Iterator[bool]:
        """Let new adds to a ledger wait for a block. False, and no wait, if the ledger is being looked up.

        The next of them is checked anew: if the block deletes the ledger, its fence goes too.
        """
        if ledger_id in self._first:
            yield False
            return
        self._first[ledger_id] = []
        self._checked.pop(ledger_id, None)
        since = self._traffic.clock()
        try:
            yield True
        finally:
            if self._first[ledger_id]:
                self._run(self._commit_first(ledger_id, since))
            else:
                del self._first[ledger_id]

    def _commit(self) -> None:
        arrived, since, self._arrived = self._arrived, self._arrived_at, []
        if self.is_read_only:
            arrived = self._without_writers(arrived, since)
        works: list[Work] = []
        first, is_known, known = self._first, self._bookie.has_entries, set[int]()
        for add in arrived:
            client, run = add
            ledger_id = run.ledger_id
            if ledger_id in first:
                first[ledger_id].append(add)
            elif ledger_id in known or (ledger_id >= 0 and is_known(ledger_id)):
                known.add(ledger_id)
                works += self._works_of(client, run, since)
            elif ledger_id < 0:
                self._refuse(client, run, Code.BAD_REQUEST, since)
            else:
                first[ledger_id] = [add]
                self._run(self._commit_first(ledger_id, since))
        if works:
            self._commit_works(works, since)

    def _without_writers(self, arrived: list[Add], since: float) -> list[Add]:
        """Refuse the adds of writers, as a read-only Java bookie does. Return the others."""
        for client, run in arrived:
            if not run.options.is_recovery:
                self._refuse(client, run, Code.READ_ONLY, since)
        return [(client, run) for client, run in arrived if run.options.is_recovery]

    def _refuse(self, client: BookieConnection, run: AddRun, code: Code, since: float) -> None:
        self._traffic.note(RequestKind.ADD, code, since, len(run.entries))
        client.refuse_adds(run, code)

    def _works_of(self, client: BookieConnection, run: AddRun, since: float) -> list[Work]:
        """Return the adds as work: one piece for a run, unless its adds must be looked at one by one."""
        work = None
        if run.options.is_recovery:
            self._recovered.add(run.ledger_id)
        elif run.ledger_id not in self._ended:
            work = self._bookie.entries(run.ledger_id, run.first_entry_id, run.entries, run.master_key)
        if work is not None:
            self._traffic.bytes_added += run.size
            return [(client, run, work)]
        works = (self._single_work_of(client, one, since) for one in run.singles())
        return [one for one in works if one is not None]

    def _single_work_of(self, client: BookieConnection, run: AddRun, since: float) -> Work | None:
        """Return the only add of a run as work; answer it and return `None` if it is refused."""
        (entry,) = run.entries
        # In version 3 the ids are beside the entry too. An entry with other ids would never be found.
        is_v3 = run.protocol is Protocol.V3
        if is_v3 and entry[: _IDS.size] != _IDS.pack(run.ledger_id, run.first_entry_id):
            self._refuse(client, run, Code.BAD_REQUEST, since)
            return None
        ended = self._ended.get(run.ledger_id)
        is_late = ended is not None and ended.has(run.first_entry_id)
        purpose = Purpose.RECOVERING if is_late or run.options.is_recovery else Purpose.WRITING
        try:
            work = self._bookie.entry(entry, run.master_key, purpose)
        except (StoreError, TypeError, OSError) as error:
            self._refuse(client, run, code_of(error), since)
            return None
        self._traffic.bytes_added += len(entry)
        return client, run, work

    def _commit_works(self, works: list[Work], since: float, waited_since: float | None = None) -> None:
        done = partial(self._answer, works, since, waited_since)
        try:
            self._bookie.commit([work for _, _, work in works], done)
        except StoreError as error:
            for client, run, _ in works:
                self._refuse(client, run, code_of(error), since)

    def _answer(self, works: list[Work], since: float, waited_since: float | None) -> None:
        without_room: dict[int, list[Work]] = {}
        durable = 0
        answered: dict[BookieConnection, None] = {}
        for item in works:
            client, run, work = item
            if work.is_durable:
                durable += len(run.entries)
                client.answer_adds(run, Code.OK)
                answered[client] = None
            elif work.refusal is not None:
                self._refuse(client, run, code_of(work.refusal), since)
            elif work.group is None:
                without_room.setdefault(work.state.ledger_id, []).append(item)
            else:
                error = self._bookie.failure_of(work)
                self._refuse(client, run, Code.IO_ERROR if error is None else code_of(error), since)
        if durable:
            self._traffic.note_added(durable, since)
        for client in answered:
            client.flush()  # at once, because no more answers come in this pass, and a pass takes time
        if without_room:
            waited_since = self._traffic.clock() if waited_since is None else waited_since
            # Each ledger by itself, because one that is being deleted takes no add until that is done.
            for waiting in without_room.values():
                self._run(self._commit_when_there_is_room(waiting, since, waited_since))

    async def _commit_first(self, ledger_id: int, since: float) -> None:
        """Commit the adds to a ledger that has no entries here, or whose end is not known yet."""
        state: object = None
        unreadable: Code | None = None
        refusal = Code.OK
        try:
            state = await self._bookie.load(ledger_id)
            refusal = await self._refusal_of(ledger_id)
        except (StoreError, OSError) as error:
            unreadable = code_of(error)
        except Exception:
            # Otherwise these adds, and all later ones to the ledger, would wait here for ever.
            _LOG.exception("the look-up of ledger %d failed unexpectedly", ledger_id)
            unreadable = Code.IO_ERROR
        works: list[Work] = []
        for add in self._first.pop(ledger_id):
            client, run = add
            if unreadable is not None:
                self._refuse(client, run, unreadable, since)
            elif refusal is not Code.OK and not run.options.is_recovery:
                self._refuse(client, run, refusal, since)
            else:
                works += self._works_of(client, run, since)
        if works:
            self._commit_works(works, since)
        # Kept until here, because nothing else keeps the state of a ledger without entries.
        del state

    async def _refusal_of(self, ledger_id: int) -> Code:
        """Return `OK` if a writer may add to this ledger, which is loaded, else the code that refuses it.

        Raises if the metadata cannot be read: then no add is taken. A ledger that has ended is fenced before
        its late or recovered entries are taken, because the first of them ends checks.
        """
        if self._bookie.has_entries(ledger_id):
            return Code.OK
        found: Code | EndedLedger = Code.OK
        if self._recovery_of(ledger_id) is None:
            if ledger_id in self._checked:
                return Code.OK
            found = await self._check_first(ledger_id, Purpose.WRITING)
        # Looked up again, because a recovery add may have come while the metadata were read.
        if (recovery := self._recovery_of(ledger_id)) is not None:
            if await self._bookie.call(partial(self._is_fenced, ledger_id)):
                return Code.FENCED  # whatever the metadata say
            found = await self._check_first(ledger_id, Purpose.RECOVERING)
        self._ended.pop(ledger_id, None)  # of an earlier ledger with this id
        if isinstance(found, EndedLedger):
            if not found.ids and recovery is None:
                return Code.FENCED
            key = (recovery or self._first[ledger_id][0][1]).master_key
            with suppress(NoSuchLedger, NoSuchEntry):  # it has no entry here yet, and is fenced nevertheless
                await self._bookie.call(partial(self._bookie.blocking.fence, ledger_id, key))
            if not found.ids:
                return Code.FENCED
            _keep(self._ended, ledger_id, found)
            return Code.OK
        if found is Code.OK:
            _keep(self._checked, ledger_id, None)
        return found

    def _recovery_of(self, ledger_id: int) -> AddRun | None:
        """Return a recovery add that waits for the look-up of its ledger."""
        return next((run for _, run in self._first[ledger_id] if run.options.is_recovery), None)

    def _is_fenced(self, ledger_id: int) -> bool:
        try:
            return self._bookie.blocking.is_fenced(ledger_id)
        except NoSuchLedger:
            return False

    async def _commit_when_there_is_room(self, works: list[Work], since: float, waited_since: float) -> None:
        """Commit adds to one ledger when it takes them, or refuse them when they have waited too long.

        They may find the room taken by others again. Their time goes on then, otherwise they could wait for
        ever.
        """
        timeout_s = waited_since + self._throttle_timeout_s - self._traffic.clock()
        try:
            has_room = timeout_s > 0 and await self._bookie.wait_for_room(works[0][2], timeout_s)
        except StoreError as error:
            for client, run, _ in works:
                self._refuse(client, run, code_of(error), since)
            return
        if has_room:
            self._commit_works(works, since, waited_since)
            return
        for client, run, _ in works:
            self._refuse(client, run, Code.TOO_MANY_REQUESTS, since)


def _keep(table: dict[int, T], ledger_id: int, value: T) -> None:
    """Note a ledger, and forget the oldest if there are too many."""
    table[ledger_id] = value
    if len(table) > _CHECKED_MAX:
        del table[next(iter(table))]

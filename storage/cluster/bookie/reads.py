"""The reads of one pass of the loop: from memory at once, all others together in a thread.

A tailing reader finds its entries in memory, so its answer needs no thread. A call to a thread costs more
than a read from the page cache, so the reads of one pass share a call. A call ends early when its answers
are large, and the other reads begin again later: otherwise 64 of them could bring 320 MiB at once.

Reads of consecutive entries come in runs. A run is answered as far as its entries lie together, in memory or
in an entry log; the rest of it begins again. Where the first entry needs a look of its own, some reads of
the run are done one by one.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.wire.codes import Code, code_of
from storage.cluster.wire.messages import (
    LAST_ENTRY,
    BatchRead,
    CodeAnswer,
    FoundEntry,
    Protocol,
    ReadEntry,
)
from storage.entry.model import NO_ENTRY
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from storage.aio.bookie import AsyncBookie
    from storage.bookie import Bookie
    from storage.cluster.bookie.served_connection import BookieConnection
    from storage.cluster.bookie.traffic import Traffic
    from storage.cluster.wire.messages import Answer, Incoming, ReadRun, Request

    Read = tuple[BookieConnection, Incoming, ReadEntry]

_LOG = logging.getLogger("ledgerstore.bookie")

READS_MAX = 64
"""The most reads of one call to a thread, so that several threads share the reads of a pass."""

ANSWERS_SIZE_MAX = 4 << 20
"""A call reads nothing more when its answers have this size."""

MEMORY_SIZE_MAX = 128 << 10
"""A run is answered from memory in parts of this size, so that its client has something to do early."""
RUN_SIZE_MAX = 256 << 10
"""The bytes of an entry log that are read at once for a run. More, because a call to a thread takes time."""


class Reads:
    """Collects reads and answers them. For the thread of the loop."""

    def __init__(
        self,
        bookie: AsyncBookie,
        call_soon: Callable[[Callable[[], None]], object],
        run: Callable[[Coroutine[object, object, None]], object],
        turns: AbstractAsyncContextManager[object],
        traffic: Traffic,
        waits_for_adds: Callable[[BookieConnection, Incoming, float], bool],
    ) -> None:
        """`turns` is a semaphore of the calls that may be under way.

        `waits_for_adds` takes over a read that found nothing, if its client has sent adds before it.
        """
        self._waits_for_adds = waits_for_adds
        self._turns = turns
        self._bookie = bookie
        self._call_soon = call_soon
        self._run = run
        self._traffic = traffic
        self._arrived: list[Read] = []
        self._arrived_at = 0.0
        """When the first of these reads arrived."""
        self._hits: list[bytes] = []
        """The entries of this pass that were found in memory; they are counted together, in the next one."""
        self._hits_since = 0.0

    def take(self, client: BookieConnection, incoming: Incoming, request: ReadEntry) -> None:
        """Take a read that neither fences nor waits."""
        try:
            answer = self._from_memory(incoming.protocol, request)
        except (StoreError, OSError) as error:  # the entry may leave the memory at any time
            answer = CodeAnswer(code_of(error))
        if answer is not None:
            if type(answer) is FoundEntry and answer.entry is not None:
                if not self._hits:
                    self._hits_since = self._traffic.clock()
                    self._call_soon(self._note_hits)
                self._hits.append(answer.entry)
            else:
                self._traffic.note_reads([answer], self._traffic.clock())
            client.answer(incoming, answer)
            return
        if not self._arrived:
            self._arrived_at = self._traffic.clock()
            self._call_soon(self._begin)
        self._arrived.append((client, incoming, request))

    def take_run(self, client: BookieConnection, run: ReadRun) -> None:
        """Take reads of consecutive entries."""
        since = self._traffic.clock()
        try:
            entries = self._run_from_memory(run)
        except (StoreError, OSError):
            entries = []  # they may leave the memory at any time
        lac: int | None = NO_ENTRY
        if entries and run.protocol is Protocol.V3:
            lac = self._bookie.last_add_confirmed_from_memory(run.ledger_id)
        if entries and lac is not None:
            self._traffic.note_found(len(entries), sum(map(len, entries)), since)
            client.answer_reads(run, entries, lac)
        else:
            self._run(self._answer_run(client, run, since))

    def _run_from_memory(self, run: ReadRun) -> list[bytes]:
        place = run.ledger_id, run.first_entry_id, len(run.headers)
        return self._bookie.read_run_from_memory(*place, MEMORY_SIZE_MAX) if run.ledger_id >= 0 else []

    async def _answer_run(self, client: BookieConnection, run: ReadRun, since: float) -> None:
        async with self._turns:
            # Since the reads were begun, the client may have got other answers that it does not take.
            if not client.takes_answers:
                client.postpone(run)
                return
            try:
                found = await self._bookie.call(partial(_read_run, self._bookie.blocking, run))
            except StoreError as error:
                found = [CodeAnswer(code_of(error))] * len(run.headers)
            except Exception:
                _LOG.exception("reads failed unexpectedly")
                found = [CodeAnswer(Code.IO_ERROR)] * len(run.headers)
        if isinstance(found, FoundRun):
            self._traffic.note_found(len(found.entries), sum(map(len, found.entries)), since)
            client.answer_reads(run, found.entries, found.lac)
            return
        self._give([(client, *one) for one in run.requests()], found, since)
        if len(found) < len(run.headers):
            client.postpone(run.after(len(found)))

    def _from_memory(self, protocol: Protocol, request: ReadEntry) -> Answer | None:
        if request.ledger_id < 0:
            return CodeAnswer(Code.BAD_REQUEST)
        entry = self._bookie.read_from_memory(request.ledger_id, request.entry_id)
        if entry is None:
            return None
        if protocol is Protocol.V2:
            return FoundEntry(entry, request.entry_id)
        lac = self._bookie.last_add_confirmed_from_memory(request.ledger_id)
        return None if lac is None else FoundEntry(entry, request.entry_id, lac)

    def _note_hits(self) -> None:
        hits, self._hits = self._hits, []
        self._traffic.note_found(len(hits), sum(map(len, hits)), self._hits_since)

    def _begin(self) -> None:
        arrived, since, self._arrived = self._arrived, self._arrived_at, []
        for first in range(0, len(arrived), READS_MAX):
            self._run(self._answer(arrived[first : first + READS_MAX], since))

    async def _answer(self, arrived: Sequence[Read], since: float) -> None:
        async with self._turns:
            # Since the reads were begun, their clients may have got other answers that they do not take.
            reads: list[Read] = []
            later: list[Read] = []
            for one in arrived:
                (reads if one[0].takes_answers else later).append(one)
            answers = await self._answers_to(reads)
        self._give(reads, answers, since)
        for client, incoming, _ in reversed((*later, *reads[len(answers) :])):
            client.postpone(incoming)

    def _give(self, reads: Sequence[Read], answers: Sequence[Answer], since: float) -> None:
        """Answer the first reads, except those that found nothing and may find it after the client's adds."""
        given: list[Answer] = []
        for (client, incoming, request), answer in zip(reads, answers, strict=False):
            if not (is_missing(request, answer) and self._waits_for_adds(client, incoming, since)):
                given.append(answer)
                client.answer(incoming, answer)
        self._traffic.note_reads(given, since)

    async def _answers_to(self, reads: Sequence[Read]) -> Sequence[Answer]:
        """Return the answers to the first of the reads: to as many as fit into one call."""
        requests = [(incoming.protocol, request) for _, incoming, request in reads]
        try:
            return await self._bookie.call(partial(_read_some, self._bookie.blocking, requests))
        except StoreError as error:
            return [CodeAnswer(code_of(error))] * len(reads)
        except Exception:
            _LOG.exception("reads failed unexpectedly")
            return [CodeAnswer(Code.IO_ERROR)] * len(reads)


def is_missing(request: Request, answer: Answer) -> bool:
    """Return whether a read of an entry by its id has found that there is none. It must not fence."""
    if type(answer) is not CodeAnswer or answer.code not in (Code.NO_ENTRY, Code.NO_LEDGER):
        return False
    if type(request) is BatchRead:
        return not request.fences
    return type(request) is ReadEntry and not request.fences and request.entry_id != LAST_ENTRY


class FoundRun(NamedTuple):
    """The entries that answer the first reads of a run."""

    entries: Sequence[bytes]
    lac: int


def _read_run(bookie: Bookie, run: ReadRun) -> FoundRun | list[Answer]:
    """Return the answers to the first reads of a run: to as many as fit into one call."""
    ledger_id, first_id, count = run.ledger_id, run.first_entry_id, len(run.headers)
    if ledger_id >= 0 and first_id >= 0:
        with suppress(StoreError, OSError):  # then they are read one by one
            if entries := bookie.read_run(ledger_id, first_id, count, RUN_SIZE_MAX):
                is_v3 = run.protocol is Protocol.V3
                return FoundRun(entries, bookie.last_add_confirmed(ledger_id) if is_v3 else NO_ENTRY)
    few = (ReadEntry(ledger_id, entry_id) for entry_id in range(first_id, first_id + min(count, READS_MAX)))
    return _read_some(bookie, [(run.protocol, one) for one in few])


def _read_some(bookie: Bookie, requests: Sequence[tuple[Protocol, ReadEntry]]) -> list[Answer]:
    answers: list[Answer] = []
    size = 0
    for protocol, request in requests:
        answer = read(bookie, protocol, request)
        answers.append(answer)
        size += len(answer.entry or b"") if isinstance(answer, FoundEntry) else 0
        if size >= ANSWERS_SIZE_MAX:
            break
    return answers


def read(bookie: Bookie, protocol: Protocol, request: ReadEntry) -> Answer:
    """Return the answer to a read, which may wait for the disk."""
    ledger_id, entry_id = request.ledger_id, request.entry_id
    try:
        entry = bookie.read_last(ledger_id) if entry_id == LAST_ENTRY else bookie.read(ledger_id, entry_id)
    except (StoreError, OSError) as error:
        return CodeAnswer(code_of(error))
    if protocol is Protocol.V2:
        return FoundEntry(entry, entry_id)
    return FoundEntry(entry, entry_id, last_add_confirmed(bookie, ledger_id))


def last_add_confirmed(bookie: Bookie, ledger_id: int) -> int | None:
    """Return the last add confirmed that an answer brings along; `None` if it is not known."""
    try:
        return bookie.last_add_confirmed(ledger_id)
    except (StoreError, OSError):
        return None

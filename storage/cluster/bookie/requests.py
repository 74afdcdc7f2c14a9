"""Answers all requests except ordinary adds and reads, which `adds` and `reads` collect."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from storage.cluster.bookie import reads
from storage.cluster.wire import entry_list
from storage.cluster.wire.codes import Code, code_of
from storage.cluster.wire.messages import (
    LAST_ENTRY,
    Authenticate,
    BatchRead,
    BookieInfo,
    CodeAnswer,
    DiskSpaceAnswer,
    EntryList,
    ForceLedger,
    FoundEntries,
    FoundEntry,
    FoundLac,
    ListEntries,
    LongPoll,
    Protocol,
    ReadEntry,
    ReadLac,
    WriteLac,
)
from storage.errors import NoSuchEntry, NoSuchLedger, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.aio.bookie import AsyncBookie
    from storage.bookie import Bookie
    from storage.cluster.wire.messages import Answer, Incoming

_LOG = logging.getLogger("ledgerstore.bookie")

AUTH_DISABLED = Authenticate("AuthDisabledPlugin", b"")
"""The answer to a client that authenticates although nothing asks it to. It then goes on without."""

POLL_MAX_S = 3600.0
"""The longest wait of a long poll, whatever the client asks for."""

_BATCH_OVERHEAD = 24 + 8 + 4
"""The size of the frame of a batch, with its length word, besides the entries."""
_ENTRY_OVERHEAD = 4


class Requests:
    """Answers requests that may wait."""

    def __init__(
        self,
        bookie: AsyncBookie,
        disk_space: Callable[[], tuple[int, int]],
        clock: Callable[[], float],
        batch_size_max: int,
        frame_size_max: int,
    ) -> None:
        """`disk_space` returns the size of the disk and its free bytes. `clock` is `time.time`."""
        self._frame_size_max = frame_size_max
        self._clock = clock
        self._bookie = bookie
        self._disk_space = disk_space
        self._batch_size_max = batch_size_max

    async def answer_to(self, incoming: Incoming) -> Answer:
        """Return the answer. Errors are codes, whatever they are: a request must not stay unanswered."""
        try:
            return await self._answer_to(incoming)
        except (StoreError, OSError) as error:
            return CodeAnswer(code_of(error))
        except Exception:
            _LOG.exception("a request failed unexpectedly")
            return CodeAnswer(Code.IO_ERROR)

    async def _answer_to(self, incoming: Incoming) -> Answer:  # noqa: C901 - a case for each request
        request, bookie, call = incoming.request, self._bookie.blocking, self._bookie.call
        match request:
            case ReadEntry(fences=True):
                return await call(partial(_fence, bookie, request))
            case ReadEntry():
                return await call(partial(reads.read, bookie, incoming.protocol, request))
            case LongPoll():
                return await self._poll(request)  # its wait, if it asks for one, is over
            case BatchRead():
                # A client says how large a frame it takes. One that does not say it has probably our limit.
                wanted = request.size_max if request.size_max > 0 else self._frame_size_max
                return await call(partial(_read_batch, bookie, request, min(wanted, self._batch_size_max)))
            case WriteLac(ledger_id, _, master_key, packet):
                await call(partial(bookie.set_explicit_lac, ledger_id, packet, master_key))
                return CodeAnswer(Code.OK)
            case ReadLac(ledger_id):
                return await call(partial(_read_lac, bookie, ledger_id))
            case ForceLedger(ledger_id):
                await call(partial(bookie.force, ledger_id))
                return CodeAnswer(Code.OK)
            case ListEntries(ledger_id):
                runs = await call(partial(bookie.entry_ids, ledger_id))
                return EntryList(entry_list.encode(runs))
            case BookieInfo(requested):
                total, free = await call(self._disk_space)
                return DiskSpaceAnswer(total if requested & 1 else None, free if requested & 2 else None)
            case Authenticate():
                return AUTH_DISABLED
            case _:
                return CodeAnswer(Code.BAD_REQUEST)

    async def wait(self, request: LongPoll) -> None:
        """Return when more is confirmed than the client knows, or when its time is over.

        Also at an error: the same poll without a wait then answers with it.
        """
        wait_s = min((request.timeout_ms or 0) / 1000, POLL_MAX_S)
        ledger_id, known = request.ledger_id, request.previous_lac
        with suppress(StoreError, OSError):
            await self._bookie.wait_for_last_add_confirmed(ledger_id, known, wait_s)

    async def _poll(self, request: LongPoll) -> Answer:
        """Answer with the next entry, if more is confirmed than the client knows."""
        ledger_id, known = request.ledger_id, request.previous_lac
        if request.wants_entry and request.entry_id != LAST_ENTRY:
            return CodeAnswer(Code.BAD_REQUEST)
        lac = await self._bookie.call(partial(self._bookie.blocking.last_add_confirmed, ledger_id))
        now_ms = int(self._clock() * 1000)
        if not request.wants_entry:
            entry_id = request.entry_id
            found = await self._bookie.call(
                partial(self._bookie.blocking.read_last, ledger_id)
                if entry_id == LAST_ENTRY
                else partial(self._bookie.blocking.read, ledger_id, entry_id)
            )
            return FoundEntry(found, entry_id, lac, now_ms)
        if lac > known:
            try:
                entry = await self._bookie.call(partial(self._bookie.blocking.read, ledger_id, known + 1))
            except NoSuchEntry:
                pass  # it is on other bookies of the ensemble
            else:
                return FoundEntry(entry, known + 1, lac, now_ms)
        return FoundEntry(None, LAST_ENTRY, lac, now_ms if lac > known else None)


def _fence(bookie: Bookie, request: ReadEntry) -> Answer:
    """Fence the ledger, durably, before anything is read; also a ledger without entries.

    The answer has no last add confirmed, as that of a Java bookie.
    """
    if request.master_key is None:
        return CodeAnswer(Code.UNAUTHORIZED)
    try:
        last = bookie.fence(request.ledger_id, request.master_key)
    except (NoSuchLedger, NoSuchEntry):
        last = None
    if request.entry_id != LAST_ENTRY:
        return reads.read(bookie, Protocol.V2, request)
    return CodeAnswer(Code.NO_ENTRY) if last is None else FoundEntry(last, LAST_ENTRY)


def _read_batch(bookie: Bookie, request: BatchRead, size_max: int) -> Answer:
    """Return consecutive entries: the first whatever its size, the others up to the limits or to a gap."""
    if request.fences:
        if request.master_key is None:
            return CodeAnswer(Code.UNAUTHORIZED)
        bookie.fence(request.ledger_id, request.master_key)
    entries, size = [bookie.read(request.ledger_id, request.first_entry_id)], _BATCH_OVERHEAD
    size += _ENTRY_OVERHEAD + len(entries[0])
    while request.count_max <= 0 or len(entries) < request.count_max:
        try:
            entry = bookie.read(request.ledger_id, request.first_entry_id + len(entries))
        except (StoreError, OSError):
            break  # the error belongs to a request that begins there
        size += _ENTRY_OVERHEAD + len(entry)
        if size > size_max:
            break
        entries.append(entry)
    return FoundEntries(tuple(entries))


def _read_lac(bookie: Bookie, ledger_id: int) -> Answer:
    """Return the explicit last add confirmed and the last entry; one of them may be absent."""
    packet = bookie.explicit_lac(ledger_id)
    try:
        last = bookie.read_last(ledger_id)
    except NoSuchEntry:
        last = None
    return CodeAnswer(Code.NO_ENTRY) if packet is None and last is None else FoundLac(packet, last)

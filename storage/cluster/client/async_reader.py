"""A reader of a ledger, for coroutines."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from storage.cluster.client.distribution import quorums_of
from storage.cluster.client.driver import MachineDriver, settle
from storage.cluster.client.effects import FollowEnded, ShowEntry
from storage.cluster.client.reader import BatchOfEntries, EntryRead, LacRead, NotThere
from storage.cluster.client.reads_ahead import SPECULATIVE_READ_S, ReadsAhead
from storage.cluster.client.tailer import LedgerTailer
from storage.cluster.errors import (
    ClientClosed,
    ClusterError,
    CopiesUnreadable,
    LedgerNotClosed,
    NoSuchLedgerExistsOnMetadataServer,
)
from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Gone
from storage.entry.model import Entry
from storage.errors import NoSuchEntry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import BookieAnswer, Effect, Send, Token
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata

BATCH_COUNT = 256
BATCH_SIZE = 1 << 20
"""The limits of a batch if the caller gives none."""
_SHOWN_AHEAD = 100
"""Entries that a follower reads before they are taken."""


class AsyncLedgerReader:
    """Reads one ledger."""

    def __init__(
        self,
        cluster: AsyncCluster,
        entries: EntryCodec,
        metadata: Versioned[ClusterLedgerMetadata],
    ) -> None:
        self.id = entries.ledger_id
        self._cluster = cluster
        self._entries = entries
        self._metadata = metadata
        self._quorums = quorums_of(metadata.value)

    def __repr__(self) -> str:
        state = self.metadata.state.name.lower().replace("_", " ")
        end = f" after entry {self.metadata.last_entry}" if self.metadata.is_closed else ""
        return f"<{type(self).__name__} of ledger {self.id}: {state}{end}>"

    @property
    def metadata(self) -> ClusterLedgerMetadata:
        """The newest metadata that the reader has read."""
        return self._metadata.value

    @property
    def last_entry(self) -> int:
        """The id of the last entry of a closed ledger; -1 without any. Raise if the ledger is open."""
        if not self.metadata.is_closed or self.metadata.last_entry is None:
            raise LedgerNotClosed(self.id)
        return self.metadata.last_entry

    async def read_last_add_confirmed(self) -> int:
        """Return the last add confirmed that the bookies know now; of a closed ledger its last entry.

        It is BookKeeper's `readLastConfirmed`. Raise `LastAddConfirmedUnknown` if too few bookies answer.
        """
        await self._newest_version()
        if self.metadata.is_closed:
            return self.last_entry
        read = LacRead(self._entries, self.metadata)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(token: Token, answer: BookieAnswer) -> None:
            read.answered(token, answer)
            if read.result is not None:
                settle(done, None)

        for send in read.begin():
            self._cluster.call(send, partial(answered, send.token))
        await done
        if isinstance(read.result, int):
            return read.result
        assert read.result is not None, "it is over"
        raise read.result

    async def read(self, entry_id: int) -> Entry:
        """Return an entry, its digest verified. If the ledger is open, the entry may not be acknowledged.

        An entry that is not found is looked for once more if there are newer metadata, because all its copies
        may have moved since this reader has read them.
        """
        known = self._metadata.version
        found = await self._read(entry_id)
        if isinstance(found, NotThere | CopiesUnreadable) and await self._newest_version() > known:
            found = await self._read(entry_id)
        match found:
            case Entry() as entry:
                return entry
            case NotThere():
                raise NoSuchEntry(self.id, entry_id)
            case error:
                raise error

    async def read_batch(
        self, first: int, count_max: int = BATCH_COUNT, size_max: int = BATCH_SIZE
    ) -> list[Entry]:
        """Return entries from one on: at least one, and at most so many of about this size together.

        They come with one request if every bookie of the ensemble has every entry (E = Qw) and the bookie
        knows batch reads; otherwise one entry is read. If the ledger is open, they may not be acknowledged.
        """
        if self.metadata.is_closed:
            count_max = min(count_max, self.last_entry - first + 1)
        if first >= 0 and count_max > 1 and self._quorums.ensemble == self._quorums.write:
            found = await self._read_batch(first, count_max, size_max)
            if found:
                return found
        return [await self.read(first)]

    async def _read_batch(self, first: int, count_max: int, size_max: int) -> list[Entry]:
        segments = self.metadata.segments
        later = [one.first_entry for one in segments if one.first_entry > first]
        count_max = min(count_max, min(later) - first) if later else count_max
        bookies = self._cluster.bookies_for_batches(self.metadata.segment_of(first).bookies)
        batch = BatchOfEntries(self._entries, bookies, first, count_max, size_max)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def perform(sends: Sequence[Send]) -> None:
            for send in sends:
                self._cluster.call(send, partial(answered, send.token))
            if batch.result is not None:
                settle(done, None)

        def answered(token: Token, answer: BookieAnswer) -> None:
            perform(batch.answered(token, answer))

        perform(batch.begin())
        # A bookie that hangs costs no more than a part of the time that a single read may take.
        await asyncio.wait([done], timeout=SPECULATIVE_READ_S)
        self._cluster.note_without_batches(batch.unable)
        return batch.result or []

    async def _newest_version(self) -> int:
        """Read the metadata again if they can be read, and return their version."""
        match await self._cluster.read_metadata(self.id):
            case Gone():
                raise NoSuchLedgerExistsOnMetadataServer(self.id)
            case Versioned() as found:
                self._metadata = found
        return self._metadata.version

    async def _read(self, entry_id: int) -> Entry | NotThere | ClusterError:
        return await ReadsAhead(self._cluster, self._new_read, range(entry_id, entry_id + 1)).next()

    def _new_read(self, entry_id: int) -> EntryRead:
        bookies = self.metadata.segment_of(entry_id).bookies
        return EntryRead(self._entries, self._quorums, bookies, entry_id, self._cluster.slow_bookies())

    async def entries(self, first: int = 0, last: int | None = None) -> AsyncGenerator[Entry, None]:
        """Yield the entries of a closed ledger, from one id to another; by default all."""
        async with aclosing(self.entry_batches(first, last)) as batches:
            async for batch in batches:
                for entry in batch:
                    yield entry

    async def entry_batches(
        self, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[list[Entry], None]:
        """Yield the same entries as they come from the bookies: several at once, which costs less."""
        end = self.last_entry if last is None else min(last, self.last_entry)
        if self._quorums.ensemble != self._quorums.write:
            async with aclosing(self._single_entries(first, end)) as entries:
                async for entry in entries:
                    yield [entry]
            return
        loop = asyncio.get_running_loop()
        batch: asyncio.Task[list[Entry]] | None = None
        try:
            while first <= end:
                found = await (batch or self.read_batch(first, min(BATCH_COUNT, end - first + 1)))
                first += len(found)
                batch = None
                if first <= end:
                    batch = loop.create_task(self.read_batch(first, min(BATCH_COUNT, end - first + 1)))
                    # A caller that does not wait between entries would keep the loop from asking. It needs
                    # one pass for the request and one to write it.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                yield found
        finally:
            if batch is not None:
                batch.cancel()

    async def _single_entries(self, first: int, end: int) -> AsyncGenerator[Entry, None]:
        """Yield entries of an ensemble in which no bookie has all of them."""
        reads = ReadsAhead(self._cluster, self._new_read, range(first, end + 1))
        for entry_id in range(first, end + 1):
            found = await reads.next()
            # An entry that was not found is read again, because `read` looks for newer metadata, and raises.
            yield found if isinstance(found, Entry) else await self.read(entry_id)

    async def payloads(self, first: int = 0, last: int | None = None) -> AsyncIterator[bytes]:
        """Yield the payloads of a closed ledger, from one id to another; by default all."""
        async for entry in self.entries(first, last):
            yield entry.payload

    async def follow(self, first: int = 0) -> AsyncGenerator[Entry, None]:
        """Yield the entries from one on, also while they are written. End when the ledger is closed."""
        following = _FollowIteration(
            self._cluster, LedgerTailer(self._entries, self._metadata, first), self.id
        )
        try:
            while (entry := await following.next()) is not None:
                yield entry
        finally:
            await following.stop()


class _FollowIteration:
    """One iteration that follows a ledger: entries wait here until they are taken."""

    def __init__(self, cluster: AsyncCluster, machine: LedgerTailer, ledger_id: int) -> None:
        self._cluster = cluster
        self._machine = machine
        self._ledger_id = ledger_id
        self._shown: asyncio.Queue[Entry | FollowEnded] = asyncio.Queue()
        self._driver = MachineDriver(cluster, ledger_id, machine)
        self._driver.report = self._report
        self._driver.perform(machine.begin())
        self._watch = cluster.run(self._follow_metadata())

    async def next(self) -> Entry | None:
        """Return the next entry, or `None` at the end of the ledger."""
        if self._shown.empty():
            self._driver.perform(self._machine.resume())
        found = await self._shown.get()
        if not isinstance(found, FollowEnded):
            return found
        if found.error is not None:
            raise found.error
        return None

    def _report(self, effect: Effect) -> None:
        match effect:
            case ShowEntry(entry):
                self._shown.put_nowait(entry)
                if self._shown.qsize() >= _SHOWN_AHEAD:
                    self._machine.pause()
            case FollowEnded():
                self._shown.put_nowait(effect)

    async def _follow_metadata(self) -> None:
        try:
            await self._cluster.follow_metadata(self._ledger_id, self._changed)
            error: ClusterError = NoSuchLedgerExistsOnMetadataServer(self._ledger_id)
        except ClusterError as lost:
            error = lost
        except asyncio.CancelledError:
            self._shown.put_nowait(FollowEnded(ClientClosed()))
            raise
        self._shown.put_nowait(FollowEnded(error))

    def _changed(self, metadata: Versioned[ClusterLedgerMetadata]) -> None:
        self._driver.perform(self._machine.metadata_changed(metadata))

    async def stop(self) -> None:
        self._machine.stop()
        self._driver.stop()
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)

"""Reads every copy of a ledger's entries, from each bookie that the metadata name for it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ledger_clients import PASSWORD

from storage.cluster.client.distribution import Quorums, quorums_of
from storage.cluster.client.entries import entry_codec
from storage.cluster.client.reader import EntryRead, NotThere
from storage.cluster.errors import CopiesUnreadable
from storage.entry.model import DigestType, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import BookieAnswer, Send, Token
    from storage.cluster.client.entries import EntryCodec

_ONE = Quorums(1, 1, 1)
_AT_A_TIME = 64
_ATTEMPTS = 10
_RETRY_S = 0.5


class Copies(NamedTuple):
    """The copies of one closed ledger."""

    entries: int
    copies: int
    """The good ones."""
    missing: dict[str, int]
    """By bookie: the number of copies that it should have and lacks."""
    too_few: list[int]
    """Entries with fewer than Qa copies."""


async def read_copies(cluster: AsyncCluster, ledger: int) -> Copies:
    """Read every copy; raise if a bookie does not answer, or if two copies differ."""
    metadata = await cluster.metadata(ledger)
    assert metadata.last_entry is not None
    quorums = quorums_of(metadata)
    codec = entry_codec(ledger, metadata.digest_type or DigestType.CRC32C, PASSWORD.encode())
    places = asyncio.Semaphore(_AT_A_TIME)
    missing: dict[str, int] = {}
    too_few = []

    async def read(entry_id: int) -> int:
        bookies = metadata.segment_of(entry_id).bookies
        write_set = [bookies[index] for index in quorums.write_set(entry_id)]
        async with places:
            found = [await _read_copy(cluster, codec, bookie, entry_id) for bookie in write_set]
        good = [entry for entry in found if entry is not None]
        assert len({(entry.payload, entry.length) for entry in good}) <= 1, f"{ledger}/{entry_id}: {good}"
        for bookie, entry in zip(write_set, found, strict=True):
            if entry is None:
                missing[bookie] = missing.get(bookie, 0) + 1
        if len(good) < quorums.ack:
            too_few.append(entry_id)
        return len(good)

    counts = await asyncio.gather(*(read(entry_id) for entry_id in range(metadata.last_entry + 1)))
    return Copies(len(counts), sum(counts), missing, too_few)


async def _read_copy(cluster: AsyncCluster, codec: EntryCodec, bookie: str, entry_id: int) -> Entry | None:
    """Return the entry as this bookie has it; `None` if it says that it has none."""
    for _ in range(_ATTEMPTS):
        match await _ask(cluster, EntryRead(codec, _ONE, (bookie,), entry_id)):
            case Entry() as entry:
                return entry
            case NotThere():
                return None
            case CopiesUnreadable():
                # Its connection may still be that from before its last restart.
                await asyncio.sleep(_RETRY_S)
            case error:
                raise AssertionError(error)
    raise AssertionError(f"bookie {bookie} gives no good answer for {codec.ledger_id}/{entry_id}")


async def _ask(cluster: AsyncCluster, read: EntryRead) -> object:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def perform(sends: Sequence[Send]) -> None:
        for send in sends:
            cluster.call(send, partial(answered, send.token))
        if read.result is not None and not done.done():
            done.set_result(None)

    def answered(token: Token, answer: BookieAnswer) -> None:
        perform(read.answered(token, answer))

    perform(read.begin())
    await done
    return read.result

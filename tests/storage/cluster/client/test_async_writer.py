"""What a writer for coroutines does with entries that were submitted, and are not sent yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest
from played_machines import ENTRIES, LEDGER, candidates, open_metadata

from storage.cluster.client.async_writer import AsyncLedgerWriter
from storage.cluster.client.writer import LedgerWriter
from storage.cluster.errors import AddOutcomeUnknown, ClientClosed, LedgerClosed
from storage.cluster.metadata.update import Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import Sending
    from storage.cluster.wire.messages import AddEntry


class HeldCluster:
    """A client that notes what its writer sends, and whose passes of the loop end when the test says so."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], None]] = []
        self.sent: list[list[int]] = []
        """For each time that entries were sent, their ids."""
        self.entries: list[bytes] = []
        """The bytes of all of them."""

    def write_soon(self, write: Callable[[], None]) -> None:
        self._ends.append(write)

    def send_adds(self, copies: Sequence[tuple[AddEntry, Sequence[Sending]]], _: object) -> None:
        self.sent.append([add.entry_id for add, _ in copies])
        self.entries += [add.entry for add, _ in copies]

    def forget(self, writer: AsyncLedgerWriter) -> None:
        """Do nothing when the writer has ended."""

    def end_pass(self) -> None:
        (write,) = self._ends
        self._ends.clear()
        write()


def writer_of(cluster: HeldCluster) -> tuple[AsyncLedgerWriter, LedgerWriter]:
    machine = LedgerWriter(ENTRIES, Versioned(open_metadata(), 0), candidates(3), 1)
    return AsyncLedgerWriter(cast("AsyncCluster", cluster), machine, LEDGER), machine


def test_a_payload_that_is_no_bytes_is_refused_and_later_ones_are_sent() -> None:
    async def steps() -> None:
        cluster = HeldCluster()
        writer, _ = writer_of(cluster)
        with pytest.raises(TypeError):
            await writer.submit(cast("bytes", "text"))
        await writer.submit(b"entry")
        cluster.end_pass()
        assert cluster.sent == [[0]]

    asyncio.run(steps())


def test_a_buffer_may_be_reused_when_it_was_submitted() -> None:
    async def steps() -> None:
        cluster = HeldCluster()
        writer, _ = writer_of(cluster)
        buffer = bytearray(b"first")
        await writer.submit(cast("bytes", buffer))
        buffer[:] = b"other"
        cluster.end_pass()
        assert cluster.entries[0].endswith(b"first")

    asyncio.run(steps())


def test_the_entries_of_one_pass_of_the_loop_are_sent_together() -> None:
    async def steps() -> None:
        cluster = HeldCluster()
        writer, _ = writer_of(cluster)
        for count in (3, 1):
            for _ in range(count):
                await writer.submit(b"entry")
            cluster.end_pass()
        assert cluster.sent == [[0, 1, 2], [3]]

    asyncio.run(steps())


def test_an_entry_that_was_not_sent_fails_alone_when_its_writer_has_ended() -> None:
    async def steps() -> None:
        cluster = HeldCluster()
        writer, machine = writer_of(cluster)
        sent = await writer.submit(b"one")
        cluster.end_pass()
        unsent = await writer.submit(b"two")
        machine.close()
        cluster.end_pass()

        # Only the close of the ledger decides what became of the first one.
        assert isinstance(unsent.exception(), LedgerClosed)
        assert not sent.done()
        writer.abandon()
        assert isinstance(sent.exception(), AddOutcomeUnknown)

    asyncio.run(steps())


def test_entries_that_were_not_sent_fail_with_the_client() -> None:
    async def steps() -> None:
        writer, _ = writer_of(HeldCluster())
        unsent = await writer.submit(b"one")
        writer.abandon()
        assert isinstance(unsent.exception(), ClientClosed)
        with pytest.raises(ClientClosed):
            await writer.submit(b"two")

    asyncio.run(steps())

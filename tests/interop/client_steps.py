"""The steps of an application with ledgers: the same on every client, kind of bookie and metadata.

Each step gives one line without ids of ledgers and addresses, so that the lines of clients can be compared.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledger_clients import Refusal

from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence

    from ledger_clients import LedgerClient, Read

THREE = (3, 3, 2)
_STEP_S = 60
_ENDED = {-101: "fenced", -11: "closed", -12: "not acknowledged"}
"""Codes of an add to a ledger that has ended. Which of them comes depends on what the client sees first."""

_NOT_THERE = {-13: "no such entry", -1: "not asked for"}
"""The Java client refuses to read after the end before it asks a bookie."""


class ClientSteps:
    """The steps of one client; `other` is a second one of the same kind."""

    def __init__(self, client: LedgerClient, other: LedgerClient) -> None:
        self._client = client
        self._other = other
        self.lines: list[str] = []

    async def _step(self, name: str, found: Awaitable[object]) -> None:
        try:
            async with asyncio.timeout(_STEP_S):
                line = str(await found)
        except Refusal as refusal:
            line = f"refused with {refusal.code}"
        self.lines.append(f"{name}: {line}")

    async def _append(self, ledger: int, *texts: str) -> list[int]:
        return await asyncio.gather(*[await self._client.begin_append(ledger, text) for text in texts])

    async def _ledger(self, *texts: str, quorums: tuple[int, int, int] = THREE) -> int:
        ledger = await self._client.create(quorums)
        await self._append(ledger, *texts)
        return ledger

    async def run(self) -> None:
        """Run all steps."""
        client, other, step = self._client, self._other, self._step
        first = await client.create(THREE)
        await step("a new ledger", client.metadata(first))
        await step("ten one by one", self._one_by_one(first))
        await step("a thousand at once", self._many(first))
        await step("a reader of the open ledger", self._look(first))
        await step("an empty and a large entry", self._sizes(first))
        await step("another client takes over", other.take_over(first))
        await step("it reads the first", self._texts(other.read(first, 0, 4)))
        await step("it reads all", self._sums(other.read(first, 0, 1011)))
        await step("it reads after the end", self._refused(other.read(first, 1012, 1012), _NOT_THERE))
        await step("the writer adds", self._refused_add(first))
        await step("the writer adds again", self._refused_add(first))
        await step("the metadata after it", client.metadata(first))
        await step("a reader of the closed ledger", self._look(first))
        closed = await self._ledger("only", quorums=(2, 2, 1))
        await step("close in order", client.close(closed))
        await step("add to it", self._refused_add(closed))
        await step("take over what is closed", other.take_over(closed))
        await step("two take over at once", self._take_over_twice(await self._ledger("a", "b", "c")))
        empty = await self._ledger()
        await step("take over an empty ledger", other.take_over(empty))
        await step("the entries are spread", self._spread(await client.create((3, 2, 2))))
        await step("each kind of digest", self._digests())
        await step("another password", client.take_over(closed, password="wrong"))
        await step("too many bookies", client.create((9, 3, 2)))
        await step("no such ledger", client.take_over(closed + 1_000_000))
        await step("delete", self._delete(closed))

    async def _one_by_one(self, ledger: int) -> list[int]:
        return [entry for number in range(10) for entry in await self._append(ledger, f"entry {number}")]

    async def _many(self, ledger: int) -> str:
        ids = await self._append(ledger, *(f"more {number}" for number in range(1000)))
        return f"{ids[0]} to {ids[-1]}, {'in' if ids == sorted(ids) else 'out of'} order"

    async def _sizes(self, ledger: int) -> list[int]:
        return [
            await (await self._client.begin_append(ledger, "")),
            await (await self._client.begin_append(ledger, "large", 200_000)),
        ]

    async def _look(self, ledger: int) -> str:
        """Look until the first ten are shown, and the end if there is one."""
        await self._other.view(ledger)
        is_closed = "CLOSED" in await self._other.metadata(ledger)
        found = await self._other.look(ledger)
        while found.last_confirmed < 9 or (found.end is None and is_closed):
            await asyncio.sleep(0.05)
            found = await self._other.look(ledger)
        is_prefix = [entry.entry_id for entry in found.entries] == list(range(found.last_confirmed + 1))
        texts = [entry.text for entry in found.entries[:3]]
        return f"{texts} {'a prefix' if is_prefix else 'not a prefix'} {found.end}"

    async def _refused_add(self, ledger: int) -> str:
        async def add() -> int:
            return await (await self._client.begin_append(ledger, "too late"))

        return await self._refused(add(), _ENDED)

    @staticmethod
    async def _refused(call: Awaitable[object], codes: Collection[int]) -> str:
        try:
            return str(await call)
        except Refusal as refusal:
            return "refused" if refusal.code in codes else f"refused with {refusal.code}"

    @staticmethod
    async def _texts(reading: Awaitable[Sequence[Read]]) -> list[str]:
        return [f"{entry.entry_id}={entry.text}/{entry.length}" for entry in await reading]

    @staticmethod
    async def _sums(reading: Awaitable[Sequence[Read]]) -> str:
        entries = await reading
        is_dense = [entry.entry_id for entry in entries] == list(range(len(entries)))
        return f"{len(entries)} {is_dense} {sum(entry.size for entry in entries)} {entries[-1].length}"

    async def _take_over_twice(self, ledger: int) -> list[object]:
        return list(await asyncio.gather(self._client.take_over(ledger), self._other.take_over(ledger)))

    async def _spread(self, ledger: int) -> list[str]:
        await self._append(ledger, *"abcdef")
        await self._client.close(ledger)
        await self._other.take_over(ledger)
        return await self._texts(self._other.read(ledger, 0, 5))

    async def _digests(self) -> list[str]:
        lines = []
        for digest in DigestType:
            ledger = await self._client.create(THREE, digest)
            await self._append(ledger, f"with {digest.name}")
            end = await self._other.take_over(ledger, digest)
            lines += [str(end), *await self._texts(self._other.read(ledger, 0, end.last))]
        return lines

    async def _delete(self, ledger: int) -> object:
        await self._client.delete(ledger)
        return await self._other.take_over(ledger)


async def steps_of(client: LedgerClient, other: LedgerClient) -> list[str]:
    """Run the steps; return the lines."""
    steps = ClientSteps(client, other)
    await steps.run()
    return steps.lines

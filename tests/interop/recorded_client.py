"""A client whose calls are recorded in a history, with the outcome that the caller may rely on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ledger_clients import ClientKilled, NeverAdded, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from history import History
    from ledger_clients import End, LedgerClient, Look

_T = TypeVar("_T")

CALL_S = 120
"""Longer than any call may take. A call of ours that takes longer has no end, which the checker reports.

An append of the Java client waits for ever if two bookies of its ensemble are lost and only one can be
replaced, so it is noted as unknown then. Ours does not wait (docs/replication.md).
"""


class CallFailed(Exception):
    """The call has ended with an error, which is recorded."""


class RecordedClient:
    """One client and the history of its calls."""

    def __init__(self, client: LedgerClient, history: History) -> None:
        self.name = client.name
        self._client = client
        self._history = history

    async def create(self, quorums: tuple[int, int, int]) -> int:
        op = self._history.invoke(self.name, "create")
        ledger = await self._ended(op, self._client.create(quorums))
        self._history.ok(op, ledger=ledger)
        return ledger

    async def append(self, ledger: int, text: str, size: int) -> asyncio.Task[int]:
        """Begin an append; return a task that ends with its id or `CallFailed`."""
        fields = {"payload": text, "size": max(size, len(text.encode()))}
        op = self._history.invoke(self.name, "append", ledger=ledger, **fields)
        adding = await self._ended(op, self._client.begin_append(ledger, text, size))
        return asyncio.create_task(self._appended(op, adding))

    async def _appended(self, op: int, adding: Awaitable[int]) -> int:
        entry = await self._ended(op, adding)
        self._history.ok(op, entry=entry)
        return entry

    async def close(self, ledger: int) -> End:
        op = self._history.invoke(self.name, "close", ledger=ledger)
        return self._ok_with(op, await self._ended(op, self._client.close(ledger)))

    async def take_over(self, ledger: int) -> End:
        op = self._history.invoke(self.name, "take_over", ledger=ledger)
        return self._ok_with(op, await self._ended(op, self._client.take_over(ledger)))

    def _ok_with(self, op: int, end: End) -> End:
        self._history.ok(op, last=end.last, length=end.length)
        return end

    async def view(self, ledger: int) -> None:
        await self._client.view(ledger)

    async def look(self, ledger: int) -> Look:
        """Note all that a reader of the ledger is shown now."""
        op = self._history.invoke(self.name, "read", ledger=ledger, reader="look", first=0)
        found = await self._ended(op, self._client.look(ledger))
        entries = [(entry.entry_id, entry.text) for entry in found.entries]
        end = {} if found.end is None else found.end._asdict()
        self._history.ok(op, entries=entries, lac=found.last_confirmed, **end)
        return found

    async def read_closed(self, ledger: int, end: End) -> None:
        """Note all entries of a ledger that this client has taken over."""
        op = self._history.invoke(self.name, "read", ledger=ledger, reader="end", first=0)
        found = await self._ended(op, self._client.read(ledger, 0, end.last))
        entries = [(entry.entry_id, entry.text) for entry in found]
        self._history.ok(op, entries=entries, lac=end.last, **end._asdict())

    async def delete(self, ledger: int) -> None:
        await self._client.delete(ledger)

    async def _ended(self, op: int, call: Awaitable[_T]) -> _T:
        try:
            async with asyncio.timeout(CALL_S):
                return await call
        except TimeoutError as error:
            if self.name.startswith("java"):
                self._history.unknown(op, f"no end after {CALL_S} s")
            raise CallFailed from error
        except ClientKilled as error:
            self._history.unknown(op, str(error))
            raise CallFailed from error
        except Refusal as error:
            note = self._history.fail if isinstance(error, NeverAdded) else self._history.unknown
            note(op, str(error))
            raise CallFailed from error

"""Deletes copies of ledgers that the metadata no longer assign to this bookie.

Such a copy stays when a ledger was repaired elsewhere while this bookie was down, or when two workers have
copied the same ledger. A copy is deleted if all of this holds:

    the metadata belong to this cluster, and say that the ledger is closed, so that no writer comes back
    this bookie is in no ensemble of the ledger, at each look for at least an hour
    no recovery add came meanwhile: a worker copies to a bookie before the metadata name it
    the ledger has no mark and no lock of a repair. This bookie then holds the lock while it syncs, looks for
    the last time, and deletes, so that no worker chooses it as the new place of a copy at that moment

Nothing is deleted if more than half of the ledgers here are over-replicated: then it is more likely that this
bookie has got another id. All ledgers are looked at once a day, those that are suspected at each pass.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol

from storage.cluster.bookie.deleted_ledgers import FEW, HeldAdds, PassRefusal
from storage.cluster.errors import InvalidMetadata
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.format import read_instance_id
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.update import decode_ledger
from storage.cluster.metadata.znodes import Gone
from storage.errors import NoSuchLedger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from storage.aio.bookie import AsyncBookie
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Node, Znodes

_LOG = logging.getLogger("ledgerstore.bookie")

GRACE_S = 3600.0
"""How long a copy must have been over-replicated, without an add, before it is deleted."""

SCAN_EVERY_S = 86_400.0
"""How often all ledgers are looked at: as often as BookKeeper does by default."""

LOOKS_AT_ONCE = 100
"""The nodes that are read at once, between two pauses."""


@dataclass(frozen=True, slots=True)
class OverReplicationPass:
    """The end of one pass."""

    deleted: tuple[int, ...] = ()
    suspected: frozenset[int] = frozenset()
    """Ledgers with a copy too many that a later pass deletes."""
    refused: PassRefusal | None = None


class AddsOfClients(HeldAdds, Protocol):
    """The adds of clients to this bookie."""

    def take_recovered(self) -> Iterable[int]:
        """Return the ledgers that got a recovery add since the last call."""
        ...


def is_over_replicated(metadata: ClusterLedgerMetadata, bookie_id: str) -> bool:
    """Return whether the ledger is closed and has no entry on this bookie, by its metadata."""
    is_closed = metadata.state is ClusterLedgerState.CLOSED
    return is_closed and all(bookie_id not in one.bookies for one in metadata.segments)


class OverReplication:
    """Deletes over-replicated copies of one bookie. One pass at a time."""

    def __init__(
        self,
        bookie: AsyncBookie,
        bookie_id: str,
        instance_id: str | None,
        adds: AddsOfClients,
        clock: Callable[[], float],
        pause: Callable[[], Awaitable[None]],
        scan_every_s: float = SCAN_EVERY_S,
    ) -> None:
        """`instance_id` is that of the bookie's cookie; `clock` is a steady one.

        `pause` is awaited between reads of the metadata, so that other clients of theirs have their turn.
        `scan_every_s` is how often all ledgers are looked at; `inf` for never.
        """
        self._bookie = bookie
        self._bookie_id = bookie_id
        self._instance_id = instance_id
        self._adds = adds
        self._clock = clock
        self._pause = pause
        self._since: dict[int, float] = {}
        """Over-replicated copies, and since when they are known and had no recovery add."""
        self._scan_every_s = scan_every_s
        self._scan_at = clock() if scan_every_s < inf else inf
        self.deleted = 0
        """The number of copies that were deleted."""

    async def make_pass(self, znodes: Znodes, paths: LedgerPaths) -> OverReplicationPass:
        """Make one pass. Raises if the metadata cannot be read: then nothing more is deleted."""
        now = self._clock()
        self._forget_recovered()
        if self._instance_id is None or await read_instance_id(znodes, paths.root) != self._instance_id:
            return self._refused(PassRefusal.OTHER_CLUSTER)
        here = await self._bookie.ledgers()
        is_scan = now >= self._scan_at
        found = await self._over_replicated(znodes, paths, here if is_scan else self._since.keys() & here)
        if is_scan:
            self._scan_at = now + self._scan_every_s
        self._since = {one: self._since.get(one, now) for one in found}
        if len(found) > max(len(here) // 2, FEW):
            return self._refused(PassRefusal.TOO_MANY_ELSEWHERE)
        deleted = []
        for one in [one for one, since in self._since.items() if now - since >= GRACE_S]:
            if await self._delete(znodes, paths, one):
                deleted.append(one)
                del self._since[one]
                self.deleted += 1
                _LOG.info("deleted the copy of ledger %d: its entries are on other bookies", one)
        return OverReplicationPass(tuple(deleted), frozenset(self._since))

    def _refused(self, refusal: PassRefusal) -> OverReplicationPass:
        _LOG.warning("no over-replicated copy is deleted: %s", refusal.value)
        return OverReplicationPass((), frozenset(self._since), refusal)

    def _forget_recovered(self) -> None:
        for one in self._adds.take_recovered():
            self._since.pop(one, None)

    async def _over_replicated(
        self, znodes: Znodes, paths: LedgerPaths, ledger_ids: Iterable[int]
    ) -> list[int]:
        wanted = sorted(ledger_ids)
        found: list[int] = []
        for first in range(0, len(wanted), LOOKS_AT_ONCE):
            some = wanted[first : first + LOOKS_AT_ONCE]
            nodes: Sequence[Node | Gone] = await znodes.get_all([paths.path_of(one) for one in some])
            pairs = zip(some, nodes, strict=True)
            found += [one for one, node in pairs if self._is_over_replicated(paths.path_of(one), node)]
            await self._pause()
        return found

    def _is_over_replicated(self, path: str, node: Node | Gone) -> bool:
        """Return what the node of a ledger certainly says. A ledger without one may only be not seen yet."""
        if isinstance(node, Gone):
            return False
        try:
            return is_over_replicated(decode_ledger(path, node).value, self._bookie_id)
        except InvalidMetadata as error:
            _LOG.warning("a ledger is kept: %s", error)
            return False

    async def _delete(self, znodes: Znodes, paths: LedgerPaths, ledger_id: int) -> bool:
        """Delete a copy under the lock of repairs; return whether that was allowed to the end."""
        lock = await underreplication.lock_ledger(znodes, paths.root, ledger_id, self._bookie_id)
        if lock is None:
            return False
        try:
            path = paths.path_of(ledger_id)
            # After this the server shows every repair that had the lock before.
            await znodes.sync(path)
            is_marked = not isinstance(await underreplication.read_mark(znodes, paths.root, ledger_id), Gone)
            if is_marked or not self._is_over_replicated(path, await znodes.get(path)):
                return False
            # The lock may go with the session of this bookie, for example while its process is stopped. So an
            # add of another worker waits from the last check until the copy is deleted: it must not be lost.
            with self._adds.held(ledger_id) as are_held:
                self._forget_recovered()
                if not are_held or ledger_id not in self._since:
                    return False
                try:
                    await self._bookie.call(partial(self._bookie.blocking.delete_all, [ledger_id]))
                except NoSuchLedger:
                    return False  # deleted meanwhile
            return True
        finally:
            await underreplication.unlock_ledger(znodes, lock)

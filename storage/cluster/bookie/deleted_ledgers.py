"""Deletes the ledgers of a bookie that the metadata no longer have.

    1. list the ledgers that are here
    2. list the ledgers of the metadata, whose server is synced first
    3. a ledger that is here and not there is suspected; if it was suspected in the pass before, too, its own
       node is synced and read once more
    4. what is still missing is deleted, all in one group

New adds to a ledger wait from 3 to 4, and are then checked as the first ones to an unknown ledger: a client
may make a ledger with the same id again, and an add that was answered must not be deleted.

The order of 1 and 2 matters: the other way round a ledger that was made in between would be deleted. Two
passes, and the last look at the node, because a server of the metadata may lag behind: a list of inner nodes
that misses a new one would miss live ledgers. Nothing is deleted if the metadata belong to another cluster,
have lost their id, or are empty, or if more than half of the ledgers here are suspected: then the metadata
are more likely lost than the ledgers. The collector of the store frees their space.
"""

from __future__ import annotations

import enum
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from storage.cluster.metadata.format import read_instance_id
from storage.cluster.metadata.paths import list_ledgers
from storage.cluster.metadata.znodes import Gone
from storage.errors import NoSuchLedger

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from storage.aio.bookie import AsyncBookie
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes

_LOG = logging.getLogger("ledgerstore.bookie")

FEW = 16
"""The number of ledgers that may be deleted at once even if they are more than half."""


class PassRefusal(enum.Enum):
    """Why a pass deletes nothing."""

    OTHER_CLUSTER = "the metadata have another instance id, or none"
    EMPTY = "the metadata have no ledger at all"
    TOO_MANY = "more than half of the ledgers here are not in the metadata"
    TOO_MANY_ELSEWHERE = "the metadata assign more than half of the ledgers here to other bookies only"


class HeldAdds(Protocol):
    """The adds of clients to this bookie, which can be made to wait."""

    def held(self, ledger_id: int) -> AbstractContextManager[bool]:
        """Let new adds to a ledger wait for a block. False if adds to it are under way already."""
        ...


@dataclass(frozen=True, slots=True)
class DeletionPass:
    """The end of one pass."""

    deleted: tuple[int, ...] = ()
    suspected: frozenset[int] = frozenset()
    """Ledgers that the next pass deletes if the metadata still do not have them."""
    refused: PassRefusal | None = None


def judge(here: frozenset[int], listed: frozenset[int], suspected: frozenset[int]) -> DeletionPass:
    """Return which ledgers may be deleted, and which are suspected from now on."""
    absent = here - listed
    if not absent:
        return DeletionPass()
    if not listed:
        return DeletionPass(refused=PassRefusal.EMPTY)
    if len(absent) > max(len(here) // 2, FEW):
        return DeletionPass(suspected=absent, refused=PassRefusal.TOO_MANY)
    return DeletionPass(tuple(sorted(absent & suspected)), absent - suspected)


class LedgerDeletion:
    """Deletes ledgers of one bookie that its cluster no longer has. One pass at a time."""

    def __init__(self, bookie: AsyncBookie, instance_id: str | None, adds: HeldAdds) -> None:
        """`instance_id` is that of the bookie's cookie."""
        self._bookie = bookie
        self._adds = adds
        self._instance_id = instance_id
        self._suspected: frozenset[int] = frozenset()
        self.deleted = 0
        """The number of ledgers that were deleted."""

    async def make_pass(self, znodes: Znodes, paths: LedgerPaths) -> DeletionPass:
        """Make one pass. Raises if the metadata cannot be read: then nothing was deleted."""
        if self._instance_id is None or await read_instance_id(znodes, paths.root) != self._instance_id:
            return self._end(DeletionPass(refused=PassRefusal.OTHER_CLUSTER))
        here = frozenset(await self._bookie.ledgers())
        listed = frozenset([one async for one in list_ledgers(znodes, paths) if isinstance(one, int)])
        judged = judge(here, listed, self._suspected)
        with ExitStack() as stack:
            held = [one for one in judged.deleted if stack.enter_context(self._adds.held(one))]
            confirmed = [one for one in held if await _is_gone(znodes, paths, one)]
            while confirmed:
                try:
                    await self._bookie.call(partial(self._bookie.blocking.delete_all, confirmed))
                    break
                except NoSuchLedger as error:
                    confirmed.remove(error.ledger_id)  # deleted meanwhile
        busy = frozenset(judged.deleted) - frozenset(held)
        return self._end(DeletionPass(tuple(confirmed), judged.suspected | busy, judged.refused))

    def _end(self, found: DeletionPass) -> DeletionPass:
        self._suspected = found.suspected
        if found.refused is not None:
            _LOG.warning("no ledger is deleted: %s", found.refused.value)
        elif found.deleted:
            self.deleted += len(found.deleted)
            _LOG.info("deleted %d ledgers that the metadata no longer have", len(found.deleted))
        return found


async def _is_gone(znodes: Znodes, paths: LedgerPaths, ledger_id: int) -> bool:
    """Return whether the metadata certainly have no such ledger."""
    path = paths.path_of(ledger_id)
    await znodes.sync(path)
    return isinstance(await znodes.exists(path), Gone)

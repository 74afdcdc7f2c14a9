"""Checks the first add to a ledger that is unknown here, because its writer may have been replaced.

A bookie that has lost a ledger, or that was replaced in its ensemble, must not take adds of a writer that
does not know that yet: the add would count as a copy that no reader ever finds. So before such an add is
taken, the metadata must say that the ledger is open, and that this bookie is in its last ensemble. A server
of the metadata may lag behind the writer, so a ledger that does not fit is read again after a `sync`.

A ledger may have been closed since the add was sent, because a writer closes when a quorum has answered, and
this bookie may be the slowest of the others. Then readers look here for the entries up to the last one, so
these are taken too: refused, each short ledger would have a copy less for ever. They cannot change what the
close decided, because the closed ledger has them already.

A recovery add is taken in any case, because it copies to a bookie before the metadata name it. But the ledger
is fenced before, unless it is open: a copy that was deleted here as over-replicated has lost its fence with
it, and when a repair brings it back, its entries would end the checks of writers. The metadata are synced for
that, because a server that lags behind would show as open what was closed. An open ledger is not fenced,
because its writer may choose this bookie after a repair has copied to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.errors import NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.update import read_ledger
from storage.cluster.wire.codes import Code
from storage.entry.credentials import Purpose

if TYPE_CHECKING:
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes


class EndedLedger(NamedTuple):
    """A ledger that is closed, in recovery, or deleted: no writer may extend it."""

    ids: tuple[range, ...] = ()
    """If it is closed, the entries of the segments that name this bookie."""

    def has(self, entry_id: int) -> bool:
        """Return whether readers look for the entry on this bookie."""
        return any(entry_id in one for one in self.ids)


def entries_here(metadata: ClusterLedgerMetadata, bookie_id: str) -> tuple[range, ...]:
    """Return which entries of a closed ledger belong here; none if it is not closed."""
    if not metadata.is_closed or metadata.last_entry is None:
        return ()
    ends = [*(segment.first_entry for segment in metadata.segments[1:]), metadata.last_entry + 1]
    return tuple(
        range(segment.first_entry, end)
        for segment, end in zip(metadata.segments, ends, strict=True)
        if bookie_id in segment.bookies and segment.first_entry < end
    )


async def check_first_add(
    znodes: Znodes, paths: LedgerPaths, ledger_id: int, bookie_id: str, purpose: Purpose
) -> Code | EndedLedger:
    """Return `OK` if a writer may make the first add to a ledger, `FENCED` if it is open and may not.

    Of an `EndedLedger` the entries that belong here may be taken, and no others. Raises if the metadata
    cannot be read: then the add is neither taken nor fenced.
    """
    if purpose is Purpose.WRITING:
        found = await _look_up(znodes, paths, ledger_id, bookie_id)
        if found is Code.OK or (isinstance(found, EndedLedger) and found.ids):
            return found
    await znodes.sync(paths.path_of(ledger_id))
    return await _look_up(znodes, paths, ledger_id, bookie_id)


async def _look_up(znodes: Znodes, paths: LedgerPaths, ledger_id: int, bookie_id: str) -> Code | EndedLedger:
    try:
        metadata = (await read_ledger(znodes, paths, ledger_id)).value
    except NoSuchLedgerExistsOnMetadataServer:
        return EndedLedger()
    if metadata.state is not ClusterLedgerState.OPEN:
        return EndedLedger(entries_here(metadata, bookie_id))
    return Code.OK if bookie_id in metadata.segments[-1].bookies else Code.FENCED

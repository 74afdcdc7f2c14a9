"""Checks the first ordinary add to a ledger that is unknown here, because its writer may have been replaced.

A bookie that has lost a ledger, or that was replaced in its ensemble, must not take adds of a writer that
does not know that yet: the add would count as a copy that no reader ever finds. So before such an add is
taken, the metadata must say that the ledger is open, and that this bookie is in its last ensemble. A server
of the metadata may lag behind the writer, so a ledger that does not fit is read again after a `sync`.
Recovery adds are exempt, because they copy to a bookie before the metadata names it.

A ledger may have been closed since the add was sent, because a writer closes when a quorum has answered, and
this bookie may be the slowest of the others. Then readers look here for the entries up to the last one, so
these are taken too: refused, each short ledger would have a copy less for ever. They cannot change what the
close decided, because the closed ledger has them already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.errors import NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.update import read_ledger
from storage.cluster.wire.codes import Code

if TYPE_CHECKING:
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes


class ClosedLedger(NamedTuple):
    """A ledger that is closed, and for some of whose entries this bookie is named."""

    ids: tuple[range, ...]
    """The entries of the segments that name it."""

    def has(self, entry_id: int) -> bool:
        """Return whether readers look for the entry on this bookie."""
        return any(entry_id in one for one in self.ids)


def closed_here(metadata: ClusterLedgerMetadata, bookie_id: str) -> ClosedLedger | None:
    """Return which entries of a closed ledger belong here; `None` if none do, or if it is not closed."""
    if not metadata.is_closed or metadata.last_entry is None:
        return None
    ends = [*(segment.first_entry for segment in metadata.segments[1:]), metadata.last_entry + 1]
    ids = tuple(
        range(segment.first_entry, end)
        for segment, end in zip(metadata.segments, ends, strict=True)
        if bookie_id in segment.bookies and segment.first_entry < end
    )
    return ClosedLedger(ids) if ids else None


def is_writable_here(metadata: ClusterLedgerMetadata, bookie_id: str) -> bool:
    """Return whether a writer may add to this bookie, by the metadata of its ledger."""
    return metadata.state is ClusterLedgerState.OPEN and bookie_id in metadata.segments[-1].bookies


async def check_first_add(
    znodes: Znodes, paths: LedgerPaths, ledger_id: int, bookie_id: str
) -> Code | ClosedLedger:
    """Return `OK` if the first add to a ledger may be taken, else the code that refuses it.

    A `ClosedLedger` says which entries may be taken, and no others. Raises if the metadata cannot be read:
    then the add is neither taken nor fenced.
    """
    found = await _look_up(znodes, paths, ledger_id, bookie_id)
    if found is Code.FENCED:
        await znodes.sync(paths.path_of(ledger_id))
        found = await _look_up(znodes, paths, ledger_id, bookie_id)
    return found


async def _look_up(znodes: Znodes, paths: LedgerPaths, ledger_id: int, bookie_id: str) -> Code | ClosedLedger:
    try:
        metadata = (await read_ledger(znodes, paths, ledger_id)).value
    except NoSuchLedgerExistsOnMetadataServer:
        return Code.FENCED
    return (
        Code.OK if is_writable_here(metadata, bookie_id) else closed_here(metadata, bookie_id) or Code.FENCED
    )

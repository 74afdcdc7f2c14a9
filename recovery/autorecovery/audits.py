"""Passes over all ledgers of a cluster: which name lost bookies, and which lack entries.

Ledgers are read in chunks and not kept, so memory does not grow with their number. A ledger whose metadata
cannot be read is reported and passed over: it must not stop the repair of the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.autorecovery.check import FragmentState, LedgerCheck
from recovery.autorecovery.drive import run_check
from recovery.autorecovery.fragments import fixed_fragments, lost_of
from recovery.autorecovery.repair import codec_of
from storage.cluster.errors import InvalidMetadata
from storage.cluster.metadata import registration, underreplication
from storage.cluster.metadata.paths import MisplacedNode, list_ledgers
from storage.cluster.metadata.update import decode_ledger
from storage.cluster.metadata.znodes import Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from recovery.autorecovery.check import FragmentFinding
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.registration import Bookies
    from storage.cluster.metadata.znodes import Znodes

_LOG = logging.getLogger("ledgerstore.autorecovery")

Flaw = MisplacedNode | InvalidMetadata
"""A node among the ledgers that is none, or a ledger whose metadata cannot be read."""

_CHUNK = 1000
"""Ledgers whose metadata are in memory at the same time."""
_CHECKS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class LedgerOfCluster:
    """A ledger, and its metadata when they were read."""

    ledger_id: int
    metadata: ClusterLedgerMetadata


@dataclass(slots=True)
class PassResult:
    """The figures of a pass over all ledgers."""

    ledgers: int = 0
    marked: int = 0
    unreadable: int = 0
    """Ledgers whose metadata cannot be read."""
    unreachable: int = 0
    """Ledgers that could not be checked, because a bookie gave no useful answer."""
    lost: set[str] = field(default_factory=set)
    """The bookies that ledgers name and that are not registered."""
    registered: set[str] = field(default_factory=set)
    """The bookies that were registered at one of the looks of this pass, so that it has not marked all of
    their ledgers."""
    is_complete: bool = False


async def read_chunks(
    znodes: Znodes, paths: LedgerPaths, unreadable: Callable[[Flaw], None]
) -> AsyncIterator[list[LedgerOfCluster]]:
    """Yield all ledgers in chunks, ascending. `unreadable` gets each node that cannot be read."""
    ids: list[int] = []
    async for found in list_ledgers(znodes, paths):
        if isinstance(found, MisplacedNode):
            unreadable(found)
            continue
        ids.append(found)
        if len(ids) == _CHUNK:
            yield await _read(znodes, paths, ids, unreadable)
            ids = []
    if ids:
        yield await _read(znodes, paths, ids, unreadable)


async def _read(
    znodes: Znodes, paths: LedgerPaths, ids: Sequence[int], unreadable: Callable[[Flaw], None]
) -> list[LedgerOfCluster]:
    chunk: list[LedgerOfCluster] = []
    at = [paths.path_of(ledger_id) for ledger_id in ids]
    for ledger_id, path, node in zip(ids, at, await znodes.get_all(at), strict=True):
        if isinstance(node, Gone):
            continue
        try:
            chunk.append(LedgerOfCluster(ledger_id, decode_ledger(path, node).value))
        except InvalidMetadata as error:
            unreadable(error)
    return chunk


async def mark_lost(znodes: Znodes, paths: LedgerPaths, clock: Callable[[], float] = time.time) -> PassResult:
    """Mark every ledger that names a bookie which is not registered. Cut short when repair is disabled."""
    result = PassResult()

    def unreadable(what: Flaw) -> None:
        result.unreadable += 1
        _LOG.warning("not audited: %s", what)

    async for chunk in read_chunks(znodes, paths, unreadable):
        # After the metadata, so that a bookie that a ledger has just got is registered in this list.
        bookies = await registration.read_bookies(znodes, paths.root)
        result.registered |= bookies.all
        if not bookies.all:
            # Probably the metadata service has lost all sessions, and not the cluster all bookies.
            _LOG.warning("no bookie is registered: no ledger is marked")
            return result
        if not await underreplication.is_enabled(znodes, paths.root):
            return result
        for ledger in chunk:
            result.ledgers += 1
            lost = lost_of(ledger.metadata, bookies.all)
            if lost:
                result.lost.update(lost)
                result.marked += 1
                await mark(znodes, paths.root, ledger.ledger_id, lost, clock)
    result.is_complete = True
    return result


async def check_all(
    znodes: Znodes,
    paths: LedgerPaths,
    cluster: AsyncCluster,
    percent: int,
    found: Callable[[int, list[FragmentFinding]], None],
    clock: Callable[[], float] = time.time,
) -> PassResult:
    """Check the fixed fragments of all ledgers, and mark the ledgers that lack something for certain.

    `found` gets each ledger with its fragments that are not whole. The pass is complete if every ledger could
    be checked, or was deleted.
    """
    result = PassResult()
    turns = asyncio.Semaphore(_CHECKS_AT_ONCE)

    def unreadable(what: Flaw) -> None:
        result.unreadable += 1
        _LOG.warning("not checked: %s", what)

    async def check(ledger: LedgerOfCluster, bookies: Bookies) -> None:
        async with turns:
            findings = await check_ledger(cluster, ledger, bookies, percent, int(clock()))
        result.ledgers += 1
        if findings:
            found(ledger.ledger_id, findings)
        bad = suspects_of(findings)
        if bad:
            result.marked += 1
            await mark(znodes, paths.root, ledger.ledger_id, bad, clock)
        elif findings:
            result.unreachable += 1

    async for chunk in read_chunks(znodes, paths, unreadable):
        if not await underreplication.is_enabled(znodes, paths.root):
            return result
        bookies = await registration.read_bookies(znodes, paths.root)
        if not bookies.all:
            return result
        async with asyncio.TaskGroup() as group:
            for ledger in chunk:
                group.create_task(check(ledger, bookies))
    result.is_complete = not result.unreachable
    return result


async def check_ledger(
    cluster: AsyncCluster, ledger: LedgerOfCluster, bookies: Bookies, percent: int, seed: int = 0
) -> list[FragmentFinding]:
    """Return the fixed fragments of a ledger that are not whole. `seed` chooses the sample of entries."""
    entries = codec_of(ledger.ledger_id, ledger.metadata)
    fragments = fixed_fragments(ledger.metadata)
    check = LedgerCheck(entries, fragments, bookies.all, lambda _: percent, seed)
    return await run_check(cluster, ledger.ledger_id, check)


def suspects_of(findings: Sequence[FragmentFinding]) -> list[str]:
    """Return the bookies that certainly lack entries, or are not registered."""
    bad = (FragmentState.LOST, FragmentState.INCOMPLETE)
    return sorted({one.fragment.bookie for one in findings if one.state in bad})


async def mark(
    znodes: Znodes,
    root: str,
    ledger_id: int,
    bookies: Sequence[str],
    clock: Callable[[], float] = time.time,
) -> None:
    """Mark a ledger, also if it is marked already: a renewed mark makes a worker look again."""
    await underreplication.mark_ledger(znodes, root, ledger_id, bookies, int(clock() * 1000))

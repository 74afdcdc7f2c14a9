"""Passes over all ledgers of a cluster: which name lost bookies, and which lack entries.

Ledgers are read in chunks and not kept, so memory does not grow with their number. A ledger whose metadata
cannot be read is reported and passed over: it must not stop the repair of the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.autorecovery.check import FragmentState, LedgerCheck
from recovery.autorecovery.check_position import CheckPosition, CheckProgress
from recovery.autorecovery.drive import run_check
from recovery.autorecovery.fragments import fixed_fragments, lost_of
from recovery.autorecovery.repair import codec_of
from storage.cluster.errors import InvalidMetadata
from storage.cluster.metadata import registration, underreplication
from storage.cluster.metadata.paths import MisplacedNode, list_ledgers
from storage.cluster.metadata.update import decode_ledger
from storage.cluster.metadata.znodes import Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

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
_KEEP_S = 10.0
"""How often the position of a check is kept."""


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
    znodes: Znodes, paths: LedgerPaths, unreadable: Callable[[Flaw], None], first_id: int = 0
) -> AsyncIterator[list[LedgerOfCluster]]:
    """Yield all ledgers from an id on in chunks, ascending. `unreadable` gets what cannot be read."""
    ids: list[int] = []
    async for found in list_ledgers(znodes, paths):
        if isinstance(found, MisplacedNode):
            unreadable(found)
            continue
        if found < first_id:
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


Keep = Callable[["CheckPosition"], "Awaitable[None]"]
"""Keeps the position of a check, from which a later pass may go on."""


async def check_all(
    znodes: Znodes,
    paths: LedgerPaths,
    cluster: AsyncCluster,
    percent: int,
    found: Callable[[int, list[FragmentFinding]], None],
    resumed: CheckPosition | None = None,
    keep: Keep | None = None,
    clock: Callable[[], float] = time.time,
) -> PassResult:
    """Check the fixed fragments of all ledgers, and mark the ledgers that lack something for certain.

    `found` gets each ledger with its fragments that are not whole. `keep` gets the position from time to
    time, and a later pass may go on there as `resumed`. The pass is complete if every ledger could be
    checked, or was deleted.
    """
    one_pass = _CheckPass(znodes, paths, cluster, resumed or CheckPosition(0, percent), found, keep, clock)
    await one_pass.run()
    return one_pass.result


class _CheckPass:
    """One pass over the ledgers that a position names."""

    def __init__(
        self,
        znodes: Znodes,
        paths: LedgerPaths,
        cluster: AsyncCluster,
        position: CheckPosition,
        found: Callable[[int, list[FragmentFinding]], None],
        keep: Keep | None,
        clock: Callable[[], float],
    ) -> None:
        self._znodes = znodes
        self._paths = paths
        self._cluster = cluster
        self._position = position
        self._found = found
        self._keep = keep
        self._clock = clock
        self._progress = CheckProgress(position)
        self._loop = asyncio.get_running_loop()
        self._kept_at = self._loop.time()
        self._turns = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self.result = PassResult()

    async def run(self) -> None:
        is_cut_short = False
        async for chunk in self._unchecked():
            is_enabled = await underreplication.is_enabled(self._znodes, self._paths.root)
            bookies = await registration.read_bookies(self._znodes, self._paths.root)
            if not is_enabled or not bookies.all:
                is_cut_short = True
                break
            self._progress.begin(ledger.ledger_id for ledger in chunk)
            async with asyncio.TaskGroup() as group:
                for ledger in chunk:
                    group.create_task(self._check(ledger, bookies))
        self.result.is_complete = self._progress.is_complete and not is_cut_short
        if self._keep is not None and not self.result.is_complete:
            await self._keep(self._progress.position)

    async def _unchecked(self) -> AsyncIterator[list[LedgerOfCluster]]:
        """Yield in chunks the ledgers that were left, then those that the pass has not come to."""
        left = self._position.left
        if left:
            chunk = await _read(self._znodes, self._paths, left, self._unreadable)
            self._progress.forget(set(left) - {ledger.ledger_id for ledger in chunk})
            yield chunk
        first_id = self._position.next_id
        async for chunk in read_chunks(self._znodes, self._paths, self._unreadable, first_id):
            yield chunk

    def _unreadable(self, what: Flaw) -> None:
        self.result.unreadable += 1
        _LOG.warning("not checked: %s", what)

    async def _check(self, ledger: LedgerOfCluster, bookies: Bookies) -> None:
        ledger_id = ledger.ledger_id
        async with self._turns:
            seed = int(self._clock())
            findings = await check_ledger(self._cluster, ledger, bookies, self._position.percent, seed)
        self.result.ledgers += 1
        if findings:
            self._found(ledger_id, findings)
        bad = suspects_of(findings)
        if bad:
            self.result.marked += 1
            await mark(self._znodes, self._paths.root, ledger_id, bad, self._clock)
        if findings and not bad:
            self.result.unreachable += 1
            self._progress.not_checked(ledger_id)
        else:
            self._progress.checked(ledger_id)
        if self._keep is not None and self._loop.time() - self._kept_at >= _KEEP_S:
            self._kept_at = self._loop.time()
            await self._keep(self._progress.position)


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

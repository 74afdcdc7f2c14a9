"""The auditor: the one process of a cluster that watches for lost bookies and marks their ledgers.

It only marks, and a mark may be made twice, so two auditors for the time-out of a session do no harm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from recovery.autorecovery import audits, check_position
from recovery.autorecovery.check_position import CheckPosition
from recovery.autorecovery.lost_bookies import LostBookies
from storage.cluster.errors import ClusterError, InvalidMetadata, MetadataUnavailable, SessionExpired
from storage.cluster.metadata import cookies, registration, underreplication
from storage.cluster.metadata.election import Candidate
from storage.cluster.metadata.registration import BookieMode
from storage.cluster.metadata.underreplication import CheckKind
from storage.cluster.metadata.znodes import Gone, Unchanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.autorecovery.check import FragmentFinding
    from recovery.autorecovery.config import AutoRecoveryConfig
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes

_LOG = logging.getLogger("ledgerstore.autorecovery")

_RETRY_S = 5.0
"""The pause after an audit that was cut short."""
_CHECK_RETRY_S = 3600.0
"""The pause after a check of all ledgers that was not complete."""
_SLEEP_MAX_S = 3600.0
"""The stored time of a check is read again after this, because BookKeeper's auditor may have checked too."""


class Auditor:
    """Stands for election, and audits while it is elected."""

    def __init__(
        self,
        znodes: Znodes,
        paths: LedgerPaths,
        cluster: AsyncCluster,
        name: str,
        config: AutoRecoveryConfig,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` tells the time of day, which marks and checks have in the metadata."""
        self._znodes = znodes
        self._paths = paths
        self._root = paths.root
        self._cluster = cluster
        self._name = name
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._bookies: LostBookies
        self._changed = asyncio.Event()
        """Set when the time of the next audit may have changed."""

    async def run(self) -> None:
        """Be elected, and audit until the session ends or the caller is cancelled."""
        candidate = Candidate(self._znodes, self._root, self._name)
        try:
            await candidate.wait_until_elected()
            _LOG.info("%s is the auditor", self._name)
            await self._audit_for_ever()
        finally:
            # After an error another candidate has to take over at once.
            await _withdraw(candidate)

    async def _audit_for_ever(self) -> None:
        delay_s = await underreplication.initialize_delay(
            self._znodes, self._root, self._config.lost_bookie_recovery_delay_s
        )
        known = await cookies.list_cookies(self._znodes, self._root)
        self._bookies = LostBookies(known, delay_s, self._loop.time())
        async with asyncio.TaskGroup() as group:
            for mode in BookieMode:
                group.create_task(self._follow_bookies(mode))
            group.create_task(self._follow_delay())
            group.create_task(self._audit_when_due())
            for kind, interval_s, percent in (
                (CheckKind.ALL_LEDGERS, self._config.check_interval_s, self._config.check_percent),
                (CheckKind.REPLICAS, self._config.entry_check_interval_s, 100),
            ):
                if interval_s > 0:
                    group.create_task(self._check_when_due(kind, interval_s, percent))

    # ── bookies and the delay ─────────────────────────────────────────────────────────────────────────

    async def _follow_bookies(self, mode: BookieMode) -> None:
        async for _ in registration.follow_bookies(self._znodes, self._root, mode):
            # Both lists together: a bookie that turns read-only leaves one of them, and is not lost.
            bookies = await registration.read_bookies(self._znodes, self._root)
            before = self._bookies.lost
            self._bookies.registered(bookies.all, self._loop.time())
            for bookie in sorted(self._bookies.lost - before):
                _LOG.warning("bookie %s is lost", bookie)
            for bookie in sorted(before - self._bookies.lost):
                _LOG.info("bookie %s is back", bookie)
            self._changed.set()

    async def _follow_delay(self) -> None:
        watch = self._znodes.watch(underreplication.delay_path(self._root))
        try:
            # The first answer is the value at the beginning, and not a write.
            is_first = True
            while True:
                node = await watch.next()
                if not is_first and not isinstance(node, Gone | Unchanged):
                    try:
                        delay_s = await underreplication.read_delay(self._znodes, self._root)
                    except InvalidMetadata as error:
                        _LOG.warning("the delay stays as it was: %s", error)
                        continue
                    if not isinstance(delay_s, Gone):
                        self._bookies.delay_written(delay_s, self._loop.time())
                        self._changed.set()
                is_first = False
        finally:
            watch.close()

    # ── audits ────────────────────────────────────────────────────────────────────────────────────────

    async def _audit_when_due(self) -> None:
        periodic_at = self._loop.time() + self._config.audit_interval_s
        while True:
            self._changed.clear()
            due = self._bookies.due_at
            due_at = periodic_at if due is None else min(due, periodic_at)
            try:
                async with asyncio.timeout_at(due_at):
                    await self._changed.wait()
            except TimeoutError:
                await self._audit()
                periodic_at = self._loop.time() + self._config.audit_interval_s

    async def _audit(self) -> None:
        await underreplication.wait_until_enabled(self._znodes, self._root)
        self._bookies.audit_begins()
        lost = self._bookies.lost
        began = self._loop.time()
        try:
            result = await audits.mark_lost(self._znodes, self._paths, self._clock)
        except SessionExpired:
            raise
        except MetadataUnavailable as error:
            _LOG.warning("the audit was cut short: %s", error)
            result = audits.PassResult()
        if result.is_complete:
            # A bookie that was there for a moment, and is lost again, needs another audit.
            self._bookies.audited(lost - result.registered)
            _LOG.info(
                "audit: %d of %d ledgers marked in %.1f s (bookies that are not registered: %s)",
                *(result.marked, result.ledgers, self._loop.time() - began),
                ", ".join(sorted(result.lost)) or "none",
            )
        else:
            self._bookies.audit_failed(self._loop.time(), _RETRY_S)

    # ── checks ────────────────────────────────────────────────────────────────────────────────────────

    async def _check_when_due(self, kind: CheckKind, interval_s: float, percent: int) -> None:
        while True:
            last_ms = await underreplication.read_check_time(self._znodes, self._root, kind)
            wait_s = 0.0 if last_ms is None else last_ms / 1000 + interval_s - self._clock()
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, _SLEEP_MAX_S))
                continue
            if not await self._check(kind, percent):
                await asyncio.sleep(min(interval_s, _CHECK_RETRY_S))

    async def _check(self, kind: CheckKind, percent: int) -> bool:
        """Check all ledgers that a pass has not checked yet. Return whether the pass is complete."""
        position = await self._position(kind, percent)

        async def keep(reached: CheckPosition) -> None:
            await check_position.write(self._znodes, self._root, kind, reached)

        try:
            result = await audits.check_all(
                self._znodes,
                self._paths,
                self._cluster,
                percent,
                _report_finding,
                position,
                keep,
                self._clock,
            )
        except SessionExpired:
            raise
        except MetadataUnavailable as error:
            _LOG.warning("the check of all ledgers was cut short: %s", error)
            return False
        _LOG.info(
            "check of %s: %d ledgers, %d marked, %d could not be checked",
            "all entries" if kind is CheckKind.REPLICAS else "all ledgers",
            *(result.ledgers, result.marked, result.unreachable),
        )
        if result.is_complete:
            # Without its time a pass that was cut short is continued soon, and not in a week.
            await underreplication.set_check_time(self._znodes, self._root, kind, position.began_ms)
            await check_position.clear(self._znodes, self._root, kind)
        return result.is_complete

    async def _position(self, kind: CheckKind, percent: int) -> CheckPosition:
        """Return where a pass goes on that was cut short, perhaps another auditor's, or a new beginning."""
        position = await check_position.read(self._znodes, self._root, kind)
        last_ms = await underreplication.read_check_time(self._znodes, self._root, kind)
        is_usable = position is not None and position.percent == percent
        # A complete pass of BookKeeper's auditor, or of ours, is newer.
        if position is None or not is_usable or (last_ms or 0) >= position.began_ms:
            return CheckPosition(int(self._clock() * 1000), percent)
        _LOG.info("a check of all ledgers goes on with ledger %d", min((position.next_id, *position.left)))
        return position


def _report_finding(ledger_id: int, findings: list[FragmentFinding]) -> None:
    for one in findings:
        _LOG.warning(
            "ledger %d: the copy of bookie %s from entry %d on is %s",
            *(ledger_id, one.fragment.bookie, one.fragment.key.segment, one.state.value),
        )


async def _withdraw(candidate: Candidate) -> None:
    try:
        await candidate.withdraw()
    except ClusterError as error:
        # Another error would take the place of the one that has ended the auditor.
        _LOG.info("the vote ends with its session: %s", error)

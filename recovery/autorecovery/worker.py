"""The replication worker: takes marked ledgers one by one, and repairs them under a lock.

    take       a ledger that is marked, not locked, and not paused by this worker; in random order
    repair     `LedgerRepair`
    grace      a ledger that grows on a lost bookie is tried again when its writer has had time to replace the
               bookie. It is not locked meanwhile, so that any number of ledgers may wait and hold up no
               other. Then, if nothing has changed, it is recovered, which fences its writer, and repaired
    done       the mark is deleted if it is the one that was taken, then the lock

The lock is an ephemeral node. After a session loss two workers may repair one ledger at the same time. That
does no harm: entries are added as in a recovery, and the metadata are changed by compare-and-set.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.autorecovery.attempts import RepairAttempts
from recovery.autorecovery.copying import Copied
from recovery.autorecovery.drive import run_repair
from recovery.autorecovery.progress import STUCK_MAX, CopyRate, StuckLedger, WorkerProgress, publish
from recovery.autorecovery.repair import (
    GrowingWithoutBookies,
    LedgerGone,
    LedgerRepair,
    Postponed,
    Repaired,
    Unrepairable,
)
from storage.cluster.errors import (
    ClusterError,
    InvalidMetadata,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedgerExistsOnMetadataServer,
    SessionExpired,
)
from storage.cluster.metadata import registration, underreplication
from storage.cluster.metadata.znodes import Gone, Unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.autorecovery.config import AutoRecoveryConfig
    from recovery.autorecovery.repair import RepairResult
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.underreplication import RepairLock
    from storage.cluster.metadata.znodes import Znodes

_LOG = logging.getLogger("ledgerstore.autorecovery")

_LOOK_S = 5.0
"""How often to look for marks: a watch of the top of their tree does not show every new one."""
_SOON_S = 0.1
"""The first pause after a repair: an audit that has just begun marks further ledgers."""


class ReplicationWorker:
    """Repairs marked ledgers, some of them at the same time."""

    def __init__(
        self,
        znodes: Znodes,
        root: str,
        cluster: AsyncCluster,
        name: str,
        config: AutoRecoveryConfig,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._znodes = znodes
        self._root = root
        self._cluster = cluster
        self._name = name
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._attempts = RepairAttempts(config.pause_max_s)
        self._turns = asyncio.Semaphore(config.repairs_at_once)
        self._locked: set[int] = set()
        """The ledgers that this worker has locked."""
        self._may_be_locked: set[int] = set()
        """Also those whose lock it has asked for or released without an answer. The nodes would stay for as
        long as the session, and no worker would repair these ledgers."""
        self._unlocked = asyncio.Event()
        """Set when a repair has ended."""
        self._to_try: list[int] = []
        """Marked ledgers of the last listing that were not tried yet."""
        self._growing: dict[int, tuple[GrowingWithoutBookies, float]] = {}
        """By ledger whose writer may still replace lost bookies: what was found, and since when."""
        self._repairs: set[LedgerRepair] = set()
        """Those that are under way."""
        self._repaired = self._locks_taken = 0
        self._taken = Copied(0, 0)
        """The entries and bytes that the ended repairs have copied."""

    def given_up(self) -> frozenset[int]:
        """Return the ledgers that this worker cannot repair, and does not try again by time."""
        return self._attempts.given_up

    async def run(self) -> None:
        """Repair until the session ends or the caller is cancelled."""
        publishing = asyncio.ensure_future(self._publish_repeatedly())
        marks = self._znodes.watch_children(underreplication.marks_path(self._root))
        try:
            pause_s = _LOOK_S
            while True:
                await underreplication.wait_until_enabled(self._znodes, self._root)
                before = self._locks_taken
                await self._repair_while_enabled()
                pause_s = min(2 * pause_s, _LOOK_S) if before == self._locks_taken else _SOON_S
                # The watch does not notice a mark below an inner node that exists already.
                if not isinstance(await marks.next(pause_s), Unchanged):
                    pause_s = _SOON_S
        finally:
            marks.close()
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)

    async def _publish_repeatedly(self) -> None:
        """Publish what this worker does. A failure is no reason to stop repairing."""
        rate, before = CopyRate(self._loop.time()), None
        while True:
            await asyncio.sleep(self._config.progress_interval_s)
            now, entries, size = self._loop.time(), *self._copied()
            stuck = self._attempts.reasons()
            progress = WorkerProgress(
                self._name,
                self._repaired,
                entries,
                size,
                *rate.at(now, entries, size),
                len(stuck),
                tuple(StuckLedger(*one) for one in stuck[:STUCK_MAX]),
            )
            if progress != before:
                with suppress(ClusterError):
                    await publish(self._znodes, self._root, progress)
                    before = progress

    def _copied(self) -> Copied:
        taken = [self._taken, *(repair.taken for repair in self._repairs)]
        return Copied(sum(one.entries for one in taken), sum(one.size for one in taken))

    async def _repair_while_enabled(self) -> None:
        """Repair what is marked. Return when nothing is left to do now, or when repair is disabled."""
        repairing = asyncio.ensure_future(self._repair_all())
        disabled = asyncio.ensure_future(self._wait_until_disabled())
        try:
            await asyncio.wait({repairing, disabled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (repairing, disabled):
                task.cancel()
            results = await asyncio.gather(repairing, disabled, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def _wait_until_disabled(self) -> None:
        watch = self._znodes.watch(underreplication.disable_path(self._root))
        try:
            while isinstance(await watch.next(), Gone):
                pass
        finally:
            watch.close()

    async def _repair_all(self) -> None:
        """Repair marked ledgers until no more can be taken, and none is locked by this worker."""
        # A repair that was cancelled before its first step has released neither its turn nor its lock.
        self._turns = asyncio.Semaphore(self._config.repairs_at_once)
        self._locked.clear()
        async with asyncio.TaskGroup() as group:
            while True:
                await self._turns.acquire()
                lock = None
                try:
                    lock = await self._take()
                finally:
                    if lock is None:
                        self._turns.release()
                if lock is not None:
                    group.create_task(self._repair(lock))
                elif self._locked:
                    await self._wait_for_end()
                else:
                    return

    async def _wait_for_end(self) -> None:
        """Wait until a repair has ended, or until it is time to look for new marks."""
        self._unlocked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._unlocked.wait()

    # ── taking ────────────────────────────────────────────────────────────────────────────────────────

    async def _take(self) -> RepairLock | None:
        """Lock a marked ledger that should be tried now."""
        if not self._to_try:
            self._to_try = await self._untried()
        while self._to_try:
            ledger_id = self._to_try.pop()
            try:
                self._may_be_locked.add(ledger_id)
                lock = await underreplication.take_lock(self._znodes, self._root, ledger_id, self._name)
            except InvalidMetadata as error:
                self._report_invalid(ledger_id, error)
                continue
            if lock is not None:
                self._locks_taken += 1
                self._locked.add(ledger_id)
                return lock
            self._may_be_locked.discard(ledger_id)
        return None

    async def _untried(self) -> list[int]:
        """List the marked ledgers that are not locked and should be tried now."""
        for ledger_id in self._may_be_locked - self._locked:
            await underreplication.unlock_if_held(self._znodes, self._root, ledger_id)
            self._may_be_locked.discard(ledger_id)
        names = await self._znodes.children(f"{underreplication.base_path(self._root)}/locks")
        locked = frozenset(() if isinstance(names, Gone) else names.names)
        marked = [one async for one in underreplication.list_marked(self._znodes, self._root)]
        self._attempts.keep_only(frozenset(marked))
        self._growing = {one: self._growing[one] for one in self._growing.keys() & marked}
        # At random, so that several workers do not all try to lock the same ledger first.
        random.shuffle(marked)
        free = [
            ledger_id
            for ledger_id in marked
            if underreplication.lock_path(self._root, ledger_id).rpartition("/")[2] not in locked
        ]
        failed = [ledger_id for ledger_id in free if ledger_id in self._attempts.failed]
        waiting = await self._waiting(failed) if failed else frozenset()
        return [ledger_id for ledger_id in free if ledger_id not in waiting]

    async def _waiting(self, failed: Sequence[int]) -> frozenset[int]:
        """Return those of the ledgers whose last repair has failed that should not be tried now."""
        bookies = await registration.read_bookies(self._znodes, self._root)
        paths = [underreplication.mark_path(self._root, ledger_id) for ledger_id in failed]
        nodes = await self._znodes.get_all(paths)
        now = self._loop.time()
        return frozenset(
            ledger_id
            for ledger_id, node in zip(failed, nodes, strict=True)
            if isinstance(node, Gone)
            or not self._attempts.may_try(ledger_id, node.stat.version, bookies.all, now)
        )

    def _report_invalid(self, ledger_id: int, error: InvalidMetadata) -> None:
        if self._attempts.note_unrepairable(ledger_id, -1, str(error), frozenset()):
            _LOG.error("ledger %d is not repaired: %s", ledger_id, error)

    # ── repairing ─────────────────────────────────────────────────────────────────────────────────────

    async def _repair(self, lock: RepairLock) -> None:
        """Repair a locked ledger, and unlock it however that ends. The caller has taken a turn for it."""
        ledger_id = lock.mark.ledger_id
        try:
            result = await self._attempt(lock)
            if isinstance(result, GrowingWithoutBookies) and self._is_grace_over(ledger_id, result):
                lock, result = await self._recover(lock, result)
            await self._note(lock, result)
        finally:
            self._turns.release()
            try:
                await underreplication.release_lock(self._znodes, lock)
                self._may_be_locked.discard(ledger_id)
            except MetadataUnavailable as error:
                _LOG.info("the lock of ledger %d is deleted later: %s", ledger_id, error)
            finally:
                self._locked.discard(ledger_id)
                self._unlocked.set()

    def _is_grace_over(self, ledger_id: int, found: GrowingWithoutBookies) -> bool:
        """Return whether the writer has had its time. It begins when this worker notices the loss."""
        now = self._loop.time()
        before, since = self._growing.get(ledger_id, (found, now))
        if before != found:
            since = now
        self._growing[ledger_id] = found, since
        return now - since >= self._config.open_ledger_grace_s

    async def _attempt(self, lock: RepairLock) -> RepairResult:
        ledger_id = lock.mark.ledger_id
        # The newest state, because otherwise a bookie that is back would be replaced, or its writer fenced.
        bookies = await registration.read_newest_bookies(self._znodes, self._root)
        repair = LedgerRepair(
            ledger_id,
            lock.mark.replicas,
            bookies,
            self._cluster.candidates(),
            random.getrandbits(62),
            self._config.copying,
        )
        began = self._loop.time()
        self._repairs.add(repair)
        try:
            result = await run_repair(self._cluster, ledger_id, repair)
        except SessionExpired:
            raise
        except ClusterError as error:
            result = Postponed(str(error))
        finally:
            self._repairs.discard(repair)
            entries, size = repair.taken
            self._taken = Copied(self._taken.entries + entries, self._taken.size + size)
        if repair.copied.entries:
            _LOG.info(
                "ledger %d: %d entries (%d bytes) copied in %.1f s",
                *(ledger_id, repair.copied.entries, repair.copied.size, self._loop.time() - began),
            )
        return result

    async def _recover(
        self, lock: RepairLock, found: GrowingWithoutBookies
    ) -> tuple[RepairLock, RepairResult]:
        """Recover a ledger whose writer has not replaced the lost bookies, and repair it.

        All bookies of its last segments are suspected from then on: they have taken what the writer sent, or
        a part of it, and the recovery ends with copies at a quorum of them. The mark says so before the
        metadata do, because otherwise no process would know it if this one died in between.
        """
        ledger_id = lock.mark.ledger_id

        async def before_write(metadata: ClusterLedgerMetadata) -> None:
            if metadata.is_closed:
                last = [one for one in metadata.segments if one.first_entry >= found.segment]
                suspects = sorted({bookie for one in last for bookie in one.bookies})
                now_ms = int(self._clock() * 1000)
                await underreplication.mark_ledger(self._znodes, self._root, ledger_id, suspects, now_ms)
            else:
                await self._check_may_fence(ledger_id, metadata, found)

        try:
            metadata = await self._cluster.metadata(ledger_id)
            await self._cluster.take_over(ledger_id, metadata.password or b"", before_write)
            mark = await underreplication.read_mark(self._znodes, self._root, ledger_id)
        except NoSuchLedgerExistsOnMetadataServer:
            return lock, LedgerGone()
        except SessionExpired:
            raise
        except ClusterError as error:
            return lock, Postponed(str(error))
        if not isinstance(mark, Gone):
            lock = replace(lock, mark=mark)
        return lock, await self._attempt(lock)

    async def _check_may_fence(
        self, ledger_id: int, metadata: ClusterLedgerMetadata, found: GrowingWithoutBookies
    ) -> None:
        """Raise `MetadataConflict` if the ledger's writer can go on with its bookies.

        The check of the ledger may have taken long. Since it has begun, the lost bookies may be registered
        again, or the writer may have replaced them.
        """
        bookies = await registration.read_newest_bookies(self._znodes, self._root)
        if not set(found.bookies) <= set(metadata.segments[-1].bookies) - bookies.all:
            # The wait begins anew, so that their writer has its whole time if they are lost again.
            self._growing.pop(ledger_id, None)
            reason = "its writer has replaced the lost bookies, or they are registered again"
            raise MetadataConflict(f"ledger {ledger_id}", reason)
        _LOG.info(
            "ledger %d is recovered: its writer has not replaced %s", ledger_id, ", ".join(found.bookies)
        )

    async def _note(self, lock: RepairLock, result: RepairResult) -> None:
        ledger_id, version = lock.mark.ledger_id, lock.mark.version
        match result:
            case Repaired() | LedgerGone():
                self._attempts.note_repaired(ledger_id)
                self._repaired += 1
                is_unmarked = await underreplication.mark_repaired(self._znodes, self._root, lock)
                what = "repaired" if isinstance(result, Repaired) else "deleted by its owner"
                _LOG.info(
                    "ledger %d: %s%s",
                    ledger_id,
                    what,
                    "" if is_unmarked else "; it was marked again meanwhile",
                )
            case Unrepairable(reason, absent):
                if self._attempts.note_unrepairable(ledger_id, version, reason, absent):
                    lost = f"may be on {', '.join(sorted(absent))}" if absent else "are lost"
                    _LOG.error("ledger %d cannot be repaired, entries %s: %s", ledger_id, lost, reason)
            case GrowingWithoutBookies(segment, bookies):
                reason = f"grows from entry {segment} on, without {', '.join(bookies)}"
                _, since = self._growing[ledger_id]
                grace_s = self._config.open_ledger_grace_s
                self._attempts.note_waiting(ledger_id, version, reason, since + grace_s, grace_s)
                _LOG.info("ledger %d %s: its writer may replace them", ledger_id, reason)
            case Postponed(reason):
                self._postpone(lock, reason)

    def _postpone(self, lock: RepairLock, reason: str) -> None:
        ledger_id = lock.mark.ledger_id
        pause_s = self._attempts.note_postponed(ledger_id, lock.mark.version, reason, self._loop.time())
        _LOG.info("ledger %d is tried again in %.0f s: %s", ledger_id, pause_s, reason)

"""The scan of the stores: one job for everything, and further jobs for what has to be read again, if any."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from recovery.audit.cache.part_identity import log_owners
from recovery.audit.engines.task import TolerantTask
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.pipeline import ensemble_file, mismatches
from recovery.audit.pipeline.merge import ScanResults
from recovery.audit.pipeline.plan import journal_task, plan
from recovery.audit.pipeline.reclassify import reclassify
from recovery.audit.pipeline.replica_reads import ScannedStore
from recovery.audit.scan import entry_log_ranges
from recovery.audit.scan.entry_log import ScanLog
from recovery.audit.snapshot import live_store
from recovery.audit.snapshot.inventory import check_is_a_store, take_inventory
from recovery.audit.snapshot.readable_files import ReadableDirectory, find_unreadable
from recovery.bookkeeper.directories import layout_of
from recovery.directory.layout import Layout
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from recovery.audit.cache.engine import CachingEngine
    from recovery.audit.checks.entry_compare import CompareResult
    from recovery.audit.engines.progress import ProgressMeter
    from recovery.audit.engines.task import AuditTask
    from recovery.audit.model.audit_report import ReplicaReport
    from recovery.audit.model.store_facts import StoreFacts
    from recovery.audit.pipeline.request import AuditRequest
    from recovery.audit.snapshot.inventory import StoreInventory


@dataclass(frozen=True, slots=True, eq=False)
class StoreScan:
    """The scan of one store."""

    inventory: StoreInventory
    results: ScanResults
    facts: StoreFacts
    compared: CompareResult
    not_covered: tuple[str, ...]
    seconds: float


class ScanJob:
    """Scans all stores of a request."""

    def __init__(self, request: AuditRequest, held: ExitStack, meter: ProgressMeter) -> None:
        self._request = request
        self._meter = meter
        self._inventories = self._all_inventories(held)
        self._results = [ScanResults(inventory) for inventory in self._inventories]
        self._caching_engine = _caching_engine(request, self._inventories)
        self._engine = self._caching_engine or request.engine

    def run(self) -> tuple[list[StoreScan], ReplicaReport | None]:
        """Return what is known of each store, and the result of comparing replicas."""
        clock = time.monotonic()
        self._read()
        self._stitch()
        self._retype()
        facts = [results.facts() for results in self._results]
        comparisons = mismatches.compare(self._inventories, self._results, facts, self._run)
        # Again, because something that was read twice may have been readable only once.
        facts = [results.facts() for results in self._results]
        compared = [one.ended(found) for one, found in zip(comparisons, facts, strict=True)]
        replicas = self._compare(facts)
        notes = self._finish_cache()
        seconds = time.monotonic() - clock
        scanned_stores = zip(self._inventories, self._results, facts, compared, strict=True)
        scanned = [StoreScan(*one, (*one[0].not_covered, *notes), seconds) for one in scanned_stores]
        return scanned, replicas

    def _finish_cache(self) -> list[str]:
        if self._caching_engine is None:
            return []
        self._caching_engine.tidy()
        trouble = self._caching_engine.trouble
        return [f"parts for the next audit: they cannot be kept ({trouble})"] if trouble else []

    # ── snapshot ─────────────────────────────────────────────────────────────────────────────────────────

    def _all_inventories(self, held: ExitStack) -> list[StoreInventory]:
        """Return the inventory of each store, and an empty one for a path that is none.

        Raise the error of the first path if there is no store at all.
        """
        found: list[StoreInventory] = []
        errors: list[StoreError | OSError] = []
        paths = _paths(self._request)
        for path in paths:
            try:
                found.append(self._inventory(path, held))
            except (StoreError, OSError) as error:
                errors.append(error)
                found.append(self._empty_inventory(path, error, held))
        if len(errors) == len(paths):
            raise errors[0]
        return found

    def _empty_inventory(self, path: str, error: StoreError | OSError, held: ExitStack) -> StoreInventory:
        """Return the inventory of a path that cannot be audited: it holds nothing, and a finding says why."""
        root = Path(held.enter_context(TemporaryDirectory(prefix="ledgerstore-audit-")))
        for name in (filenames.JOURNAL_DIRECTORY, filenames.LEDGER_DIRECTORY):
            (root / name / filenames.CURRENT).mkdir(parents=True)
        empty = self._inventory(str(root), held)
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        finding = KINDS["DIR-005"].at(store=path, detail=why)
        return replace(empty, store=path, inventory_findings=(finding,), not_covered=())

    def _inventory(self, path: str, held: ExitStack) -> StoreInventory:
        part = self._request.parts.get(path)
        if part is not None:
            unreadable = find_unreadable(layout_of(part, {}))
            layout = layout_of(part, unreadable)
        else:
            # An absolute path, because executors of a cluster have other working directories.
            root = Path(path).absolute()
            check_is_a_store(Layout(PosixDirectory(root)))
            unreadable = find_unreadable(Layout(PosixDirectory(root)))
            layout = Layout(ReadableDirectory(root, unreadable))
        scratch = held.enter_context(TemporaryDirectory(prefix="ledgerstore-audit-"))
        still = held.enter_context(live_store.take_snapshot(layout, Path(scratch)))
        inventory = take_inventory(path, layout, still, self._request.policy, unreadable)
        return replace(inventory, part=part)

    # ── scan ─────────────────────────────────────────────────────────────────────────────────────────────

    def _steps(self, inventory: StoreInventory) -> Mapping[int, int]:
        replicas = self._request.replicas
        if replicas is None or inventory.store not in replicas.stores.values():
            return {}
        return ensemble_file.steps(replicas.ledgers)

    def _run(self, stage: str, tasks: Sequence[AuditTask[Any]]) -> Iterator[tuple[int, Any]]:
        if not tasks:
            return
        self._meter.begin(stage, sum(task.size for task in tasks))
        for done in self._engine.run(tasks, self._meter.read):
            if self._caching_engine is not None:
                self._meter.reuse(self._caching_engine.reused_bytes)
            yield done.number, done.part

    def _read(self) -> None:
        planned = plan(self._inventories, [self._steps(one) for one in self._inventories], self._request.jobs)
        for number, part in self._run("reading", [one.task for one in planned]):
            self._results[planned[number].store].take(part)

    def _stitch(self) -> None:
        """Read ranges again that began at a wrong guess, until each begins where the one before it ends."""
        while again := [
            (store, task)
            for store, results in enumerate(self._results)
            for log in results.inventory.logs
            for task in self._broken(store, log.log_id)
        ]:
            for number, part in self._run("reading again", [TolerantTask(task) for _, task in again]):
                self._results[again[number][0]].take(part)

    def _broken(self, store: int, log_id: int) -> list[ScanLog]:
        results = self._results[store]
        inventory = results.inventory
        log = next(one for one in inventory.logs if one.log_id == log_id)
        parts = results.body(log)
        return [
            ScanLog(log.path, log_id, start, end, inventory.policy, self._steps(inventory), entry=start)
            for start, end in (entry_log_ranges.broken(parts) if parts else ())
        ]

    def _retype(self) -> None:
        """Read again what was verified with another type than the rest of its ledger shows."""
        again: list[tuple[int, Any]] = []
        for store, results in enumerate(self._results):
            inventory = results.inventory
            if inventory.policy.presumed is not None:
                continue
            reclassified = reclassify(results)
            policy = replace(inventory.policy, declared={**inventory.policy.declared, **reclassified.types})
            logs = {log.log_id: log for log in inventory.logs}
            for part in reclassified.logs:
                path = logs[part.log_id].path
                extent = part.start, part.end
                task = ScanLog(path, part.log_id, *extent, policy, self._steps(inventory), entry=part.entry)
                again.append((store, task))
            again += [
                (store, journal_task(journal, inventory, policy, self._steps(inventory)))
                for journal in inventory.journals
                if journal.journal_id in reclassified.journals
            ]
        for number, part in self._run("reading again", [TolerantTask(task) for _, task in again]):
            self._results[again[number][0]].take(part)

    def _compare(self, facts: Sequence[StoreFacts]) -> ReplicaReport | None:
        replicas = self._request.replicas
        if replicas is None:
            return None
        from recovery.audit.pipeline.replicas import compare

        by_path = {path: name for name, path in replicas.stores.items()}
        scanned_stores = [
            ScannedStore(by_path[inventory.store], inventory, found)
            for inventory, found in zip(self._inventories, facts, strict=True)
            if inventory.store in by_path
        ]
        return compare(replicas, scanned_stores, self._run, self._engine.sql)


def _paths(request: AuditRequest) -> list[str]:
    """Return each store once. Stores of the replicas have the paths of their ensemble file."""
    others = list(request.replicas.stores.values()) if request.replicas else []
    known = {Path(path).resolve() for path in others}
    return [*others, *(path for path in request.paths if Path(path).resolve() not in known)]


def _caching_engine(request: AuditRequest, inventories: Sequence[StoreInventory]) -> CachingEngine | None:
    keep = request.keep
    if keep is None:
        return None
    # Imported here, because `verify` keeps no parts and works without pyarrow.
    from recovery.audit.cache.engine import CachingEngine
    from recovery.audit.cache.part_cache import PartCache, Reuse

    logs = log_owners(inventories)
    before = [PartCache(keep.report, logs, Reuse.ENDED)] if keep.is_resumed else []
    before += [PartCache(keep.since, logs)] if keep.since else []
    return CachingEngine(request.engine, PartCache(keep.report, logs), before, keep.reread)

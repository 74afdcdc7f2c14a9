"""The scan of the stores: one job for everything, and further jobs for what has to be read again, if any."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from recovery.audit.cache.part_identity import log_owners
from recovery.audit.checks.store_checks import StoreChecks
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.store_facts import IndexFacts
from recovery.audit.model.store_tables import StoreTables
from recovery.audit.pipeline import ensemble_file, mismatches
from recovery.audit.pipeline.audit_tables import AuditTables
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
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from recovery.audit.cache.engine import CachingEngine
    from recovery.audit.checks.entry_compare import CompareResult
    from recovery.audit.checks.store_checks import StoreAnswers
    from recovery.audit.engines.progress import ProgressMeter
    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.engines.task import AuditTask
    from recovery.audit.model.audit_report import ReplicaReport
    from recovery.audit.model.scan_results import Part
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
    answers: StoreAnswers
    tables: StoreTables
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
        self._tables = AuditTables(self._engine)

    def run(self) -> tuple[list[StoreScan], ReplicaReport | None]:
        """Return what is known of each store, and the result of comparing replicas."""
        clock = time.monotonic()
        self._read()
        self._stitch()
        self._retype()
        facts, checks = self._settle()
        comparisons = mismatches.compare(self._inventories, self._results, facts, checks, self._run)
        if any(results.has_lost_index for results in self._results):
            facts, checks = self._settle()
        compared = [one.ended(found) for one, found in zip(comparisons, facts, strict=True)]
        replicas, answers = self._compare(facts, checks.sql), checks.answers()
        notes, seconds = self._finish_cache(), time.monotonic() - clock
        scanned = [
            StoreScan(
                inventory=inventory,
                results=self._results[store],
                facts=facts[store],
                compared=compared[store],
                answers=answers[store],
                tables=StoreTables(checks.sql, store),
                not_covered=(*inventory.not_covered, *notes),
                seconds=seconds,
            )
            for store, inventory in enumerate(self._inventories)
        ]
        return scanned, replicas

    def _settle(self) -> tuple[list[StoreFacts], StoreChecks]:
        """Return what is known of each store, and the checks of its runs."""
        facts = [results.facts() for results in self._results]
        checks = StoreChecks(self._tables.choose(self._results), facts)
        for store, void in checks.void_rows() if any(one.void_in_index for one in facts) else ():
            index = facts[store].index
            if isinstance(index, IndexFacts):
                facts[store] = replace(facts[store], index=replace(index, count=index.count - void))
        return facts, checks

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

    def _scan(self, stage: str, scans: Iterable[tuple[int, AuditTask[Part]]]) -> None:
        """Scan parts of stores, each given with the number of its store."""
        tasks = [self._tables.task(store, scan) for store, scan in scans]
        for number, found in self._run(stage, tasks):
            self._results[tasks[number].store].take(self._tables.take(found))

    def _read(self) -> None:
        steps = [self._steps(one) for one in self._inventories]
        self._scan("reading", plan(self._inventories, steps, self._request.jobs))

    def _stitch(self) -> None:
        """Read ranges again that began at a wrong guess, until each begins where the one before it ends."""
        while again := [
            (store, task)
            for store, results in enumerate(self._results)
            for log in results.inventory.logs
            for task in self._broken(store, log.log_id)
        ]:
            self._scan("reading again", again)

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
        again: list[tuple[int, AuditTask[Part]]] = []
        for store, results in enumerate(self._results):
            inventory = results.inventory
            if inventory.policy.presumed is not None:
                continue
            reclassified = reclassify(results, self._tables.sql)
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
        self._scan("reading again", again)

    def _compare(self, facts: Sequence[StoreFacts], sql: SqlEngine) -> ReplicaReport | None:
        replicas = self._request.replicas
        if replicas is None:
            return None
        from recovery.audit.pipeline.replicas import compare

        by_path = {path: name for name, path in replicas.stores.items()}
        scanned_stores = [
            ScannedStore(by_path[inventory.store], number, inventory, found)
            for number, (inventory, found) in enumerate(zip(self._inventories, facts, strict=True))
            if inventory.store in by_path
        ]
        return compare(replicas, scanned_stores, self._run, sql)


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

"""Compare several stores that share ledgers, based on the facts of each.

compared     by runs: which copies are missing, which may differ; nothing is read again
read         ledgers that runs do not decide: their entries are read again, on each of their stores
compared     again, with these entries in place of the runs

For an open ledger it matters how much is confirmed. Stores are scanned one after the other, and a live store
continues in the meantime: only entries confirmed before the first live store was scanned have to be on all of
them. What stores that are not live say is older still.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.checks import replica_entries
from recovery.audit.checks.replica_copies import ComparedStore, ReplicaChecks
from recovery.audit.checks.replica_entries import (
    COPY,
    ReplicaStore,
    by_index,
    by_order,
    differences,
    readable,
    runs_of,
)
from recovery.audit.checks.texts import text
from recovery.audit.engines.task import TolerantTask, UnreadFile
from recovery.audit.findings.finding import order
from recovery.audit.model.audit_report import ReplicaReport
from recovery.audit.model.ensemble import LedgerProgress
from recovery.audit.model.entry_columns import no_entries, no_rows
from recovery.audit.model.store_facts import IndexFacts
from recovery.audit.pipeline.replica_reads import CopyFiles, ScannedStore, held_ledgers, read_tasks
from recovery.audit.scan.index_entries import ReadIndexRows
from recovery.audit.scan.journal_entries import ReadJournalEntries
from recovery.audit.scan.log_entries import ReadLogEntries
from storage.entry import format as entry_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.audit.checks.replica_entries import Copies
    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.engines.task import AuditTask
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.ensemble import LedgerEnsembles
    from recovery.audit.pipeline.ensemble_file import Replicas

    Run = Callable[[str, Sequence[AuditTask[Any]]], Iterator[tuple[int, Any]]]


def compare(replicas: Replicas, stores: Sequence[ScannedStore], run: Run, sql: SqlEngine) -> ReplicaReport:
    """Compare `stores`, in the order in which they were scanned. `run` executes tasks as a named stage, and
    `sql` has the runs of all stores.
    """
    missing = replicas.stores.keys() - {store.name for store in stores}
    if missing:
        raise ValueError(f"not scanned: {', '.join(sorted(missing))}")
    names = {
        "number": np.array([store.number for store in stores], dtype=np.int64),
        "store": np.array([store.name for store in stores], dtype=object),
    }
    sql.put_columns("compared_stores", names)
    sql.view("runs", text("runs"))
    compared = [
        ComparedStore(store.name, store.facts.store, isinstance(store.facts.index, IndexFacts))
        for store in stores
    ]
    checks = ReplicaChecks(sql, replicas.ledgers, compared)
    return _ReplicaComparison(replicas, stores, run, checks, sql).report()


class _ReplicaComparison:
    """One comparison."""

    def __init__(
        self,
        replicas: Replicas,
        stores: Sequence[ScannedStore],
        run: Run,
        checks: ReplicaChecks,
        sql: SqlEngine,
    ) -> None:
        self._replicas = replicas
        self._ensembles: Sequence[LedgerEnsembles] = replicas.ledgers
        self._steps = {one.ledger_id: one.step for one in replicas.ledgers}
        self._stores = stores
        self._run = run
        self._checks = checks
        self._sql = sql
        self._not_covered = [*replicas.notes, *self._unnamed()]

    def report(self) -> ReplicaReport:
        checks = self._checks
        # The severity of a hole at the end of an open ledger depends on what its entries say is confirmed.
        to_read = checks.suspect_ledgers() | checks.unsettled_ledgers()
        copies = self._read_copies(to_read)
        if to_read:
            names = [store.name for store in self._stores]
            exact = [runs_of(some, self._steps) for some in copies]
            checks.take_entries(to_read, dict(zip(names, exact, strict=True)))
        checks.take_progress(self._progress(copies))
        findings = [*checks.findings(), *self._differences(copies)]
        return ReplicaReport(
            findings=tuple(sorted(findings, key=order)),
            ledgers=checks.coverage(),
            stores=checks.stores(),
            paths=self._replicas.stores,
            compared_by_entry=tuple(sorted(to_read)),
            not_covered=tuple(self._not_covered),
        )

    def _differences(self, copies: Sequence[Copies]) -> Iterator[Finding]:
        everything = np.concatenate([np.empty(0, dtype=COPY), *copies])
        stores = [ReplicaStore(store.name, store.facts.store) for store in self._stores]
        differing = everything[self._checks.differing_copies(readable(everything, stores))]
        yield from differences(differing, self._steps, CopyFiles(self._stores), stores)

    def _unnamed(self) -> Iterator[str]:
        """Yield notes on ledgers that are in the stores but in no ensemble."""
        for store, count in self._checks.unnamed_ledgers(self._replicas.left_out):
            yield f"{store}: {count} ledgers that no ensemble names"

    # ── what runs do not decide ──────────────────────────────────────────────────────────────────────────

    def _read_copies(self, to_read: frozenset[int]) -> list[Copies]:
        """Return what each store serves of these ledgers, entry by entry."""
        held = held_ledgers(self._sql, to_read) if to_read else {}
        tasks = [
            (number, one)
            for number, store in enumerate(self._stores)
            for one in (read_tasks(store, to_read, held) if to_read else ())
        ]
        found: defaultdict[tuple[int, type], list[Any]] = defaultdict(list)
        for at, part in self._run("comparing replicas", [TolerantTask(task) for _, task in tasks]):
            number, task = tasks[at]
            if isinstance(part, UnreadFile):
                self._not_covered.append(f"{self._stores[number].name}: {part.file}: {part.reason}")
            else:
                found[number, type(task)].append(part)
        return [self._served(number, found) for number in range(len(self._stores))]

    def _served(self, number: int, found: Mapping[tuple[int, type], list[Any]]) -> Copies:
        logs = np.concatenate([no_entries(), *found.get((number, ReadLogEntries), ())])
        journaled = np.concatenate([no_entries(), *found.get((number, ReadJournalEntries), ())])
        facts = self._stores[number].facts
        if isinstance(facts.index, IndexFacts):
            rows = np.concatenate([no_rows(), *found.get((number, ReadIndexRows), ())])
            return by_index(logs, journaled, rows, number)
        return by_order(logs, journaled, [log.log_id for log in facts.logs], number)

    # ── how far open ledgers are confirmed ───────────────────────────────────────────────────────────────

    def _progress(self, copies: Sequence[Copies]) -> dict[int, LedgerProgress]:
        confirmed_by_store = [self._confirmed(number, some) for number, some in enumerate(copies)]
        live = [number for number, store in enumerate(self._stores) if store.inventory.is_live]
        counted = [one for number, one in enumerate(confirmed_by_store) if number not in live[1:]]
        return {
            one.ledger_id: self._progress_of(one, counted, [(number, copies[number]) for number in live])
            for one in self._ensembles
            if one.last_entry is None
        }

    def _confirmed(self, number: int, copies: Copies) -> dict[int, int]:
        found = replica_entries.confirmed(copies)
        for ledger_id, row in self._stores[number].facts.rows.items():
            if row.explicit_lac is not None and row.tombstone is None:
                found[ledger_id] = max(found.get(ledger_id, -1), _explicit(row.explicit_lac))
        return found

    def _progress_of(
        self,
        one: LedgerEnsembles,
        confirmed_by_store: Sequence[Mapping[int, int]],
        live: Sequence[tuple[int, Copies]],
    ) -> LedgerProgress:
        least = LedgerProgress.least(one)
        confirmed = max([least.confirmed, *(some.get(one.ledger_id, -1) for some in confirmed_by_store)])
        lasts = [
            _last_entry(copies, one.ledger_id)
            for number, copies in live
            if self._stores[number].name in one.segments[-1].stores
        ]
        return LedgerProgress(confirmed, max(least.confirmed, min([confirmed, *lasts])))


def _explicit(packet: bytes) -> int:
    """Return the last add confirmed that a client has sent explicitly, or -1 if the packet is too short."""
    size = entry_format.LAC_PACKET.size
    return int(entry_format.LAC_PACKET.unpack(packet[:size])[1]) if len(packet) >= size else -1


def _last_entry(copies: Copies, ledger_id: int) -> int:
    return int(copies["entry"][copies["ledger"] == ledger_id].max(initial=-1))

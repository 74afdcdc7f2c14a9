"""Compare the mismatched ledgers of all stores entry by entry: together if they are few, otherwise in
portions.

few      one job reads every entry and row of the mismatched ledgers
many     one job sums up windows of ids; then one job for each portion of the windows that differ reads
         only the part of the logs where their entries are
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.checks.entry_compare import StoreComparison
from recovery.audit.checks.index_rules import MismatchedEntries
from recovery.audit.engines.task import TolerantTask, UnreadFile
from recovery.audit.model.entry_columns import no_entries, no_rows
from recovery.audit.model.windows import no_sums, portions, windows_of
from recovery.audit.scan.index_entries import ReadIndexRows
from recovery.audit.scan.log_entries import ReadLogEntries
from recovery.audit.scan.window_sums import SumIndexWindows, SumLogWindows
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recovery.audit.checks.store_checks import StoreChecks, WindowAnswer
    from recovery.audit.engines.task import AuditTask
    from recovery.audit.model.store_facts import StoreFacts
    from recovery.audit.model.windows import Sums, WindowSet
    from recovery.audit.pipeline.merge import ScanResults
    from recovery.audit.snapshot.inventory import StoreInventory

    Run = Callable[[str, Sequence[AuditTask[Any]]], Iterable[tuple[int, Any]]]

TOGETHER_MAX = 1 << 18
"""The number of entries and index rows that are compared at once: each takes some four hundred bytes."""


def compare(
    inventories: Sequence[StoreInventory],
    results: Sequence[ScanResults],
    facts: Sequence[StoreFacts],
    checks: StoreChecks,
    run: Run,
) -> list[StoreComparison]:
    """Compare what logs and indexes have of the mismatched ledgers. `run` executes tasks as a named stage."""
    counts, logs, sizes = checks.mismatched(), checks.mismatched_logs(), checks.log_sizes()
    comparisons = [StoreComparison(*one) for one in zip(facts, sizes, strict=True)]
    each = zip(inventories, results, facts, counts, logs, comparisons, strict=True)
    stores = [_MismatchedLedgers(*one) for one in each]
    many = [one for one in stores if one.count > TOGETHER_MAX]
    _run(run, "narrowing", [(one, task) for one in many for task in one.window_sum_tasks()])
    if many:
        sums = ((number, *some) for number, one in enumerate(stores) for some in one.window_sums())
        for store, answer in zip(stores, checks.compare_windows(sums), strict=True):
            store.narrow(answer)
    for portion in _rounds(stores):
        _run(run, "comparing", [(one.store, task) for one in portion for task in one.tasks()])
        for one in portion:
            one.store.compare()
    return [one.comparison for one in stores]


def _run(run: Run, stage: str, tasks: Sequence[tuple[_MismatchedLedgers, AuditTask[Any]]]) -> None:
    for number, part in run(stage, [TolerantTask(task) for _, task in tasks]):
        store, task = tasks[number]
        store.take(task, part)


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """What is compared at once for one store. `sums` are those of its windows, or `None` if it is
    everything.
    """

    store: _MismatchedLedgers
    count: int
    sums: Sums | None = None

    def tasks(self) -> Iterator[AuditTask[Any]]:
        return self.store.entry_tasks() if self.sums is None else self.store.window_entry_tasks(self.sums)


def _rounds(stores: Iterable[_MismatchedLedgers]) -> Iterator[list[_Comparison]]:
    """Yield portions of one or more stores that fit into memory together, in the order of ids."""
    some: list[_Comparison] = []
    for store in stores:
        for portion in store.portions():
            if some and sum(one.count for one in some) + portion.count > TOGETHER_MAX:
                yield some
                some = []
            some.append(portion)
    if some:
        yield some


class _MismatchedLedgers:
    """The mismatched ledgers of one store."""

    def __init__(
        self,
        inventory: StoreInventory,
        results: ScanResults,
        facts: StoreFacts,
        counts: Mapping[int, int],
        logs: Mapping[int, frozenset[int]],
        comparison: StoreComparison,
    ) -> None:
        """`counts` has the number of entries and rows of each mismatched ledger, `logs` where they are."""
        self._inventory = inventory
        self._results = results
        self._facts = facts
        self._ledgers = frozenset(counts)
        self._ledgers_in = logs
        self.count = sum(counts.values())
        self.comparison = comparison
        self._differing = no_sums()
        self._found: dict[type, list[Any]] = {}

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────────

    def entry_tasks(self) -> Iterator[AuditTask[Any]]:
        """Yield tasks that read every entry and row."""
        if self._ledgers:
            yield from self._logs()
            yield ReadIndexRows(str(self._inventory.index), self._ledgers)

    def _logs(self) -> Iterator[ReadLogEntries]:
        paths = {log.log_id: log.path for log in self._inventory.logs}
        for log in self._facts.logs:
            there = self._ledgers_in.get(log.log_id)
            if there:
                end = log.file_size if log.limit is None else min(log.limit, log.file_size)
                yield ReadLogEntries(
                    paths[log.log_id], log.log_id, HEADER_SIZE, end, there, self._inventory.policy
                )

    def window_sum_tasks(self) -> Iterator[AuditTask[Any]]:
        """Yield tasks that sum up windows."""
        yield from map(SumLogWindows, self._logs())
        yield SumIndexWindows(str(self._inventory.index), self._ledgers)

    def window_entry_tasks(self, sums: Sums) -> Iterator[AuditTask[Any]]:
        """Yield tasks that read the entries and rows in these windows."""
        ledgers, windows = frozenset(sums["ledger"].tolist()), windows_of(sums)
        yield from self._logs_in(sums, ledgers, windows)
        yield ReadIndexRows(str(self._inventory.index), ledgers, windows)

    def _logs_in(self, sums: Sums, ledgers: frozenset[int], windows: WindowSet) -> Iterator[ReadLogEntries]:
        paths = {log.log_id: log.path for log in self._inventory.logs}
        in_logs = sums[sums["end"] > 0]
        for log_id in np.unique(in_logs["file"]).tolist():
            here = in_logs[in_logs["file"] == log_id]
            extent = int(here["begin"].min()), int(here["end"].max())
            yield ReadLogEntries(paths[log_id], log_id, *extent, ledgers, self._inventory.policy, windows)

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────

    def take(self, task: AuditTask[Any], part: Any) -> None:
        if isinstance(part, UnreadFile):
            self._results.lose_index(part)
        else:
            self._found.setdefault(type(task), []).append(part)

    def window_sums(self) -> Iterator[tuple[bool, Sums]]:
        """Yield sums of windows, each with whether it is that of the index."""
        for kind in (SumLogWindows, SumIndexWindows):
            for some in self._found.pop(kind, []):
                yield kind is SumIndexWindows, some

    def narrow(self, answer: WindowAnswer) -> None:
        """Compare no more than the windows that differ."""
        self.comparison.agree(answer.same)
        self._differing = answer.differing

    def portions(self) -> Iterator[_Comparison]:
        if not self._ledgers:
            return
        if self.count <= TOGETHER_MAX:
            yield _Comparison(self, self.count)
            return
        for sums in portions(self._differing, TOGETHER_MAX):
            yield _Comparison(self, int(sums["count"].sum()), sums)

    def compare(self) -> None:
        """Compare one portion."""
        entries = np.concatenate([no_entries(), *self._found.pop(ReadLogEntries, [])])
        rows = np.concatenate([no_rows(), *self._found.pop(ReadIndexRows, [])])
        # The places of a ledger that was deleted since the index was changed are void, as in its runs.
        void = np.isin(rows["ledger"], sorted(self._inventory.deleted_since))
        self.comparison.take(MismatchedEntries(entries, rows[~void]))

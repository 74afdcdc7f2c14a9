"""The suspects of all stores, entry by entry: together if they are few, else in portions.

few      every entry and row of the suspects, in one job
many     one job adds up windows of ids; then one for each portion of those in which the sides differ,
         which reads no more of the logs than where their entries stand
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.drill import DrillLog
from recovery.audit.drill_index import DrillIndex
from recovery.audit.narrow import NarrowIndex, NarrowLog
from recovery.audit.plan import Careful, Unread
from recovery.verify import index_sums, log_order
from recovery.verify.comparison import Comparison
from recovery.verify.entries import no_entries, no_rows
from recovery.verify.facts import IndexFacts
from recovery.verify.index_rules import Drilled
from recovery.verify.windows import apart, portions, together, windows_of
from storage.codec.entrylog import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.audit.gather import Gathered
    from recovery.audit.ground import Ground
    from recovery.audit.task import Task
    from recovery.verify.facts import StoreFacts
    from recovery.verify.windows import Sums, Windows

    Run = Callable[[str, Sequence[Task[Any]]], Iterable[tuple[int, Any]]]

TOGETHER_MAX = 1 << 18
"""So many entries and index rows are compared at once: some four hundred bytes each, while it lasts."""


def compare(
    grounds: Sequence[Ground],
    gathered: Sequence[Gathered],
    facts: Sequence[StoreFacts],
    run: Run,
) -> list[Comparison]:
    """Compares what logs and indexes have of suspects. `run` does tasks, as a named stage."""
    stores = [_Suspects(*one) for one in zip(grounds, gathered, facts, strict=True)]
    many = [one for one in stores if one.count > TOGETHER_MAX]
    _run(run, "narrowing", [(one, task) for one in many for task in one.narrowing()])
    for portion in _rounds(stores):
        _run(run, "comparing", [(one.store, task) for one in portion for task in one.tasks()])
        for one in portion:
            one.store.compare()
    return [one.comparison for one in stores]


def _run(run: Run, stage: str, tasks: Sequence[tuple[_Suspects, Task[Any]]]) -> None:
    for number, part in run(stage, [Careful(task) for _, task in tasks]):
        store, task = tasks[number]
        store.take(task, part)


@dataclass(frozen=True, slots=True, eq=False)
class _Portion:
    """What of one store is compared at once; `sums` are those of its windows, `None` if it is all."""

    store: _Suspects
    count: int
    sums: Sums | None = None

    def tasks(self) -> Iterator[Task[Any]]:
        return self.store.drills() if self.sums is None else self.store.drills_in(self.sums)


def _rounds(stores: Iterable[_Suspects]) -> Iterator[list[_Portion]]:
    """What fits into memory together, of one store or of several; in the order of ids."""
    some: list[_Portion] = []
    for store in stores:
        for portion in store.portions():
            if some and sum(one.count for one in some) + portion.count > TOGETHER_MAX:
                yield some
                some = []
            some.append(portion)
    if some:
        yield some


class _Suspects:
    """Those of one store."""

    def __init__(self, ground: Ground, gathered: Gathered, facts: StoreFacts) -> None:
        self._ground = ground
        self._gathered = gathered
        self._facts = facts
        self._ledgers = index_sums.suspects(facts)
        self.count = _count(facts, self._ledgers)
        self.comparison = Comparison(facts)
        self._found: dict[type, list[Any]] = {}

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────────

    def drills(self) -> Iterator[Task[Any]]:
        """For every entry and row."""
        if self._ledgers:
            yield from self._logs()
            yield DrillIndex(str(self._ground.index), self._ledgers)

    def _logs(self) -> Iterator[DrillLog]:
        paths = {log.log_id: log.path for log in self._ground.logs}
        for log in self._facts.logs:
            there = self._ledgers & set(np.unique(log.runs["ledger"]).tolist())
            if there and not log.is_leftover:
                end = log.file_size if log.limit is None else min(log.limit, log.file_size)
                yield DrillLog(paths[log.log_id], log.log_id, HEADER_SIZE, end, there, self._ground.ways)

    def narrowing(self) -> Iterator[Task[Any]]:
        """For the sums of windows."""
        yield from map(NarrowLog, self._logs())
        yield NarrowIndex(str(self._ground.index), self._ledgers)

    def drills_in(self, sums: Sums) -> Iterator[Task[Any]]:
        """For the entries and rows in these windows."""
        ledgers, windows = frozenset(sums["ledger"].tolist()), windows_of(sums)
        yield from self._logs_in(sums, ledgers, windows)
        yield DrillIndex(str(self._ground.index), ledgers, windows)

    def _logs_in(self, sums: Sums, ledgers: frozenset[int], windows: Windows) -> Iterator[DrillLog]:
        paths = {log.log_id: log.path for log in self._ground.logs}
        in_logs = sums[sums["end"] > 0]
        for log_id in np.unique(in_logs["file"]).tolist():
            here = in_logs[in_logs["file"] == log_id]
            extent = int(here["begin"].min()), int(here["end"].max())
            yield DrillLog(paths[log_id], log_id, *extent, ledgers, self._ground.ways, windows)

    # ── what they have found ─────────────────────────────────────────────────────────────────────────

    def take(self, task: Task[Any], part: Any) -> None:
        if isinstance(part, Unread):
            self._gathered.lose_index(part)
        else:
            self._found.setdefault(type(task), []).append(part)

    def portions(self) -> Iterator[_Portion]:
        if not self._ledgers:
            return
        if self.count <= TOGETHER_MAX:
            yield _Portion(self, self.count)
            return
        logs, index = (together(self._found.pop(kind, [])) for kind in (NarrowLog, NarrowIndex))
        same, differing = apart(logs, index, self._whole())
        self.comparison.agree(same)
        for sums in portions(differing, TOGETHER_MAX):
            yield _Portion(self, int(sums["count"].sum()), sums)

    def _whole(self) -> set[int]:
        """Ledgers of which something is wrong that both sides may say."""
        assert isinstance(self._facts.index, IndexFacts), "suspects come of an index"
        return {flaw.ledger_id for flaw in self._facts.index.flaws} | log_order.dead(self._facts).keys()

    def compare(self) -> None:
        """What has come of one portion."""
        entries = np.concatenate([no_entries(), *self._found.pop(DrillLog, [])])
        self.comparison.take(Drilled(entries, np.concatenate([no_rows(), *self._found.pop(DrillIndex, [])])))


def _count(facts: StoreFacts, ledgers: frozenset[int]) -> int:
    """The entries and rows of these ledgers."""
    if not ledgers:
        return 0
    assert isinstance(facts.index, IndexFacts), "suspects come of an index"
    runs = [facts.index.runs, *(log.runs for log in facts.logs)]
    wanted = np.array(sorted(ledgers), dtype=np.int64)
    return sum(int(some["count"][np.isin(some["ledger"], wanted)].sum()) for some in runs)

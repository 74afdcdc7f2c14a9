"""The rows of one store in the tables of an audit, as the report and further reads ask for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.audit.model.runs import RUN, no_runs
from recovery.audit.model.scan_results import MAPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.model.runs import Runs

LOG, LEFTOVER, AFTER_END, INDEX, BOOKIE_INDEX, JOURNAL, BEFORE_MARK = (
    "log",
    "leftover",
    "after",
    "index",
    "bookie",
    "journal",
    "before",
)
"""The sources of runs: logs, logs that no checkpoint completed, logs after their durable end, the index of a
store of ours, that of a bookie, and a journal from the mark on and before it.
"""

COLUMNS = {
    "file": "file",
    "ledger": "ledger",
    "step": "step",
    "first": "first_entry",
    "last": "last_entry",
    "count": "entries",
    "size": "size",
    "places": "places",
    "digests": "digests",
    "bad": "bad",
}
"""The columns of the tables by the fields of runs."""


def columns_of(runs: Runs) -> dict[str, np.ndarray[Any, Any]]:
    """Return the runs as columns of signed numbers with the same bits, because SQL has no unsigned ones."""
    return {column: np.ascontiguousarray(runs[name]).view(np.int64) for name, column in COLUMNS.items()}


_SUMS = """
    SELECT source, file, ledger, min(first_entry), sum(entries), sum(size), sum(bad)
    FROM store_runs WHERE store = {} GROUP BY source, file, ledger ORDER BY source, file, ledger
"""


def put_runs(sql: SqlEngine, runs: Mapping[int, Runs]) -> None:
    """Give an engine the table `scanned` of the runs of all parts, by the numbers of the parts."""
    lengths = [len(some) for some in runs.values()]
    part = np.repeat(np.array(list(runs), dtype=np.int64), lengths)
    sql.put_columns("scanned", {"part": part, **columns_of(np.concatenate([no_runs(), *runs.values()]))})


def put_mapped(sql: SqlEngine, mapped: Mapping[int, np.ndarray[Any, Any]]) -> None:
    """Give an engine the table `mapped` of the pairs of all ledgers maps, by the numbers of their parts."""
    part = np.repeat(np.array(list(mapped), dtype=np.int64), [len(some) for some in mapped.values()])
    rows = np.concatenate([np.empty(0, MAPPED), *mapped.values()])
    columns = {name: np.ascontiguousarray(rows[name]) for name in MAPPED.names or ()}
    sql.put_columns("mapped", {"part": part, **columns})


def put_parts(sql: SqlEngine, parts: Iterable[tuple[int, int, str]]) -> None:
    """Give an engine the table `parts`: the number of each part that counts, its store, and its source."""
    rows = list(parts)
    columns: dict[str, np.ndarray[Any, Any]] = {
        "part": np.array([part for part, _, _ in rows], dtype=np.int64),
        "store": np.array([store for _, store, _ in rows], dtype=np.int64),
    }
    columns["source"] = np.array([source for _, _, source in rows], dtype=object)
    sql.put_columns("parts", columns)


class LedgerSums(NamedTuple):
    """Sums of one ledger in a file, or in the part of an index that points into a log."""

    source: str
    file: int
    ledger: int
    first_entry: int
    entries: int
    size: int
    bad: int


@dataclass(frozen=True, slots=True, eq=False)
class StoreTables:
    """The rows of one store in the tables of an audit."""

    sql: SqlEngine
    store: int
    """Its number in the tables."""
    _sums: list[LedgerSums] = field(default_factory=list, init=False)

    def runs(self, sources: Iterable[str], ledgers: Iterable[int] | None = None) -> Runs:
        """Return runs in the order of files, ledgers and ids; of all ledgers or of some."""
        words = ", ".join(f"'{source}'" for source in sources)
        chosen = f"store = {self.store} AND source IN ({words})"
        if ledgers is not None:
            self.sql.put_columns("chosen_ledgers", {"ledger": np.array(sorted(ledgers), dtype=np.int64)})
            chosen += " AND ledger IN (SELECT ledger FROM chosen_ledgers)"
        order = "file, ledger, step, first_entry % step, first_entry, last_entry"
        columns = ", ".join(COLUMNS.values())
        query = f"SELECT {columns} FROM store_runs WHERE {chosen} ORDER BY {order}"  # noqa: S608 - our own names
        found = self.sql.arrays(query)
        runs = np.empty(len(found["file"]), dtype=RUN)
        for name, column in COLUMNS.items():
            runs[name] = found[column].view(RUN[name])
        return runs

    def sums(self, *sources: str) -> list[LedgerSums]:
        """Return the sums of each file and ledger, in this order."""
        if not self._sums:
            rows = self.sql.rows(_SUMS.format(self.store))
            self._sums.extend(LedgerSums(source, *map(int, numbers)) for source, *numbers in rows)
        return [one for one in self._sums if one.source in sources]

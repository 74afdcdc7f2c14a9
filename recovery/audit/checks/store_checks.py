"""The checks of stores that are SQL: logs against the index, ledgers maps, gaps, entries that only a journal
or an index has, entries in several logs. The queries are in `checks/sql/`. This module gives them tables and
states their order; `ledger_rules`, `log_rules` and `bookie_index_rules` make findings of the answers.

    scanned, parts ─▶ store_runs ─┬▶ places ─▶ mismatched ─▶ log_sizes
    ledger_facts, logs ───────────┘      └────▶ id_runs ─▶ id_turns ─▶ id_islands ─▶ gaps, missing_ids
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.audit.checks import log_order
from recovery.audit.checks.texts import text
from recovery.audit.model.store_facts import BookieIndexFacts, DirectoryOwner, IndexFacts
from recovery.audit.model.windows import SUM, no_sums
from storage.entrylog.format import LogHeader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.model.scan_results import JournalPart
    from recovery.audit.model.store_facts import LogFacts, StoreFacts
    from recovery.audit.model.windows import Sums

GAPPED_LEDGERS_MAX = 20
"""The number of ledgers with gaps that are named one by one in a bookie's directory."""

_BITS = 62
_DIFFERING_COLUMNS = (
    ("ledger", "ledger"),
    ("number", "window"),
    ("file", "file"),
    ("entries", "count"),
    ("begin_offset", "begin"),
    ("end_offset", "end"),
)
_WINDOW_COLUMNS = (*_DIFFERING_COLUMNS, ("size", "size"), ("places", "places"))


class LedgerGaps(NamedTuple):
    """The gaps of one ledger in what a store serves."""

    ledger: int
    step: int
    gaps: int
    first_missing: int
    last_missing: int
    missing: int
    first_entry: int
    last_entry: int


class LostIds(NamedTuple):
    """Ids of a ledger that a journal or an index has, and that are missing where they should be."""

    file: int
    ledger: int
    step: int
    first_entry: int
    last_entry: int

    @property
    def entries(self) -> int:
        return (self.last_entry - self.first_entry) // self.step + 1


class SharedIds(NamedTuple):
    """Entries of a log that other logs have too."""

    file: int
    ledger: int
    first_entry: int
    last_entry: int
    entries: int


class OtherPlaces(NamedTuple):
    """Rows of a bookie's index that lead into a log with other entries."""

    file: int
    ledger: int
    logged: int
    indexed: int
    first_entry: int
    last_entry: int


class MapDifference(NamedTuple):
    """The bytes of a ledger in a log, as the log's ledgers map says and as they were counted."""

    file: int
    ledger: int
    described: int
    counted: int
    record: int
    """The offset of the record that describes the ledger, or -1 if the map has not got it."""


class WindowAnswer(NamedTuple):
    """The windows of one store."""

    same: dict[int, int]
    """For each log the bytes of the windows about which logs and index agree."""
    differing: Sums
    """The other windows, with the entries of both sides."""


@dataclass(slots=True, eq=False)
class StoreAnswers:
    """The answers of the queries about one store."""

    gaps: list[LedgerGaps] = field(default_factory=list)
    gapped_ledgers: int = 0
    """The number of ledgers with gaps, also if they are too many to be in `gaps`."""
    gap_entries: int = 0
    only_in_journal: list[LostIds] = field(default_factory=list)
    not_in_log: list[LostIds] = field(default_factory=list)
    other_places: list[OtherPlaces] = field(default_factory=list)
    shared: list[SharedIds] = field(default_factory=list)
    unverified: dict[int, int] = field(default_factory=dict)
    """For each ledger the number of unverified entries that the store serves."""
    back: list[int] = field(default_factory=list)
    """Deleted ledgers with entries in a log that another program has written since."""
    mapped_ledgers: dict[int, int] = field(default_factory=dict)
    """For each log the number of ledgers in its ledgers map."""
    map_differences: list[MapDifference] = field(default_factory=list)
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each log of an indexed store the size of its records, and of those that are known to be live."""


class StoreChecks:
    """The checks of the stores of one audit. The number of a store is its position in `stores`.

    The engine has the tables `scanned` of all runs, `mapped` and `parts`.
    """

    def __init__(self, sql: SqlEngine, stores: Sequence[StoreFacts]) -> None:
        self.sql = sql
        self._stores = stores
        for name, columns, rows in _TABLES:
            sql.put_columns(name, _columns(columns, (row for one in enumerate(stores) for row in rows(*one))))
        sql.define("store_runs", text("store_runs"))
        sql.define("places", text("places"))
        # A query costs some milliseconds, so that those without a subject are left out.
        self._is_indexed = any(isinstance(one.index, IndexFacts) for one in stores)
        self._sizes: list[dict[int, tuple[int, int]]] = [{} for _ in stores]
        self._mismatched: list[dict[int, int]] = [{} for _ in stores]
        if self._is_indexed:
            sql.define("mismatched", text("mismatched"))
            for store, ledger, entries in sql.rows("SELECT * FROM mismatched"):
                self._mismatched[store][ledger] = entries
            for store, file, size, live in sql.rows(text("log_sizes")):
                self._sizes[store][file] = size, live

    # ── logs against the index ───────────────────────────────────────────────────────────────────────

    def mismatched(self) -> list[dict[int, int]]:
        """Return for each store the ledgers that are compared entry by entry, with their entries."""
        return self._mismatched

    def mismatched_logs(self) -> list[dict[int, frozenset[int]]]:
        """Return for each store the logs with entries of these ledgers, and which they have."""
        found: list[dict[int, frozenset[int]]] = [{} for _ in self._stores]
        rows = self.sql.rows(text("mismatched_logs")) if any(self._mismatched) else []
        for (store, file), some in groupby(rows, lambda row: row[:2]):
            found[store][file] = frozenset(ledger for _, _, ledger in some)
        return found

    def log_sizes(self) -> list[dict[int, tuple[int, int]]]:
        """Return for each store by log the size of its records, and of those that are known to be live."""
        return self._sizes

    def compare_windows(self, sums: Iterable[tuple[int, bool, Sums]]) -> list[WindowAnswer]:
        """Compare sums by windows of ids, each given with its store and whether it is that of the index."""
        parts = [(store, is_index, some) for store, is_index, some in sums]
        lengths = [len(some) for _, _, some in parts]
        rows = np.concatenate([no_sums(), *(some for _, _, some in parts)])
        columns = {name: np.ascontiguousarray(rows[of]).view(np.int64) for name, of in _WINDOW_COLUMNS}
        columns["store"] = np.repeat(np.array([store for store, _, _ in parts], dtype=np.int64), lengths)
        columns["is_index"] = np.repeat(np.array([one for _, one, _ in parts], dtype=bool), lengths)
        self.sql.put_columns("window_sums", columns)
        for name in ("windows", "differing"):
            self.sql.define(name, text(name))
        found = [WindowAnswer({}, no_sums()) for _ in self._stores]
        for store, file, size in self.sql.rows(text("same_windows")):
            found[store].same[file] = size
        differing = self.sql.arrays(text("differing_windows"))
        for store in np.unique(differing["store"]).tolist():
            mine = differing["store"] == store
            some = np.zeros(int(mine.sum()), dtype=SUM)
            for name, of in _DIFFERING_COLUMNS:
                some[of] = differing[name][mine]
            found[store] = found[store]._replace(differing=some)
        return found

    def void_rows(self) -> list[tuple[int, int]]:
        """Return stores with the number of rows of their index that are about ledgers deleted since."""
        return [(store, entries) for store, entries in self.sql.rows(text("void_rows"))]

    # ── everything else ──────────────────────────────────────────────────────────────────────────────

    def answers(self) -> list[StoreAnswers]:
        """Return the answers about each store."""
        found = [StoreAnswers(sizes=sizes) for sizes in self._sizes]
        bookies = [one for one in self._stores if one.owner is DirectoryOwner.BOOKIE]
        if any(_map_offset(log) for one in self._stores for log in one.logs):
            self._compare_maps(found)
        if any(one.rows for one in bookies):
            for store, ledger in self.sql.rows(text("deleted_and_back")):
                found[store].back.append(ledger)
        if any(isinstance(one.bookie_index, BookieIndexFacts) for one in bookies):
            for store, *place in self.sql.rows(text("lost_places")):
                found[store].other_places.append(OtherPlaces(*place))
        self._compare_ids(found)
        return found

    def _compare_maps(self, found: Sequence[StoreAnswers]) -> None:
        self.sql.define("described", text("described"))
        for store, file, ledgers in self.sql.rows(text("mapped_ledgers")):
            found[store].mapped_ledgers[file] = ledgers
        for store, *difference in self.sql.rows(text("ledgers_maps")):
            found[store].map_differences.append(MapDifference(*difference))

    def _compare_ids(self, found: Sequence[StoreAnswers]) -> None:
        self.sql.define("id_runs", text("id_runs"))
        rows = self.sql.rows("SELECT DISTINCT comparison, step FROM id_runs")
        comparisons = {comparison for comparison, _ in rows}
        is_verified = not any(_unverified(one) for one in self._stores)
        if not rows and is_verified:
            return
        self._divide_ids(sorted({step for _, step in rows}))
        if "served" in comparisons:
            self._take_gaps(found)
        if comparisons & {"journal", "places"}:
            for comparison, store, *ids in self.sql.rows(text("missing_ids")):
                one = found[store]
                (one.only_in_journal if comparison == "journal" else one.not_in_log).append(LostIds(*ids))
        if "logs" in comparisons:
            for store, *shared in self.sql.rows(text("shared_ids")):
                found[store].shared.append(SharedIds(*map(int, shared)))
        if not is_verified:
            for store, ledger, entries in self.sql.rows(text("served_entries")):
                found[store].unverified[ledger] = int(entries)

    def _divide_ids(self, steps: Sequence[int]) -> None:
        """Define the intervals of all ids that are compared."""
        sql = self.sql
        # More steps than bits share bits. Then multiples are common, and not the least.
        bits = {step: 1 << number % _BITS for number, step in enumerate(steps)}
        sql.put_columns("step_bits", _columns(("step", "bit"), bits.items()))
        sql.define("id_steps", text("id_steps"))
        masks = [mask for (mask,) in sql.rows("SELECT DISTINCT steps FROM id_steps")]
        multiples = {mask: lcm(*(step for step, bit in bits.items() if bit & mask)) for mask in masks}
        sql.put_columns("multiples", _columns(("steps", "step"), multiples.items()))
        sql.put_columns("ordinals", {"number": np.arange(max(multiples.values(), default=0))})
        for name in ("id_turns", "id_islands"):
            sql.define(name, text(name))

    def _take_gaps(self, found: Sequence[StoreAnswers]) -> None:
        self.sql.define("gaps", text("gaps"))
        for store, ledgers, entries in self.sql.rows(text("gap_totals")):
            found[store].gapped_ledgers, found[store].gap_entries = ledgers, int(entries)
        naming = (
            (number,)
            for number, facts in enumerate(self._stores)
            if facts.owner is DirectoryOwner.OURS or found[number].gapped_ledgers <= GAPPED_LEDGERS_MAX
        )
        self.sql.put_columns("naming_stores", _columns(("store",), naming))
        for store, *numbers in self.sql.rows(text("named_gaps")):
            found[store].gaps.append(LedgerGaps(*map(int, numbers)))


# ── small tables ────────────────────────────────────────────────────────────────────────────────────────


def _columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return rows of numbers and truth values as columns. A column of truth values begins with `is_` or
    `has_`.
    """
    table = list(zip(*rows, strict=True)) or [()] * len(names)
    return {
        name: np.array(values, dtype=bool if name.startswith(("is_", "has_")) else np.int64)
        for name, values in zip(names, table, strict=True)
    }


def _store_row(number: int, facts: StoreFacts) -> Iterator[tuple[int, ...]]:
    is_indexed, is_bookie = isinstance(facts.index, IndexFacts), facts.owner is DirectoryOwner.BOOKIE
    yield number, is_indexed, is_bookie, isinstance(facts.bookie_index, BookieIndexFacts)


def _log_rows(number: int, facts: StoreFacts) -> Iterator[tuple[int, ...]]:
    age = log_order.ranks(facts)
    for log in facts.logs:
        is_foreign = isinstance(log.header, LogHeader) and log.header.origin is None
        yield number, log.log_id, age[log.log_id], is_foreign, _map_offset(log)


def _map_offset(log: LogFacts) -> int:
    """Return where the ledgers map of a log begins, or 0 if it has none."""
    return log.header.map_offset if isinstance(log.header, LogHeader) else 0


def _ledger_rows(number: int, facts: StoreFacts) -> Iterator[tuple[int, ...]]:
    """Yield the ledgers of which something is known that no run shows."""
    deleted = log_order.delete_positions(facts)
    tombstones = {one for one, row in facts.rows.items() if row.tombstone is not None}
    flawed = {flaw.ledger_id for flaw in facts.index.flaws} if isinstance(facts.index, IndexFacts) else set()
    unverified = _unverified(facts)
    known = {*deleted, *tombstones, *flawed, *unverified, *facts.void_in_index, *facts.truncated_before}
    for ledger in sorted(known):
        rank = deleted[ledger][0] if ledger in deleted else -1
        yield (
            number,
            ledger,
            ledger in tombstones,
            rank,
            ledger in facts.void_in_index,
            facts.truncated_before.get(ledger, 0),
            ledger in flawed,
            unverified[ledger],
        )


def _unverified(facts: StoreFacts) -> Counter[int]:
    """Return for each ledger the number of entries that could not be verified, copies included."""
    found: Counter[int] = Counter()
    parts: list[LogFacts | JournalPart] = [*facts.logs, *facts.journals]
    for part in parts:
        found.update(part.unverified)
    return found


_TABLES = (
    ("audited_stores", ("store", "is_indexed", "is_bookie", "has_bookie_index"), _store_row),
    ("logs", ("store", "file", "age", "is_foreign", "map_offset"), _log_rows),
    (
        "ledger_facts",
        (
            "store",
            "ledger",
            "is_deleted",
            "deleted_rank",
            "is_void",
            "truncated_before",
            "is_flawed",
            "unverified",
        ),
        _ledger_rows,
    ),
)

"""Compare logs and index by their runs: where they agree, and which bytes are live.

For each ledger and log both sides have a count and a fingerprint. If these are equal the entries are the
same, however many there are. The other ledgers are mismatched and compared entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.checks import log_order
from recovery.audit.model.runs import no_runs
from recovery.audit.model.store_facts import IndexFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.model.runs import Numbers, Runs
    from recovery.audit.model.store_facts import StoreFacts

PAIR = np.dtype([("ledger", "<i8"), ("file", "<i8")])


@dataclass(frozen=True, slots=True, eq=False)
class _GroupSums:
    """For each ledger and log the number of entries, their fingerprint, and their bytes."""

    keys: Any
    counts: Numbers
    places: Any
    sizes: Numbers


def mismatched_ledgers(facts: StoreFacts) -> frozenset[int]:
    """Return the ledgers about which logs and index disagree."""
    if not isinstance(facts.index, IndexFacts):
        return frozenset()
    logs, index = _sums(_log_runs(facts)), _sums(facts.index.runs)
    agree = _agreeing(logs, index)
    differing = set(logs.keys["ledger"][~agree].tolist())
    unmatched = ~np.isin(index.keys, logs.keys[agree])
    differing |= set(index.keys["ledger"][unmatched].tolist())
    differing |= {flaw.ledger_id for flaw in facts.index.flaws}
    # Logs and index may agree about a deleted ledger, but the index must not contain it.
    differing |= log_order.delete_positions(facts).keys() & set(index.keys["ledger"].tolist())
    # Nor truncated entries of a ledger.
    differing |= _with_truncated_entries(facts.index.runs, facts.truncated_before)
    return frozenset(differing - _only_deleted(facts, differing))


def _with_truncated_entries(index: Runs, truncated_before: Mapping[int, int]) -> set[int]:
    """Return the ledgers of which the index has entries that were truncated."""
    some = index[np.isin(index["ledger"], list(truncated_before))]
    pairs = zip(some["ledger"].tolist(), some["first"].tolist(), strict=True)
    return {ledger_id for ledger_id, first in pairs if first < truncated_before[ledger_id]}


def _log_runs(facts: StoreFacts) -> Runs:
    runs: Runs = np.concatenate([no_runs(), *(log.runs for log in facts.logs if not log.is_leftover)])
    return runs


def _sums(runs: Runs) -> _GroupSums:
    order = np.lexsort((runs["file"], runs["ledger"]))
    runs = runs[order]
    keys = np.empty(len(runs), dtype=PAIR)
    keys["ledger"], keys["file"] = runs["ledger"], runs["file"]
    if not len(runs):
        nothing = np.empty(0, dtype=np.int64)
        return _GroupSums(keys, nothing, nothing.astype(np.uint64), nothing)
    changes = (keys["ledger"][1:] != keys["ledger"][:-1]) | (keys["file"][1:] != keys["file"][:-1])
    begins = np.flatnonzero(np.concatenate([[True], changes]))
    return _GroupSums(
        keys[begins],
        np.add.reduceat(runs["count"], begins),
        np.bitwise_xor.reduceat(runs["places"], begins),
        np.add.reduceat(runs["size"], begins),
    )


def _agreeing(logs: _GroupSums, index: _GroupSums) -> Any:
    """Return which of the logs' groups are equal in the index."""
    if not len(index.keys) or not len(logs.keys):
        return np.zeros(len(logs.keys), dtype=bool)
    at = np.searchsorted(index.keys, logs.keys)
    at = np.minimum(at, len(index.keys) - 1)
    same = index.keys[at] == logs.keys
    return same & (index.counts[at] == logs.counts) & (index.places[at] == logs.places)


def _only_deleted(facts: StoreFacts, ledgers: set[int]) -> set[int]:
    """Return the deleted ledgers among these that have nothing in the index, nor in logs after their
    deletion.
    """
    assert isinstance(facts.index, IndexFacts)
    dead, rank_of = log_order.delete_positions(facts), log_order.ranks(facts)
    candidates = (ledgers & dead.keys()) - set(np.unique(facts.index.runs["ledger"]).tolist())
    for log in facts.logs:
        there = candidates & set(np.unique(log.runs["ledger"]).tolist())
        after = (rank_of[log.log_id] + 1, 0)
        candidates -= {ledger for ledger in there if not log.is_leftover and dead[ledger] < after}
    return candidates


def live_sizes(facts: StoreFacts) -> dict[int, int] | None:
    """Return for each log the size of the records that the index points at, as far as runs show it. The
    answer is `None` without an index.
    """
    if not isinstance(facts.index, IndexFacts):
        return None
    logs, agree = _logs_and_agreeing(facts)
    live = {log.log_id: 0 for log in facts.logs}
    for log_id, size in zip(logs.keys["file"][agree].tolist(), logs.sizes[agree].tolist(), strict=True):
        live[log_id] += size
    return live


def agreed_pairs(facts: StoreFacts) -> Any:
    """Return the pairs of ledger and log whose live bytes the runs have shown."""
    logs, agree = _logs_and_agreeing(facts)
    return logs.keys[agree]


def _logs_and_agreeing(facts: StoreFacts) -> tuple[_GroupSums, Any]:
    assert isinstance(facts.index, IndexFacts), "there is an index"
    logs = _sums(_log_runs(facts))
    return logs, _agreeing(logs, _sums(facts.index.runs))

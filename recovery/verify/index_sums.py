"""Logs and index by their runs: where both say the same, and what lives.

For each ledger and log both sides have a number and a fingerprint, and where those agree nothing more is
asked, however many entries there are. The ledgers for which they do not are suspects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.verify import log_order
from recovery.verify.facts import IndexFacts
from recovery.verify.runs import no_runs

if TYPE_CHECKING:
    from recovery.verify.facts import StoreFacts
    from recovery.verify.runs import Numbers, Runs

PAIR = np.dtype([("ledger", "<i8"), ("file", "<i8")])


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """For each ledger and log the number of entries, their fingerprint, and their bytes."""

    keys: Any
    counts: Numbers
    places: Any
    sizes: Numbers


def suspects(facts: StoreFacts) -> frozenset[int]:
    """The ledgers of which logs and index do not say the same."""
    if not isinstance(facts.index, IndexFacts):
        return frozenset()
    logs, index = _sums(_log_runs(facts)), _sums(facts.index.runs)
    agree = _agreeing(logs, index)
    differing = set(logs.keys["ledger"][~agree].tolist())
    unmatched = ~np.isin(index.keys, logs.keys[agree])
    differing |= set(index.keys["ledger"][unmatched].tolist())
    differing |= {flaw.ledger_id for flaw in facts.index.flaws}
    # What a deleted ledger has left both sides may have, and the index must not.
    differing |= log_order.dead(facts).keys() & set(index.keys["ledger"].tolist())
    return frozenset(differing - _wholly_dead(facts, differing))


def _log_runs(facts: StoreFacts) -> Runs:
    runs: Runs = np.concatenate([no_runs(), *(log.runs for log in facts.logs if not log.is_leftover)])
    return runs


def _sums(runs: Runs) -> _Sums:
    order = np.lexsort((runs["file"], runs["ledger"]))
    runs = runs[order]
    keys = np.empty(len(runs), dtype=PAIR)
    keys["ledger"], keys["file"] = runs["ledger"], runs["file"]
    if not len(runs):
        nothing = np.empty(0, dtype=np.int64)
        return _Sums(keys, nothing, nothing.astype(np.uint64), nothing)
    changes = (keys["ledger"][1:] != keys["ledger"][:-1]) | (keys["file"][1:] != keys["file"][:-1])
    begins = np.flatnonzero(np.concatenate([[True], changes]))
    return _Sums(
        keys[begins],
        np.add.reduceat(runs["count"], begins),
        np.bitwise_xor.reduceat(runs["places"], begins),
        np.add.reduceat(runs["size"], begins),
    )


def _agreeing(logs: _Sums, index: _Sums) -> Any:
    """Which of the logs' groups the index has just so."""
    if not len(index.keys) or not len(logs.keys):
        return np.zeros(len(logs.keys), dtype=bool)
    at = np.searchsorted(index.keys, logs.keys)
    at = np.minimum(at, len(index.keys) - 1)
    same = index.keys[at] == logs.keys
    return same & (index.counts[at] == logs.counts) & (index.places[at] == logs.places)


def _wholly_dead(facts: StoreFacts, ledgers: set[int]) -> set[int]:
    """Of these the deleted ones of which nothing stands in the index, nor behind their end in the logs."""
    assert isinstance(facts.index, IndexFacts)
    dead, rank_of = log_order.dead(facts), log_order.ranks(facts)
    candidates = (ledgers & dead.keys()) - set(np.unique(facts.index.runs["ledger"]).tolist())
    for log in facts.logs:
        there = candidates & set(np.unique(log.runs["ledger"]).tolist())
        behind = (rank_of[log.log_id] + 1, 0)
        candidates -= {ledger for ledger in there if not log.is_leftover and dead[ledger] < behind}
    return candidates


def live_sizes(facts: StoreFacts) -> dict[int, int] | None:
    """For each log the bytes of the records that the index points at, as far as runs alone tell it; `None`
    where there is no index."""
    if not isinstance(facts.index, IndexFacts):
        return None
    logs, agree = _logs_and_agreeing(facts)
    live = {log.log_id: 0 for log in facts.logs}
    for log_id, size in zip(logs.keys["file"][agree].tolist(), logs.sizes[agree].tolist(), strict=True):
        live[log_id] += size
    return live


def agreed_pairs(facts: StoreFacts) -> Any:
    """The ledgers and logs of which runs have told it."""
    logs, agree = _logs_and_agreeing(facts)
    return logs.keys[agree]


def _logs_and_agreeing(facts: StoreFacts) -> tuple[_Sums, Any]:
    assert isinstance(facts.index, IndexFacts), "there is an index"
    logs = _sums(_log_runs(facts))
    return logs, _agreeing(logs, _sums(facts.index.runs))

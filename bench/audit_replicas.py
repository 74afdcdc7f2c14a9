"""Measures the comparison of replicas by runs: 10^9 entries with two copies, a planted hole and a difference.

The runs are those of striped ledgers on three stores, two copies of each entry, with different boundaries on
each store, as scans of large logs return them. Prints the seconds of both checks, and the findings.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.checks.replica_copies import ComparedStore, ReplicaChecks
from recovery.audit.engines.sql import DuckSql
from recovery.audit.model import tables
from recovery.audit.model.ensemble import LedgerEnsembles, Segment
from recovery.audit.model.fingerprint import fingerprints
from recovery.audit.model.runs import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.audit.model.runs import Numbers, Runs

STORES = ("bk1", "bk2", "bk3")
SIZE, QUORUM = 3, 2
SECONDS_MAX = 6.0


def ensembles(ledgers: int, entries: int) -> list[LedgerEnsembles]:
    segments = (Segment(0, STORES),)
    return [LedgerEnsembles(number, QUORUM, QUORUM, segments, entries - 1) for number in range(ledgers)]


def runs(ledger: int, residue: int, turns: int, cuts: Numbers) -> Runs:
    """Return the runs of one residue of a ledger with these boundaries.

    The fingerprints of neighbouring runs add up to the same sum for all boundaries.
    """
    edges = np.concatenate([[0], np.sort(cuts), [turns]])
    made = np.zeros(len(edges) - 1, dtype=RUN)
    made["ledger"], made["step"] = ledger, SIZE
    made["first"], made["last"] = edges[:-1] * SIZE + residue, (edges[1:] - 1) * SIZE + residue
    made["count"] = np.diff(edges)
    at_edges = fingerprints(np.full(len(edges), ledger), edges, np.full(len(edges), residue))
    made["digests"] = at_edges[1:] ^ at_edges[:-1]
    return made


def store(position: int, ledgers: int, turns: int, pieces: int) -> Iterator[Runs]:
    random = np.random.default_rng(position)
    for ledger in range(ledgers):
        for number in range(QUORUM):
            cuts = random.choice(np.arange(1, turns), pieces - 1, replace=False)
            yield runs(ledger, (position - number) % SIZE, turns, cuts)


def held(ledgers: int, turns: int, pieces: int) -> list[Runs]:
    """Return the runs of each store, in no order."""
    rows = [np.concatenate(list(store(position, ledgers, turns, pieces))) for position in range(SIZE)]
    return [some[np.random.default_rng(9).permutation(len(some))] for some in rows]


def plant(stores: Sequence[Runs]) -> None:
    """Shorten a run of one store by 200 entries, and change the fingerprint of a run of another store."""
    row = int(np.flatnonzero((stores[1]["ledger"] == 7) & (stores[1]["count"] > 500))[0])
    stores[1]["last"][row] -= 200 * SIZE
    stores[1]["count"][row] -= 200
    stores[2]["digests"][int(np.flatnonzero(stores[2]["ledger"] == 3)[0])] ^= np.uint64(1)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ledgers", type=int, default=200)
    options.add_argument("--turns", type=int, default=1_666_667, help="entries of each residue of a ledger")
    options.add_argument("--pieces", type=int, default=1000, help="runs of each residue on each store")
    given = options.parse_args()
    rows = held(given.ledgers, given.turns, given.pieces)
    plant(rows)
    batches = [tables.runs_batch(name, "log", some) for name, some in zip(STORES, rows, strict=True)]
    stores = [ComparedStore(name, name, is_indexed=False) for name in STORES]
    with DuckSql() as sql:
        start = time.perf_counter()
        sql.put("runs", tables.RUNS.joined(batches))
        checks = ReplicaChecks(sql, ensembles(given.ledgers, given.turns * SIZE), stores)
        findings = list(checks.findings())
        checks.coverage(), checks.stores(), checks.unsettled_ledgers()
        counted = time.perf_counter()
        doubted = sorted(checks.suspect_ledgers())
        end = time.perf_counter()
    print(f"{sum(map(len, rows)):,} runs stand for {given.ledgers * given.turns * SIZE:,} entries x {QUORUM}")
    print(f"copies counted in {counted - start:.2f} s, compared in {end - counted:.2f} s")
    for finding in findings:
        print(f"{finding.kind} {finding.store} ledger {finding.ledger_id}: {finding.first_entry} to", end=" ")
        print(f"{finding.last_entry}, {finding.count} entries; {finding.detail}")
    print(f"to be read entry by entry: ledgers {', '.join(map(str, doubted))}")
    is_found = [one.count for one in findings] == [200] and doubted == [3, 7]
    print("found what was planted" if is_found else "NOT found what was planted")
    return 0 if is_found and end - start < SECONDS_MAX else 1


if __name__ == "__main__":
    raise SystemExit(main())

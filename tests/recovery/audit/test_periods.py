"""Steps that are found in the ids of runs."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from recovery.audit.model.runs import RUN, merged
from recovery.audit.scan.chunk_columns import ChunkColumns
from recovery.audit.scan.chunk_runs import RunMaker
from recovery.audit.scan.periods import LedgerSteps, periods

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.audit.model.runs import Runs


def made(ids: Sequence[tuple[int, int]], chunk: int = 2000) -> Runs:
    """Return the runs that a scan makes of entries (ledger, entry) in this order."""
    maker, columns = RunMaker(3, {}), ChunkColumns()
    for number, (ledger, entry) in enumerate(ids):
        if columns.count == chunk:
            maker.add(columns)
            columns.clear()
        columns.append(100 * number, 60, (ledger, entry, entry - 1, 0), hash((ledger, entry)) & 0xFFFF_FFFF)
    maker.add(columns)
    return maker.runs()


def striped(ledgers: Iterable[int], size: int, quorum: int, count: int) -> list[tuple[int, int]]:
    """Return the ids that the second of `size` stores holds, the ledgers side by side."""
    return [(ledger, entry) for entry in range(count) for ledger in ledgers if (1 - entry) % size < quorum]


@pytest.mark.parametrize(("size", "quorum"), [(2, 1), (3, 1), (3, 2), (5, 2), (5, 3), (7, 4)])
def test_a_striped_store_has_a_run_for_each_residue(size: int, quorum: int) -> None:
    runs = made(striped(range(5), size, quorum, 3000))
    assert set(runs["step"].tolist()) == {size}
    assert len(runs) == 5 * quorum
    assert int(runs["count"].sum()) == len(striped(range(5), size, quorum, 3000))


def test_a_ledger_with_few_entries_in_each_chunk_is_seen_over_several() -> None:
    ids = striped(range(900), 3, 2, 120)
    runs = made(ids, chunk=2700)
    assert len(runs) < len(ids) / 6


def test_ledgers_without_gaps_have_one_run() -> None:
    dice = Random(1)
    ids = [(ledger, entry) for entry in range(1000) for ledger in range(7)]
    some = [ids[at] for at in sorted(range(len(ids)), key=lambda at: at + dice.randrange(40))]
    assert made(ids)["step"].tolist() == [1] * 7
    assert set(made(some)["step"].tolist()) == {1}


def test_ids_without_a_period_have_no_step() -> None:
    dice = Random(2)
    runs = made([(1, entry) for entry in sorted(dice.sample(range(10_000), 2000))])
    assert set(runs["step"].tolist()) == {1}


def test_steps_change_neither_counts_nor_fingerprints() -> None:
    ids = striped(range(3), 3, 2, 2000)
    both = made(ids), made(ids, chunk=30)  # in chunks so small that no period is seen
    assert [set(runs["step"].tolist()) for runs in both] == [{3}, {1}]
    for column in ("places", "digests"):
        sums = [np.bitwise_xor.reduce(runs[column]) for runs in both]
        assert sums[0] == sums[1]
    assert both[0]["size"].sum() == both[1]["size"].sum()


def test_a_declared_step_stays() -> None:
    steps = LedgerSteps({7: 6})
    rows = np.zeros(100, dtype=RUN)
    rows["ledger"], rows["step"], rows["count"], rows["first"] = 7, 1, 1, np.arange(0, 300, 3)
    rows["last"] = rows["first"]
    assert periods(merged([rows])) == {7: 3}
    assert not steps.learn(rows)
    assert steps.of(np.array([7, 8])).tolist() == [6, 1]  # type: ignore[union-attr]

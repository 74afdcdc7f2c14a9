"""Suspects that are too many for memory are compared in portions, and what is told of them is the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import audited_stores
import pytest

from recovery.audit import suspects
from recovery.audit.asked import Asked
from recovery.audit.drill import DrillLog
from recovery.audit.drill_index import DrillIndex
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planting import plant
from recovery.audit.inspect import inspect
from recovery.audit.ways import Ways
from recovery.verify import windows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from recovery.audit.task import Pace
    from recovery.verify.entries import Entries, Rows
    from recovery.verify.finding import Finding

_FAULTS = [fault for fault in Fault if fault.name.startswith("INDEX_")] + [Fault.LOG_ZEROED, Fault.LOG_CUT]
_STORES = ("closed", "killed", "aligned", "unprotected")
_TOGETHER, _BITS = 12, 2


def _told(root: Path) -> tuple[list[Finding], Mapping[int, int] | None]:
    """What is found, but for what else stands where a row points: only that of a portion is known."""
    (store,) = inspect(Asked((str(root),), ways=Ways(passwords=audited_stores.passwords("closed")))).stores
    found = [replace(one, detail="") if one.kind == "IDX-002" else one for one in store.findings]
    return found, store.live_sizes


def _in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "TOGETHER_MAX", _TOGETHER)
    monkeypatch.setattr(windows, "_BITS", _BITS)


@pytest.mark.parametrize("fault", _FAULTS, ids=lambda fault: fault.name)
def test_in_portions_the_same_is_found(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for number, name in enumerate(_STORES):
        root = tmp_path / str(number)
        if plant(audited_stores.chart(name), fault, number, root) is None:
            continue
        seen += 1
        together = _told(root)
        with monkeypatch.context() as small:
            _in_portions(small)
            assert _told(root) == together
    assert seen


def test_no_portion_is_larger_than_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = audited_stores.chart("killed")
    assert plant(chart, Fault.INDEX_LEDGER_MISSING, 1, tmp_path / "store") is not None
    sizes: list[int] = []
    run_log, run_index = DrillLog.run, DrillIndex.run

    def log(task: DrillLog, pace: Pace) -> Entries:
        found = run_log(task, pace)
        sizes.append(len(found))
        return found

    def index(task: DrillIndex, pace: Pace) -> Rows:
        found = run_index(task, pace)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(DrillLog, "run", log)
    monkeypatch.setattr(DrillIndex, "run", index)
    inspect(Asked((str(tmp_path / "store"),), ways=Ways(passwords=audited_stores.passwords("killed"))))
    together, sizes[:] = max(sizes), []
    _in_portions(monkeypatch)
    inspect(Asked((str(tmp_path / "store"),), ways=Ways(passwords=audited_stores.passwords("killed"))))
    assert max(sizes) <= _TOGETHER < together


def _sums(dice: Random, count: int) -> windows.Sums:
    """Windows of two ledgers, some in two logs."""
    sums = windows.no_sums().copy()
    sums.resize(count, refcheck=False)
    for row in sums:
        row["ledger"], row["window"], row["file"] = dice.randrange(2), dice.randrange(9), dice.randrange(2)
        row["count"] = dice.randrange(1, 9)
    return windows.together([sums])


def test_portions_are_all_windows_in_order_and_none_twice() -> None:
    for seed in range(50):
        dice = Random(seed)
        sums, most = _sums(dice, dice.randrange(40)), dice.randrange(8, 60)
        parts = list(windows.portions(sums, most))
        pairs = [{(row["ledger"], row["window"]) for row in part} for part in parts]
        assert sum(len(part) for part in parts) == len(sums)
        assert all(max(one) < min(other) for one, other in pairwise(pairs))
        for part, held in zip(parts, pairs, strict=True):
            assert part["count"].sum() <= most or len(held) == 1


def test_what_both_sides_have_is_not_looked_at_again() -> None:
    for seed in range(50):
        dice = Random(seed)
        logs = _sums(dice, 30)
        index = logs.copy()
        number = dice.randrange(len(index))
        index["places"][number] ^= 1
        same, differing = windows.apart(logs, index, ())
        window = index["ledger"][number], index["window"][number]
        assert {(row["ledger"], row["window"]) for row in differing} == {window}
        assert len(same) + len(differing) // 2 == len(logs)
        assert not len(windows.apart(logs, logs.copy(), ())[1])
        assert set(windows.apart(logs, logs.copy(), {1})[1]["ledger"].tolist()) <= {1}

"""Mismatched ledgers that do not fit into memory are compared in portions, with the same findings."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import audited_stores
import numpy as np
import pytest
from run_tables import checks_of
from sampling import many

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.model import windows
from recovery.audit.model.scan_results import RowFlaw
from recovery.audit.model.store_facts import DirectoryOwner, IndexFacts, StoreFacts
from recovery.audit.pipeline import mismatches
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.audit.scan.index_entries import ReadIndexRows
from recovery.audit.scan.log_entries import ReadLogEntries
from recovery.audit.self_test.trials import STORE_FAULTS, plant
from storage.checkpoint.mark import NoMark
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from recovery.audit.engines.task import ReadThrottle
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.entry_columns import EntryArray, RowArray

_FAULTS = [
    *(fault for fault in STORE_FAULTS if "index" in fault),
    "entry log: block of zeros",
    "entry log: cut",
]
_STORES = ("closed", "killed", "aligned", "unprotected")
_TOGETHER, _BITS = 12, 2


def _findings(root: Path) -> tuple[list[Finding], Mapping[int, int] | None]:
    """Return the findings without the detail of IDX-002, because a portion does not know every entry."""
    (store,) = run_audit(
        AuditRequest((str(root),), policy=DigestPolicy(passwords=audited_stores.passwords("closed")))
    ).stores
    found = [replace(one, detail="") if one.kind == "IDX-002" else one for one in store.findings]
    return found, store.live_sizes


def _use_small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mismatches, "TOGETHER_MAX", _TOGETHER)
    monkeypatch.setattr(windows, "_BITS", _BITS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", _FAULTS)
def test_findings_in_portions_are_the_same(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    for number, name in enumerate(_STORES):
        root = tmp_path / str(number)
        if plant(audited_stores.content(name), fault, number, root) is None:
            continue
        seen += 1
        together = _findings(root)
        with monkeypatch.context() as small:
            _use_small_portions(small)
            assert _findings(root) == together
    assert seen


def test_no_portion_is_larger_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = audited_stores.content("killed")
    assert plant(content, "index: no places for a ledger", 1, tmp_path / "store") is not None
    sizes: list[int] = []
    run_log, run_index = ReadLogEntries.run, ReadIndexRows.run

    def log(task: ReadLogEntries, throttle: ReadThrottle) -> EntryArray:
        found = run_log(task, throttle)
        sizes.append(len(found))
        return found

    def index(task: ReadIndexRows, throttle: ReadThrottle) -> RowArray:
        found = run_index(task, throttle)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(ReadLogEntries, "run", log)
    monkeypatch.setattr(ReadIndexRows, "run", index)
    run_audit(
        AuditRequest(
            (str(tmp_path / "store"),), policy=DigestPolicy(passwords=audited_stores.passwords("killed"))
        )
    )
    together, sizes[:] = max(sizes), []
    _use_small_portions(monkeypatch)
    run_audit(
        AuditRequest(
            (str(tmp_path / "store"),), policy=DigestPolicy(passwords=audited_stores.passwords("killed"))
        )
    )
    assert max(sizes) <= _TOGETHER < together


def _sums(dice: Random, count: int) -> windows.Sums:
    """Windows of two ledgers, some in two logs."""
    sums = windows.no_sums().copy()
    sums.resize(count, refcheck=False)
    for row in sums:
        row["ledger"], row["window"], row["file"] = dice.randrange(2), dice.randrange(9), dice.randrange(2)
        row["count"] = dice.randrange(1, 9)
    return windows.merged_sums([sums])


def test_portions_contain_every_window_once_in_order() -> None:
    for seed in range(50):
        dice = Random(seed)
        sums, most = _sums(dice, dice.randrange(40)), dice.randrange(8, 60)
        parts = list(windows.portions(sums, most))
        pairs = [{(row["ledger"], row["window"]) for row in part} for part in parts]
        assert sum(len(part) for part in parts) == len(sums)
        assert all(max(one) < min(other) for one, other in pairwise(pairs))
        for part, held in zip(parts, pairs, strict=True):
            assert part["count"].sum() <= most or len(held) == 1


def split_differing(logs: windows.Sums, index: windows.Sums, always: Iterable[int]) -> tuple[Any, Any]:
    """Return the logs' sums of windows that are not compared, and both sides' sums of those that are."""
    flaws = tuple(RowFlaw(one, 0, 0, "") for one in always)
    facts = StoreFacts(
        store="", owner=DirectoryOwner.OURS, mark=NoMark(), index=IndexFacts(IndexState(), flaws=flaws)
    )
    (answer,) = checks_of(facts).compare_windows([(0, False, logs), (0, True, index)])
    compared = {(row["ledger"], row["window"]) for row in answer.differing}
    is_compared = [
        np.array([(row["ledger"], row["window"]) in compared for row in some]) for some in (logs, index)
    ]
    same = logs[~is_compared[0]]
    assert sum(answer.same.values()) == same["size"].sum()
    return same, np.concatenate([logs[is_compared[0]], index[is_compared[1]]])


@pytest.mark.sampled
def test_windows_with_equal_sums_are_not_compared() -> None:
    for seed in range(many(50, 4)):
        dice = Random(seed)
        logs = _sums(dice, 30)
        index = logs.copy()
        number = dice.randrange(len(index))
        index["places"][number] ^= 1
        same, differing = split_differing(logs, index, ())
        window = index["ledger"][number], index["window"][number]
        assert {(row["ledger"], row["window"]) for row in differing} == {window}
        assert len(same) + len(differing) // 2 == len(logs)
        assert not len(split_differing(logs, logs.copy(), ())[1])
        assert set(split_differing(logs, logs.copy(), {1})[1]["ledger"].tolist()) <= {1}

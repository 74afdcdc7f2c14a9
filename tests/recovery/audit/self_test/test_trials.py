"""The self-test counts the faults that an audit finds, and names those that it misses."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import audited_stores
import pytest

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.self_test import trials as module
from recovery.audit.self_test.trials import FAULTS, Trials, self_test

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.findings.finding import Finding


@pytest.mark.slow
def test_every_kind_of_fault_is_planted_once_and_found() -> None:
    tested = self_test(None, Trials(count=len(FAULTS)))
    assert tested.is_passed, tested.misses
    # The stores are ours, and in our journals the content of padding is checked.
    without = "journal: bit in the content of a bookie's padding"
    assert [score.name for score in tested.scores] == [one for one in FAULTS if one != without]
    assert tested.not_planted == (without,)
    assert tested.located == tested.planted == len(FAULTS) - 1
    assert tested.kills > 8


@pytest.mark.slow
def test_a_store_is_copied_and_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(audited_stores.store("tiny"), store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    heard: list[tuple[int, int]] = []
    tested = self_test(store, Trials(count=30, watch=lambda *one: heard.append(one)))
    assert tested.is_passed, tested.misses
    assert tested.what == f"a copy of {store}"
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    assert "entry log: block of another file" in tested.not_planted  # it has one log only
    assert heard == [(number, 30) for number in range(1, 31)]


@pytest.mark.slow
def test_for_a_large_store_a_sample_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "SMALL", 0)
    (tmp_path / "file").write_bytes(b"x")
    tested = self_test(tmp_path, Trials(count=2))
    assert f"{tmp_path} is too large" in tested.what
    assert tested.planted == 2


@pytest.mark.slow
def test_an_audit_without_findings_misses_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trials, "findings", lambda *_: ())
    tested = self_test(None, Trials(count=5))
    assert not tested.is_passed
    assert (tested.planted, tested.located) == (5, 0)
    assert [(score.planted, score.found, score.located, score.missed) for score in tested.scores] == [
        (1, 0, 0, 1)
    ] * 5
    assert all("nothing was found" in miss and "seed" in miss for miss in tested.misses)


@pytest.mark.slow
def test_an_audit_with_unexpected_findings_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Trials.findings

    def loud(self: Trials, root: Path, *sector: Any) -> tuple[Finding, ...]:
        return (*honest(self, root, *sector), KINDS["LGR-003"].at(ledger_id=1))

    monkeypatch.setattr(Trials, "findings", loud)
    tested = self_test(None, Trials(count=1))
    assert not tested.is_passed
    assert [alarm.kind for alarm in tested.false_alarms] == ["LGR-003"] * (2 + tested.kills)
    assert "unexpected: LGR-003" in tested.misses[0]

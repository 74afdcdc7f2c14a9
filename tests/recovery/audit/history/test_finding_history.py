"""The history of findings over several audits, and the baseline of accepted ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import audit_reports
import pytest

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.history.baseline import accept, accepted_findings
from recovery.audit.history.finding_history import (
    NO_HISTORY,
    BadHistory,
    FindingHistory,
    continued,
    decode,
    decode_identities,
    encode,
    identity_of,
)
from recovery.audit.model.store_facts import StoreIdentity
from recovery.audit.pipeline.check_results import checks

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport

ROT = KINDS["ELG-003"].at(store="/a", file="0.log", offset=4096, ledger_id=7, first_entry=3, last_entry=3)
GAP = KINDS["LGR-001"].at(store="/a", ledger_id=7, count=2)
NO_COOKIE = StoreIdentity()
COOKIE = StoreIdentity(bookie_id="bookie:3181", instance_id="f00d")
GONE = KINDS["DIR-005"].at(store="/b", detail="no such directory")


def report(day: int, *found: Finding) -> AuditReport:
    """Return the report of an audit of /a and /b on a day."""
    stores = [
        audit_reports.store(path, found=[one for one in found if one.store == path]) for path in ("/a", "/b")
    ]
    ended = f"2026-01-{day:02}T00:00:00+00:00"
    return replace(audit_reports.report(*stores), ended=ended, findings=tuple(found))


def after(*audits: AuditReport) -> FindingHistory:
    history = NO_HISTORY
    for one in audits:
        history = continued(history, one)
    return history


def days(history: FindingHistory) -> list[tuple[str, str, str | None, int]]:
    return [
        (one.first_seen[8:10], one.last_seen[8:10], one.resolved and one.resolved[8:10], one.audits)
        for one in history.records
    ]


def test_a_finding_has_its_first_and_its_last_day() -> None:
    assert days(after(report(1, ROT), report(2, ROT), report(3, ROT))) == [("01", "03", None, 3)]


def test_a_finding_that_is_gone_is_resolved_once() -> None:
    history = after(report(1, ROT), report(2))
    assert days(history) == [("01", "01", "02", 1)]
    assert [one.kind for one in history.just_resolved] == ["ELG-003"]
    later = continued(history, report(3))
    assert days(later) == [("01", "01", "02", 1)]
    assert later.just_resolved == ()


def test_a_finding_that_comes_back_is_open_again() -> None:
    history = after(report(1, ROT), report(2), report(3, ROT))
    assert days(history) == [("01", "03", None, 2)]
    assert history.new == ()


def test_a_store_that_was_not_read_resolves_nothing() -> None:
    other = replace(ROT, store="/b")
    assert [one.resolved for one in after(report(1, other), report(2, GONE)).records] == [None, None]
    one_store = replace(report(2), stores=report(2).stores[:1])
    assert [one.resolved for one in after(report(1, other), one_store).records] == [None]


def test_information_has_no_history() -> None:
    assert after(report(1, GAP)).records == ()


def test_only_the_last_audit_s_first_findings_are_new() -> None:
    history = after(report(1, ROT), report(2, ROT, replace(ROT, offset=8192)))
    assert [one.offset for one in history.new] == [8192]


def test_a_history_is_read_as_it_was_written() -> None:
    history = after(report(1, ROT), report(2, replace(ROT, store="/b", detail="\udcff \u2028")))
    assert decode(encode(history)) == history
    assert decode(encode(NO_HISTORY)) == NO_HISTORY


# ── one store under several paths ────────────────────────────────────────────────────────────────────────


def under(path: str, day: int, identity: StoreIdentity = NO_COOKIE, *more: str) -> AuditReport:
    """Return the report of an audit that has found ROT in the stores at these paths."""
    paths = (path, *more)
    found = tuple(replace(ROT, store=one) for one in paths)
    stores = [replace(audit_reports.store(one.store, found=[one]), identity=identity) for one in found]
    ended = f"2026-01-{day:02}T00:00:00+00:00"
    return replace(audit_reports.report(*stores), ended=ended, findings=found)


def test_a_store_under_several_paths_has_one_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    history = after(under("store", 1), under(str(tmp_path / "store"), 2), under("link", 3))
    assert days(history) == [("01", "03", None, 3)]
    assert [one.store for one in history.records] == ["link"]


def test_a_store_that_was_moved_keeps_its_history() -> None:
    history = after(under("/before", 1, COOKIE), under("/after", 2, COOKIE))
    assert days(history) == [("01", "02", None, 2)]
    # The bookies of one cluster have one instance id.
    other = replace(COOKIE, bookie_id="other:3181")
    assert len(after(under("/before", 1, COOKIE), under("/after", 2, other)).records) == 2


def test_copies_of_one_store_are_several_stores() -> None:
    history = after(under("/one", 1, COOKIE, "/copy"), under("/one", 2, COOKIE, "/copy"))
    assert days(history) == [("01", "02", None, 2)] * 2


def test_a_finding_that_earlier_versions_have_twice_becomes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = after(under("store", 1)).records[0], after(under(str(tmp_path / "store"), 2)).records[0]
    old = FindingHistory((replace(first, store_key=""), replace(second, store_key="")), "")
    assert days(continued(old, under("store", 3, COOKIE))) == [("01", "03", None, 3)]


def test_a_baseline_accepts_findings_of_a_store_under_any_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for before, now in (
        (under("store", 1), under(str(tmp_path / "store"), 2)),
        (under("/before", 1, COOKIE), under("/after", 2, COOKIE)),
    ):
        accepted = decode_identities(encode(after(before)))
        assert [one.severity for one in accept(now, accepted).findings] == [Severity.INFORMATION]
    elsewhere = decode_identities(encode(after(under("/elsewhere", 1))))
    assert accept(under("store", 2), elsewhere).findings[0].is_wrong


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "ELG-003"}'])
def test_a_file_that_is_no_history_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(BadHistory, match="line 2"):
        decode(f"\n{text}\n")


def test_accepted_findings_are_information() -> None:
    found = report(1, ROT, replace(ROT, offset=8192))
    kept = accept(found, frozenset({identity_of(ROT)}))
    assert [one.severity for one in kept.findings] == [Severity.INFORMATION, Severity.ERROR]
    assert [one.severity for one in kept.stores[0].findings] == [Severity.INFORMATION, Severity.ERROR]
    assert [one.offset for one in accepted_findings(kept)] == [4096]
    assert accept(found, frozenset()) is found


def test_an_accepted_finding_stays_open_in_the_history() -> None:
    history = after(report(1, ROT), accept(report(2, ROT), frozenset({identity_of(ROT)})))
    assert days(history) == [("01", "02", None, 2)]
    assert [one.severity for one in history.open] == ["information"]


def test_the_lines_of_a_history_are_a_baseline() -> None:
    history = after(report(1, ROT))
    assert decode_identities(encode(history)) == {identity_of(ROT)}
    assert decode_identities('{"kind": "LGR-004", "store": "/a", "file": null, "ledger": 7}') == {
        ("LGR-004", "/a", "", None, 7, None, None)
    }


def test_an_accepted_finding_does_not_fail_its_check() -> None:
    found = audit_reports.store("/a", found=[ROT])
    whole = audit_reports.report(replace(found, checks=checks(found.facts, found.findings)))
    kept = accept(replace(whole, findings=(ROT,)), frozenset({identity_of(ROT)}))
    assert {check.id: check.status for check in kept.stores[0].checks}["digests"] == "passed"

"""The report as metrics for Prometheus and as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import audit_reports
from prometheus_client.parser import text_string_to_metric_families

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.history.finding_history import NO_HISTORY, continued
from recovery.audit.model.audit_report import Check
from recovery.audit.report import exports

ROT = KINDS["ELG-003"].at(store='/a "b"\\\n', file="0.log", offset=4096, detail="\x07 <&")
CHECKS = [
    Check("a", "all is well", "passed"),
    Check("b", "digests", "failed", "", 1),
    Check("c", "index", "not run", "why"),
]


def test_prometheus_reads_the_metrics() -> None:
    store = audit_reports.store(ROT.store, [audit_reports.log(0, 900, [(1, 500)])], [ROT])
    report = replace(audit_reports.report(store), findings=(ROT,))
    text = exports.prometheus(report, continued(NO_HISTORY, report))
    samples = {
        (sample.name.removeprefix("ledgerstore_audit_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["sound",] == 0
    assert samples["findings", ROT.store, "", "", "error"] == 1
    assert (samples["open_findings",], samples["new_findings",], samples["resolved_findings",]) == (1, 1, 0)
    assert samples["log_bytes", ROT.store, "", "", "all"] == 500
    assert samples["ended_timestamp_seconds",] > 1e9


def test_checks_are_test_cases_and_findings_fail_one() -> None:
    store = audit_reports.store(ROT.store, found=[ROT], checks=CHECKS)
    suites = ET.fromstring(exports.junit(replace(audit_reports.report(store), findings=(ROT,))))
    (suite,) = suites.findall("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    assert "ELG-003 0.log@4096" in (suite.findtext("testcase[@name='findings']/failure") or "")


def test_a_sound_store_fails_no_case() -> None:
    suites = ET.fromstring(exports.junit(audit_reports.sound()))
    assert suites.findall("testsuite/testcase/failure") == []

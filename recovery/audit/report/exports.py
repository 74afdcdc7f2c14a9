"""The report for other programs: metrics for Prometheus' collector of text files, and JUnit XML for CI."""

from __future__ import annotations

import datetime as dt
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from recovery.audit.report import figures
from recovery.audit.report.figures import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.audit.history.finding_history import FindingHistory
    from recovery.audit.model.audit_report import AuditReport, Check, StoreReport

_PREFIX = "ledgerstore_audit"
_SHOWN_MAX = 20

Sample = tuple["Mapping[str, str]", float]


def prometheus(report: AuditReport, history: FindingHistory) -> str:
    """Return the metrics in Prometheus' text format."""
    return "".join(_metrics(report, history))


def _metrics(report: AuditReport, history: FindingHistory) -> Iterator[str]:
    ended = dt.datetime.fromisoformat(report.ended).timestamp()
    ledgers, entries = figures.unverified(report.findings)
    single = {
        "sound": ("1 if the audit found nothing wrong.", float(figures.is_clean(report))),
        "ended_timestamp_seconds": ("When the audit ended.", ended),
        "duration_seconds": ("Seconds that the audit took.", report.seconds),
        "read_bytes": ("Bytes that the audit read.", report.bytes_read),
        "reused_bytes": ("Bytes that an earlier audit had read, and this one did not.", report.bytes_reused),
        "unverified_entries": ("Entries that nothing verifies.", entries),
        "unverified_ledgers": ("Ledgers with entries that nothing verifies.", ledgers),
        "open_findings": ("Errors and warnings that are open.", len(history.open)),
        "new_findings": ("Errors and warnings that this audit has seen first.", len(history.new)),
        "resolved_findings": (
            "Errors and warnings that are gone since the last audit.",
            len(history.just_resolved),
        ),
    }
    for name, (words, value) in single.items():
        yield from _metric(name, words, [({}, value)])
    yield from _metric("findings", "Findings of each store by severity.", _findings_of_stores(report))
    yield from _metric(
        "log_bytes",
        "Bytes of entries in entry logs, dead ones apart if an index shows them.",
        (sample for store in report.stores for sample in _log_bytes(store)),
    )


def _findings_of_stores(report: AuditReport) -> Iterator[Sample]:
    for store in report.stores:
        found = figures.tally(one for one in report.findings if one.store == store.store)
        for severity, count in zip(
            WORDS.values(), (found.errors, found.warnings, found.information), strict=True
        ):
            yield _labels(store) | {"severity": severity}, count


def _log_bytes(store: StoreReport) -> Iterator[Sample]:
    logs = figures.by_log(store)
    yield _labels(store) | {"state": "all"}, sum(one.size for one in logs)
    if any(one.dead is not None for one in logs):
        yield _labels(store) | {"state": "dead"}, sum(one.dead or 0 for one in logs)


def _labels(store: StoreReport) -> dict[str, str]:
    return {"store": store.store, "host": store.identity.host, "bookie": store.identity.bookie_id}


def _metric(name: str, words: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {_PREFIX}_{name} {words}\n# TYPE {_PREFIX}_{name} gauge\n"
    for labels, value in samples:
        inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{_PREFIX}_{name}{f'{{{inner}}}' if inner else ''} {value:.15g}\n"


def _escaped(text: str) -> str:
    plain = text.encode(errors="backslashreplace").decode()
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def junit(report: AuditReport) -> str:
    """Return the checks of each store as test cases. Findings that no check is about fail a case of their
    own.
    """
    suites = ET.Element("testsuites", name="ledgerstore audit", time=f"{report.seconds:.3f}")
    for store in report.stores:
        wrong = [one for one in report.findings if one.store == store.store and one.is_wrong]
        suite = ET.SubElement(suites, "testsuite", name=_plain(store.store), timestamp=report.started)
        for check in store.checks:
            _case(suite, check)
        case = ET.SubElement(suite, "testcase", classname=_plain(store.store), name="findings")
        if wrong:
            failure = ET.SubElement(case, "failure", message=str(figures.tally(wrong)))
            failure.text = _plain("\n".join(_line(one) for one in wrong[:_SHOWN_MAX]))
        failed = len(suite.findall("testcase/failure"))
        suite.set("tests", str(len(store.checks) + 1))
        suite.set("failures", str(failed))
        suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, check: Check) -> None:
    case = ET.SubElement(suite, "testcase", classname=suite.get("name", ""), name=check.title)
    if check.status == "failed":
        ET.SubElement(case, "failure", message=f"{check.findings} findings")
    elif check.status == "not run":
        ET.SubElement(case, "skipped", message=_plain(check.why))


def _line(finding: Finding) -> str:
    ids = "" if finding.ledger_id is None else f" ledger {finding.ledger_id}"
    if finding.first_entry is not None:
        ids += f" entries {finding.first_entry}..{finding.last_entry}"
    return f"{WORDS[finding.severity]} {finding.kind} {finding.place}{ids}: {finding.detail}"


def _plain(text: str) -> str:
    """Return the text without characters that XML cannot have."""
    shown = text.encode(errors="backslashreplace").decode()
    return "".join(one if one in "\n\t" or " " <= one < "\ufffe" else f"\\x{ord(one):02x}" for one in shown)

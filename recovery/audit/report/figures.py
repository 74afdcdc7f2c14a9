"""Numbers of the page and the summary: findings by kind, space by ledger, live bytes of each log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.history.finding_history import is_accepted
from recovery.audit.model.store_tables import LEFTOVER, LOG
from recovery.report.formatting import counted
from recovery.report.formatting import size as sized
from storage.disk import filenames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.findings.catalogue import Kind
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport, StoreReport
    from recovery.audit.model.store_tables import LedgerSums

_UNVERIFIED = "LGR-005"

WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFORMATION: "information"}


@dataclass(frozen=True, slots=True)
class FindingCounts:
    """The number of findings of each severity."""

    errors: int = 0
    warnings: int = 0
    information: int = 0

    @property
    def is_sound(self) -> bool:
        return not self.errors and not self.warnings

    def __str__(self) -> str:
        """Return a text such as `3 errors, 1 warning`, or an empty one if everything is sound."""
        some = ((self.errors, "error"), (self.warnings, "warning"))
        return ", ".join(counted(number, noun) for number, noun in some if number)


def tally(findings: Iterable[Finding]) -> FindingCounts:
    by_severity = Counter(finding.severity for finding in findings)
    return FindingCounts(*(by_severity[severity] for severity in Severity))


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """All findings of one kind."""

    kind: Kind
    severity: Severity
    findings: tuple[Finding, ...]

    @property
    def anchor(self) -> str:
        """The name of the group on the page."""
        return f"{self.kind.id}-{WORDS[self.severity]}"

    @property
    def count(self) -> int:
        """The sum of the counts of its findings."""
        return sum(finding.count for finding in self.findings)


def groups(findings: Iterable[Finding]) -> list[FindingGroup]:
    """Return the findings by kind, the most severe first."""

    def kind(finding: Finding) -> tuple[Severity, str]:
        return finding.severity, finding.kind

    found = sorted(findings, key=kind)
    return [FindingGroup(KINDS[key[1]], key[0], tuple(those)) for key, those in groupby(found, kind)]


@dataclass(frozen=True, slots=True)
class LedgerSpace:
    """The space of one ledger in the entry logs of a store."""

    store: str
    ledger_id: int
    size: int
    entries: int
    bad: int
    unverified: int


def by_ledger(report: StoreReport) -> list[LedgerSpace]:
    """Return the ledgers of a store, the largest first."""
    held: dict[int, tuple[int, int, int]] = {}
    for one in sums(report, LOG, LEFTOVER):
        size, entries, bad = held.get(one.ledger, (0, 0, 0))
        held[one.ledger] = size + one.size, entries + one.entries, bad + one.bad
    lost = _lost(report.findings)
    unverified: Counter[int] = Counter()
    for log in report.facts.logs:
        unverified.update(log.unverified)
    space = [
        LedgerSpace(report.store, ledger, size, entries, max(bad, lost[ledger]), unverified[ledger])
        for ledger, (size, entries, bad) in held.items()
    ]
    space += [LedgerSpace(report.store, one, 0, 0, lost[one], 0) for one in lost if one not in held]
    return sorted(space, key=lambda one: (-one.size, one.ledger_id))


def _lost(findings: Iterable[Finding]) -> Counter[int]:
    """Return for each ledger how many entries errors name. Several kinds may name the same entries."""
    counts: Counter[tuple[int, str]] = Counter()
    for one in findings:
        if one.severity is Severity.ERROR and one.ledger_id is not None and one.first_entry is not None:
            counts[one.ledger_id, one.kind] += one.count
    lost: Counter[int] = Counter()
    for (ledger_id, _), count in counts.items():
        lost[ledger_id] = max(lost[ledger_id], count)
    return lost


def sums(report: StoreReport, *sources: str) -> list[LedgerSums]:
    """Return what the files of a store have of each ledger."""
    return [] if report.tables is None else report.tables.sums(*sources)


@dataclass(frozen=True, slots=True)
class LogContent:
    """The content of one entry log."""

    store: str
    file: str
    file_size: int
    entries: int
    size: int
    """The size of the entries, length words included."""
    dead: int | None
    """The part of it that is not live any more; `None` if no index shows it."""

    @property
    def live(self) -> int:
        return max(self.size - (self.dead or 0), 0)


def by_log(report: StoreReport) -> list[LogContent]:
    """Return the entry logs of a store in their order."""
    entries, sizes = Counter[int](), Counter[int]()
    for one in sums(report, LOG, LEFTOVER):
        entries[one.file] += one.entries
        sizes[one.file] += one.size
    return [
        LogContent(
            report.store,
            filenames.entry_log(log.log_id),
            log.file_size,
            entries[log.log_id],
            size := sizes[log.log_id],
            None if report.live_sizes is None else max(size - report.live_sizes.get(log.log_id, 0), 0),
        )
        for log in report.facts.logs
    ]


def unverified(findings: Iterable[Finding]) -> tuple[int, int]:
    """Return how many ledgers have entries that nothing verifies, and the number of these entries."""
    found = [finding for finding in findings if finding.kind == _UNVERIFIED]
    return len({(one.store, one.ledger_id) for one in found}), sum(one.count for one in found)


def not_covered(report: AuditReport) -> list[tuple[str, str]]:
    """Return for each store what was not read, with the reason."""
    gaps = [(store.store, what) for store in report.stores for what in store.coverage.not_covered]
    compared = report.replicas.not_covered if report.replicas else ()
    return [*gaps, *(("replicas", what) for what in compared)]


def total(report: AuditReport, name: str) -> int:
    """Return the sum of one figure of the coverage over all stores."""
    return sum(getattr(store.coverage, name) for store in report.stores)


def speed(size: int, seconds: float) -> str:
    """Return a text such as `1.52 GB/s`."""
    if not size or not seconds:
        return "-"
    rate = size / seconds
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:,.0f} MB/s"


def is_clean(report: AuditReport) -> bool:
    """Return whether nothing is wrong: no error, no warning, no wrong password."""
    return tally(report.findings).is_sound and not report.wrong_password_ledgers


def verdict(report: AuditReport) -> str:
    """Return a text such as `3 errors, 1 warning in 812 files (61.2 GiB, 48 s)`."""
    found = tally(report.findings)
    files = counted(total(report, "files"), "file")
    files += f" of {counted(len(report.stores), 'store')}" if len(report.stores) > 1 else ""
    size = sized(total(report, "bytes"))
    took = seconds(report.seconds)
    head = f"{found} in {files}" if not found.is_sound else f"sound, {files}"
    if found.is_sound and report.wrong_password_ledgers:
        head = f"nothing wrong in what could be verified, {files}"
    return "; ".join((f"{head} ({size}, {took})", *caveats(report)))


def caveats(report: AuditReport) -> list[str]:
    """Return the limits of the audit that a verdict has to mention."""
    ledgers, entries = unverified(report.findings)
    some = []
    if ledgers:
        some.append(f"UNVERIFIED: {counted(entries, 'entry')} of {counted(ledgers, 'ledger')}")
    accepted = sum(map(is_accepted, report.findings))
    if accepted:
        some.append(f"{counted(accepted, 'finding')} accepted by the baseline")
    if report.wrong_password_ledgers:
        some.append(f"WRONG PASSWORD of {counted(len(report.wrong_password_ledgers), 'ledger')}")
    if report.bytes_reused:
        some.append(f"not read again: {sized(report.bytes_reused)}")
    gaps = len(not_covered(report))
    if gaps:
        some.append(f"not covered: {gaps}")
    not_run = sum(check.status == "not run" for store in report.stores for check in store.checks)
    if not_run:
        some.append(f"{counted(not_run, 'check')} not run")
    return some


def seconds(number: float) -> str:
    """Return a text such as 48 s, 0.3 s, 12.5 min."""
    if number < 10:
        return f"{number:.1f} s"
    return f"{number:.0f} s" if number < 120 else f"{number / 60:.1f} min"

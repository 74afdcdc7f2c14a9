"""The files of a store that have findings, the gravest first, and how many files there are of each kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.store_facts import IndexFacts
from recovery.audit.report.figures import FindingCounts, tally
from storage.disk import filenames

if TYPE_CHECKING:
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import StoreReport

_ABOUT_SPACE = frozenset({"LGR-007"})
"""Findings about bytes all over a file: the section about space shows them."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file with findings."""

    name: str
    size: int | None
    """Its size; `None` if it was not read."""
    state: str
    found: FindingCounts
    titles: tuple[str, ...]
    """The titles of its findings, each once, the gravest first."""
    first: Finding
    """The gravest finding, the first of its kind in the file."""


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The files of one store."""

    store: StoreReport
    kinds: tuple[tuple[str, int], ...]
    """The kinds of files, and how many there are."""
    rows: tuple[FileRow, ...]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.kinds)


def files(report: StoreReport) -> StoreFiles:
    """Return the files of a store."""
    facts = report.facts
    by_file: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if finding.kind not in _ABOUT_SPACE:
            by_file[finding.file].append(finding)
    sizes = {filenames.journal(one.journal_id): one.file_size for one in facts.journals}
    sizes |= {filenames.entry_log(one.log_id): one.file_size for one in facts.logs}
    states = {
        filenames.entry_log(one.log_id): "in use" if one.is_active else "left over"
        for one in facts.logs
        if one.is_active or one.is_leftover
    }
    rows = [
        _row(name, sizes.get(name), states.get(name, ""), found) for name, found in by_file.items() if name
    ]
    rows.sort(key=lambda row: (row.first.severity, -row.found.errors, -row.found.warnings, row.name))
    kinds = Counter({"Journals": len(facts.journals), "Entry logs": len(facts.logs)})
    kinds["Index"] = int(isinstance(facts.index, IndexFacts))
    known = {*sizes, filenames.INDEX}
    kinds["Other files"] = sum(row.name not in known for row in rows)
    return StoreFiles(report, tuple((name, count) for name, count in kinds.items() if count), tuple(rows))


def _row(name: str, size: int | None, state: str, found: list[Finding]) -> FileRow:
    ordered = sorted(found, key=lambda one: (one.severity, -1 if one.offset is None else one.offset))
    titles = dict.fromkeys(KINDS[one.kind].title for one in ordered)
    return FileRow(name, size, state, tally(ordered), tuple(titles), ordered[0])

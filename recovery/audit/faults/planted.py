"""A planted fault: its description and the expected findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from recovery.audit.findings.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.audit.faults.kinds import Fault
    from recovery.audit.findings.finding import Finding


@dataclass(frozen=True, slots=True)
class DamagedExtent:
    """Where a finding has to be: at the damaged record, or over the first changed byte.

    Its offset is in [start, at]. Its end, if it has one, is after `at`, or its offset is that of the record.
    `end` is where the next record begins that a reader can be sure of, so that no sound record is included.
    """

    start: int
    at: int
    end: int
    record: int | None = None
    """Where the record begins, if that is not `start`."""

    def holds(self, finding: Finding) -> bool:
        if finding.offset is None or not self.start <= finding.offset <= self.at:
            return False
        if finding.end is None:
            return True
        is_at_record = finding.offset == (self.start if self.record is None else self.record)
        return finding.end <= self.end and (is_at_record or finding.end > self.at)

    def __str__(self) -> str:
        return f"@{self.start} (changed from {self.at} on, sound from {self.end})"


@dataclass(frozen=True, slots=True)
class Within:
    """Anywhere in a range: where damage misleads a reader before the reader can notice."""

    start: int
    end: int

    def holds(self, finding: Finding) -> bool:
        if finding.offset is None or not self.start <= finding.offset < self.end:
            return False
        return finding.end is None or finding.end <= self.end

    def __str__(self) -> str:
        return f"@{self.start}..{self.end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One expected finding: its kind, and optionally its store, file, place, ledger and entry.

    Fields that are not set may have any value.
    """

    kinds: frozenset[str]
    store: str | None = None
    """The last part of its path."""
    file: str | None = None
    extent: DamagedExtent | Within | None = None
    ledgers: frozenset[int] | None = None
    entry_id: int | None = None

    def matches(self, finding: Finding) -> bool:
        return (
            finding.kind in self.kinds
            and self.store in (None, PurePath(finding.store).name)
            and self.file in (None, finding.file)
            and (self.extent is None or self.extent.holds(finding))
            and (self.ledgers is None or finding.ledger_id in self.ledgers)
            and (self.entry_id is None or self._has_entry(finding))
        )

    def matches_roughly(self, finding: Finding) -> bool:
        """Return whether the finding at least says that something is wrong there."""
        return finding.kind in self.kinds and self.file in (None, finding.file)

    def _has_entry(self, finding: Finding) -> bool:
        first, last = finding.first_entry, finding.last_entry
        if first is None or self.entry_id is None:
            return False
        return first <= self.entry_id <= (first if last is None else last)

    def __str__(self) -> str:
        where = "" if self.store is None else f" store {self.store}"
        where += "" if self.file is None else f" {self.file}"
        if self.extent is not None:
            where += str(self.extent)
        if self.ledgers is not None:
            where += f" ledger {'/'.join(map(str, sorted(self.ledgers)))}"
        if self.entry_id is not None:
            where += f" entry {self.entry_id}"
        return f"{'|'.join(sorted(self.kinds))}{where}"


Alternatives = tuple[Expectation, ...]
"""Any one of these findings is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A planted fault. One finding for each of `wanted` is expected."""

    fault: Fault
    file: str
    offset: int | None = None
    end: int | None = None
    ledger_id: int | None = None
    entry_id: int | None = None
    wanted: tuple[Alternatives, ...] = ()
    allowed: Alternatives = ()
    """Further findings that are allowed."""
    collateral: frozenset[str] = frozenset()
    """Kinds of findings that are allowed anywhere."""
    words: str = ""

    def is_found_by(self, findings: Iterable[Finding]) -> bool:
        """Return whether findings exist for this fault, even if they are not precise."""
        said = list(findings)
        return all(
            any(expected.matches_roughly(finding) for expected in wanted for finding in said)
            for wanted in self.wanted
        )

    def is_located_by(self, findings: Iterable[Finding]) -> bool:
        """Return whether all expected findings exist, each at its place."""
        return not self.missed_by(list(findings))

    def missed_by(self, findings: Sequence[Finding]) -> list[Alternatives]:
        """Return the expected findings that are missing."""
        return [
            wanted
            for wanted in self.wanted
            if not any(expected.matches(finding) for expected in wanted for finding in findings)
        ]

    def strays_of(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return errors and warnings that neither this fault nor its consequences explain."""
        return [finding for finding in findings if finding.is_wrong and not self._explains(finding)]

    def _explains(self, finding: Finding) -> bool:
        if finding.kind in self.collateral:
            return True
        return any(
            expected.matches(finding) for wanted in (*self.wanted, self.allowed) for expected in wanted
        )

    def why_not(self, findings: Sequence[Finding]) -> str:
        """Return a text that says why the fault counts as missed."""
        missed = self.missed_by(findings)
        lines = [f"{self}"]
        lines += [f"  missing: {' or '.join(map(str, wanted))}" for wanted in missed]
        lines += [f"  found: {shown(finding)}" for finding in findings] or ["  nothing was found"]
        return "\n".join(lines)

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file}@{self.offset}"
        end = "" if self.end is None else f"..{self.end}"
        whose = "" if self.ledger_id is None else f", ledger {self.ledger_id}"
        whose += "" if self.entry_id is None else f", entry {self.entry_id}"
        return f"{self.fault.value}: {place}{end}{whose} {self.words}".rstrip()


def shown(finding: Finding) -> str:
    """Return one finding on one line."""
    end = "" if finding.end is None else f"..{finding.end}"
    entries = "" if finding.first_entry is None else f" entries {finding.first_entry}..{finding.last_entry}"
    ledger = "" if finding.ledger_id is None else f" ledger {finding.ledger_id}"
    grave = Severity(finding.severity).name.lower()
    return f"{finding.kind} {grave} {finding.place}{end}{ledger}{entries} x{finding.count} {finding.detail}"


def kinds(*ids: str) -> frozenset[str]:
    """Return kinds of findings."""
    return frozenset(ids)

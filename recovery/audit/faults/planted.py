"""A planted fault: what was done, and what has to be told of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from recovery.verify.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.audit.faults.kinds import Fault
    from recovery.verify.finding import Finding


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a finding has to be: at the damaged record, or over the first byte that was changed.

    It begins in [start, at], and where it says so it ends behind `at`, or is at the record itself; `end` is
    where the first record stands that a reader can be sure of again: nothing sound is taken along.
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
    """Anywhere in there: where what is damaged leads a reader astray before it can notice."""

    start: int
    end: int

    def holds(self, finding: Finding) -> bool:
        if finding.offset is None or not self.start <= finding.offset < self.end:
            return False
        return finding.end is None or finding.end <= self.end

    def __str__(self) -> str:
        return f"@{self.start}..{self.end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One way to tell it: a finding of one of these kinds, about this store, file, place, ledger and entry.

    What is left out may be anything.
    """

    kinds: frozenset[str]
    store: str | None = None
    """The last part of its path."""
    file: str | None = None
    extent: Extent | Within | None = None
    ledgers: frozenset[int] | None = None
    entry_id: int | None = None

    def is_in(self, finding: Finding) -> bool:
        return (
            finding.kind in self.kinds
            and self.store in (None, PurePath(finding.store).name)
            and self.file in (None, finding.file)
            and (self.extent is None or self.extent.holds(finding))
            and (self.ledgers is None or finding.ledger_id in self.ledgers)
            and (self.entry_id is None or self._has_entry(finding))
        )

    def is_roughly_in(self, finding: Finding) -> bool:
        """Whether it is at least said that something is wrong there."""
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


Wanted = tuple[Told, ...]
"""Any one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault in its place. All of `wanted` has to be told."""

    fault: Fault
    file: str
    offset: int | None = None
    end: int | None = None
    ledger_id: int | None = None
    entry_id: int | None = None
    wanted: tuple[Wanted, ...] = ()
    beside: Wanted = ()
    """What may be told too."""
    collateral: frozenset[str] = frozenset()
    """Kinds that may be told too, whatever they are about."""
    words: str = ""

    def is_found_by(self, findings: Iterable[Finding]) -> bool:
        """Whether something is said that this fault is the cause of, be it vague."""
        said = list(findings)
        return all(
            any(told.is_roughly_in(finding) for told in wanted for finding in said) for wanted in self.wanted
        )

    def is_told_by(self, findings: Iterable[Finding]) -> bool:
        """Whether all of it is said, each thing in its place."""
        return not self.missed_by(list(findings))

    def missed_by(self, findings: Sequence[Finding]) -> list[Wanted]:
        """What nobody says."""
        return [
            wanted
            for wanted in self.wanted
            if not any(told.is_in(finding) for told in wanted for finding in findings)
        ]

    def strays_of(self, findings: Iterable[Finding]) -> list[Finding]:
        """What is said to be wrong, and is not: neither by this fault, nor by what follows from it."""
        return [finding for finding in findings if finding.is_wrong and not self._explains(finding)]

    def _explains(self, finding: Finding) -> bool:
        if finding.kind in self.collateral:
            return True
        return any(told.is_in(finding) for wanted in (*self.wanted, self.beside) for told in wanted)

    def why_not(self, findings: Sequence[Finding]) -> str:
        """Why it counts as missed, for people."""
        missed = self.missed_by(findings)
        lines = [f"{self}"]
        lines += [f"  not told: {' or '.join(map(str, wanted))}" for wanted in missed]
        lines += [f"  told: {shown(finding)}" for finding in findings] or ["  nothing was told"]
        return "\n".join(lines)

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file}@{self.offset}"
        end = "" if self.end is None else f"..{self.end}"
        whose = "" if self.ledger_id is None else f", ledger {self.ledger_id}"
        whose += "" if self.entry_id is None else f", entry {self.entry_id}"
        return f"{self.fault.value}: {place}{end}{whose} {self.words}".rstrip()


def shown(finding: Finding) -> str:
    """One finding on one line."""
    end = "" if finding.end is None else f"..{finding.end}"
    entries = "" if finding.first_entry is None else f" entries {finding.first_entry}..{finding.last_entry}"
    ledger = "" if finding.ledger_id is None else f" ledger {finding.ledger_id}"
    grave = Severity(finding.severity).name.lower()
    return f"{finding.kind} {grave} {finding.place}{end}{ledger}{entries} x{finding.count} {finding.detail}"


def kinds(*ids: str) -> frozenset[str]:
    """Kinds of findings."""
    return frozenset(ids)

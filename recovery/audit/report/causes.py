"""Causes instead of symptoms: findings of one store that are explained by another one of them.

A hole in a log also makes entries of the index unreachable, and a log that is gone makes them lead nowhere.
An entry that is damaged lacks a copy. The finding that is nearest to the disk is the cause.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.findings.finding import Finding

_OF_FILES = ("DIR-004", "ELG-005", "ELG-001", "ELG-004")
"""Kinds about the bytes of a log, which explain those about its entries."""

_OF_ENTRIES = frozenset({"ELG-003", "ELG-007", "IDX-001", "IDX-002", "ELG-002"})
_APART_MAX = 3
"""Up to this number, causes of one kind in one store are listed one by one."""

_OF_COPIES = frozenset({"RPL-001", "RPL-002"})


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that went wrong, and the findings that follow from it."""

    finding: Finding
    symptoms: tuple[Finding, ...] = ()
    same: tuple[Finding, ...] = ()
    """Further findings of this kind in the same store, if there are many: a sick disk is one cause."""

    @property
    def files(self) -> int:
        """The number of files in which there are findings of this kind."""
        return len({one.file for one in (self.finding, *self.same)})

    @property
    def entries(self) -> int:
        """About how many entries the findings name."""
        every = (self.finding, *self.same, *self.symptoms)
        named = [one for one in every if one.first_entry is not None]
        return max((sum(one.count for one in some) for some in _by_kind(named)), default=0)


def _by_kind(findings: Iterable[Finding]) -> list[list[Finding]]:
    kinds: defaultdict[str, list[Finding]] = defaultdict(list)
    for one in findings:
        kinds[one.kind].append(one)
    return list(kinds.values())


def causes(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes of all errors and warnings, the gravest and largest first."""
    wrong = [one for one in findings if one.is_wrong]
    of_files: dict[tuple[str, str], Finding] = {}
    for one in sorted(wrong, key=_nearness):
        if one.kind in _OF_FILES:
            of_files.setdefault((one.store, one.file), one)
    symptoms: defaultdict[int, list[Finding]] = defaultdict(list)
    entries: defaultdict[tuple[str, int], list[tuple[int, int, Finding]]] = defaultdict(list)
    copies: dict[tuple[str, str, int], Finding] = {}
    roots: list[Finding] = []
    for one in sorted(wrong, key=lambda finding: finding.kind in _OF_COPIES):
        root = _of_file(one, of_files) or _of_damaged_entries(one, entries, copies)
        if root is None or root is one:
            roots.append(one)
            root = one
        else:
            symptoms[id(root)].append(one)
        if one.ledger_id is not None and one.first_entry is not None and one.kind not in _OF_COPIES:
            last = one.first_entry if one.last_entry is None else one.last_entry
            entries[one.store, one.ledger_id].append((one.first_entry, last, root))
    found = _joined([Cause(one, tuple(symptoms[id(one)])) for one in roots])
    return sorted(found, key=lambda cause: (cause.finding.severity, -cause.entries))


def _joined(found: list[Cause]) -> list[Cause]:
    """Return many causes of one kind in one store as one of them."""
    groups: defaultdict[tuple[str, str, int], list[Cause]] = defaultdict(list)
    for cause in found:
        one = cause.finding
        groups[one.store, one.kind, one.severity].append(cause)
    joined = []
    for some in groups.values():
        if len(some) <= _APART_MAX:
            joined += some
            continue
        symptoms = tuple(symptom for cause in some for symptom in cause.symptoms)
        joined.append(Cause(some[0].finding, symptoms, tuple(cause.finding for cause in some[1:])))
    return joined


def _nearness(finding: Finding) -> int:
    return _OF_FILES.index(finding.kind) if finding.kind in _OF_FILES else len(_OF_FILES)


def _of_file(finding: Finding, of_files: dict[tuple[str, str], Finding]) -> Finding | None:
    """Return the finding about the log in which this one's entries are, or should be."""
    if finding.kind in _OF_FILES:
        return of_files.get((finding.store, finding.file))
    if finding.kind not in _OF_ENTRIES:
        return None
    # A row of an index names the log in its detail: `3.log+4100: there is no 3.log`.
    log = (
        finding.file if finding.file.endswith(".log") else finding.detail.partition(":")[0].partition("+")[0]
    )
    root = of_files.get((finding.store, log))
    if root is None or finding.kind != "ELG-003":
        return root
    # A digest that does not match may be somewhere else in the same log.
    if root.offset is None or finding.offset is None:
        return None
    end, root_end = finding.end or finding.offset + 1, root.end or root.offset + 1
    # The entry before a hole may have lost its end to it.
    return root if finding.offset < root_end and end >= root.offset else None


def _of_damaged_entries(
    finding: Finding,
    entries: dict[tuple[str, int], list[tuple[int, int, Finding]]],
    copies: dict[tuple[str, str, int], Finding],
) -> Finding | None:
    """Return the cause of a missing copy: an entry that is damaged in the same store, or another copy of the
    ledger that is missing there.
    """
    if finding.kind not in _OF_COPIES or finding.ledger_id is None or finding.first_entry is None:
        return None
    last = finding.first_entry if finding.last_entry is None else finding.last_entry
    for first, end, root in entries.get((finding.store, finding.ledger_id), ()):
        if first <= last and finding.first_entry <= end:
            return root
    # All other copies of a ledger that a store lacks have one cause.
    same = copies.setdefault((finding.kind, finding.store, finding.ledger_id), finding)
    return None if same is finding else same

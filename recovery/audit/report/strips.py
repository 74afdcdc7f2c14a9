"""Files drawn to scale, with marks at every place that has a finding."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.store_facts import IndexFacts
from recovery.audit.model.store_tables import INDEX, LEFTOVER, LOG
from recovery.audit.report.figures import sums
from recovery.report.formatting import counted, grouped
from recovery.report.formatting import size as sized
from storage.disk import filenames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.audit.findings.finding import Finding, Severity
    from recovery.audit.model.audit_report import StoreReport
    from recovery.audit.model.store_tables import LedgerSums

_CELLS = 800
"""The number of places for marks on one strip: more than a screen can show."""

_WHOLE = (0.0, 1.0)
_NOT_DRAWN = frozenset({"LGR-007"})
"""Kinds about bytes all over a file: they are drawn in the section about space."""


@dataclass(frozen=True, slots=True)
class StripMark:
    """A mark on a strip, from `left` to `right` of its length 1."""

    left: float
    right: float
    severity: Severity
    kinds: tuple[str, ...]
    words: str


@dataclass(frozen=True, slots=True)
class Strip:
    """One file."""

    name: str
    sort: str
    """journal, entry log, index or other."""
    extent: int
    """Bytes, or rows of an index."""
    words: str
    state: str = ""
    marks: tuple[StripMark, ...] = ()
    replayed_from: float | None = None
    """Where replay of a journal begins, as a share of its length; 1 if it is not replayed any more."""

    @property
    def severity(self) -> Severity | None:
        """The highest severity of its marks, or `None` without marks."""
        return min((mark.severity for mark in self.marks), default=None)


def strips(report: StoreReport) -> list[Strip]:
    """Return all files of a store: journals, entry logs, the index, then other files with findings."""
    by_file: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if finding.kind not in _NOT_DRAWN:
            by_file[finding.file].append(finding)
    known = [*_journals(report, by_file), *_logs(report, by_file), *_index(report)]
    names = {strip.name for strip in known}
    return [*known, *_others(by_file, names)]


def _journals(report: StoreReport, by_file: Mapping[str, Sequence[Finding]]) -> Iterator[Strip]:
    for journal in report.facts.journals:
        name = filenames.journal(journal.journal_id)
        entries = journal.entries_before + journal.entries_after
        words = (
            f"{sized(journal.file_size)}, {counted(journal.records, 'record')}, {counted(entries, 'entry')}"
        )
        yield Strip(
            name,
            "journal",
            journal.file_size,
            words,
            marks=_drawn(by_file.get(name, ()), journal.file_size),
            replayed_from=_mark(report, journal.journal_id, journal.file_size),
        )


def _mark(report: StoreReport, journal_id: int, file_size: int) -> float | None:
    position = getattr(report.facts.mark, "position", None)
    if position is None or journal_id > position.journal_id or not file_size:
        return None
    return min(position.offset / file_size, 1.0) if journal_id == position.journal_id else 1.0


def _logs(report: StoreReport, by_file: Mapping[str, Sequence[Finding]]) -> Iterator[Strip]:
    held: defaultdict[int, list[LedgerSums]] = defaultdict(list)
    for one in sums(report, LOG, LEFTOVER):
        held[one.file].append(one)
    for log in report.facts.logs:
        name = filenames.entry_log(log.log_id)
        entries, ledgers = sum(one.entries for one in held[log.log_id]), len(held[log.log_id])
        words = f"{sized(log.file_size)}, {counted(entries, 'entry')} of {counted(ledgers, 'ledger')}"
        state = "in use" if log.is_active else "left over" if log.is_leftover else ""
        yield Strip(
            name, "entry log", log.file_size, words, state, _drawn(by_file.get(name, ()), log.file_size)
        )


# ── the index has no offsets: its strip consists of its rows, ledger by ledger ───────────────────────────


def _index(report: StoreReport) -> Iterator[Strip]:
    index = report.facts.index
    found = [one for one in report.findings if one.kind.startswith("IDX-")]
    if not isinstance(index, IndexFacts):
        if found:
            marks = _combined((_WHOLE, one) for one in found)
            yield Strip(filenames.INDEX, "index", 0, "not readable", marks=marks)
        return
    sizes, firsts = dict[int, int](), dict[int, int]()
    for one in sorted(sums(report, INDEX), key=lambda one: one.ledger):
        sizes[one.ledger] = sizes.get(one.ledger, 0) + one.entries
        firsts[one.ledger] = min(one.first_entry, firsts.get(one.ledger, one.first_entry))
    ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
    total = sum(sizes.values())

    def place(finding: Finding) -> tuple[float, float]:
        ledger = finding.ledger_id
        if ledger is None or not total:
            return _WHOLE
        if ledger not in ends:
            # A ledger without rows is marked between its neighbours.
            before = max((end for other, end in ends.items() if other < ledger), default=0)
            return before / total, before / total
        begin = ends[ledger] - sizes[ledger]
        if finding.first_entry is None:
            return begin / total, ends[ledger] / total
        first = min(max(begin + finding.first_entry - firsts[ledger], begin), ends[ledger])
        return first / total, min(first + finding.count, ends[ledger]) / total

    marks = _combined((place(one), one) for one in found)
    words = f"{counted(index.count, 'row')} of {counted(len(sizes), 'ledger')}"
    yield Strip(filenames.INDEX, "index", index.count, words, marks=marks)


# ── marks ────────────────────────────────────────────────────────────────────────────────────────────────


def _others(by_file: Mapping[str, Sequence[Finding]], known: set[str]) -> Iterator[Strip]:
    for name, found in sorted(by_file.items()):
        if name and name not in known and any(not one.kind.startswith("IDX-") for one in found):
            kinds = sorted({KINDS[one.kind].title for one in found})
            yield Strip(name, "other", 0, ", ".join(kinds), marks=_combined((_WHOLE, one) for one in found))


def _drawn(found: Iterable[Finding], size: int) -> tuple[StripMark, ...]:
    return _combined((_extent(one, size), one) for one in found)


def _extent(finding: Finding, size: int) -> tuple[float, float]:
    if finding.offset is None or not size:
        return _WHOLE
    end = finding.offset + 1 if finding.end is None else finding.end
    return min(finding.offset / size, 1.0), min(end / size, 1.0)


def _combined(found: Iterable[tuple[tuple[float, float], Finding]]) -> tuple[StripMark, ...]:
    """Return one mark for all findings at the same place of a screen, the severe ones on top."""
    cells: defaultdict[tuple[int, int, Severity], list[tuple[float, float, Finding]]] = defaultdict(list)
    for (left, right), finding in found:
        key = int(left * _CELLS), int(right * _CELLS), finding.severity
        cells[key].append((left, right, finding))
    marks = [_mark_of(severity, those) for (_, _, severity), those in cells.items()]
    return tuple(sorted(marks, key=lambda mark: (-mark.severity, mark.left, mark.right)))


def _mark_of(severity: Severity, those: Sequence[tuple[float, float, Finding]]) -> StripMark:
    findings = [finding for _, _, finding in those]
    kinds = tuple(sorted({finding.kind for finding in findings}))
    left, right = min(one[0] for one in those), max(one[1] for one in those)
    return StripMark(left, right, severity, kinds, _words(findings))


def _words(findings: Sequence[Finding]) -> str:
    first = findings[0]
    where = first.place
    if first.end is not None and first.offset is not None:
        where += f"..{first.end}"
    which = "" if first.ledger_id is None else f", ledger {first.ledger_id}"
    if first.first_entry is not None:
        last = first.first_entry if first.last_entry is None else first.last_entry
        which += f", {'entry' if last == first.first_entry else 'entries'} {first.first_entry}"
        which += "" if last == first.first_entry else f"..{last}"
    detail = f": {first.detail}" if first.detail else ""
    more = f" (and {grouped(len(findings) - 1)} more here)" if len(findings) > 1 else ""
    return f"{first.kind} {where}{which}{detail}{more}"

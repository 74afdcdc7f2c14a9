"""Compare the mismatched ledgers of a store one portion after the other. Only one portion is in memory.

A finding that continues from the end of one portion to the beginning of the next is one finding, as if
everything had been compared at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.checks import index_rules
from recovery.audit.checks.index_rules import MismatchedEntries
from recovery.audit.model.store_facts import IndexFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.store_facts import StoreFacts

_GROUPED = frozenset({"IDX-001", "IDX-002", "IDX-003", "IDX-006", "ELG-007"})
"""Kinds of which one finding stands for consecutive entries."""


@dataclass(frozen=True, slots=True)
class CompareResult:
    """The result of comparing logs and index."""

    findings: tuple[Finding, ...] = ()
    live: Mapping[int, int] | None = None
    """For each log the size of the records that the index points at, or `None` without an index."""


class StoreComparison:
    """Compares one store's logs and index. `sizes` has the live bytes of each log that are known already."""

    def __init__(self, facts: StoreFacts, sizes: Mapping[int, tuple[int, int]]) -> None:
        self._facts = facts
        self._joining = _FindingJoiner()
        self._live = {log.log_id: sizes.get(log.log_id, (0, 0))[1] for log in facts.logs}

    def agree(self, sizes: Mapping[int, int]) -> None:
        """Take for each log the bytes of windows about which logs and index agree."""
        for log_id, size in sizes.items():
            self._live[log_id] = self._live.get(log_id, 0) + size

    def take(self, mismatched: MismatchedEntries) -> None:
        """Take the next portion. Portions are in the order of ledgers and entries."""
        self._joining.add(index_rules.findings(self._facts, mismatched))
        used = index_rules.used(mismatched)
        logs, of = np.unique(used["file"], return_inverse=True)
        sums = np.zeros(len(logs), dtype=np.int64)
        np.add.at(sums, of, used["size"])
        self.agree(dict(zip(logs.tolist(), sums.tolist(), strict=True)))

    def ended(self, facts: StoreFacts) -> CompareResult:
        """Return the result. The index may have turned out to be unreadable in the meantime, so that it takes
        `facts`.
        """
        if not isinstance(facts.index, IndexFacts):
            return CompareResult(tuple(index_rules.findings(facts, MismatchedEntries())))
        return CompareResult(tuple(self._joining.findings), self._live)


class _FindingJoiner:
    """Joins the findings of consecutive portions."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._last: dict[tuple[object, ...], int] = {}
        """For each kind, file and ledger the number of the finding that may continue in the next portion."""

    def add(self, found: Iterable[Finding]) -> None:
        before, self._last = self._last, {}
        for one in found:
            key = one.kind, one.file, one.ledger_id
            number = before.pop(key, None)
            if number is not None and _goes_on(self.findings[number], one):
                self.findings[number] = _joined(self.findings[number], one)
            else:
                number = len(self.findings)
                self.findings.append(one)
            self._last[key] = number
        # A ledger that continues is the last of its portion, and not every kind of finding occurs in each
        # portion.


def _goes_on(one: Finding, other: Finding) -> bool:
    if one.kind not in _GROUPED or one.last_entry is None or other.first_entry != one.last_entry + 1:
        return False
    return one.kind != "IDX-001" or _why(one) == _why(other)


def _why(one: Finding) -> str:
    return (one.detail or "").partition(": ")[2]


def _joined(one: Finding, other: Finding) -> Finding:
    return replace(one, end=None, last_entry=other.last_entry, count=(one.count or 0) + (other.count or 0))

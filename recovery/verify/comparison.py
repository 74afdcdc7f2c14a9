"""The suspects of a store, compared one portion after the other: what is held is one of them, and findings.

What goes on from the end of one portion to the beginning of the next is one finding, as if all had been
compared at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from recovery.verify import index_rules, index_sums
from recovery.verify.facts import IndexFacts
from recovery.verify.index_rules import Drilled
from recovery.verify.index_sums import PAIR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.verify.facts import StoreFacts
    from recovery.verify.finding import Finding
    from recovery.verify.runs import Numbers
    from recovery.verify.windows import Sums

_GROUPED = frozenset({"IDX-001", "IDX-002", "IDX-003", "IDX-006", "ELG-007"})
"""Kinds of which one finding stands for entries that follow each other."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of it."""

    findings: tuple[Finding, ...] = ()
    live: Mapping[int, int] | None = None
    """For each log the bytes of the records that the index points at; `None` where there is no index."""


def compared(facts: StoreFacts, portions: Iterable[Drilled] = ()) -> Compared:
    """All that is wrong with the index of a store whose suspects are in these portions."""
    comparison = Comparison(facts)
    for drilled in portions:
        comparison.take(drilled)
    return comparison.ended(facts)


class Comparison:
    """One store's."""

    def __init__(self, facts: StoreFacts) -> None:
        self._facts = facts
        self._joining = _Joining()
        self._live = index_sums.live_sizes(facts)
        self._told = (
            index_sums.agreed_pairs(facts) if isinstance(facts.index, IndexFacts) else np.empty(0, PAIR)
        )

    def agree(self, logs: Sums) -> None:
        """Of these windows logs and index say the same."""
        self._add(logs["ledger"], logs["file"], logs["size"])

    def take(self, drilled: Drilled) -> None:
        """The next portion, by ledgers and entries."""
        self._joining.add(index_rules.findings(self._facts, drilled))
        used = index_rules.used(drilled)
        self._add(used["ledger"], used["file"], used["size"])

    def _add(self, ledgers: Numbers, files: Numbers, sizes: Numbers) -> None:
        assert self._live is not None, "there is an index"
        pairs = np.empty(len(ledgers), dtype=PAIR)
        pairs["ledger"], pairs["file"] = ledgers, files
        every, of = np.unique(pairs, return_inverse=True)
        sums = np.zeros(len(every), dtype=np.int64)
        np.add.at(sums, of, sizes)
        is_new = ~np.isin(every, self._told)
        for log_id, size in zip(every["file"][is_new].tolist(), sums[is_new].tolist(), strict=True):
            self._live[log_id] = self._live.get(log_id, 0) + size

    def ended(self, facts: StoreFacts) -> Compared:
        """What is known in the end, when `facts` are: an index may have turned out to be unreadable."""
        if not isinstance(facts.index, IndexFacts):
            return Compared(tuple(index_rules.findings(facts, Drilled())))
        return Compared(tuple(self._joining.findings), self._live)


class _Joining:
    """Findings of portions, in the order in which these come."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._last: dict[tuple[object, ...], int] = {}
        """Of each kind, file and ledger the number of the finding that may go on in the next portion."""

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
        # A ledger goes on behind the others of its portion, and nothing of it need be wrong in each.


def _goes_on(one: Finding, other: Finding) -> bool:
    if one.kind not in _GROUPED or one.last_entry is None or other.first_entry != one.last_entry + 1:
        return False
    return one.kind != "IDX-001" or _why(one) == _why(other)


def _why(one: Finding) -> str:
    return (one.detail or "").partition(": ")[2]


def _joined(one: Finding, other: Finding) -> Finding:
    return replace(one, end=None, last_entry=other.last_entry, count=(one.count or 0) + (other.count or 0))

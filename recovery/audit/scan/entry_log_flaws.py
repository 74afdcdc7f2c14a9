"""The flaws of an entry log: exact ones up to a limit, and then only their number.

The result does not depend on how the log was cut into ranges: the merged flaws of all ranges are those of
the whole log.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recovery.audit.model.scan_results import FlawAt, FlawKind

if TYPE_CHECKING:
    from collections.abc import Iterable

EXACT_MAX = 10_000
"""The number of flaws of one kind that are kept one by one."""


@dataclass(slots=True)
class _FlawsOfKind:
    """The flaws of one kind."""

    exact: list[FlawAt] = field(default_factory=list)
    rest: FlawAt | None = None
    """All further ones as one flaw."""


class FlawList:
    """The flaws of one log, in the order of the file."""

    def __init__(self) -> None:
        self._kept: dict[FlawKind, _FlawsOfKind] = {}
        self._confirmed: dict[int, FlawAt] = {}

    def add(self, flaw: FlawAt) -> None:
        """Add one flaw, which may stand for several."""
        if flaw.kind is FlawKind.CONFIRMED:
            self._add_confirmed(flaw)
            return
        kept = self._kept.setdefault(flaw.kind, _FlawsOfKind())
        if len(kept.exact) < EXACT_MAX and kept.rest is None:
            kept.exact.append(flaw)
        elif kept.rest is None:
            kept.rest = replace(flaw, ledger_id=None, entry_id=None, detail=_more(flaw.count))
        else:
            count = kept.rest.count + flaw.count
            kept.rest = replace(kept.rest, end=flaw.end, count=count, detail=_more(count))

    def _add_confirmed(self, flaw: FlawAt) -> None:
        # A faulty writer repeats the mistake in every entry, so that one flaw for each ledger is enough.
        assert flaw.ledger_id is not None, "an entry says it"
        before = self._confirmed.get(flaw.ledger_id)
        if before is None:
            self._confirmed[flaw.ledger_id] = flaw
        else:
            count, last = before.count + flaw.count, max(_last(before), _last(flaw))
            self._confirmed[flaw.ledger_id] = replace(
                before, end=flaw.end, count=count, detail=f"{count} entries", last_entry_id=last
            )

    def all(self) -> tuple[FlawAt, ...]:
        """Return the flaws in the order of the file."""
        found = list(self._confirmed.values())
        for kept in self._kept.values():
            found += kept.exact
            found += [kept.rest] if kept.rest else []
        return tuple(sorted(found, key=_place))


def _last(flaw: FlawAt) -> int:
    last = flaw.entry_id if flaw.last_entry_id is None else flaw.last_entry_id
    assert last is not None, "an entry says it"
    return last


def _place(flaw: FlawAt) -> tuple[int, int, str, int]:
    return flaw.offset, flaw.end, flaw.kind.name, -1 if flaw.ledger_id is None else flaw.ledger_id


def _more(count: int) -> str:
    return f"{count} more of the same kind"


def merged_flaws(flaws: Iterable[Iterable[FlawAt]]) -> tuple[FlawAt, ...]:
    """Return the flaws of consecutive ranges of one log, as if it had been one range."""
    found = FlawList()
    for part in flaws:
        for flaw in part:
            found.add(flaw)
    return found.all()

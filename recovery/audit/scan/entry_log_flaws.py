"""The flaws of an entry log: exact ones up to a limit, and then only their number by ledger.

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

LEDGERS_MAX = 100_000
"""The number of ledgers whose further flaws are counted for each ledger. A log with more damaged ledgers than
this has one flaw for the rest of them."""


@dataclass(slots=True)
class _FlawsOfKind:
    """The flaws of one kind."""

    exact: list[FlawAt] = field(default_factory=list)
    rest: dict[tuple[int | None, bool], FlawAt] = field(default_factory=dict)
    """All further ones: one flaw for each ledger, because the flaws of a deleted ledger lose no data, and one
    for those that are proven otherwise."""

    def add_to_rest(self, flaw: FlawAt) -> None:
        key = flaw.ledger_id, flaw.is_proven_otherwise
        if key not in self.rest and len(self.rest) >= LEDGERS_MAX:
            key = None, flaw.is_proven_otherwise
        before = self.rest.get(key)
        offset = flaw.offset if before is None else before.offset
        count = flaw.count if before is None else before.count + flaw.count
        self.rest[key] = replace(
            flaw, offset=offset, count=count, ledger_id=key[0], entry_id=None, detail=_more(count)
        )


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
        if len(kept.exact) < EXACT_MAX and not kept.rest:
            kept.exact.append(flaw)
        else:
            kept.add_to_rest(flaw)

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
            found += [*kept.exact, *kept.rest.values()]
        return tuple(sorted(found, key=_place))


def _last(flaw: FlawAt) -> int:
    last = flaw.entry_id if flaw.last_entry_id is None else flaw.last_entry_id
    assert last is not None, "an entry says it"
    return last


def _place(flaw: FlawAt) -> tuple[int, int, str, int, bool]:
    ledger_id = -1 if flaw.ledger_id is None else flaw.ledger_id
    return flaw.offset, flaw.end, flaw.kind.name, ledger_id, flaw.is_proven_otherwise


def _more(count: int) -> str:
    return f"{count} more of the same kind"


def merged_flaws(flaws: Iterable[Iterable[FlawAt]]) -> tuple[FlawAt, ...]:
    """Return the flaws of consecutive ranges of one log, as if it had been one range."""
    found = FlawList()
    for part in flaws:
        for flaw in part:
            found.add(flaw)
    return found.all()

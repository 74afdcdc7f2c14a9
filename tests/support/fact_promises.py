"""What a store has promised of its ledgers beside their entries: fences, and explicit last adds confirmed.

A fence that was answered stays, until the ledger is deleted; one that was asked for and not answered may be
there or not. Of confirmations the largest that was answered is the least that is shown. Nothing else is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from storage.entry import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.entry import DigestType


class Fact(NamedTuple):
    """What a ledger shows of itself."""

    fenced: bool
    explicit_lac: int
    digest_type: DigestType | None


@dataclass(frozen=True)
class _Known:
    """What is promised of one ledger."""

    fence_answered: bool = False
    fence_asked: bool = False
    confirmed: int = NO_ENTRY
    said: frozenset[int] = frozenset()
    digest_types: frozenset[DigestType | None] = frozenset()
    """Those that it may have been made with; of one that has shown itself the one."""


@dataclass
class FactPromises:
    """Of all ledgers."""

    _known: dict[int, _Known] = field(default_factory=dict)

    def copy(self) -> FactPromises:
        return FactPromises(dict(self._known))

    def of(self, ledger_id: int) -> _Known:
        return self._known.get(ledger_id, _Known())

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────

    def made(self, ledger_id: int, digest_type: DigestType | None) -> None:
        """Somebody has asked for something that makes the ledger, with such a digest."""
        known = self.of(ledger_id)
        self._replace(ledger_id, digest_types=known.digest_types | {digest_type})

    def fence(self, ledger_id: int) -> None:
        self._replace(ledger_id, fence_asked=True)

    def fenced(self, ledger_id: int) -> None:
        self._replace(ledger_id, fence_asked=True, fence_answered=True)

    def confirm(self, ledger_id: int, number: int) -> None:
        self._replace(ledger_id, said=self.of(ledger_id).said | {number})

    def confirmed(self, ledger_id: int, number: int) -> None:
        self._replace(ledger_id, confirmed=max(number, self.of(ledger_id).confirmed))

    def erase(self, ledger_id: int) -> None:
        self._known.pop(ledger_id, None)

    def keep(self, facts: Mapping[int, Fact]) -> None:
        """A running store has shown this: it is durable."""
        for ledger_id, fact in facts.items():
            if fact.fenced:
                self.fenced(ledger_id)
            self.confirmed(ledger_id, fact.explicit_lac)

    def settle(self, facts: Mapping[int, Fact]) -> None:
        """An opening has shown this, and nothing else is left."""
        self._known = {
            ledger_id: _Known(
                fact.fenced,
                fact.fenced,
                fact.explicit_lac,
                frozenset({fact.explicit_lac}),
                frozenset({fact.digest_type}),
            )
            for ledger_id, fact in facts.items()
        }

    def _replace(self, ledger_id: int, **changes: object) -> None:
        known = self.of(ledger_id)
        fields = {name: getattr(known, name) for name in _Known.__dataclass_fields__}
        self._known[ledger_id] = _Known(**{**fields, **changes})

    def existing(self) -> set[int]:
        """The ledgers that are there whether or not they have entries."""
        return {
            one for one, known in self._known.items() if known.fence_answered or known.confirmed > NO_ENTRY
        }

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────

    def violations(self, facts: Mapping[int, Fact]) -> Iterator[str]:
        """Everything that is wrong with what a store shows."""
        for ledger_id, known in self._known.items():
            fact = facts.get(ledger_id)
            if known.fence_answered and not (fact and fact.fenced):
                yield f"the fence of ledger {ledger_id} is lost: {fact}"
            if known.confirmed > NO_ENTRY and (fact is None or fact.explicit_lac < known.confirmed):
                yield f"ledger {ledger_id} was confirmed to {known.confirmed}, and shows {fact}"
        for ledger_id, fact in facts.items():
            known = self.of(ledger_id)
            if fact.fenced and not known.fence_asked:
                yield f"ledger {ledger_id} is fenced, and nobody asked for it"
            if fact.explicit_lac not in known.said | {NO_ENTRY}:
                yield f"ledger {ledger_id} is confirmed to {fact.explicit_lac}, which nobody said"
            if fact.digest_type not in known.digest_types:
                yield f"ledger {ledger_id} has the digest {fact.digest_type}, of {known.digest_types}"

"""A store's promises about ledgers beside their entries: fences, and explicit last adds confirmed.

An answered fence stays until the ledger is deleted; a requested and unanswered fence may be there or not. The
store shows at least the largest answered confirmation, and no fence or confirmation that was not
requested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from storage.entry.model import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.entry.model import DigestType


class LedgerFact(NamedTuple):
    """The state of a ledger as a store shows it."""

    fenced: bool
    explicit_lac: int
    digest_type: DigestType | None


@dataclass(frozen=True)
class _Known:
    """The promises about one ledger."""

    fence_answered: bool = False
    fence_asked: bool = False
    confirmed: int = NO_ENTRY
    said: frozenset[int] = frozenset()
    digest_types: frozenset[DigestType | None] = frozenset()
    """The digest types with which it may have been created; one type as soon as the store has shown it."""


@dataclass
class FactPromises:
    """The promises about all ledgers."""

    _known: dict[int, _Known] = field(default_factory=dict)

    def copy(self) -> FactPromises:
        return FactPromises(dict(self._known))

    def of(self, ledger_id: int) -> _Known:
        return self._known.get(ledger_id, _Known())

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────

    def made(self, ledger_id: int, digest_type: DigestType | None) -> None:
        """Record a request that creates the ledger with this digest type."""
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

    def keep(self, facts: Mapping[int, LedgerFact]) -> None:
        """Record what a running store has shown; it is durable."""
        for ledger_id, fact in facts.items():
            if fact.fenced:
                self.fenced(ledger_id)
            self.confirmed(ledger_id, fact.explicit_lac)

    def settle(self, facts: Mapping[int, LedgerFact]) -> None:
        """Record what an opening has shown; nothing else has survived."""
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
        """Return the ledgers that exist even without entries."""
        return {
            one for one, known in self._known.items() if known.fence_answered or known.confirmed > NO_ENTRY
        }

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────

    def violations(self, facts: Mapping[int, LedgerFact]) -> Iterator[str]:
        """Yield everything that is wrong with what a store shows."""
        for ledger_id, known in self._known.items():
            fact = facts.get(ledger_id)
            if known.fence_answered and not (fact and fact.fenced):
                yield f"the fence of ledger {ledger_id} is lost: {fact}"
            if known.confirmed > NO_ENTRY and (fact is None or fact.explicit_lac < known.confirmed):
                yield f"ledger {ledger_id} was confirmed to {known.confirmed}, and shows {fact}"
        for ledger_id, fact in facts.items():
            known = self.of(ledger_id)
            if fact.fenced and not known.fence_asked:
                yield f"ledger {ledger_id} is fenced, although no fence was requested"
            if fact.explicit_lac not in known.said | {NO_ENTRY}:
                yield f"ledger {ledger_id} is confirmed to {fact.explicit_lac}, which nobody said"
            if fact.digest_type not in known.digest_types:
                yield f"ledger {ledger_id} has the digest {fact.digest_type}, of {known.digest_types}"

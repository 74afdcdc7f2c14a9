"""The ids of ledgers or files that a query asks for, as far as its filters can be applied to ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

_LOWEST = -(1 << 63)
_HIGHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class IdFilter:
    """Ids between two ends, both included, and only those in `among` if it is set."""

    low: int = _LOWEST
    high: int = _HIGHEST
    among: frozenset[int] | None = None

    def at_least(self, low: int) -> IdFilter:
        return replace(self, low=max(self.low, low))

    def at_most(self, high: int) -> IdFilter:
        return replace(self, high=min(self.high, high))

    def one_of(self, ids: Iterable[int]) -> IdFilter:
        named = frozenset(ids)
        return replace(self, among=named if self.among is None else self.among & named)

    def __contains__(self, number: object) -> bool:
        return (
            isinstance(number, int)
            and self.low <= number <= self.high
            and (self.among is None or number in self.among)
        )

    def mask(self, ids: Any) -> Mask | None:
        """Return which of the ids are chosen, or `None` if all are."""
        if self == EVERYTHING:
            return None
        chosen: Mask = (ids >= self.low) & (ids <= self.high)
        if self.among is not None:
            chosen &= np.isin(ids, np.array(sorted(self.among), dtype=np.int64))
        return chosen


EVERYTHING = IdFilter()

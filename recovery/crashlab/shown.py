"""What a store shows after it was opened again: the recover function's answer, as oracles read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.crashlab.history import Value

Key = tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """In the place of a value: the store says that there is one and that it cannot be read."""

    reason: str = ""


@dataclass(frozen=True)
class Shown:
    """Everything that a reader would be told.

    A recover function may return just a mapping of entries; keys that are no tuples become one each.
    """

    entries: Mapping[Key, Value | Unreadable] = field(default_factory=dict)
    fenced: frozenset[Value] = frozenset()
    """Streams that take no more."""
    confirmed: Mapping[Value, int] = field(default_factory=dict)
    """For each stream, up to where it is confirmed."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What the store reported of its files while it opened: bytes cut off, an index made again."""


def as_shown(answer: object) -> Shown:
    """The answer of a recover function as oracles read it; what is no mapping shows nothing to them."""
    if isinstance(answer, Shown):
        return answer
    if not isinstance(answer, Mapping):
        return Shown()
    return Shown({key if isinstance(key, tuple) else (key,): value for key, value in answer.items()})

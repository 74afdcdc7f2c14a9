"""How a recovery ended, and what the store shows after it."""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from recovery.crashlab.record.history import short_text

if TYPE_CHECKING:
    from recovery.crashlab.record.history import Value


Key = tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class UnreadableValue:
    """Takes the place of a value: the store reports that there is one and that it cannot be read."""

    reason: str = ""


@dataclass(frozen=True)
class ObservedState:
    """Everything that a reader of the store sees.

    A recover function may return just a mapping of entries; a key that is not a tuple becomes a tuple of one.
    """

    entries: Mapping[Key, Value | UnreadableValue] = field(default_factory=dict)
    fenced: frozenset[Value] = frozenset()
    """Streams that accept no more entries."""
    confirmed: Mapping[Value, int] = field(default_factory=dict)
    """The confirmed number of each stream."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """The store's messages about its files while it opened: bytes cut off, an index rebuilt."""


def observed_state_of(answer: object) -> ObservedState:
    """Return the answer of a recover function as oracles read it; an answer that is no mapping is empty."""
    if isinstance(answer, ObservedState):
        return answer
    if not isinstance(answer, Mapping):
        return ObservedState()
    return ObservedState({key if isinstance(key, tuple) else (key,): value for key, value in answer.items()})


_TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class Answered:
    """The recover function returned this."""

    answer: object

    def __str__(self) -> str:
        shown = observed_state_of(self.answer)
        if not isinstance(self.answer, ObservedState) and not shown.entries:
            return f"answered {short_text(self.answer)}"
        unreadable = sum(isinstance(value, UnreadableValue) for value in shown.entries.values())
        count = len(shown.entries)
        entries = "entry" if count == 1 else "entries"
        return f"showed {count} {entries}" + (f", {unreadable} unreadable" if unreadable else "")


@dataclass(frozen=True, slots=True)
class RecoveryRefused:
    """The recover function raised, or the program ended with an exit code other than zero."""

    types: tuple[str, ...]
    """The qualified names of the exception's class and its bases, in method resolution order."""
    text: str = ""
    exit_code: int = 0
    """The exit code of a program; `types` is empty then."""

    def __str__(self) -> str:
        name = self.types[0].rpartition(".")[2] if self.types else f"exit code {self.exit_code}"
        text = " ".join(self.text.split())[:_TEXT_MAX]
        return f"refused with {name}" + (f": {text}" if text else "")


@dataclass(frozen=True, slots=True)
class Died:
    """A signal ended the process."""

    signal: int

    def __str__(self) -> str:
        return f"died of {_name(self.signal)}"


@dataclass(frozen=True, slots=True)
class Hung:
    """The process was killed because its time was over."""

    def __str__(self) -> str:
        return "hung"


Outcome: TypeAlias = Answered | RecoveryRefused | Died | Hung


def refusal_of(error: BaseException) -> RecoveryRefused:
    """Return the outcome that stands for this exception."""
    types = (kind for kind in type(error).__mro__ if kind is not object)
    return RecoveryRefused(tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in types), str(error))


def _name(signal: int) -> str:
    try:
        return signals.Signals(signal).name
    except ValueError:
        return f"signal {signal}"

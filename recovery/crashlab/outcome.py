"""How a recovery ended: it answered, it refused, it died, or it never came back."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass
from typing import TypeAlias

from recovery.crashlab.history import shortly
from recovery.crashlab.shown import Shown, Unreadable, as_shown

_TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class Answered:
    """The recover function returned this."""

    answer: object

    def __str__(self) -> str:
        shown = as_shown(self.answer)
        if not isinstance(self.answer, Shown) and not shown.entries:
            return f"answered {shortly(self.answer)}"
        unreadable = sum(isinstance(value, Unreadable) for value in shown.entries.values())
        count = len(shown.entries)
        entries = "entry" if count == 1 else "entries"
        return f"showed {count} {entries}" + (f", {unreadable} unreadable" if unreadable else "")


@dataclass(frozen=True, slots=True)
class Refused:
    """It raised, or the program ended with an exit code that is not zero."""

    types: tuple[str, ...]
    """The exception's class and those it is derived from, qualified, in the order of resolution."""
    text: str = ""
    exit_code: int = 0
    """Of a program; its types are empty then."""

    def __str__(self) -> str:
        name = self.types[0].rpartition(".")[2] if self.types else f"exit code {self.exit_code}"
        text = " ".join(self.text.split())[:_TEXT_MAX]
        return f"refused with {name}" + (f": {text}" if text else "")


@dataclass(frozen=True, slots=True)
class Died:
    """A signal ended its process."""

    signal: int

    def __str__(self) -> str:
        return f"died of {_name(self.signal)}"


@dataclass(frozen=True, slots=True)
class Hung:
    """It was stopped when its time was over."""

    def __str__(self) -> str:
        return "hung"


Outcome: TypeAlias = Answered | Refused | Died | Hung


def refused(error: BaseException) -> Refused:
    """The outcome that is this exception."""
    types = (kind for kind in type(error).__mro__ if kind is not object)
    return Refused(tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in types), str(error))


def _name(signal: int) -> str:
    try:
        return signals.Signals(signal).name
    except ValueError:
        return f"signal {signal}"

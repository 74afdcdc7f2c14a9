"""A recorded workload: its tape, and the history at each moment of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.crashlab.record import tape
from recovery.crashlab.record.history import HistoryBuilder
from recovery.crashlab.record.tape import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from recovery.crashlab.record.history import History
    from recovery.crashlab.record.tape import Event


@dataclass(frozen=True, slots=True)
class Recording:
    """A workload that was run once, without faults."""

    name: str
    tape: Path

    def events(self) -> list[Event]:
        return list(tape.decode(self.tape.read_bytes()))


def histories(events: Sequence[Event], indexes: Iterable[int]) -> dict[int, History]:
    """Return the history before each of these events, and at the end."""
    register, found, wanted = HistoryBuilder(), {}, set(indexes)
    for index, event in enumerate(events):
        if index in wanted:
            found[index] = register.history()
        if event.call is Call.MARK:
            register.take(event.data)
    found[len(events)] = register.history()
    return found

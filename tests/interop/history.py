"""The history of what clients did with ledgers: one line of JSON when a call begins, and one when it ends.

    {"event": "invoke", "op": 7, "client": "java", "call": "append", "ledger": 4, "payload": "a", "size": 1}
    {"event": "ok", "op": 7, "entry": 0}

A call ends with `ok`, with `fail` if it certainly had no effect, or with `unknown`. All clients of a history
are recorded by one process, so that the order of the lines is an order of time. The calls:

    call       invoke                   ok
    create                              ledger
    append     ledger, payload, size    entry
    close      ledger                   last, length
    take_over  ledger                   last, length
    read       ledger, reader, first    entries [[id, payload]], lac; of a closed ledger also last, length

`payload` is a text that is different for each append of a ledger. If the entry has other bytes, the text
names them. `size` is the number of its bytes.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class EventKind(enum.Enum):
    """The kinds of lines of a history."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history."""

    kind: EventKind
    op: int
    """The number of the call. Its two lines have the same."""
    fields: Mapping[str, Any] = field(default_factory=dict)


def encode(event: Event) -> str:
    return json.dumps({"event": event.kind.value, "op": event.op, **event.fields})


def decode(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        fields = json.loads(line)
        yield Event(EventKind(fields.pop("event")), fields.pop("op"), fields)


class History:
    """A history that is being recorded."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._calls = 0

    def invoke(self, client: str, call: str, **fields: object) -> int:
        """Note the begin of a call, before anything of it is sent; return its number."""
        self._calls += 1
        self.events.append(Event(EventKind.INVOKE, self._calls, {"client": client, "call": call, **fields}))
        return self._calls

    def ok(self, op: int, **fields: object) -> None:
        self.events.append(Event(EventKind.OK, op, fields))

    def fail(self, op: int, reason: str) -> None:
        self.events.append(Event(EventKind.FAIL, op, {"reason": reason}))

    def unknown(self, op: int, reason: str) -> None:
        self.events.append(Event(EventKind.UNKNOWN, op, {"reason": reason}))

    def lines(self) -> str:
        return "".join(f"{encode(event)}\n" for event in self.events)

"""The operations of a simulated disk as a tape: what its states are held against, and what layers can play.

The tape of one boot: a power cut is on no tape. What a disk was only asked, and refused whole, is told with
its error; a sync that was refused so has forgotten nothing, which no tape can say, so it is left out.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from recovery.crashlab.faults import NOTHING, FirstBytes, SomeUnits
from recovery.crashlab.tape import Call, Event, Flag
from recovery.crashlab.trace import SYNCING, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.crashlab.trace import Operation

_CALLS = {
    Verb.CREATE: Call.CREATE,
    Verb.LOCK: Call.CREATE,
    Verb.MAKE: Call.MKDIR,
    Verb.WRITE: Call.WRITE,
    Verb.ZERO_FILL: Call.WRITE,
    Verb.SYNC: Call.SYNC,
    Verb.SYNC_DIRECTORY: Call.SYNC,
    Verb.RENAME: Call.RENAME,
    Verb.REMOVE: Call.UNLINK,
}


def tape_of(trace: Iterable[Operation]) -> Iterator[Event]:
    """The events of these operations, which have the same numbers; inodes are the platter's own."""
    made: set[int] = set()
    for operation in trace:
        is_refused = operation.extent == NOTHING
        if operation.verb is Verb.LOCK and (is_refused or operation.node in made):
            continue
        if operation.verb in SYNCING and is_refused:
            continue
        if not is_refused:
            made.add(operation.node)
        yield _event(operation)


def _event(operation: Operation) -> Event:
    data = operation.data
    if isinstance(operation.extent, FirstBytes):
        data = data[: operation.extent.size]
    return Event(
        _CALLS[operation.verb],
        operation.number,
        _below(operation.path),
        _below(operation.target) if operation.target else "",
        operation.node,
        operation.offset,
        len(data) or operation.size,
        _flags(operation),
        _error(operation),
        data=data,
    )


def _flags(operation: Operation) -> int:
    is_directory = operation.verb in {Verb.SYNC_DIRECTORY, Verb.MAKE}
    was_struck = operation.outcome not in {"done", "stopped"}
    return (Flag.DIRECTORY if is_directory else 0) | (Flag.INJECTED if was_struck else 0)


def _error(operation: Operation) -> int:
    """Of what had no effect, or lost some; a write that fell short is told by its size."""
    if operation.extent == NOTHING or isinstance(operation.extent, SomeUnits):
        return int(getattr(errno, operation.outcome))
    return 0


def _below(path: str) -> str:
    return path.strip("/") or "."

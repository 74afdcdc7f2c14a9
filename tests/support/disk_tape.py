"""The trace of a simulated disk as a tape, to compare its states with those of a played tape.

It is the tape of one boot, without power cuts. A refused operation is on the tape with its error. A refused
sync is left out, because on a tape a failed sync always loses data.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from recovery.crashlab.model.disk_errors import NOTHING, FirstBytes, SomeUnits
from recovery.crashlab.model.operations import SYNCING, Verb
from recovery.crashlab.record.tape import Call, Event, Flag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.crashlab.model.operations import Operation

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
    """Yield the events of these operations, with the same numbers; inodes are nodes of the platter."""
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
    """Return the error of an operation that had no effect or lost data; a short write shows by its size."""
    if operation.extent == NOTHING or isinstance(operation.extent, SomeUnits):
        return int(getattr(errno, operation.outcome))
    return 0


def _below(path: str) -> str:
    return path.strip("/") or "."

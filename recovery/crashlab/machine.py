"""The machine between a program and its disk: it runs until it is stopped, and then runs nothing more.

Every operation passes through `perform`, which is where the trace is kept, faults strike and the machine
stops. One thread at a time: the numbers of the operations are what makes a run repeatable.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.crashlab.faults import NOTHING, Faults, FirstBytes, Whole
from recovery.crashlab.trace import WRITING, Operation, Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab.faults import Extent, Fault
    from recovery.crashlab.platter import Platter


class Stopped(BaseException):
    """The machine stopped here: no line of the program behind this operation has run.

    Not an `Exception`, so that no handler of the program takes it for an error it can deal with.
    """


class DeadHandle(Stopped):
    """A file, directory or lock of a process that was killed or lost its power was used."""


class Machine:
    """One machine with one disk, over all its boots."""

    def __init__(self, platter: Platter, trace: list[Operation], capacity: int | None) -> None:
        self.platter = platter
        self.trace = trace
        self.capacity = capacity
        self.faults = Faults()
        self.locked: set[int] = set()
        self.watchers: list[Callable[[Operation], None]] = []
        self.boot = 0
        self._last: int | None = None
        self._last_extent: Callable[[Operation], Extent] = _nothing
        self._stopped = ""

    def stop_before(self, number: int) -> None:
        """Nothing of that operation is done, nor of any later one."""
        self._last, self._last_extent = number, _nothing

    def stop_within(self, number: int) -> None:
        """Half the bytes are written, if it is a write, and nothing later is done."""
        self._last, self._last_extent = number, _half

    def reboot(self, platter: Platter) -> None:
        """A new start with that disk: whatever belonged to the old process is dead."""
        self.platter = platter
        self.boot += 1
        self.locked = set()
        self._last, self._stopped = None, ""

    def check(self, boot: int) -> None:
        """Raises unless the process that asks is alive."""
        if boot != self.boot:
            raise DeadHandle("this handle belongs to a process that is gone")
        if self._stopped:
            raise Stopped(self._stopped)

    def attempt(
        self, verb: Verb, path: str, node: int = 0, *, offset: int = 0, data: bytes = b"", target: str = ""
    ) -> Operation:
        number = len(self.trace) + 1
        return Operation(number, verb, path, offset, len(data), target, node=node, data=data)

    def perform(
        self, operation: Operation, act: Callable[[Extent], object], own_fault: Fault | None = None
    ) -> None:
        """Does as much of an operation as it is granted, and raises what it meets."""
        for watcher in self.watchers:
            watcher(operation)
        if operation.number == self._last:
            self._stop(operation, act)
        # A planted fault first: it counts the operation even when the disk is full as well.
        fault = self.faults.strike(operation) or own_fault
        extent = fault.extent(operation) if fault else Whole()
        if extent != NOTHING:
            act(extent)
        outcome = errno.errorcode[fault.error] if fault else "done"
        self.trace.append(replace(operation, outcome=outcome, extent=extent))
        if fault:
            raise _error(fault, operation.path)

    def _stop(self, operation: Operation, act: Callable[[Extent], object]) -> None:
        extent = self._last_extent(operation)
        if extent != NOTHING:
            act(extent)
            self.trace.append(replace(operation, outcome="stopped", extent=extent))
        # Stopped for what the program does while it unwinds, too: a dead process cleans nothing up.
        self._stopped = f"stopped at operation {operation.number}, {operation.verb} {operation.path}"
        raise Stopped(self._stopped)

    def look(self, verb: Verb, path: str) -> None:
        """Raises the fault that a reading operation meets, if there is one."""
        fault = self.faults.strike(Operation(0, verb, path))
        if fault is not None:
            raise _error(fault, path)

    def room(self) -> int | None:
        """Bytes that can still be allocated; None where there is no limit."""
        return None if self.capacity is None else max(0, self.capacity - self.platter.used())


def _nothing(_: Operation) -> Extent:
    return NOTHING


def _half(operation: Operation) -> Extent:
    return FirstBytes(operation.size // 2) if operation.verb in WRITING else NOTHING


def _error(fault: Fault, path: str) -> OSError:
    return OSError(fault.error, os.strerror(fault.error), path)

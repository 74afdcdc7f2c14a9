"""The machine that runs a program and has one disk. After a stop, it runs nothing more.

Every operation passes through `perform`, which records the trace, applies faults and stops the machine. Use
it from one thread only, because a run is repeatable only if operations always get the same numbers.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.crashlab.model.disk_errors import NOTHING, DiskFaults, FirstBytes, Whole
from recovery.crashlab.model.operations import WRITING, Operation, Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab.model.disk_errors import Extent, Fault
    from recovery.crashlab.model.platter import Platter


class Stopped(BaseException):
    """The machine stopped here, so the program must not run any further.

    This is not an `Exception`, so that no handler in the program treats it as an error that it can recover
    from.
    """


class DeadHandle(Stopped):
    """A file, directory or lock was used after its process was killed or lost its power."""


class SimulatedMachine:
    """One machine with one disk, over all its boots."""

    def __init__(self, platter: Platter, trace: list[Operation], capacity: int | None) -> None:
        self.platter = platter
        self.trace = trace
        self.capacity = capacity
        self.faults = DiskFaults()
        self.locked: set[int] = set()
        self.watchers: list[Callable[[Operation], None]] = []
        self.boot = 0
        self._last: int | None = None
        self._last_extent: Callable[[Operation], Extent] = _nothing
        self._stopped = ""

    def stop_before(self, number: int) -> None:
        """Stop before that operation."""
        self._last, self._last_extent = number, _nothing

    def stop_within(self, number: int) -> None:
        """Stop after half the bytes of that operation if it is a write, else before it."""
        self._last, self._last_extent = number, _half

    def reboot(self, platter: Platter) -> None:
        """Start again with that disk. All handles of the old process become invalid."""
        self.platter = platter
        self.boot += 1
        self.locked = set()
        self._last, self._stopped = None, ""

    @property
    def has_stopped(self) -> bool:
        """Whether the machine has stopped and was not started again."""
        return bool(self._stopped)

    def check(self, boot: int) -> None:
        """Raise unless the process of that boot is alive."""
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
        """Do as much of an operation as faults and stops permit, and raise their error."""
        for watcher in self.watchers:
            watcher(operation)
        if operation.number == self._last:
            self._stop(operation, act)
        # Check planted faults even if the disk is full, so that they count this operation.
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
        # The stop also holds for cleanup code of the program, because a dead process cleans nothing up.
        self._stopped = f"stopped at operation {operation.number}, {operation.verb} {operation.path}"
        raise Stopped(self._stopped)

    def look(self, verb: Verb, path: str) -> None:
        """Raise the fault that a reading operation hits, if any."""
        fault = self.faults.strike(Operation(0, verb, path))
        if fault is not None:
            raise _error(fault, path)

    def room(self) -> int | None:
        """Return how many bytes can still be allocated; None if there is no limit."""
        return None if self.capacity is None else max(0, self.capacity - self.platter.used())


def _nothing(_: Operation) -> Extent:
    return NOTHING


def _half(operation: Operation) -> Extent:
    return FirstBytes(operation.size // 2) if operation.verb in WRITING else NOTHING


def _error(fault: Fault, path: str) -> OSError:
    return OSError(fault.error, os.strerror(fault.error), path)

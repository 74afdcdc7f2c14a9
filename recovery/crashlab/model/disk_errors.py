"""Disk errors: what fails, and at which operations.

There are three kinds, because an error alone does not say how much of the operation was done: nothing was
done, a write stopped half way, or a sync lost data that it should have saved.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import ClassVar

from recovery.crashlab.model.operations import LOOKING, SYNCING, WRITING, Operation, Verb


class Lasting(Enum):
    """How often a fault strikes."""

    ONCE = "the one operation"
    UNTIL_MENDED = "that operation and every later one that matches"


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Selects operations: the n-th of those that match, counted from the moment the fault is planted.

    `name` is a pattern for the path or its last part. Without a verb, every numbered operation matches.
    """

    verb: Verb | None = None
    name: str = "*"
    number: int | None = None
    nth: int = 1
    lasting: Lasting = Lasting.ONCE

    def matches(self, operation: Operation) -> bool:
        return (
            (operation.verb is self.verb if self.verb else operation.verb not in LOOKING)
            and self.number in (None, operation.number)
            and any(self._names(path) for path in (operation.path, operation.target) if path)
        )

    def _names(self, path: str) -> bool:
        return fnmatchcase(path, self.name) or fnmatchcase(path.rpartition("/")[2], self.name)


class Pages(Enum):
    """The content that reads see of pages that a failed sync did not write but marked clean."""

    KEPT = "reads show them still"
    EVICTED = "the system needed the memory: reads show what is durable"


@dataclass(frozen=True, slots=True)
class FirstBytes:
    """Only the first `size` bytes of the operation are done."""

    size: int


@dataclass(frozen=True, slots=True)
class SomeUnits:
    """Only a part of the pending data, chosen by the seed, is written back; all of it counts as clean."""

    seed: int
    pages: Pages


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole operation is done."""


Extent = Whole | FirstBytes | SomeUnits
NOTHING = FirstBytes(0)


@dataclass(frozen=True, slots=True)
class Refused:
    """The operation fails and does nothing. Data that waited for a failed sync still waits."""

    verbs: ClassVar[frozenset[Verb]] = frozenset(Verb)
    when: When
    error: int = errno.EIO

    def extent(self, operation: Operation) -> Extent:  # noqa: ARG002 - the same for all
        return NOTHING


@dataclass(frozen=True, slots=True)
class ShortWrite:
    """A write fails after its first bytes reached the cache: half of them, or `accepted` bytes."""

    verbs: ClassVar[frozenset[Verb]] = WRITING
    when: When
    error: int = errno.ENOSPC
    accepted: int | None = None

    def extent(self, operation: Operation) -> Extent:
        return FirstBytes(
            operation.size // 2 if self.accepted is None else min(self.accepted, operation.size)
        )


@dataclass(frozen=True, slots=True)
class FailedSync:
    """A sync fails: a part of the pending data is durable; of the rest, at best, reads still show it.

    All pages are marked clean, so the next sync succeeds without writing them, and a power cut loses them.
    """

    verbs: ClassVar[frozenset[Verb]] = SYNCING
    when: When
    error: int = errno.EIO
    seed: int = 0
    pages: Pages = Pages.KEPT

    def extent(self, operation: Operation) -> Extent:  # noqa: ARG002 - the same for all
        return SomeUnits(self.seed, self.pages)


Fault = Refused | ShortWrite | FailedSync


@dataclass(slots=True)
class _PlantedDiskFault:
    fault: Fault
    seen: int = 0

    def strikes(self, operation: Operation) -> bool:
        when = self.fault.when
        if operation.verb not in self.fault.verbs or not when.matches(operation):
            return False
        self.seen += 1
        return self.seen == when.nth or (self.seen > when.nth and when.lasting is Lasting.UNTIL_MENDED)


@dataclass(slots=True)
class DiskFaults:
    """The faults planted in a disk."""

    _planted: list[_PlantedDiskFault] = field(default_factory=list)

    def plant(self, fault: Fault) -> None:
        self._planted.append(_PlantedDiskFault(fault))

    def mend(self) -> None:
        """Remove every fault."""
        self._planted.clear()

    def strike(self, operation: Operation) -> Fault | None:
        """Return the fault that this operation hits, if any. Every matching fault counts the operation."""
        struck = [planted.fault for planted in self._planted if planted.strikes(operation)]
        return struck[0] if struck else None

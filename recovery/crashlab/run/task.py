"""The tasks that a layer gives to workers, and the messages that workers send back.

Work is shared by counting: each of `of` workers takes its part of one list that all of them compute. So the
explored states depend on the seed only, and not on the speed of workers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from recovery.crashlab.judge.occurrence import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from recovery.crashlab.model.real_tree import IgnoredPaths
    from recovery.crashlab.run.image_checker import ImageChecker
    from recovery.crashlab.run.runner import Runner
    from recovery.crashlab.run.spec import Spec

_Item = TypeVar("_Item")
Message_co = TypeVar("Message_co", covariant=True)


@dataclass(frozen=True, slots=True)
class WorkShare:
    """The part of the work that one worker does, and when it stops."""

    index: int = 0
    of: int = 1
    until: float | None = None
    """By the clock of `time.monotonic`, which all processes share."""

    def has(self, number: int) -> bool:
        return number % self.of == self.index

    def has_image(self, image: str) -> bool:
        """Return whether this worker handles the image.

        Equal images fall to one worker, which recovers them once.
        """
        return int(image[-8:], 16) % self.of == self.index

    @property
    def is_over(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def mine(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield this worker's part of a list, until the time is over."""
        for number, item in enumerate(items):
            if self.is_over:
                return
            if self.has(number):
                yield item


@dataclass(frozen=True, slots=True)
class CountsReport:
    """Numbers to add to the counts of the layer."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TableReport:
    """Adds one to a cell of the layer's table."""

    row: str
    column: str


@dataclass(frozen=True, slots=True)
class ImagesReport:
    """Explored images, so that distinct ones can be counted over all workers."""

    images: frozenset[str]


@dataclass(frozen=True, slots=True)
class NotCovered:
    """Something that this layer did not cover, and why."""

    what: str


Message: TypeAlias = CountsReport | TableReport | ImagesReport | NotCovered | Occurrence


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The tools of a worker."""

    spec: Spec
    runner: Runner
    checker: ImageChecker

    @property
    def ignored(self) -> IgnoredPaths:
        return self.spec.ignored


class WorkerTask(Protocol[Message_co]):
    """Work for one worker. The tasks of layers yield messages."""

    def work(self, context: WorkerContext) -> Iterator[Message_co]:
        """Do the work and yield messages meanwhile."""


def shuffled(items: Iterable[_Item], *seed: object) -> list[_Item]:
    """Return the items in an order from the seed, so that a short run covers some of everything."""
    drawn = list(items)
    Random(" ".join(map(str, seed))).shuffle(drawn)
    return drawn


def batches(items: Iterable[_Item], size: int = 40) -> Iterator[list[_Item]]:
    """Yield groups of items, to be recovered in one child each."""
    waiting = iter(items)
    while group := list(islice(waiting, size)):
        yield group

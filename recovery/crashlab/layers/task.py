"""What a layer gives a worker to do, and what it says meanwhile.

Work is shared by counting: each of `of` workers takes its own part of one list that all of them know, so
that what is explored depends on the seed only, and not on who was faster.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from recovery.crashlab import tape
from recovery.crashlab.history import Register
from recovery.crashlab.tape import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from recovery.crashlab.history import History
    from recovery.crashlab.judge import Judge
    from recovery.crashlab.oracles import Breach
    from recovery.crashlab.pending import Survivors
    from recovery.crashlab.playback import Ignored
    from recovery.crashlab.preload import Orders
    from recovery.crashlab.running import Runner
    from recovery.crashlab.spec import Spec
    from recovery.crashlab.tape import Event
    from recovery.crashlab.tree import Tree

_Item = TypeVar("_Item")
Said_co = TypeVar("Said_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Share:
    """One worker's part, and the moment at which it stops."""

    index: int = 0
    of: int = 1
    until: float | None = None
    """On the clock of `time.monotonic`, which all processes share."""

    def has(self, number: int) -> bool:
        return number % self.of == self.index

    def has_image(self, image: str) -> bool:
        """Images are shared by their digests: equal ones fall to one worker, which recovers them once."""
        return int(image[-8:], 16) % self.of == self.index

    @property
    def is_over(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def mine(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The part of a list, until the time is over."""
        for number, item in enumerate(items):
            if self.is_over:
                return
            if self.has(number):
                yield item


@dataclass(frozen=True, slots=True)
class Recording:
    """A workload that was run once, undisturbed."""

    name: str
    tape: Path

    def events(self) -> list[Event]:
        return list(tape.decode(self.tape.read_bytes()))


@dataclass(frozen=True, slots=True)
class Crash:
    """A power cut of the model: where on the tapes, and what survived.

    The first tape is a workload's; one more for each recovery that was crashed as well, played onto what the
    crash before it had left, or, behind a kill, onto all that was there.
    """

    at: int
    """The index of the event before which it happened."""
    survivors: Survivors | None
    """None: a kill, which loses nothing yet."""
    nodes: Mapping[int, int] = field(default_factory=dict)
    """Which inodes of the next tape are which nodes of what this crash left."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A breach that a worker has seen, with the image that shows it."""

    layer: str
    workload: str
    at: int
    """The number of the call at which it crashed; 0 where there is none."""
    call: str
    """That call, for people."""
    breach: Breach
    how: str
    """What happened: the fate, the kill, the fault, the damage."""
    image: Tree
    history: History
    crashes: tuple[Crash, ...] = ()
    tapes: tuple[bytes, ...] = ()
    """One for each crash, but for a first one that is the workload's, undisturbed."""
    orders: Orders | None = None
    undamaged: Tree | None = None
    """Of rot: the image without it."""

    @property
    def signature(self) -> tuple[str, ...]:
        """Sightings with the same one are most likely the same bug."""
        struck, _, place = self.call.partition(", ")  # "EIO at 7", "write a.log, 10 bytes at 3"
        words = [*struck.split(" at ")[:1], *place.split(" ")[:2]]
        return self.breach.kind, self.layer, re.sub(r"\d+", "#", " ".join(words))


@dataclass(frozen=True, slots=True)
class Counted:
    """So many more of everything."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tabled:
    """One more in a table."""

    row: str
    column: str


@dataclass(frozen=True, slots=True)
class Covered:
    """Images that were explored, so that they can be counted together."""

    images: frozenset[str]


@dataclass(frozen=True, slots=True)
class NotCovered:
    """Something that this layer does not speak of, and why."""

    what: str


Message: TypeAlias = Counted | Tabled | Covered | NotCovered | Sighting


@dataclass(frozen=True, slots=True)
class Bench:
    """A worker's tools."""

    spec: Spec
    runner: Runner
    judge: Judge

    @property
    def ignored(self) -> Ignored:
        return self.spec.ignored


class Task(Protocol[Said_co]):
    """Work for one worker; a layer's says messages."""

    def work(self, bench: Bench) -> Iterator[Said_co]:
        """Does it, saying what it does as it goes on."""


def histories(events: Sequence[Event], indexes: Iterable[int]) -> dict[int, History]:
    """What had been asked and answered before each of these events."""
    register, found, wanted = Register(), {}, set(indexes)
    for index, event in enumerate(events):
        if index in wanted:
            found[index] = register.history()
        if event.call is Call.MARK:
            register.take(event.data)
    found[len(events)] = register.history()
    return found


def shuffled(items: Iterable[_Item], *seed: object) -> list[_Item]:
    """In an order that only the seed decides: whoever runs out of time has seen some of everything."""
    drawn = list(items)
    Random(" ".join(map(str, seed))).shuffle(drawn)
    return drawn


def grouped(items: Iterable[_Item], size: int = 40) -> Iterator[list[_Item]]:
    """So many at a time, to be recovered in one child."""
    waiting = iter(items)
    while group := list(islice(waiting, size)):
        yield group

"""Whether every contender does the work: the calls that make data durable, beside what it acknowledges.

Counted from outside, by the crash laboratory's recorder, which stands in front of libc: nobody is asked
whether he has synced. A synced write (O_DSYNC) counts as a sync.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import adding
from contest import why_not
from effort import TINY
from player import Player
from work import Work

from recovery.crashlab import preload, tape
from recovery.crashlab.preload import Orders
from recovery.crashlab.tape import Call, Flag

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from player import Contender

ADDS = 1000
WORKS = {
    "one by one": Work(size=100),
    "batches of ten": Work(size=100, batch=10),
    "eight writers": Work(size=100, writers=8),
}
_EXACT = {"ours", adding.ASYNC, "raw"}
EFFORT = replace(TINY, raw_size=32 << 20)
_ROOM = 8 << 20  # for each add a unit of the journal's alignment, and some
_NO_MARKS = -1
_AMPLE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one contender has acknowledged, and how often it has synced for that."""

    contender: str
    acknowledged: int
    """Adds of one entry each, or batches."""
    syncs: int
    writers: int = 1
    """So many share a sync at most, as each waits for its add."""
    is_exact: bool
    """Whether one for each is asked for, no more."""

    @property
    def least(self) -> int:
        """How many syncs that takes."""
        return -(-self.acknowledged // self.writers)

    @property
    def is_honest(self) -> bool:
        return self.syncs == self.least if self.is_exact else self.syncs >= self.least

    def __str__(self) -> str:
        asked = "exactly" if self.is_exact else "at least"
        verdict = "" if self.is_honest else f": {asked} {self.least:,} are asked for"
        return f"{self.contender}: {self.syncs:,} syncs for {self.acknowledged:,} acknowledged{verdict}"


def why_not_here() -> str:
    """Why nothing can be counted here; nothing when it can."""
    return preload.why_not()


def everybody(place: Path, adds: int = ADDS) -> Iterator[Counted | str]:
    """Each with every kind of work; a line of text for who is missing."""
    for kind, work in WORKS.items():
        awaited = [] if work.batch > 1 else [adding.ours_async(work, EFFORT)]
        raws = [adding.raw_file(work, EFFORT)]
        for one in [
            adding.ours(work, EFFORT),
            *awaited,
            *(adding.peer(name, work) for name in adding.PEERS),
            *raws,
        ]:
            if why := why_not(one):
                yield f"{one.name}: {why}"
            else:
                found = count(one, work, place / f"{kind} {one.name}", adds // work.batch)
                yield replace(found, contender=f"{one.name}, {kind}")


def count(contender: Contender, work: Work, place: Path, calls: int) -> Counted:
    """So many calls of the contender, whose work that is, under the recorder."""
    root, record = place / "root", place / "tape"
    root.mkdir(parents=True)
    environment = preload.environment(place, record, _NO_MARKS, Orders())
    with Player(replace(contender, environment=environment), root) as player:
        player.ask("prepare", size=_ROOM)
        player.ask("settle")
        before = record.stat().st_size
        made = int(player.ask("add", seconds=_AMPLE_S, calls=calls)["calls"])
        added = record.read_bytes()[before:]
    syncs = sum(map(_makes_durable, tape.decode(added)))
    return Counted(
        contender=contender.name,
        acknowledged=made,
        syncs=syncs,
        writers=work.writers,
        is_exact=work.writers == 1 and contender.name in _EXACT,
    )


def _makes_durable(event: tape.Event) -> bool:
    is_sync = event.is_sync or event.call is Call.MSYNC
    return is_sync and not event.error and not event.flags & Flag.DIRECTORY

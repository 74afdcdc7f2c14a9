"""Checks that every contender syncs: counts its sync calls, and compares them with its acknowledgements.

The recorder of the crash laboratory counts the calls from outside, because it intercepts calls of libc. The
contenders need not report them. A synced write (O_DSYNC) counts as a sync.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from contest.contender_process import ContenderProcess
from contest.contest import why_unavailable
from contest.run_size import TINY
from contest.workload import Work

from recovery.crashlab.record import preload, tape
from recovery.crashlab.record.preload import Orders
from recovery.crashlab.record.tape import Call, Flag
from scenarios import adding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from contest.contender_process import Contender

ADDS = 1000
WORKS = {
    "one by one": Work(size=100),
    "batches of ten": Work(size=100, batch=10),
    "eight writers": Work(size=100, writers=8),
}
_EXACT = {"ours", adding.ASYNC, "raw"}
EFFORT = replace(TINY, raw_size=32 << 20)
_ROOM = 8 << 20  # more than one unit of journal alignment for each add
_NO_MARKS = -1
_AMPLE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncCount:
    """Number of acknowledgements of one contender, and of the syncs for them."""

    contender: str
    acknowledged: int
    """Number of single adds or of batches."""
    syncs: int
    writers: int = 1
    """Number of writers. At most this many adds share a sync, because each writer waits for its add."""
    is_exact: bool
    """Whether the number of syncs must be exact, not only large enough."""

    @property
    def least(self) -> int:
        """The minimum number of syncs."""
        return -(-self.acknowledged // self.writers)

    @property
    def is_honest(self) -> bool:
        return self.syncs == self.least if self.is_exact else self.syncs >= self.least

    def __str__(self) -> str:
        bound = "exactly" if self.is_exact else "at least"
        verdict = "" if self.is_honest else f": {bound} {self.least:,} are needed"
        return f"{self.contender}: {self.syncs:,} syncs for {self.acknowledged:,} acknowledged{verdict}"


def why_not_recorded() -> str:
    """Return why syncs cannot be counted on this machine, or an empty string."""
    return preload.why_not()


def sync_counts_of_all(place: Path, adds: int = ADDS) -> Iterator[SyncCount | str]:
    """Yield the count of each contender with every kind of work, or a line of text if it is missing."""
    for kind, work in WORKS.items():
        asynchronous = [] if work.batch > 1 else [adding.ours_async(work, EFFORT)]
        raws = [adding.raw_file(work, EFFORT)]
        for one in [
            adding.ours(work, EFFORT),
            *asynchronous,
            *(adding.peer(name, work) for name in adding.PEERS),
            *raws,
        ]:
            if why := why_unavailable(one):
                yield f"{one.name}: {why}"
            else:
                found = count_syncs(one, work, place / f"{kind} {one.name}", adds // work.batch)
                yield replace(found, contender=f"{one.name}, {kind}")


def count_syncs(contender: Contender, work: Work, place: Path, calls: int) -> SyncCount:
    """Let the contender make `calls` calls under the recorder, and count its syncs."""
    root, record = place / "root", place / "tape"
    root.mkdir(parents=True)
    environment = preload.environment(place, record, _NO_MARKS, Orders())
    with ContenderProcess(replace(contender, environment=environment), root) as process:
        process.ask("prepare", size=_ROOM)
        process.ask("settle")
        before = record.stat().st_size
        made = int(process.ask("add", seconds=_AMPLE_S, calls=calls)["calls"])
        added = record.read_bytes()[before:]
    syncs = sum(map(_makes_durable, tape.decode(added)))
    return SyncCount(
        contender=contender.name,
        acknowledged=made,
        syncs=syncs,
        writers=work.writers,
        is_exact=work.writers == 1 and contender.name in _EXACT,
    )


def _makes_durable(event: tape.Event) -> bool:
    is_sync = event.is_sync or event.call is Call.MSYNC
    return is_sync and not event.error and not event.flags & Flag.DIRECTORY

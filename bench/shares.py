"""What an add is made of: write, sync, and what is computed, beside the raw limit in the same rounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from our_store import Ours, OursAsync
from raw import RawFile
from timing import Limit
from watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KIB = 1 << 10
_FILE = 256 << 20
_FRAME = 100
"""What a record takes beside its payload, and more."""
_LEAST = 40
_US = 1000.0
_JOURNAL = ("write journal", "sync journal")


@dataclass(frozen=True, slots=True)
class Parts:
    """Microseconds of one call in a round."""

    raw: float
    ours: float
    write: float
    sync: float

    @property
    def computed(self) -> float:
        return self.ours - self.write - self.sync


def one_writer(place: Path, batch: int, size: int, rounds: int, turn: int) -> Iterator[Parts]:
    """Rounds of one thread that adds batches, `turn` bytes in each."""
    work = {"size": size, "batch": batch}
    (place / "raw").mkdir(parents=True)
    raw, ours = RawFile(place / "raw", _FILE, **work), Ours(place, "journals-only", _FILE, **work)
    calls = max(_LEAST, turn // (batch * (size + _FRAME) + 4096))
    for number in range(rounds + 1):
        told = raw.add(10, calls)
        ours.prepare(calls * (batch * (size + _FRAME) + 8192))
        with Watch() as watch:
            timed = ours.run(Limit(10, calls))
        if number:  # the first is for warming up
            each = [watch.microseconds(what) / calls for what in _JOURNAL]
            yield Parts(told["seconds"] * 1e6 / told["calls"], timed.elapsed / _US / calls, *each)
    ours.close()
    raw.close()


def one_writer_of_raw(place: Path, rounds: int, calls: int) -> float:
    """Our add of 1 KB as a share of the raw limit, in turns so short that both see the same disk."""
    work = {"size": _KIB}
    (place / "raw").mkdir(parents=True)
    raw, ours = RawFile(place / "raw", _FILE, **work), Ours(place, "journals-only", _FILE, **work)
    shares = []
    for _ in range(rounds):
        limit = raw.timed(10, calls).elapsed
        ours.prepare(calls * 8192)
        shares.append(limit / ours.run(Limit(10, calls)).elapsed)
    ours.close()
    raw.close()
    return statistics.median(shares)


def coroutines(place: Path, writers: int, rounds: int, turn: int) -> Iterator[Parts]:
    """The same of one add of many at once, whose group is shared."""
    work = {"size": _KIB, "writers": writers}
    (place / "raw").mkdir(parents=True)
    raw, ours = RawFile(place / "raw", _FILE, **work), OursAsync(place, "journals-only", _FILE, **work)
    calls = turn // (_KIB + _FRAME)
    for number in range(rounds + 1):
        told = raw.add(10, calls)
        ours.prepare(2 * turn)
        with Watch() as watch:
            timed = ours.run(Limit(10, calls // writers))
        if number:
            made = len(timed.latencies)
            each = [watch.microseconds(what) / made for what in _JOURNAL]
            yield Parts(1e6 / told["rate"], timed.elapsed / _US / made, *each)
    ours.close()
    raw.close()

"""The parts of an add: write, sync and computation, compared with the raw limit in the same rounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contenders.our_store import Ours, OursAsync
from contenders.raw import RawFile
from contest.timing import Limit

from studies.file_trace import FileTrace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KIB = 1 << 10
_FILE = 256 << 20
_FRAME = 100
"""Bytes of a record besides its payload, rounded up."""
_LEAST = 40
_US = 1000.0
_JOURNAL = ("write journal", "sync journal")


@dataclass(frozen=True, slots=True)
class CallParts:
    """Microseconds of one call and of its parts."""

    raw: float
    ours: float
    write: float
    sync: float

    @property
    def computed(self) -> float:
        return self.ours - self.write - self.sync


def one_writer(place: Path, batch: int, size: int, rounds: int, turn: int) -> Iterator[CallParts]:
    """Yield rounds of one thread that adds batches, with `turn` bytes in each round."""
    work = {"size": size, "batch": batch}
    (place / "raw").mkdir(parents=True)
    raw, ours = RawFile(place / "raw", _FILE, **work), Ours(place, "journals-only", _FILE, **work)
    calls = max(_LEAST, turn // (batch * (size + _FRAME) + 4096))
    for number in range(rounds + 1):
        raw_figures = raw.add(10, calls)
        ours.prepare(calls * (batch * (size + _FRAME) + 8192))
        with FileTrace() as watch:
            timed = ours.run(Limit(10, calls))
        if number:  # the first round is for warm-up
            each = [watch.microseconds(what) / calls for what in _JOURNAL]
            yield CallParts(
                raw_figures["seconds"] * 1e6 / raw_figures["calls"], timed.elapsed / _US / calls, *each
            )
    ours.close()
    raw.close()


def share_of_raw(place: Path, rounds: int, calls: int) -> float:
    """Return raw limit ÷ our add of 1 KB, in turns so short that both see the same phase of the disk."""
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


def coroutines(place: Path, writers: int, rounds: int, turn: int) -> Iterator[CallParts]:
    """Yield rounds of many coroutines at once, whose adds share groups."""
    work = {"size": _KIB, "writers": writers}
    (place / "raw").mkdir(parents=True)
    raw, ours = RawFile(place / "raw", _FILE, **work), OursAsync(place, "journals-only", _FILE, **work)
    calls = turn // (_KIB + _FRAME)
    for number in range(rounds + 1):
        raw_figures = raw.add(10, calls)
        ours.prepare(2 * turn)
        with FileTrace() as watch:
            timed = ours.run(Limit(10, calls // writers))
        if number:
            made = len(timed.latencies)
            each = [watch.microseconds(what) / made for what in _JOURNAL]
            yield CallParts(1e6 / raw_figures["rate"], timed.elapsed / _US / made, *each)
    ours.close()
    raw.close()

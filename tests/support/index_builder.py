"""Indexes of every shape, written through LMDB, and their content as LMDB reads it."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from recovery.audit.model.fingerprint import fingerprints
from storage.disk.posix import PosixDirectory
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from recovery.audit.model.runs import Runs
    from storage.index.lmdb.index import LmdbIndex
    from storage.index.port import Index


class CountedIndex:
    """Counts the look-ups of readers, and passes everything else to the index."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._index, name)
        if name not in {"find", "places", "last", "count"}:
            return verb

        def counted(*wanted: int) -> object:
            self.asked[name] += 1
            return verb(*wanted)

        return counted


def index_with(path: Path) -> LmdbIndex:
    """Make a new index below that directory."""
    path.mkdir(exist_ok=True)
    draft = LmdbIndexDirectory(PosixDirectory(path), path, 1 << 20).draft()
    with draft.change() as change:
        change.commit(IndexState())
    return draft.publish()


def put(index: LmdbIndex, places: Mapping[int, Sequence[tuple[int, int]]]) -> None:
    """Put places of some ledgers in one change."""
    with index.change() as change:
        for ledger_id, of_ledger in places.items():
            ids, locations = zip(*of_ledger, strict=True)
            change.put(ledger_id, ids, locations)
        change.commit(None)


def random_index(index: LmdbIndex, seed: int, changes: int = 8) -> None:
    """Make random changes: few and many places, gaps, overwritten and removed ledgers."""
    dice = Random(seed)
    for _ in range(changes):
        places = {}
        for ledger_id in dice.sample(range(30), 6):
            first, count = dice.randrange(200), dice.choice([1, 2, 120, 130, 700, 3000])
            ids = sorted(dice.sample(range(first, first + 2 * count), count))
            log, offset = dice.randrange(3) << 32, dice.randrange(1024, 1 << 30)
            places[ledger_id] = [(one, log | offset + number * 100) for number, one in enumerate(ids)]
        put(index, places)
        if dice.random() < 0.3:
            with index.change() as change:
                change.remove(dice.sample(range(30), 4))
                change.commit(None)


def every(index: LmdbIndex) -> dict[int, list[tuple[int, int]]]:
    """Yield every place in LMDB's order."""
    return {ledger_id: index.locations(ledger_id, 0, 1 << 30) for ledger_id in index.ledgers()}


def totals(runs: Runs) -> dict[tuple[int, int], tuple[int, int]]:
    """Return for each ledger and log: the number of entries and their fingerprint."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for run in runs:
        key = int(run["ledger"]), int(run["file"])
        count, places = found.get(key, (0, 0))
        found[key] = count + int(run["count"]), places ^ int(run["places"])
    return found


def slow_totals(places: Mapping[int, Sequence[tuple[int, int]]]) -> dict[tuple[int, int], tuple[int, int]]:
    """Compute the same as `totals`, place by place."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for ledger_id, of_ledger in places.items():
        for entry_id, location in of_ledger:
            key = ledger_id, location >> 32
            count, print_ = found.get(key, (0, 0))
            found[key] = count + 1, print_ ^ int(fingerprints([ledger_id], [entry_id], [location])[0])
    return found

"""Indexes of every shape, written through LMDB, and what LMDB itself says of them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from recovery.verify.runs import mix
from storage.index_state import IndexState
from storage.lmdb_place import LmdbPlace
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from recovery.verify.runs import Runs
    from storage.lmdb_index import LmdbIndex


def made(path: Path) -> LmdbIndex:
    """A new one, below that directory."""
    path.mkdir(exist_ok=True)
    draft = LmdbPlace(PosixDirectory(path), path, 1 << 20).draft()
    with draft.change() as change:
        change.commit(IndexState())
    return draft.publish()


def put(index: LmdbIndex, places: Mapping[int, Sequence[tuple[int, int]]]) -> None:
    """One change with places of some ledgers."""
    with index.change() as change:
        for ledger_id, of_ledger in places.items():
            ids, locations = zip(*of_ledger, strict=True)
            change.put(ledger_id, ids, locations)
        change.commit(None)


def at_random(index: LmdbIndex, seed: int, changes: int = 8) -> None:
    """Changes of few and many places, gaps, overwritten and removed ledgers."""
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
    """Every place, as LMDB gives them out."""
    return {ledger_id: index.places(ledger_id, 0, 1 << 30) for ledger_id in index.ledgers()}


def told(runs: Runs) -> dict[tuple[int, int], tuple[int, int]]:
    """Of each ledger and log how many entries there are, and their fingerprint."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for run in runs:
        key = int(run["ledger"]), int(run["file"])
        count, places = found.get(key, (0, 0))
        found[key] = count + int(run["count"]), places ^ int(run["places"])
    return found


def slowly_told(places: Mapping[int, Sequence[tuple[int, int]]]) -> dict[tuple[int, int], tuple[int, int]]:
    """The same, added up place by place."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for ledger_id, of_ledger in places.items():
        for entry_id, location in of_ledger:
            key = ledger_id, location >> 32
            count, print_ = found.get(key, (0, 0))
            found[key] = count + 1, print_ ^ int(mix([ledger_id], [entry_id], [location])[0])
    return found

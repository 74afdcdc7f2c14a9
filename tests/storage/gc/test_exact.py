"""The live bytes of a log, found by reading all of it, and the first reason why it cannot be collected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import LEDGERS, SMALL, Site
from store_internals import StoreInternals

from storage.gc.policy import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Generator

    from storage.runtime.worker import Pause
    from storage.store import Store

RECORD = 1000 + 4 + 32 + 4  # payload, length word, head, digest
FIRST = 4096
"""The place of the first record of a log."""
COUNT = 20
KEPT, DELETED, LATER = 1, 2, 3
"""Ledgers in the order of their records in log 0."""


def opened() -> tuple[Site, Store]:
    """Return a store with three ledgers in log 0, of which one is deleted."""
    site = Site(replace(SMALL, entry_log_size_max=128 << 10))
    store = site.open()
    for ledger_id in (KEPT, DELETED, LATER):
        store.ledger(ledger_id).append_many([bytes(1000)] * COUNT)
    site.checkpoint(store)
    store.ledger(DELETED).delete()
    site.checkpoint(store)
    return site, store


def end_of(steps: Generator[Pause, None, tuple[int, Problem | None]]) -> tuple[int, Problem | None]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[int, Problem | None] = end.value
            return found


def examined(store: Store) -> tuple[int, Problem | None]:
    return end_of(StoreInternals(store).examine(0))


def test_the_records_of_ledgers_that_exist_are_added_up() -> None:
    site, store = opened()
    assert examined(store) == (2 * COUNT * RECORD, None)
    for ledger_id in (KEPT, LATER):
        store.ledger(ledger_id).delete()
    assert examined(store) == (0, None)
    site.checkpoint(store)
    assert examined(store) == (0, None)


def test_a_record_that_nothing_explains_is_named_although_others_live() -> None:
    _, store = opened()
    StoreInternals(store).lose_location(LATER, 7)
    live, problem = examined(store)
    place = FIRST + (2 * COUNT + 7) * RECORD
    assert (live, problem) == (
        (2 * COUNT - 1) * RECORD,
        Problem(ProblemKind.UNACCOUNTED, "IDX-003", place),
    )


@pytest.mark.parametrize(
    ("within", "finding"), [(0, "ELG-004"), (500, "ELG-003")], ids=["a length word", "a payload"]
)
def test_damage_of_a_live_record_is_named_with_its_place(within: int, finding: str) -> None:
    site, store = opened()
    place = FIRST + 2 * RECORD
    site.flip(f"{LEDGERS}/0.log", place + within)
    _, problem = examined(store)
    assert problem == Problem(ProblemKind.DAMAGED, finding, place)


def test_damage_that_comes_after_the_live_records_were_read_is_named_too() -> None:
    site, store = opened()
    steps = StoreInternals(store).examine(0)
    next(steps)
    place = FIRST + COUNT * RECORD
    site.flip(f"{LEDGERS}/0.log", place)
    assert end_of(steps) == (2 * COUNT * RECORD, Problem(ProblemKind.DAMAGED, "ELG-004", place))

"""A view beside a store that collects: it shows every entry, and takes no removed log for a lost one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sampling import every
from stepped_store import LEDGERS, SMALL, Site
from store_internals import StoreInternals
from watched_views import following, held_by

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from watched_views import Held

    from recovery.view.open_view import ViewReader
    from recovery.view.view import View
    from storage.store import Store

CONFIG = replace(SMALL, entry_log_size_max=16 << 10)
KEPT, DELETED, AGAIN = 1, 2, 3


class Collecting:
    """A store that can be collected in small steps, and the entries that it has all the time."""

    def __init__(self) -> None:
        self.site = Site(CONFIG)
        self.store: Store = self.site.open()
        self.held: Held = {}
        for _ in range(3):
            for ledger_id in (KEPT, DELETED, AGAIN):
                self.append(ledger_id, 5)
            self.checkpoint()
        for ledger_id in (DELETED, AGAIN):
            self.delete(ledger_id)
        self.checkpoint()
        self.append(AGAIN, 2)
        # Another run, so that the journals with the deletes are trimmed, and tombstones can be purged.
        self.store.close()
        self.store = self.site.open()
        self.append(KEPT, 2)
        self.append(9, 1)
        self.checkpoint()
        self.delete(9)
        self.append(KEPT, 1)
        self.checkpoint()

    def append(self, ledger_id: int, count: int) -> None:
        entries = self.held.setdefault(ledger_id, {})
        for number in range(len(entries), len(entries) + count):
            payload = b"%d.%d " % (ledger_id, number) + b"." * 900
            assert self.store.ledger(ledger_id).append(payload) == number
            entries[number] = payload

    def delete(self, ledger_id: int) -> None:
        self.store.ledger(ledger_id).delete()
        del self.held[ledger_id]

    def checkpoint(self) -> None:
        self.site.checkpoint(self.store)

    def steps(self) -> Iterator[None]:
        """Move all that lives, remove the logs, and purge tombstones, a step at a time."""
        engine = StoreInternals(self.store)
        victims = engine.log_ids[:-1]
        moves = [engine.compactor.move(log_id) for log_id in victims]
        verbs: list[Generator[object, None, object]] = [
            *moves,
            engine.compactor.remove(victims),
            engine.compactor.purge_tombstones(),
        ]
        for verb in verbs:
            for pause in verb:
                if pause is None:
                    engine.step_checkpoint()
                yield

    def collect(self) -> None:
        for _ in self.steps():
            pass

    def check(self, view: View) -> None:
        assert held_by(view) == self.held
        assert view.findings == ()
        assert view.is_whole


def count_steps() -> int:
    return sum(1 for _ in Collecting().steps())


def looking_at(store: Collecting, steps: Iterator[None], each: int, after: int) -> ViewReader:
    """Make a view that lets the store take so many steps at each look, after so many looks."""
    looks = 0

    def looked() -> None:
        nonlocal looks
        looks += 1
        if looks > after:
            for _ in range(each):
                next(steps, None)

    return following(store.site.disk, looked)


def test_a_collection_leaves_what_a_view_shows() -> None:
    store = Collecting()
    logs = set(store.site.names(LEDGERS, ".log"))
    store.check(following(store.site.disk).run())
    store.collect()
    assert not logs <= set(store.site.names(LEDGERS, ".log"))
    store.check(following(store.site.disk).run())


@pytest.mark.sampled
@pytest.mark.parametrize("each", [1, 3, 1000])
def test_a_view_that_is_opened_while_the_store_collects_shows_everything(each: int) -> None:
    for after in every(13, range(70)):
        store = Collecting()
        steps = store.steps()
        view = looking_at(store, steps, each, after).run()
        store.check(view)
        for _ in steps:
            pass
        store.check(view)


@pytest.mark.sampled
def test_a_view_reads_what_moves_and_is_removed_between_look_up_and_reading() -> None:
    for before in every(7, range(count_steps())):
        store = Collecting()
        view = following(store.site.disk).run()
        steps = store.steps()
        for _ in range(before):
            next(steps)
        store.check(view)
        for _ in steps:
            pass
        store.check(view)


@pytest.mark.sampled
def test_a_refreshed_view_shows_everything_at_each_step_and_lets_removed_logs_go() -> None:
    store = Collecting()
    before = set(StoreInternals(store.store).log_ids)
    view = following(store.site.disk).run()
    store.check(view)
    for number, _ in enumerate(store.steps()):
        if number in every(7, range(400)):
            view.refresh()
            store.check(view)
    view.refresh()
    removed = before - set(StoreInternals(store.store).log_ids)
    assert len(removed) > 3
    for log_id in removed:
        assert view.snapshot.open_logs.find(log_id) is None
    store.check(view)


def test_a_log_that_is_lost_is_still_a_finding() -> None:
    store = Collecting()
    store.collect()
    [*_, last] = store.site.names(LEDGERS, ".log")
    store.site.remove(f"{LEDGERS}/{last}")
    [finding] = following(store.site.disk).run().findings
    assert finding.startswith(f"ELG-005 {last}")

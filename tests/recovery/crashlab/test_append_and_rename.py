"""A correct little store survives every crash that the disk can make, and no mistake in it does."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import little_mistakes
import pytest
from crash_walk import Client, Moment, Walk, before_syncs, half_written_moments, moments, recover
from little_store import LittleStore

from recovery.crashlab import (
    FailedSync,
    KeepAll,
    LoseAll,
    Pages,
    RandomFate,
    Refused,
    ShortWrite,
    SimulatedDisk,
    Verb,
    When,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.crashlab import Fault, Operation


def _faults() -> list[Fault]:
    logs = [When(verb=Verb.SYNC, name="log-*", nth=nth) for nth in (5, 8)]
    failing: list[Fault] = [
        FailedSync(when, seed=seed, pages=pages) for when in logs for seed in range(3) for pages in Pages
    ]
    writes = [When(verb=Verb.WRITE, name="log-*", nth=nth) for nth in (6, 8)]
    return failing + [ShortWrite(when) for when in writes]


def _faulty_moments(store_class: type[LittleStore]) -> Iterator[Moment]:
    for fault in _faults():
        yield from before_syncs(moments(store_class, 512, fault))


@pytest.mark.parametrize("sector_size", [512, 4096])
def test_the_correct_store_survives_every_cut_at_every_operation(sector_size: int) -> None:
    walk = Walk(LittleStore)

    assert list(walk.violations(moments(LittleStore, sector_size), random_fates=40)) == []

    assert len(walk.recovered) > {512: 500, 4096: 350}[sector_size]


def test_the_correct_store_survives_a_stop_in_the_middle_of_every_write() -> None:
    walk = Walk(LittleStore)

    assert list(walk.violations(half_written_moments(LittleStore))) == []

    assert len(walk.recovered) > 300


def test_the_correct_store_survives_an_error_at_any_operation() -> None:
    whole = SimulatedDisk()
    Client(LittleStore).run(whole)
    images = 0
    for operation in whole.trace:
        at = When(number=operation.number)
        faults = (Refused(at), ShortWrite(at, errno.EIO), FailedSync(at, seed=operation.number))
        for fault in (fault for fault in faults if operation.verb in fault.verbs):
            walk = Walk(LittleStore)
            assert list(walk.violations(moments(LittleStore, 512, fault)[-1:])) == []
            images += len(walk.recovered)
    assert images > 1_000


def test_the_correct_store_survives_cuts_around_a_failed_sync_or_a_short_write() -> None:
    walk = Walk(LittleStore)

    assert list(walk.violations(_faulty_moments(LittleStore))) == []

    assert len(walk.recovered) > 1_100


def test_the_correct_store_survives_a_cut_inside_its_recovery() -> None:
    images = set()
    for moment in moments(LittleStore)[::7]:
        for fate in (LoseAll(), KeepAll(), RandomFate(1)):
            first = moment.disk.copy()
            first.power_cut(fate)
            expected = recover(LittleStore, first.copy())
            for within in _moments_of_recovery(first):
                for second in (LoseAll(), KeepAll(), RandomFate(2), RandomFate(3)):
                    after = within.copy()
                    after.power_cut(second)
                    images.add(after.image())
                    assert recover(LittleStore, after) == expected
    assert len(images) > 350


def _moments_of_recovery(disk: SimulatedDisk) -> list[SimulatedDisk]:
    running, found = disk.copy(), []

    def note(_: Operation) -> None:
        found.append(running.copy())

    running.watch(note)
    recover(LittleStore, running)
    return found


def _cuts(store_class: type[LittleStore]) -> Iterator[Moment]:
    return before_syncs(moments(store_class))


MISTAKES = [
    (little_mistakes.NoSyncBeforeAck, _cuts),
    (little_mistakes.NoDirectorySyncAfterCreate, _cuts),
    (little_mistakes.NoDirectorySyncAfterRename, _cuts),
    (little_mistakes.RenameBeforeSync, _cuts),
    (little_mistakes.NoSyncOfData, _cuts),
    (little_mistakes.MarkBeforeData, _cuts),
    (little_mistakes.OldRemovedBeforeMark, _cuts),
    (little_mistakes.NoChecksum, _cuts),
    (little_mistakes.MarkInPlace, half_written_moments),
    (little_mistakes.AppendBehindTornTail, _faulty_moments),
    (little_mistakes.CarryTailOver, _faulty_moments),
    (little_mistakes.SyncRetried, _faulty_moments),
    (little_mistakes.SyncErrorSwallowed, _faulty_moments),
    (little_mistakes.ShortWriteIgnored, _faulty_moments),
    (little_mistakes.NoLatch, _faulty_moments),
]


@pytest.mark.parametrize(("mistaken", "crashes"), MISTAKES, ids=[mistake.__name__ for mistake, _ in MISTAKES])
def test_a_mistake_is_caught(
    mistaken: type[LittleStore], crashes: Callable[[type[LittleStore]], Iterator[Moment]]
) -> None:
    violations = Walk(mistaken).violations(crashes(mistaken))

    assert next(violations, "nothing noticed") != "nothing noticed"


def test_every_mistake_goes_unseen_where_nothing_fails() -> None:
    for mistaken, _ in MISTAKES:
        disk, client = SimulatedDisk(), Client(mistaken)
        client.run(disk)

        assert recover(mistaken, disk) == tuple(client.acknowledged)

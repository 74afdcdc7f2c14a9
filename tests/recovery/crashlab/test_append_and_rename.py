"""A correct small store survives every crash of the simulated disk, and each planted mistake is found."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import little_store_bugs
import pytest
from crash_walk import Walk, WalkClient, WalkMoment, before_syncs, half_written_moments, moments, recover
from little_store import LittleStore
from sampling import every, many

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


def _faulty_moments(store_class: type[LittleStore]) -> Iterator[WalkMoment]:
    for fault in _faults():
        yield from before_syncs(moments(store_class, 512, fault))


@pytest.mark.sampled
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_the_correct_store_survives_every_cut_at_every_operation(sector_size: int) -> None:
    walk = Walk(LittleStore)

    assert list(walk.violations(every(3, moments(LittleStore, sector_size)), random_fates=40)) == []

    assert len(walk.recovered) > {512: many(500, 100), 4096: many(350, 100)}[sector_size]


@pytest.mark.slow
def test_the_correct_store_survives_a_stop_in_the_middle_of_every_write() -> None:
    walk = Walk(LittleStore)

    assert list(walk.violations(half_written_moments(LittleStore))) == []

    assert len(walk.recovered) > 300


@pytest.mark.sampled
def test_the_correct_store_survives_an_error_at_any_operation() -> None:
    whole = SimulatedDisk()
    WalkClient(LittleStore).run(whole)
    images = 0
    for operation in every(6, whole.trace):
        at = When(number=operation.number)
        faults = (Refused(at), ShortWrite(at, errno.EIO), FailedSync(at, seed=operation.number))
        for fault in (fault for fault in faults if operation.verb in fault.verbs):
            walk = Walk(LittleStore)
            assert list(walk.violations(moments(LittleStore, 512, fault)[-1:])) == []
            images += len(walk.recovered)
    assert images > many(1_000, 100)


@pytest.mark.sampled
def test_the_correct_store_survives_cuts_around_a_failed_sync_or_a_short_write() -> None:
    walk = Walk(LittleStore)

    assert list(walk.violations(every(31, _faulty_moments(LittleStore)))) == []

    assert len(walk.recovered) > many(1_100, 30)


@pytest.mark.sampled
def test_the_correct_store_survives_a_cut_inside_its_recovery() -> None:
    images = set()
    for moment in every(11, moments(LittleStore)[::7]):
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
    assert len(images) > many(350, 20)


def _moments_of_recovery(disk: SimulatedDisk) -> list[SimulatedDisk]:
    running, found = disk.copy(), []

    def note(_: Operation) -> None:
        found.append(running.copy())

    running.watch(note)
    recover(LittleStore, running)
    return found


def _cuts(store_class: type[LittleStore]) -> Iterator[WalkMoment]:
    return before_syncs(moments(store_class))


MISTAKES = [
    (little_store_bugs.NoSyncBeforeAck, _cuts),
    (little_store_bugs.NoDirectorySyncAfterCreate, _cuts),
    (little_store_bugs.NoDirectorySyncAfterRename, _cuts),
    (little_store_bugs.RenameBeforeSync, _cuts),
    (little_store_bugs.NoSyncOfData, _cuts),
    (little_store_bugs.MarkBeforeData, _cuts),
    (little_store_bugs.OldRemovedBeforeMark, _cuts),
    (little_store_bugs.NoChecksum, _cuts),
    (little_store_bugs.MarkInPlace, half_written_moments),
    (little_store_bugs.AppendBehindTornTail, _faulty_moments),
    (little_store_bugs.CarryTailOver, _faulty_moments),
    (little_store_bugs.SyncRetried, _faulty_moments),
    (little_store_bugs.SyncErrorSwallowed, _faulty_moments),
    (little_store_bugs.ShortWriteIgnored, _faulty_moments),
    (little_store_bugs.NoLatch, _faulty_moments),
]


SLOWLY_CAUGHT = {
    little_store_bugs.AppendBehindTornTail,
    little_store_bugs.CarryTailOver,
    little_store_bugs.ShortWriteIgnored,
}


@pytest.mark.parametrize(
    ("mistaken", "crashes"),
    [
        pytest.param(*one, id=one[0].__name__, marks=[pytest.mark.slow] * (one[0] in SLOWLY_CAUGHT))
        for one in MISTAKES
    ],
)
def test_a_mistake_is_caught(
    mistaken: type[LittleStore], crashes: Callable[[type[LittleStore]], Iterator[WalkMoment]]
) -> None:
    violations = Walk(mistaken).violations(crashes(mistaken))

    assert next(violations, "nothing noticed") != "nothing noticed"


def test_no_mistake_shows_if_nothing_fails() -> None:
    for mistaken, _ in MISTAKES:
        disk, client = SimulatedDisk(), WalkClient(mistaken)
        client.run(disk)

        assert recover(mistaken, disk) == tuple(client.acknowledged)

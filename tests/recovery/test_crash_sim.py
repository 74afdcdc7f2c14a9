"""The real store on a simulated disk keeps acknowledged entries after any failure. See `crash_sim`."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from collecting_world import CollectingWorld
from crash_sim import SimulationFigures, compaction, explore, history
from file_index import FileIndex, FileIndexPlace
from sampling import many
from simulated_store import SimulatedWorld, Trouble, open_session, world_shape
from store_internals import WRITE_PIECE, without_a_sync
from store_promises import ObservedStore, StorePromises, look
from truncating_world import TruncatingWorld

from recovery.crashlab import FailedSync, LoseAll, Pages, SimulatedDisk, Stopped, Verb, When
from recovery.directory.layout import Layout
from recovery.replay.apply import JournalApplier
from storage.checkpoint import mark
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.entry.model import Entry
from storage.entrylog.log_set import EntryLogs
from storage.errors import StoreFailed
from storage.journal import journal_set
from storage.journal import writer as journal_writer
from storage.journal.writer import JournalWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("seed", range(6))
def test_no_power_cut_and_no_kill_loses_an_acknowledged_entry(seed: int) -> None:
    figures = explore(seed, steps=80, stride=many(8, 160))
    assert figures.violations == []
    assert len(figures.images) > many(30, 3)


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("seed", range(12))
def test_no_random_history_loses_an_acknowledged_entry(seed: int) -> None:
    assert history(seed, steps=100).violations == []


@pytest.mark.sampled
@pytest.mark.parametrize(
    "seed", [pytest.param(one, marks=[pytest.mark.slow] * (one > 2)) for one in range(1, 5)]
)
def test_no_crash_between_the_writes_of_a_group_loses_what_was_answered(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"SMALL": 256, "_PAGE": 512, "_PIECE": 512}.items():
        monkeypatch.setattr(journal_writer, name, size)
    whole: Callable[..., tuple[int, int]] = getattr(*WRITE_PIECE)
    sizes: list[int] = []

    def counted(writer: JournalWriter, at: int, size: int, checksum: int) -> tuple[int, int]:
        sizes.append(size)
        return whole(writer, at, size, checksum)

    monkeypatch.setattr(*WRITE_PIECE, counted)
    figures = explore(seed, steps=60, stride=many(8, 60))
    assert figures.violations == []
    assert len(sizes) >= many(10, 1)


@pytest.mark.parametrize("pages", Pages)
def test_acknowledged_entries_are_read_after_a_failed_sync_and_after_reopening(pages: Pages) -> None:
    disk, config, dice = SimulatedDisk(sector_size=4096), world_shape(0).config, Random(0)
    store = open_session(disk, config, dice).store
    store.ledger(1).append_many([b"one", b"two"])
    answered = look(store)
    disk.plant(FailedSync(When(verb=Verb.SYNC), pages=pages))
    with pytest.raises(StoreFailed):
        store.ledger(1).append(b"three")
    assert look(store) == answered
    disk.kill()
    opened = look(open_session(disk, config, dice).store)
    disk.power_cut(LoseAll())
    assert look(open_session(disk, config, dice).store) == opened
    assert answered.entries.items() <= opened.entries.items()


# ── space ─────────────────────────────────────────────────────────────────────────────────────────────────


def kinds(disk: SimulatedDisk) -> Counter[FileKind]:
    """Count the files of each kind in the two directories."""
    directories = [
        disk.root().directory(name).directory(filenames.CURRENT)
        for name in (filenames.JOURNAL_DIRECTORY, filenames.LEDGER_DIRECTORY)
    ]
    return Counter(filenames.parse(name).kind for directory in directories for name in directory.names())


def indexed_logs(disk: SimulatedDisk) -> Collection[int]:
    index = FileIndexPlace(Layout(disk.root()).ledgers).open()
    assert isinstance(index, FileIndex)
    return index.state().log_ends.keys()


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("seed", range(6))
def test_sixty_crashes_without_an_add_leave_two_journals_more_at_most(seed: int) -> None:
    world, dice = SimulatedWorld(seed, Trouble.REOPENINGS), Random(seed)
    world.play(60)
    disk, config = world.disk, world.shape.config
    before = kinds(disk)
    for number in range(60):
        if dice.random() < 0.5:
            disk.kill()
        else:
            disk.power_cut(LoseAll())
        if number % 3:
            disk.stop_before(len(disk.trace) + dice.randint(3, 40))
        with suppress(Stopped):
            open_session(disk, config, dice)
    disk.kill()
    open_session(disk, config, dice)
    after = kinds(disk)
    assert after[FileKind.JOURNAL] <= before[FileKind.JOURNAL] + 2
    assert after[FileKind.ENTRY_LOG] == len(indexed_logs(disk))
    assert not {kind for kind in after if kind.name.endswith("_DRAFT")} - {FileKind.INDEX_DRAFT}


# ── a simulation that finds nothing proves nothing ────────────────────────────────────────────────────────


MISTAKES: dict[str, tuple[object, str, Callable[..., object]]] = {
    "a group is answered before its sync": (JournalWriter, "sync", without_a_sync),
    "the names of logs are never synced": (EntryLogs, "sync_names", lambda logs: None),
    "the mark's name is never synced": (
        mark,
        "publish",
        lambda directory: directory.rename(filenames.draft(filenames.LAST_MARK), filenames.LAST_MARK),
    ),
    "what was only read is not written again": (JournalApplier, "_carry_over", lambda *_: None),
    "journals are trimmed up to the newest": (
        journal_set,
        "trim",
        lambda directory, *_: [
            directory.remove(filenames.journal(one)) for one in journal_set.journal_ids(directory)[:-1]
        ],
    ),
}


SLOWLY_FOUND = {"the names of logs are never synced", "journals are trimmed up to the newest"}


@pytest.mark.parametrize(
    "mistake", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOWLY_FOUND)) for one in MISTAKES]
)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(owner, name, wrong)
    assert any(explore(seed, steps=60, stride=5).violations for seed in (22, 3, 0, 1, 2, *range(4, 31)))


def entry(entry_id: int, payload: bytes = b"") -> Entry:
    return Entry(1, entry_id, entry_id - 1, 0, payload)


def seen(*entries: Entry) -> ObservedStore:
    ids = [one.entry_id for one in entries]
    return ObservedStore(
        {(1, one.entry_id): one for one in entries}, {1: (max(ids), max(ids) - 1)} if ids else {}
    )


def promised(*, answered: bool) -> StorePromises:
    promises = StorePromises()
    run = promises.invoke([entry(0, b"a"), entry(1, b"b")], whole=True)
    if answered:
        promises.acknowledge(run)
    return promises


def test_acknowledged_entries_must_be_there_unchanged() -> None:
    promises = promised(answered=True)
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"b"))) == []
    assert promises.violations(seen(entry(0, b"a")))
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"x")))


def test_unacknowledged_entries_are_there_whole_or_not_at_all() -> None:
    promises = promised(answered=False)
    assert promises.violations(seen()) == []
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"b"))) == []
    assert promises.violations(seen(entry(0, b"a")))
    assert promises.violations(seen(entry(7)))


def test_no_copy_older_than_the_acknowledged_one_is_read() -> None:
    promises = promised(answered=True)
    promises.acknowledge(promises.invoke([entry(1, b"newer")], whole=False))
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"newer"))) == []
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"b")))


def test_entries_that_an_opening_showed_stay_and_others_never_come_back() -> None:
    shown = promised(answered=False)
    shown.settle(seen(entry(0, b"a"), entry(1, b"b")))
    assert shown.violations(seen())
    hidden = promised(answered=False)
    hidden.settle(seen())
    assert hidden.violations(seen(entry(0, b"a"), entry(1, b"b")))


def test_unacknowledged_entries_survive_in_their_order() -> None:
    promises = promised(answered=False)
    promises.invoke([entry(2)], whole=False)
    assert promises.violations(seen(entry(2)))


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize(
    "seed", [pytest.param(one, marks=[pytest.mark.slow] * (one > 5)) for one in range(60)]
)
def test_no_random_history_with_a_collector_loses_an_entry_or_brings_one_back(seed: int) -> None:
    assert compaction(seed, steps=300).violations == []


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize(
    "seed", [pytest.param(one, marks=[pytest.mark.slow] * (one > 5)) for one in range(60)]
)
def test_no_random_history_with_truncations_loses_an_entry_or_brings_one_back(seed: int) -> None:
    assert compaction(seed, steps=300, kind=TruncatingWorld).violations == []


def test_the_histories_with_truncations_truncate() -> None:
    figures = SimulationFigures()
    for seed in range(4):
        figures.add(compaction(seed, steps=300, kind=TruncatingWorld))
    assert figures.truncated > 0


@pytest.mark.slow
def test_no_power_cut_within_a_truncation_brings_an_entry_back() -> None:
    figures = explore(3, steps=300, stride=8, kind=TruncatingWorld)
    assert figures.violations == []


def test_an_entry_before_an_answered_truncation_is_a_violation() -> None:
    promises = StorePromises()
    promises.acknowledge(promises.invoke([entry(0), entry(1)], whole=True))
    promises.truncate(1, 1)
    before, after = seen(entry(0), entry(1)), replace(seen(entry(1)), first_ids={1: 1})
    assert not promises.violations(before)  # not answered yet
    assert not promises.violations(after)
    assert promises.violations(seen(entry(1)))  # gone without a truncation
    promises.truncated(1, 1)
    assert promises.violations(before)
    assert promises.violations(replace(before, first_ids={1: 1}))
    assert not promises.violations(after)


@pytest.mark.slow
def test_the_histories_with_a_collector_move_and_remove_and_lose_indexes() -> None:
    figures = SimulationFigures()
    for seed in range(6):
        figures.add(compaction(seed, steps=300))
    assert min(figures.moved, figures.removed, figures.rebuilt) > 0


@pytest.mark.slow
def test_no_power_cut_within_a_slice_or_a_removal_loses_an_acknowledged_entry() -> None:
    figures = explore(1, steps=300, stride=8, kind=CollectingWorld)
    assert figures.violations == []

"""The real store on a simulated disk: whatever breaks, what was answered is there. See `crash_sim`."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
from crash_sim import explore, history
from file_index import FileIndex, FileIndexPlace
from promises import Promises, Seen, look
from simulated_store import Trouble, World, shape_of, sit_down

from recovery import opening
from recovery.crashlab import FailedSync, LoseAll, Pages, SimulatedDisk, Stopped, Verb, When
from recovery.founding import Layout
from storage import filenames, journal_writer, journals, lastmark
from storage.entry import Entry
from storage.entry_logs import EntryLogs
from storage.errors import StoreFailed
from storage.filenames import FileKind
from storage.journal_writer import JournalWriter
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


@pytest.mark.parametrize("seed", range(6))
def test_no_power_cut_and_no_kill_loses_what_was_answered(seed: int) -> None:
    figures = explore(seed, steps=80, stride=8)
    assert figures.violations == []
    assert len(figures.images) > 30


@pytest.mark.parametrize("seed", range(12))
def test_no_random_history_loses_what_was_answered(seed: int) -> None:
    assert history(seed, steps=100).violations == []


@pytest.mark.parametrize("seed", range(4))
def test_nor_between_the_pieces_of_a_group(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"SMALL": 256, "_PAGE": 512, "_PIECE": 512}.items():
        monkeypatch.setattr(journal_writer, name, size)
    whole = JournalWriter._write_piece
    sizes: list[int] = []

    def counted(writer: JournalWriter, at: int, size: int, checksum: int) -> tuple[int, int]:
        sizes.append(size)
        return whole(writer, at, size, checksum)

    monkeypatch.setattr(JournalWriter, "_write_piece", counted)
    figures = explore(seed, steps=60, stride=8)
    assert figures.violations == []
    assert len(sizes) >= 10


@pytest.mark.parametrize("pages", Pages)
def test_what_was_answered_is_read_after_a_failed_sync_and_after_the_next_opening(pages: Pages) -> None:
    disk, config, dice = SimulatedDisk(sector_size=4096), shape_of(0).config, Random(0)
    store = sit_down(disk, config, dice).store
    store.ledger(1).append_many([b"one", b"two"])
    answered = look(store)
    disk.plant(FailedSync(When(verb=Verb.SYNC), pages=pages))
    with pytest.raises(StoreFailed):
        store.ledger(1).append(b"three")
    assert look(store) == answered
    disk.kill()
    opened = look(sit_down(disk, config, dice).store)
    disk.power_cut(LoseAll())
    assert look(sit_down(disk, config, dice).store) == opened
    assert answered.entries.items() <= opened.entries.items()


# ── space ─────────────────────────────────────────────────────────────────────────────────────────────────


def kinds(disk: SimulatedDisk) -> Counter[FileKind]:
    """How many files of each kind lie in the two directories."""
    directories = [
        disk.root().directory(name).directory(filenames.CURRENT)
        for name in (filenames.JOURNAL_DIRECTORY, filenames.LEDGER_DIRECTORY)
    ]
    return Counter(filenames.parse(name).kind for directory in directories for name in directory.names())


def indexed_logs(disk: SimulatedDisk) -> Collection[int]:
    index = FileIndexPlace(Layout(disk.root()).ledgers).open()
    assert isinstance(index, FileIndex)
    return index.state().log_ends.keys()


@pytest.mark.parametrize("seed", range(6))
def test_sixty_crashes_without_an_add_leave_two_journals_more_at_most(seed: int) -> None:
    world, dice = World(seed, Trouble.REOPENINGS), Random(seed)
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
            sit_down(disk, config, dice)
    disk.kill()
    sit_down(disk, config, dice)
    after = kinds(disk)
    assert after[FileKind.JOURNAL] <= before[FileKind.JOURNAL] + 2
    assert after[FileKind.ENTRY_LOG] == len(indexed_logs(disk))
    assert not {kind for kind in after if kind.name.endswith("_DRAFT")} - {FileKind.INDEX_DRAFT}


# ── a simulation that finds nothing proves nothing ────────────────────────────────────────────────────────


def _without_a_sync(writer: JournalWriter) -> JournalPosition:
    writer.end = writer._written_until
    writer.sequence += 1
    return JournalPosition(writer.journal_id, writer.end)


MISTAKES: dict[str, tuple[object, str, Callable[..., object]]] = {
    "a group is answered before its sync": (JournalWriter, "sync", _without_a_sync),
    "the names of logs are never synced": (EntryLogs, "sync_names", lambda logs: None),
    "the mark's name is never synced": (
        lastmark,
        "publish",
        lambda directory: directory.rename(filenames.draft(filenames.LAST_MARK), filenames.LAST_MARK),
    ),
    "what was only read is not written again": (opening.Opening, "_write_again", lambda *_: None),
    "journals are trimmed up to the newest": (
        journals,
        "trim",
        lambda directory, *_: [
            directory.remove(filenames.journal(one)) for one in journals.journal_ids(directory)[:-1]
        ],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(owner, name, wrong)
    assert any(explore(seed, steps=60, stride=5).violations for seed in (3, 0, 1, 2, *range(4, 9)))


def entry(entry_id: int, payload: bytes = b"") -> Entry:
    return Entry(1, entry_id, entry_id - 1, 0, payload)


def seen(*entries: Entry) -> Seen:
    ids = [one.entry_id for one in entries]
    return Seen({(1, one.entry_id): one for one in entries}, {1: (max(ids), max(ids) - 1)} if ids else {})


def promised(*, answered: bool) -> Promises:
    promises = Promises()
    run = promises.invoke([entry(0, b"a"), entry(1, b"b")], whole=True)
    if answered:
        promises.acknowledge(run)
    return promises


def test_what_was_answered_must_be_there_and_exact() -> None:
    promises = promised(answered=True)
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"b"))) == []
    assert promises.violations(seen(entry(0, b"a")))
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"x")))


def test_what_was_not_answered_is_there_whole_or_not_at_all() -> None:
    promises = promised(answered=False)
    assert promises.violations(seen()) == []
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"b"))) == []
    assert promises.violations(seen(entry(0, b"a")))
    assert promises.violations(seen(entry(7)))


def test_of_an_entry_added_again_no_copy_older_than_the_answered_one_counts() -> None:
    promises = promised(answered=True)
    promises.acknowledge(promises.invoke([entry(1, b"newer")], whole=False))
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"newer"))) == []
    assert promises.violations(seen(entry(0, b"a"), entry(1, b"b")))


def test_what_an_opening_has_shown_stays_and_what_it_has_not_shown_never_comes_back() -> None:
    shown = promised(answered=False)
    shown.settle(seen(entry(0, b"a"), entry(1, b"b")))
    assert shown.violations(seen())
    hidden = promised(answered=False)
    hidden.settle(seen())
    assert hidden.violations(seen(entry(0, b"a"), entry(1, b"b")))


def test_of_what_was_never_answered_the_first_comes_first() -> None:
    promises = promised(answered=False)
    promises.invoke([entry(2)], whole=False)
    assert promises.violations(seen(entry(2)))

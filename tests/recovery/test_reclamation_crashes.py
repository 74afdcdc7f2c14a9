"""The state after a crash in a slice, a removal or a purge, with the index intact and with the index lost.

Each row of the table of such states has a test of its own. The sweep crashes before every operation on the
disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from entry_log_builder import Log
from file_index import FileIndexPlace
from journal_builder import BookieJournal
from sampling import every
from simulated_directories import SimulatedDirectories, entries
from stepped_store import LEDGERS, SMALL, Site, payloads
from store_internals import StoreInternals

from recovery.crashlab import LoseAll, Verb
from recovery.directory.layout import Layout
from recovery.handover.handover import Handover
from recovery.opening.assembly import Platform
from recovery.opening.rebuild_index import rebuild_index
from storage.checkpoint import mark_format
from storage.entry.digest import master_key
from storage.entry.position import JournalPosition
from storage.journal import format as journal_format
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from recovery.crashlab import Fate, Operation, SimulatedDisk
    from storage.store import Store

    Act = Callable[[Store], None]
    Crash = Callable[[Site], None]
    SceneOf = Callable[[], tuple["Scene", Store]]

SMALL_LOGS = replace(SMALL, entry_log_size_max=16 << 10)
INDEX = f"{LEDGERS}/index"
KEPT, DELETED, AGAIN = 1, 2, 3
"""A ledger that is kept, one that is deleted, and one that is deleted and made again."""


def added(ledger_id: int, first: int, count: int) -> list[bytes]:
    return [b"%d.%d " % (ledger_id, first + number) + b"." * 900 for number in range(count)]


@dataclass
class Scene:
    """A store with logs to collect, and the entries that it must have in any case."""

    site: Site
    expected: dict[int, list[bytes]] = field(default_factory=dict)

    def append(self, store: Store, ledger_id: int, count: int) -> None:
        before = self.expected.setdefault(ledger_id, [])
        some = added(ledger_id, len(before), count)
        store.ledger(ledger_id).append_many(some)
        before += some

    def delete(self, store: Store, ledger_id: int) -> None:
        store.ledger(ledger_id).delete()
        del self.expected[ledger_id]

    def on(self, disk: SimulatedDisk) -> Scene:
        return Scene(Site(self.site.config, disk.copy(), 1000), self.expected)

    def open(self) -> Store:
        """Open the store and check what it has."""
        self.site.disk.kill()
        store = self.site.open()
        self.check(store)
        return store

    def check(self, store: Store) -> None:
        assert (store.opened.findings, store.opened.unknown) == ((), ())
        assert store.ledgers() == sorted(self.expected)
        for ledger_id, expected in self.expected.items():
            assert payloads(store, ledger_id) == expected, ledger_id
        state = StoreInternals(store).index_state
        assert state.is_whole
        names = {f"{one:x}.log" for one in state.log_ends}
        assert names <= set(self.site.names(LEDGERS, ".log"))


def ours() -> tuple[Scene, Store]:
    """A store in which all logs but the last have dead records."""
    scene = Scene(Site(SMALL_LOGS))
    store = scene.site.open()
    for _ in range(3):
        for ledger_id in (KEPT, DELETED, AGAIN):
            scene.append(store, ledger_id, 5)
        scene.site.checkpoint(store)
    return scene, deleted(scene, store)


def a_bookie_s() -> tuple[Scene, Store]:
    """The same in a directory that was a bookie's, with two logs of the bookie."""
    directories = SimulatedDirectories(sector_size=512)
    directories.put_cookies()
    keys = [journal_format.encode_ledger_key(one, master_key(b"")) for one in (KEPT, DELETED, AGAIN)]
    directories.put_journal(9, BookieJournal(9).flush(*keys).file())
    directories.put_mark(mark_format.encode(mark_format.Mark(JournalPosition(9, 0))))
    for log_id in (0, 1):
        some = range(3 * log_id, 3 * log_id + 3)
        logged = (data for one in (KEPT, DELETED, AGAIN) for data in entries(one, some))
        directories.put_log(log_id, Log().add(*logged))
    scene = Scene(Site(SMALL_LOGS, directories.disk))
    for ledger_id in (KEPT, DELETED, AGAIN):
        scene.expected[ledger_id] = [b"ledger %d entry %d." % (ledger_id, one) for one in range(6)]
    rebuild_index(directories.layout, directories.place).index.close()
    store = scene.open()
    for ledger_id in (KEPT, DELETED, AGAIN):
        scene.append(store, ledger_id, 3)
    scene.site.checkpoint(store)
    return scene, deleted(scene, store)


def deleted(scene: Scene, store: Store) -> Store:
    for ledger_id in (DELETED, AGAIN):
        scene.delete(store, ledger_id)
    scene.site.checkpoint(store)
    scene.append(store, AGAIN, 2)
    scene.append(store, KEPT, 1)
    scene.site.checkpoint(store)
    return store


def victims(store: Store) -> list[int]:
    return StoreInternals(store).log_ids[:-1]


def move(store: Store) -> None:
    for log_id in victims(store):
        moved = StoreInternals(store).move(log_id)
        assert (moved.why_kept, moved.error) == (None, None)


def remove(store: Store) -> None:
    removed = StoreInternals(store).remove(*victims(store))
    assert removed.logs_removed
    assert removed.error is None


def purge(store: Store) -> None:
    assert StoreInternals(store).purge_tombstones().tombstones_purged


def with_moved() -> tuple[Scene, Store]:
    scene, store = ours()
    move(store)
    return scene, store


def with_moved_bookie_s() -> tuple[Scene, Store]:
    scene, store = a_bookie_s()
    move(store)
    return scene, store


def with_removed() -> tuple[Scene, Store]:
    """A store whose tombstones can be purged: no log and no journal has what they kill."""
    scene, store = ours()
    move(store)
    remove(store)
    store.close()
    store = scene.open()
    scene.append(store, 9, 2)
    scene.site.checkpoint(store)
    move(store)
    remove(store)
    scene.delete(store, 9)
    scene.append(store, KEPT, 1)
    scene.site.checkpoint(store)
    return scene, store


# ── crashes at one place ─────────────────────────────────────────────────────────────────────────────────


def moments(scene: Scene, act: Act, store: Store) -> list[tuple[Operation, SimulatedDisk]]:
    """Return each operation of the act with a copy of the disk before it."""
    disk, is_on = scene.site.disk, True
    found: list[tuple[Operation, SimulatedDisk]] = []
    disk.watch(lambda operation: found.append((operation, disk.copy())) if is_on else None)
    act(store)
    is_on = False
    return found


def before(scene: Scene, act: Act, store: Store, verb: Verb, name: str, after: str = "") -> Scene:
    """Return the scene before the first such operation, after the first one on a file named `after`."""
    has_passed = not after
    for operation, disk in moments(scene, act, store):
        file = operation.path.rstrip("/").rpartition("/")[2]
        if has_passed and operation.verb is verb and file == name:
            return scene.on(disk)
        has_passed = has_passed or file == after
    raise AssertionError(f"there is no {verb} of {name}")


CRASHES: dict[str, Callable[[Site], None]] = {
    "kill": lambda site: site.disk.kill(),
    "power cut": lambda site: site.disk.power_cut(LoseAll()),
}
crash = pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES.keys())
index = pytest.mark.parametrize("is_lost", [False, True], ids=["index intact", "index lost"])
scenes = pytest.mark.parametrize("scene_of", [ours, a_bookie_s], ids=["ours", "a bookie's"])
moved_scenes = pytest.mark.parametrize(
    "scene_of", [with_moved, with_moved_bookie_s], ids=["ours", "a bookie's"]
)


def reopened(scene: Scene, crash: Crash, is_lost: bool) -> Store:
    crash(scene.site)
    if is_lost:
        scene.site.remove(INDEX)
    store = scene.open()
    how = store.opened.index
    assert how is IndexFound.REBUILT if is_lost else how in (IndexFound.GOOD, IndexFound.AHEAD)
    return store


def collected(scene: Scene, store: Store) -> None:
    """Collect everything after the crash, lose the index, and check again."""
    scene.site.checkpoint(store)
    move(store)
    StoreInternals(store).remove(*victims(store))
    scene.check(store)
    scene.site.disk.power_cut(LoseAll())
    scene.site.remove(INDEX)
    scene.open()


@scenes
@index
@crash
def test_between_log_and_index_of_a_slice_the_copies_are_bytes_that_nothing_names(
    scene_of: SceneOf, is_lost: bool, crash: Crash
) -> None:
    scene, store = scene_of()
    known = StoreInternals(store).index_state
    at = before(scene, move, store, Verb.CREATE, "index.draft")
    store = reopened(at, crash, is_lost)
    assert StoreInternals(store).index_state.log_ends.keys() == known.log_ends.keys()
    collected(at, store)


@scenes
@crash
def test_between_index_and_mark_of_a_slice_the_index_is_ahead(scene_of: SceneOf, crash: Crash) -> None:
    scene, store = scene_of()
    at = before(scene, move, store, Verb.CREATE, "lastMark.draft", after="index.draft")
    store = reopened(at, crash, is_lost=False)
    assert store.opened.index is IndexFound.AHEAD
    collected(at, store)


@scenes
@crash
def test_between_index_and_mark_of_a_slice_a_lost_index_means_that_nothing_was_moved(
    scene_of: SceneOf, crash: Crash
) -> None:
    scene, store = scene_of()
    known = StoreInternals(store).index_state
    at = before(scene, move, store, Verb.CREATE, "lastMark.draft", after="index.draft")
    store = reopened(at, crash, is_lost=True)
    assert StoreInternals(store).index_state.generation == known.generation
    assert StoreInternals(store).index_state.log_ends.keys() == known.log_ends.keys()
    collected(at, store)


@moved_scenes
@crash
def test_between_lineage_and_index_of_a_removal_the_victim_is_still_committed(
    scene_of: SceneOf, crash: Crash
) -> None:
    scene, store = scene_of()
    known = StoreInternals(store).index_state
    at = before(scene, remove, store, Verb.CREATE, "index.draft", after="lineage.draft")
    store = reopened(at, crash, is_lost=False)
    assert StoreInternals(store).index_state.log_ends == known.log_ends
    remove(store)
    collected(at, store)


@moved_scenes
@crash
def test_between_lineage_and_index_of_a_removal_the_victim_is_an_orphan_if_the_index_is_lost(
    scene_of: SceneOf, crash: Crash
) -> None:
    scene, store = scene_of()
    at = before(scene, remove, store, Verb.CREATE, "index.draft", after="lineage.draft")
    dead = StoreInternals(store).index_state.gone
    store = reopened(at, crash, is_lost=True)
    assert StoreInternals(store).index_state.log_ends.keys().isdisjoint(dead)
    assert {f"{one:x}.log" for one in dead} <= set(store.opened.removed)
    collected(at, store)


@moved_scenes
@index
@crash
def test_between_index_and_unlink_of_a_removal_the_victim_is_gone(
    scene_of: SceneOf, is_lost: bool, crash: Crash
) -> None:
    for verb, name in ((Verb.CREATE, "lastMark.draft"), (Verb.REMOVE, "0.log")):
        scene, store = scene_of()
        at = before(scene, remove, store, verb, name, after="index.draft")
        dead = StoreInternals(store).index_state.gone
        store = reopened(at, crash, is_lost)
        assert {f"{one:x}.log" for one in dead} <= set(store.opened.removed)
        assert StoreInternals(store).index_state.gone == dead
        collected(at, store)


@moved_scenes
@index
def test_a_victim_that_a_power_cut_brings_back_is_removed_again(scene_of: SceneOf, is_lost: bool) -> None:
    scene, store = scene_of()
    at = before(scene, remove, store, Verb.SYNC_DIRECTORY, "current", after="0.log")
    dead = StoreInternals(store).index_state.gone
    assert {f"{one:x}.log" for one in dead}.isdisjoint(at.site.names(LEDGERS))
    store = reopened(at, CRASHES["power cut"], is_lost)
    assert {f"{one:x}.log" for one in dead} <= set(store.opened.removed)
    assert StoreInternals(store).index_state.gone == dead
    collected(at, store)


@crash
def test_between_rows_and_index_of_a_purge_the_tombstone_is_written_again(
    crash: Crash,
) -> None:
    scene, store = with_removed()
    at = before(scene, purge, store, Verb.CREATE, "index.draft", after="ledgers.rows.draft")
    store = reopened(at, crash, is_lost=False)
    purge(store)
    collected(at, store)


@crash
def test_between_rows_and_index_of_a_purge_the_tombstone_is_gone_if_the_index_is_lost(
    crash: Crash,
) -> None:
    scene, store = with_removed()
    at = before(scene, purge, store, Verb.CREATE, "index.draft", after="ledgers.rows.draft")
    store = reopened(at, crash, is_lost=True)
    assert StoreInternals(store).purge_tombstones().tombstones_purged == 0
    collected(at, store)


@moved_scenes
def test_a_handover_after_a_crash_in_a_removal_leaves_a_bookie_no_removed_log(scene_of: SceneOf) -> None:
    scene, store = scene_of()
    at = before(scene, remove, store, Verb.REMOVE, "0.log", after="index.draft")
    dead = StoreInternals(store).index_state.gone
    at.site.disk.kill()
    layout = Layout(at.site.disk.root())
    platform = Platform(at.site.workers.new_worker, new_id=lambda: "5" * 32, clock=lambda: 0.0)
    report = Handover(layout, FileIndexPlace(layout.ledgers), SMALL_LOGS, platform).run()
    assert report.findings == ()
    at.site.disk.power_cut(LoseAll())
    assert {f"{one:x}.log" for one in dead}.isdisjoint(at.site.names(LEDGERS))
    at.open()


# ── crashes everywhere ───────────────────────────────────────────────────────────────────────────────────

ACTS: dict[str, tuple[SceneOf, Act]] = {
    "move": (ours, move),
    "move, a bookie's": (a_bookie_s, move),
    "remove": (with_moved, remove),
    "remove, a bookie's": (with_moved_bookie_s, remove),
    "purge": (with_removed, purge),
}


@pytest.mark.sampled(one_of=2)
@pytest.mark.parametrize("name", ACTS)
def test_no_crash_in_a_reclamation_loses_an_entry_or_brings_one_back(name: str) -> None:
    scene_of, act = ACTS[name]
    scene, store = scene_of()
    images: set[str] = set()
    for _, disk in every(9, moments(scene, act, store)):
        fates: Iterable[Fate] = (LoseAll(), *disk.fates(exhaustive_up_to=4))
        for fate in every(4, fates):
            for is_lost in (False, True):
                at = scene.on(disk)
                at.site.disk.power_cut(fate)
                image = at.site.disk.image() + str(is_lost)
                if image in images:
                    continue
                images.add(image)
                if is_lost and "index" in at.site.names(LEDGERS):
                    at.site.remove(INDEX)
                at.open()
                # The entries that an opening shows are durable.
                at.site.disk.power_cut(LoseAll())
                at.open()
    assert len(images) >= 4

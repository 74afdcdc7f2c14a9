"""A store that is handed over: a bookie finds what we show and nothing else, and it stays a store of ours."""

from __future__ import annotations

import shutil
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import fixtures
import naive_bookie
import pytest
from file_index import FileIndexPlace
from promises import difference, look
from simulated_store import STORE_ID, Trouble, World, sit_down

from recovery import open_store
from recovery.crashlab import KeepAll, LoseAll, RandomFate, Refused, Stopped, Tearing, Verb, When
from recovery.founding import Layout, store_id
from recovery.handover import AS_IT_IS, Address, HandedOver, Handover, hand_over
from recovery.opening import Surroundings
from recovery.remaking import remake
from storage import StoreConfig, filenames, lastmark
from storage.codec import entrylog as log_codec
from storage.codec.mark import Mark
from storage.codec.survey import EntryVerifier
from storage.entry import DigestType
from storage.entry_logs import log_ids
from storage.entrylog_reader import EntryLogReader
from storage.errors import InvalidFormat, NotAStore, StoreError, StoreLocked
from storage.journals import journal_ids
from storage.lmdb_place import LmdbPlace
from storage.posix_files import PosixDirectory
from storage.report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from naive_bookie import Shown
    from promises import Seen
    from simulated_store import Shape

    from recovery.crashlab import Fate, Operation, SimulatedDisk
    from storage.store import Store
    from storage.worker import Pause, Worker

CONFIG = StoreConfig(
    memtable_size_max=32 << 10,
    entry_size_max=8 << 10,
    group_size_max=16 << 10,
    journal_size=96 << 10,
    entry_log_size_max=64 << 10,
    index_size_max=64 << 20,
    checkpoint_interval_s=None,
    idle_seal_s=None,
)
ADDRESS = Address("10.0.0.1:3181", "/data/journal", "/data/ledgers", "the cluster's")


def layout_of(path: Path) -> Layout:
    return Layout(PosixDirectory(path))


def fill(store: Store) -> None:
    """Of each kind of ledger one; of the deleted ones records are in entry logs."""
    store.ledger(1).append_many([b"one", b"two", b"three"])
    store.ledger(1).set_explicit_lac(1)
    store.ledger(2, DigestType.MAC, b"secret").append_many([b"a", b"b"])
    store.ledger(2, DigestType.MAC, b"secret").fence()
    store.ledger(3, DigestType.CRC32, b"third").fence()
    store.ledger(4).append(b"to be deleted")
    store.ledger(5).append_many([b"old", b"older", b"oldest"])
    store.checkpoint()
    store.ledger(4).delete()
    store.ledger(5).delete()
    store.ledger(5, password=b"fifth").append(b"new")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", CONFIG) as store:
        fill(store)
    return tmp_path / "store"


def shown_at(path: Path) -> dict[int, Shown]:
    with open_store(path, CONFIG) as store:
        return naive_bookie.as_we_show(store)


# ── what a bookie finds ──────────────────────────────────────────────────────────────────────────────────


def test_a_bookie_finds_the_same_entries_fences_keys_and_explicit_lacs(path: Path) -> None:
    expected = shown_at(path)
    done = hand_over(path, config=CONFIG)
    assert done.facts.suffice
    bookie = naive_bookie.start(layout_of(path))
    assert bookie.ledgers == expected
    assert [ledger_id for ledger_id, shown in expected.items() if shown.fenced] == [2, 3]
    assert expected[1].explicit_lac is not None


def test_one_entry_is_replayed_or_the_bookie_would_forget_the_facts_at_once(path: Path) -> None:
    done = hand_over(path, config=CONFIG)
    assert done.facts.restated == (1, 2)
    assert naive_bookie.start(layout_of(path)).replayed_entries == 1


def test_of_deleted_ledgers_its_tools_find_nothing(path: Path) -> None:
    assert 4 in naive_scan(path)
    done = hand_over(path, config=CONFIG)
    assert done.logs.blanked == 4
    assert done.deleted == ()
    assert naive_scan(path) == {1, 2, 3, 5}
    assert set(naive_bookie.start(layout_of(path)).ledgers[5].entries) == {0}


def naive_scan(path: Path) -> set[int]:
    layout = layout_of(path)
    for name in ("ledgers", "locations"):
        layout.ledgers.directory(name).make()
    return naive_bookie.start(layout).scanned


def test_every_log_is_sealed_with_a_map_of_what_counts(path: Path) -> None:
    hand_over(path, config=CONFIG)
    ledgers = layout_of(path).ledgers
    for log_id in log_ids(ledgers):
        with ledgers.open(filenames.entry_log(log_id)) as file:
            sizes = EntryLogReader(file, log_id, EntryVerifier()).ledgers_map()
        assert isinstance(sizes, dict)
        assert 4 not in sizes


def test_what_stands_behind_the_end_of_a_log_is_kept_aside_and_cut(path: Path) -> None:
    log = path / "ledgers/current/0.log"
    whole = log.read_bytes()
    header = log_codec.decode_header(whole)
    assert isinstance(header, log_codec.Header)
    # As after a crash in a later checkpoint: no map, and whole records behind the end.
    leftover = whole[4096:4200].ljust(4096, b"\7")
    unsealed = whole[:8] + log_codec.encode_map_fields(0, 0) + whole[20 : header.map_offset]
    log.write_bytes(unsealed + leftover)
    expected = shown_at(path)
    done = hand_over(path, config=CONFIG)
    assert [(tail.file, tail.offset) for tail in done.saved] == [("0.log", header.map_offset)]
    saved = path / "quarantine" / f"0.log-{header.map_offset}"
    assert saved.read_bytes() == leftover
    assert naive_bookie.start(layout_of(path)).ledgers == expected
    assert shown_at(path) == expected


def test_a_log_that_is_as_it_must_be_is_not_touched(path: Path) -> None:
    hand_over(path, config=CONFIG)
    log = path / "ledgers/current/0.log"
    before = (log.stat().st_ino, log.read_bytes())
    assert hand_over(path, config=CONFIG).logs.written == []
    assert (log.stat().st_ino, log.read_bytes()) == before


def test_of_the_journals_one_is_left_and_the_mark_is_at_its_beginning(path: Path) -> None:
    before = journal_ids(layout_of(path).journal)
    done = hand_over(path, config=CONFIG)
    layout = layout_of(path)
    (left,) = journal_ids(layout.journal)
    assert left > max(before)
    assert (done.mark.journal_id, done.mark.offset) == (left, 0)
    assert done.trimmed == tuple(filenames.journal(one) for one in before)
    mark = lastmark.load(layout.ledgers)
    assert isinstance(mark, Mark)
    assert mark.position == done.mark
    assert mark.trailer is not None
    assert mark.trailer.newest_journal == left


def test_facts_of_many_ledgers_take_groups_and_journals_as_in_a_running_store(tmp_path: Path) -> None:
    config = replace(CONFIG, group_size_max=4 << 10, journal_size=48 << 10)
    with open_store(tmp_path / "store", config) as store:
        for ledger_id in range(400):
            store.ledger(ledger_id, password=b"%d" % ledger_id).set_explicit_lac(ledger_id)
        store.ledger(7, password=b"7").append(b"seven")
    expected = shown_at(tmp_path / "store")
    done = hand_over(tmp_path / "store", config=config)
    layout = layout_of(tmp_path / "store")
    assert len(journal_ids(layout.journal)) > 1
    assert done.mark.journal_id == journal_ids(layout.journal)[0]
    assert naive_bookie.start(layout).ledgers == expected
    assert shown_at(tmp_path / "store") == expected


def test_what_a_journal_holds_that_never_counted_is_kept_aside_before_it_goes(path: Path) -> None:
    journal = path / "journal/current" / filenames.journal(max(journal_ids(layout_of(path).journal)))
    data = bytearray(journal.read_bytes())
    end = len(bytes(data).rstrip(b"\0")) + 4095 & ~4095
    data[end : end + 40] = b"\0\0\0\x29" + bytes(range(36))
    journal.write_bytes(data)
    expected = shown_at(path)
    done = hand_over(path, config=CONFIG)
    (tail,) = done.saved
    assert (tail.file, tail.offset) == (journal.name, end)
    assert (path / str(tail.saved_as)).read_bytes() == bytes(data[end : end + 40])
    assert not journal.exists()
    assert naive_bookie.start(layout_of(path)).ledgers == expected


def test_what_is_wrong_with_a_journal_that_nothing_needs_is_kept_aside_too(path: Path) -> None:
    """Nobody looks at it when the store is opened; a bookie's tools would, and it is the last copy."""
    oldest = path / "journal/current" / filenames.journal(min(journal_ids(layout_of(path).journal)))
    data = oldest.read_bytes().rstrip(b"\0")
    end = len(data) + 4095 & ~4095
    oldest.write_bytes(data.ljust(end, b"\0") + b"\0\0\1\0 left by nobody knows whom")
    done = hand_over(path, config=CONFIG)
    assert done.opened.torn == ()
    (tail,) = done.saved
    assert (path / str(tail.saved_as)).read_bytes() == b"\0\0\1\0 left by nobody knows whom"


def test_last_id_and_the_directories_that_the_tools_rename_are_there(path: Path) -> None:
    hand_over(path, config=CONFIG)
    current = path / "ledgers/current"
    newest = max(log_ids(layout_of(path).ledgers))
    assert (current / "lastId").read_bytes() == b"%x\n" % newest
    assert (current / "ledgers").is_dir()
    assert (current / "locations").is_dir()


# ── what it will not know ────────────────────────────────────────────────────────────────────────────────


def test_a_ledger_whose_key_nobody_knows_is_named(tmp_path: Path) -> None:
    shutil.copytree(fixtures.bookie("04a_fence_lac_crash") / "bookie", tmp_path / "store")
    layout = layout_of(tmp_path / "store")
    remade = remake(layout, LmdbPlace(layout.ledgers, layout.ledgers.path))
    unproven = [one for one, row in remade.rows.items() if row.master_key is None]
    remade.index.close()
    done = hand_over(tmp_path / "store", config=CONFIG)
    assert unproven
    assert done.facts.unproven == unproven
    assert not done.facts.suffice


def test_without_an_entry_the_facts_alone_do_not_suffice(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        store.ledger(1).fence()
    done = hand_over(tmp_path / "store", config=CONFIG)
    assert not done.facts.suffice
    assert naive_bookie.start(layout_of(tmp_path / "store")).ledgers[1].fenced


def test_ledgers_in_limbo_are_named(path: Path) -> None:
    with open_store(path, CONFIG) as store:
        store.bookie.enter_limbo(1)
    assert hand_over(path, config=CONFIG).limbo == (1,)


def test_records_of_deleted_ledgers_that_damage_hides_are_told(path: Path) -> None:
    log = path / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[4096:4100] = b"\x7f\xff\xff\xff"
    log.write_bytes(data)
    done = hand_over(path, config=CONFIG)
    assert done.deleted == (4, 5)
    assert done.findings[0].startswith("ELG-004 0.log@4096")


# ── whose directory it is ────────────────────────────────────────────────────────────────────────────────


def test_the_cookies_are_left_alone_unless_an_address_is_given(path: Path) -> None:
    cookies = [path / "journal/current/VERSION", path / "ledgers/current/VERSION"]
    before = [cookie.read_bytes() for cookie in cookies]
    hand_over(path, config=CONFIG)
    assert [cookie.read_bytes() for cookie in cookies] == before


def test_both_cookies_say_what_the_bookie_s_configuration_says(path: Path) -> None:
    done = hand_over(path, ADDRESS, CONFIG)
    texts = {(path / name / "current/VERSION").read_text() for name in ("journal", "ledgers")}
    assert len(texts) == 1
    lines = texts.pop().splitlines()
    assert lines[:5] == [
        "5",
        'bookieHost: "10.0.0.1:3181"',
        'journalDir: "/data/journal"',
        r'ledgerDirs: "1\t/data/ledgers"',
        'instanceId: "the cluster\'s"',
    ]
    assert done.cookie.instance_id == "the cluster's"


def test_another_instance_id_does_not_make_our_logs_foreign(path: Path) -> None:
    before, expected = store_id(layout_of(path)), shown_at(path)
    hand_over(path, ADDRESS, CONFIG)
    assert store_id(layout_of(path)) == before
    with open_store(path, CONFIG) as store:
        store.ledger(1).append(b"four")
    # Without the index each log has to be known by the id that its header says.
    shutil.rmtree(path / "ledgers/current/index")
    shown = shown_at(path)
    assert shown[2] == expected[2]
    assert len(shown[1].entries) == 4


def test_an_address_that_no_cookie_can_say_changes_nothing(path: Path) -> None:
    before = sorted(one.name for one in (path / "journal/current").iterdir())
    with pytest.raises(InvalidFormat):
        hand_over(path, Address(journal_directory="/a,/b"), CONFIG)
    assert sorted(one.name for one in (path / "journal/current").iterdir()) == before


# ── still ours ───────────────────────────────────────────────────────────────────────────────────────────


def test_opened_again_it_is_what_it_was_and_goes_on(path: Path) -> None:
    expected = shown_at(path)
    hand_over(path, ADDRESS, CONFIG)
    with open_store(path, CONFIG) as store:
        assert naive_bookie.as_we_show(store) == expected
        assert store.opened.findings == store.opened.unknown == ()
        assert store.opened.records_carried == 0
        assert store.ledger(1).append(b"four") == 3
    assert len(shown_at(path)[1].entries) == 4


def test_handed_over_again_it_is_the_same_again(path: Path) -> None:
    expected = shown_at(path)
    for _ in range(3):
        hand_over(path, config=CONFIG)
    layout = layout_of(path)
    assert len(journal_ids(layout.journal)) == 1
    assert naive_bookie.start(layout).ledgers == expected
    assert shown_at(path) == expected


def test_an_open_store_is_not_handed_over(path: Path) -> None:
    with open_store(path, CONFIG), pytest.raises(StoreLocked):
        hand_over(path, config=CONFIG)


def test_where_no_store_is_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        hand_over(tmp_path, config=CONFIG)
    assert [*tmp_path.iterdir()] == []


# ── killed anywhere ──────────────────────────────────────────────────────────────────────────────────────


def hand_over_on(disk: SimulatedDisk, config: StoreConfig, address: Address = ADDRESS) -> HandedOver:
    def hire(name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]) -> Worker:
        raise AssertionError(f"{name}: nobody works beside a handover")

    dice, ticks = Random(len(disk.trace)), count()
    surroundings = Surroundings(
        hire, nullcontext, lambda: dice.getrandbits(64), lambda: STORE_ID, lambda: float(next(ticks))
    )
    layout = Layout(disk.root())
    return Handover(layout, FileIndexPlace(layout.ledgers), config, surroundings, address).run()


@dataclass
class Life:
    """A disk on which a store was killed, and what it had shown."""

    disk: SimulatedDisk
    shape: Shape
    seen: Seen
    shown: dict[int, Shown]
    opened: dict[str, str] = field(default_factory=dict)
    """By image of a disk, what was wrong with it."""

    def problem(self, disk: SimulatedDisk) -> str:
        """What is wrong when the store is opened, and handed over after all; each disk is tried once."""
        image = disk.image()
        if image not in self.opened:
            self.opened[image] = self._problem(disk)
        return self.opened[image]

    def _problem(self, disk: SimulatedDisk) -> str:
        try:
            store = sit_down(disk, self.shape.config, Random(0)).store
            if store.opened.index not in (IndexFound.GOOD, IndexFound.AHEAD):
                return f"its index has to be made again: {store.opened.index}"
            seen = look(store)
            if seen != self.seen:
                return f"opened it differs: {difference(self.seen, seen)}"
            disk.kill()
            hand_over_on(disk, self.shape.config)
            if naive_bookie.start(Layout(disk.root())).ledgers != self.shown:
                return "handed over in a second try it is not the same to a bookie"
        except (StoreError, OSError, AssertionError) as error:
            return f"refused: {error!r}"
        return ""


def life(seed: int) -> Life:
    """Kills, power cuts and openings; at last a kill behind whatever was not vouched for."""
    world = World(seed, Trouble.CRASHES)
    world.play(150)
    disk = world.disk.copy()
    disk.kill()
    store = sit_down(disk, world.shape.config, Random(seed)).store
    for ledger_id in (1, 2, 3):
        store.ledger(ledger_id).append_many([b"last", b"words"])
    seen, shown = look(store), naive_bookie.as_we_show(store)
    disk.kill()
    return Life(disk, world.shape, seen, shown)


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk before an operation of a handover, or behind the last."""

    what: str
    verb: Verb | None
    disk: SimulatedDisk

    def fates(self, seed: int) -> list[Fate]:
        """Before a sync all that matters; what waits elsewhere waits there too."""
        if self.verb not in (Verb.SYNC, Verb.SYNC_DIRECTORY, None):
            return [LoseAll()]
        drawn = [RandomFate(seed + one, tearing) for one, tearing in enumerate(Tearing)]
        return [KeepAll(), *self.disk.fates(exhaustive_up_to=4), *drawn]


def moments(disk: SimulatedDisk, config: StoreConfig) -> list[Moment]:
    found: list[Moment] = []

    def keep(operation: Operation) -> None:
        what = f"before {operation.number}, {operation.verb} {operation.path}"
        found.append(Moment(what, operation.verb, disk.copy()))

    disk.watch(keep)
    hand_over_on(disk, config)
    return [*found, Moment("at the end", None, disk.copy())]


@pytest.mark.parametrize("seed", range(6))
def test_to_a_bookie_it_is_the_same_whatever_has_happened_before(seed: int) -> None:
    lived = life(seed)
    done = hand_over_on(lived.disk, lived.shape.config)
    bookie = naive_bookie.start(Layout(lived.disk.root()))
    assert done.facts.suffice
    assert bookie.ledgers == lived.shown
    # Not even its tools find anything else: no deleted ledger, and no entry that was cut.
    assert bookie.scanned == lived.shown.keys()
    # What an opening has carried over is in the logs, and is not replayed.
    assert bookie.replayed_entries == 1


MANY = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 16))]


@pytest.mark.parametrize("seed", MANY)
def test_no_power_cut_within_a_handover_loses_anything(seed: int) -> None:
    lived = life(seed)
    wrong = []
    for number, moment in enumerate(moments(lived.disk.copy(), lived.shape.config)):
        for fate in moment.fates(100 * number):
            after = moment.disk.copy()
            after.power_cut(fate)
            if problem := lived.problem(after):
                wrong.append(f"{moment.what}, {fate}: {problem}")
    assert wrong == []
    assert len(lived.opened) > 50


@pytest.mark.parametrize("seed", MANY)
def test_no_kill_within_a_handover_loses_anything(seed: int) -> None:
    lived = life(seed)
    whole = lived.disk.copy()
    hand_over_on(whole, lived.shape.config)
    for operation in whole.trace[len(lived.disk.trace) :]:
        killed = lived.disk.copy()
        killed.stop_within(operation.number)
        with suppress(Stopped):
            hand_over_on(killed, lived.shape.config)
        killed.kill()
        assert lived.problem(killed) == "", f"{operation.verb} {operation.path}"


@pytest.mark.parametrize("seed", MANY)
def test_an_operation_that_fails_within_a_handover_loses_nothing(seed: int) -> None:
    lived = life(seed)
    whole = lived.disk.copy()
    hand_over_on(whole, lived.shape.config)
    for operation in whole.trace[len(lived.disk.trace) :]:
        failed = lived.disk.copy()
        failed.plant(Refused(When(number=operation.number)))
        with suppress(OSError, StoreError):
            hand_over_on(failed, lived.shape.config)
        failed.power_cut(LoseAll())
        assert lived.problem(failed) == "", f"{operation.verb} {operation.path}"


def test_a_journal_that_is_trimmed_does_not_come_back() -> None:
    """A bookie's tools read every journal there is."""
    lived = life(0)
    hand_over_on(lived.disk, lived.shape.config, AS_IT_IS)
    lived.disk.power_cut(LoseAll())
    assert len(journal_ids(Layout(lived.disk.root()).journal)) == 1


def test_what_was_kept_aside_is_there_after_a_power_cut() -> None:
    """The journals that it was taken from are gone."""
    saved = []
    for seed in range(6):
        disk, shape = life(seed).disk, life(seed).shape
        done = hand_over_on(disk, shape.config)
        disk.power_cut(LoseAll())
        names = Layout(disk.root()).quarantine.names() if done.saved else []
        saved += [str(tail.saved_as).removeprefix("quarantine/") in names for tail in done.saved]
    assert saved
    assert all(saved)

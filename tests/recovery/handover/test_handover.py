"""A handover: a bookie finds exactly the content that the store shows, and it remains a store of ours."""

from __future__ import annotations

import shutil
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import fixtures
import naive_bookie
import pytest
from file_index import FileIndexPlace
from sampling import every, many
from simulated_store import STORE_ID, SimulatedWorld, Trouble, open_session
from stepped_store import Site
from store_internals import StoreInternals, confirm
from store_promises import difference, look

from recovery import open_store
from recovery.crashlab import KeepAll, LoseAll, RandomFate, Refused, Stopped, Tearing, Verb, When
from recovery.directory.layout import Layout, load_store_id
from recovery.handover.handover import UNCHANGED, BookieAddress, Handover, HandoverReport, hand_over
from recovery.opening.assembly import Platform
from recovery.opening.rebuild_index import rebuild_index
from storage import StoreConfig
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark_format import Mark
from storage.disk import cookie_format, filenames
from storage.disk.cookie_format import Cookie
from storage.disk.posix import PosixDirectory
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition
from storage.entrylog import format as entrylog_format
from storage.entrylog.log_set import log_ids
from storage.entrylog.reader import EntryLogReader
from storage.errors import InvalidFormat, NotAStore, StoreError, StoreLocked
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.lmdb.index import LmdbIndex
from storage.journal.journal_set import journal_ids
from storage.journal.reader import JournalReader, StoredRecord
from storage.open_report import IndexFound
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from naive_bookie import NaiveLedger
    from simulated_store import WorldShape
    from store_promises import ObservedStore

    from recovery.crashlab import Fate, Operation, SimulatedDisk
    from storage.runtime.worker import Pause, Worker
    from storage.store import Store

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
ADDRESS = BookieAddress("10.0.0.1:3181", "/data/journal", "/data/ledgers", "the cluster's")


def layout_of(path: Path) -> Layout:
    return Layout(PosixDirectory(path))


def fill(store: Store) -> None:
    """One ledger of each kind. Entry logs have records of the deleted ones."""
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


def shown_at(path: Path) -> dict[int, NaiveLedger]:
    with open_store(path, CONFIG) as store:
        return naive_bookie.as_we_show(store)


# ── what a bookie finds ──────────────────────────────────────────────────────────────────────────────────


def test_a_bookie_finds_the_same_entries_fences_keys_and_explicit_lacs(path: Path) -> None:
    expected = shown_at(path)
    done = hand_over(path, config=CONFIG)
    facts = done.facts
    assert facts.is_sufficient
    assert (facts.ledgers, facts.keys, facts.fences, facts.explicit_lacs) == (4, 4, 2, 1)
    bookie = naive_bookie.start(layout_of(path))
    assert bookie.ledgers == expected
    assert [ledger_id for ledger_id, shown in expected.items() if shown.fenced] == [2, 3]
    assert expected[1].explicit_lac is not None


def test_a_bookie_finds_no_truncated_entry_and_we_remember_the_truncation(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, CONFIG) as store:
        for ledger_id in (1, 2):
            store.ledger(ledger_id).append_many([b"%d" % number for number in range(10)])
        store.checkpoint()
        store.ledger(1).truncate(4)
        store.ledger(2).truncate(10)
    assert hand_over(path, config=CONFIG).facts.is_sufficient
    found = naive_bookie.start(layout_of(path)).ledgers
    assert {one: sorted(shown.entries) for one, shown in found.items() if shown.entries} == {
        1: [*range(4, 10)]
    }
    with open_store(path, CONFIG) as store:
        assert [store.ledger(one).first_entry_id for one in (1, 2)] == [4, 10]
        assert store.ledger(2).append(b"more") == 10


def test_one_entry_is_replayed_so_that_the_bookie_stores_the_metadata(path: Path) -> None:
    done = hand_over(path, config=CONFIG)
    assert done.facts.restated == (1, 2)
    assert naive_bookie.start(layout_of(path)).replayed_entries == 1


def test_a_bookie_s_tools_find_nothing_of_deleted_ledgers(path: Path) -> None:
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


def test_bytes_after_the_end_of_a_log_are_kept_aside_and_cut(path: Path) -> None:
    log = path / "ledgers/current/0.log"
    whole = log.read_bytes()
    header = entrylog_format.decode_header(whole)
    assert isinstance(header, entrylog_format.LogHeader)
    # As after a crash in a later checkpoint: no map, and whole records after the end.
    leftover = whole[4096:4200].ljust(4096, b"\7")
    unsealed = whole[:8] + entrylog_format.encode_map_fields(0, 0) + whole[20 : header.map_offset]
    log.write_bytes(unsealed + leftover)
    expected = shown_at(path)
    done = hand_over(path, config=CONFIG)
    assert [(tail.file, tail.offset) for tail in done.saved] == [("0.log", header.map_offset)]
    saved = path / "quarantine" / f"0.log-{header.map_offset}"
    assert saved.read_bytes() == leftover
    assert naive_bookie.start(layout_of(path)).ledgers == expected
    assert shown_at(path) == expected


def test_an_unsealed_log_that_is_damaged_gets_no_map(path: Path) -> None:
    log = path / "ledgers/current/0.log"
    whole = log.read_bytes()
    header = entrylog_format.decode_header(whole)
    assert isinstance(header, entrylog_format.LogHeader)
    unsealed = bytearray(whole[:8] + entrylog_format.encode_map_fields(0, 0) + whole[20 : header.map_offset])
    unsealed[4096:4100] = b"\x7f\xff\xff\xff"
    log.write_bytes(unsealed)

    done = hand_over(path, config=CONFIG)

    assert done.findings[0].startswith("ELG-004 0.log@4096")
    assert done.logs.written == ["0.log"]
    stripped = entrylog_format.decode_header(log.read_bytes())
    assert isinstance(stripped, entrylog_format.LogHeader)
    assert (stripped.map_offset, stripped.ledger_count) == (0, 0)


def test_an_unsealed_log_that_ends_with_its_last_record_is_sound(path: Path) -> None:
    log = path / "ledgers/current/0.log"
    whole = log.read_bytes()
    header = entrylog_format.decode_header(whole)
    assert isinstance(header, entrylog_format.LogHeader)
    # The filler between the last record and the map was not written yet.
    place = LmdbIndexDirectory(layout_of(path).ledgers, path / "ledgers/current", CONFIG.index_size_max)
    index = place.open()
    assert isinstance(index, LmdbIndex)
    end = index.state().log_ends[0]
    index.close()
    log.write_bytes(whole[:8] + entrylog_format.encode_map_fields(0, 0) + whole[20:end])

    done = hand_over(path, config=CONFIG)

    assert done.findings == ()
    assert done.logs.written == ["0.log"]
    stripped = entrylog_format.decode_header(log.read_bytes())
    assert isinstance(stripped, entrylog_format.LogHeader)
    assert stripped.map_offset == header.map_offset


def test_a_stripped_log_is_not_touched_again(path: Path) -> None:
    hand_over(path, config=CONFIG)
    log = path / "ledgers/current/0.log"
    before = (log.stat().st_ino, log.read_bytes())
    assert hand_over(path, config=CONFIG).logs.written == []
    assert (log.stat().st_ino, log.read_bytes()) == before


def test_a_sealed_log_whose_map_is_damaged_is_sealed_again(path: Path) -> None:
    hand_over(path, config=CONFIG)
    log = path / "ledgers/current/0.log"
    before = log.read_bytes()
    header = entrylog_format.decode_header(before[: entrylog_format.HEADER_SIZE])
    assert isinstance(header, entrylog_format.LogHeader)
    at = header.map_offset + 20
    log.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
    hand_over(path, config=CONFIG)
    assert log.read_bytes() == before


def test_one_journal_is_left_and_the_mark_is_at_its_beginning(path: Path) -> None:
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


def test_metadata_of_many_ledgers_takes_several_groups_and_journals(tmp_path: Path) -> None:
    config = replace(CONFIG, group_size_max=4 << 10, journal_size=48 << 10)
    with open_store(tmp_path / "store", config) as store:
        for ledger_id in range(400):
            confirm(store.ledger(ledger_id, password=b"%d" % ledger_id), ledger_id)
        store.ledger(7, password=b"7").append(b"seven")
    expected = shown_at(tmp_path / "store")
    done = hand_over(tmp_path / "store", config=config)
    layout = layout_of(tmp_path / "store")
    assert len(journal_ids(layout.journal)) > 1
    assert done.mark.journal_id == journal_ids(layout.journal)[0]
    assert naive_bookie.start(layout).ledgers == expected
    assert shown_at(tmp_path / "store") == expected


def test_journal_data_that_never_counted_is_kept_aside_before_the_trim(path: Path) -> None:
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


def test_damage_of_an_unneeded_journal_is_kept_aside_too(path: Path) -> None:
    """An opening does not read it; a bookie's tools would, and it is the last copy."""
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


def test_the_reserve_is_left_out_because_a_bookie_would_keep_it_for_ever(path: Path) -> None:
    current = path / "ledgers/current"
    for name in ("reserve", "reserve.opening"):
        (current / name).write_bytes(bytes(4096))
    hand_over(path, config=CONFIG)
    assert not [one.name for one in current.iterdir() if one.name.startswith("reserve")]


# ── what it will not know ────────────────────────────────────────────────────────────────────────────────


def test_a_ledger_with_an_unknown_key_is_named(tmp_path: Path) -> None:
    shutil.copytree(fixtures.bookie("04a_fence_lac_crash") / "bookie", tmp_path / "store")
    layout = layout_of(tmp_path / "store")
    rebuilt = rebuild_index(layout, LmdbIndexDirectory(layout.ledgers, layout.ledgers.path))
    unproven = [one for one, row in rebuilt.rows.items() if row.master_key is None]
    rebuilt.index.close()
    done = hand_over(tmp_path / "store", config=CONFIG)
    assert unproven
    assert done.facts.unproven == unproven
    assert not done.facts.is_sufficient


def test_without_an_entry_the_metadata_is_not_sufficient(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        store.ledger(1).fence()
    done = hand_over(tmp_path / "store", config=CONFIG)
    assert not done.facts.is_sufficient
    assert naive_bookie.start(layout_of(tmp_path / "store")).ledgers[1].fenced


def test_ledgers_in_limbo_are_named(path: Path) -> None:
    with open_store(path, CONFIG) as store:
        store.bookie.enter_limbo(1)
    assert hand_over(path, config=CONFIG).limbo == (1,)


def test_records_of_deleted_ledgers_in_damaged_logs_are_a_finding(path: Path) -> None:
    log = path / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[4096:4100] = b"\x7f\xff\xff\xff"
    log.write_bytes(data)
    done = hand_over(path, config=CONFIG)
    assert done.deleted == (4, 5)
    assert done.findings[0].startswith("ELG-004 0.log@4096")


def taken_over(tmp_path: Path, name: str) -> Path:
    """A directory that a bookie has written, as a store of ours."""
    path = tmp_path / "store"
    shutil.copytree(fixtures.bookie(name) / "bookie", path)
    layout = layout_of(path)
    rebuild_index(layout, LmdbIndexDirectory(layout.ledgers, layout.ledgers.path)).index.close()
    return path


def logs_at(path: Path) -> dict[str, tuple[int, bytes]]:
    return {log.name: (log.stat().st_ino, log.read_bytes()) for log in path.glob("ledgers/current/*.log")}


@pytest.mark.parametrize("name", ["03a_crash_after_checkpoint", "08_digests"])
def test_entries_of_deleted_ledgers_are_blanked_in_the_logs_of_a_bookie(tmp_path: Path, name: str) -> None:
    path = taken_over(tmp_path, name)
    with open_store(path, CONFIG) as store:
        count = len([*store.ledger(1).payloads()])
        others = {*store.ledgers()} - {1}
    hand_over(path, config=CONFIG)
    assert naive_scan(path) == {1, *others}
    before = logs_at(path)
    assert hand_over(path, config=CONFIG).logs.written == []
    assert {log: logs_at(path)[log] for log in before} == before
    with open_store(path, CONFIG) as store:
        store.bookie.delete(1)
    expected = shown_at(path)
    done = hand_over(path, config=CONFIG)
    assert done.logs.blanked >= count > 0
    assert done.findings == ()
    assert naive_scan(path) == others
    after = logs_at(path)
    assert {log for log in before if after[log] != before[log]} == {*before} & {*done.logs.written}
    assert shown_at(path) == expected


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


@pytest.mark.parametrize(
    ("address", "changed"),
    [
        (BookieAddress(bookie_id="10.0.0.1:3181"), {"bookie_host"}),
        (BookieAddress(journal_directory="/data/journal"), {"journal_directories"}),
        (BookieAddress(ledger_directory="/data/ledgers"), {"ledger_directories", "index_directories"}),
        (BookieAddress(instance_id="the cluster's"), {"instance_id", "store_id"}),
        (UNCHANGED, set[str]()),
    ],
)
def test_an_address_changes_only_what_it_names(address: BookieAddress, changed: set[str]) -> None:
    found = Cookie(
        layout_version=cookie_format.VERSION,
        bookie_host="old:1",
        journal_directories=("/old/journal",),
        ledger_directories=("/old/ledgers",),
        instance_id="5" * 32,
        index_directories=("/old/index",),
    )
    stamped = address.on(found)
    names = {one.name for one in fields(Cookie)}
    assert {name for name in names if getattr(stamped, name) != getattr(found, name)} == changed
    assert address.on(stamped) == stamped


def test_the_files_for_a_bookie_are_durable_and_unchanged_cookies_are_not_written() -> None:
    site = Site()
    site.open().ledger(1).append(b"0")
    site.disk.kill()
    before = len(site.disk.trace)
    done = hand_over_on(site.disk, site.config, UNCHANGED)
    written = {one.path.rpartition("/")[2] for one in site.disk.trace[before:] if one.verb is Verb.WRITE}
    assert "lastId" in written
    assert not [name for name in written if name.startswith("VERSION")]
    site.disk.power_cut(LoseAll())
    assert site.bytes_of("ledgers/current/lastId") == b"%x\n" % (done.last_log or 0)
    assert {"ledgers", "locations"} <= {*site.names("ledgers/current")}


def test_another_instance_id_does_not_make_our_logs_foreign(path: Path) -> None:
    before, expected = load_store_id(layout_of(path)), shown_at(path)
    hand_over(path, ADDRESS, CONFIG)
    assert load_store_id(layout_of(path)) == before
    with open_store(path, CONFIG) as store:
        store.ledger(1).append(b"four")
    # Without the index each log is recognised by the store id in its header.
    shutil.rmtree(path / "ledgers/current/index")
    shown = shown_at(path)
    assert shown[2] == expected[2]
    assert len(shown[1].entries) == 4


def test_an_address_that_cannot_be_encoded_changes_nothing(path: Path) -> None:
    before = sorted(one.name for one in (path / "journal/current").iterdir())
    with pytest.raises(InvalidFormat):
        hand_over(path, BookieAddress(journal_directory="/a,/b"), CONFIG)
    assert sorted(one.name for one in (path / "journal/current").iterdir()) == before


# ── still ours ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_store_that_was_handed_over_can_be_opened_again(path: Path) -> None:
    expected = shown_at(path)
    hand_over(path, ADDRESS, CONFIG)
    with open_store(path, CONFIG) as store:
        assert naive_bookie.as_we_show(store) == expected
        assert store.opened.findings == store.opened.unknown == ()
        assert store.opened.records_carried == 0
        assert store.ledger(1).append(b"four") == 3
    assert len(shown_at(path)[1].entries) == 4


def test_another_handover_has_the_same_result(path: Path) -> None:
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


def test_a_handover_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        hand_over(tmp_path, config=CONFIG)
    assert [*tmp_path.iterdir()] == []


# ── killed anywhere ──────────────────────────────────────────────────────────────────────────────────────


def hand_over_on(
    disk: SimulatedDisk, config: StoreConfig, address: BookieAddress = ADDRESS
) -> HandoverReport:
    def new_worker(
        name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> Worker:
        raise AssertionError(f"{name}: nobody works beside a handover")

    dice, ticks = Random(len(disk.trace)), count()
    platform = Platform(
        new_worker, nullcontext, lambda: dice.getrandbits(64), lambda: STORE_ID, lambda: float(next(ticks))
    )
    layout = Layout(disk.root())
    return Handover(layout, FileIndexPlace(layout.ledgers), config, platform, address).run()


@dataclass
class Life:
    """A disk on which a store was killed, and the content that it had shown."""

    disk: SimulatedDisk
    shape: WorldShape
    seen: ObservedStore
    shown: dict[int, NaiveLedger]
    opened: dict[str, str] = field(default_factory=dict)
    """For each image of a disk, the error that was found."""

    def problem(self, disk: SimulatedDisk) -> str:
        """Return the error of an opening and a handover after it; each disk is tried once."""
        image = disk.image()
        if image not in self.opened:
            self.opened[image] = self._problem(disk)
        return self.opened[image]

    def _problem(self, disk: SimulatedDisk) -> str:
        try:
            store = open_session(disk, self.shape.config, Random(0)).store
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
    """Do kills, power cuts and openings, and at the end a kill after unproven groups."""
    world = SimulatedWorld(seed, Trouble.CRASHES)
    world.play(150)
    disk = world.disk.copy()
    disk.kill()
    store = open_session(disk, world.shape.config, Random(seed)).store
    engine = StoreInternals(store)
    # The replay may have filled both tables with entries that it must not checkpoint yet; a worker does.
    while engine.frozen_table is not None and engine.step_checkpoint() == AT_ONCE:
        pass
    for ledger_id in (1, 2, 3):
        store.ledger(ledger_id).append_many([b"last", b"words"])
    seen, shown = look(store), naive_bookie.as_we_show(store)
    disk.kill()
    return Life(disk, world.shape, seen, shown)


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk before an operation of a handover, or after the last one."""

    what: str
    verb: Verb | None
    disk: SimulatedDisk

    def fates(self, seed: int) -> list[Fate]:
        """Many fates of unsynced bytes before a sync, and one before any other operation."""
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


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("seed", range(6))
def test_a_handover_has_the_same_result_after_any_history(seed: int) -> None:
    lived = life(seed)
    done = hand_over_on(lived.disk, lived.shape.config)
    bookie = naive_bookie.start(Layout(lived.disk.root()))
    assert done.facts.is_sufficient
    assert bookie.ledgers == lived.shown
    # Its tools find nothing else either: no deleted ledger, and no entry that was cut.
    assert bookie.scanned == lived.shown.keys()
    # Records that an opening has carried over are in the logs, and are not replayed.
    assert bookie.replayed_entries == 1


MANY = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 16))]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", MANY)
def test_no_power_cut_within_a_handover_loses_anything(seed: int) -> None:
    lived = life(seed)
    wrong = []
    for number, moment in every(150, enumerate(moments(lived.disk.copy(), lived.shape.config))):
        for fate in moment.fates(100 * number):
            after = moment.disk.copy()
            after.power_cut(fate)
            if problem := lived.problem(after):
                wrong.append(f"{moment.what}, {fate}: {problem}")
    assert wrong == []
    assert len(lived.opened) > many(50, 0)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", MANY)
def test_no_kill_within_a_handover_loses_anything(seed: int) -> None:
    lived = life(seed)
    whole = lived.disk.copy()
    hand_over_on(whole, lived.shape.config)
    for operation in every(10, whole.trace[len(lived.disk.trace) :]):
        killed = lived.disk.copy()
        killed.stop_within(operation.number)
        with suppress(Stopped):
            hand_over_on(killed, lived.shape.config)
        killed.kill()
        assert lived.problem(killed) == "", f"{operation.verb} {operation.path}"


@pytest.mark.sampled
@pytest.mark.parametrize("seed", MANY)
def test_an_operation_that_fails_within_a_handover_loses_nothing(seed: int) -> None:
    lived = life(seed)
    whole = lived.disk.copy()
    hand_over_on(whole, lived.shape.config)
    for operation in every(10, whole.trace[len(lived.disk.trace) :]):
        failed = lived.disk.copy()
        failed.plant(Refused(When(number=operation.number)))
        with suppress(OSError, StoreError):
            hand_over_on(failed, lived.shape.config)
        failed.power_cut(LoseAll())
        assert lived.problem(failed) == "", f"{operation.verb} {operation.path}"


def test_the_metadata_of_a_handover_is_proven_durable_when_it_returns() -> None:
    lived = life(0)
    hand_over_on(lived.disk, lived.shape.config)
    lived.disk.power_cut(LoseAll())
    journals = Layout(lived.disk.root()).journal
    newest = journal_ids(journals)[-1]
    with journals.open(filenames.journal(newest)) as file:
        reader = JournalReader(file, newest)
        ends = [item.end for item in reader.items(reader.records_start) if isinstance(item, StoredRecord)]
        seal = reader.last_seal(0)
    assert seal is not None
    assert seal.durable_up_to >= JournalPosition(newest, ends[-1])


def test_a_journal_that_is_trimmed_does_not_come_back() -> None:
    """A bookie's tools read every journal."""
    lived = life(0)
    hand_over_on(lived.disk, lived.shape.config, UNCHANGED)
    lived.disk.power_cut(LoseAll())
    assert len(journal_ids(Layout(lived.disk.root()).journal)) == 1


@pytest.mark.slow
def test_the_quarantine_survives_a_power_cut() -> None:
    """Its journals were trimmed."""
    saved = []
    for seed in range(6):
        disk, shape = life(seed).disk, life(seed).shape
        done = hand_over_on(disk, shape.config)
        disk.power_cut(LoseAll())
        names = Layout(disk.root()).quarantine.names() if done.saved else []
        saved += [str(tail.saved_as).removeprefix("quarantine/") in names for tail in done.saved]
    assert saved
    assert all(saved)

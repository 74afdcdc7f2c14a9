"""An imported directory has every entry of the bookie, and all metadata in its files."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fixtures
import pytest
from entry_log_builder import Log, direct_log
from file_index import FileIndexPlace
from journal_builder import BookieJournal, OurJournal, entry_bytes, entry_record, flip
from simulated_directories import MARK, STORE_ID, SimulatedDirectories, entries, ids
from store_internals import log_header_checksum

from recovery.bookkeeper.import_directory import ImportedDirectory, import_directory
from recovery.directory.layout import Layout
from recovery.rebuild.rebuild import rebuild
from storage.checkpoint import mark
from storage.checkpoint import mark_format as mark_codec
from storage.checkpoint.mark_format import Mark, Trailer
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry import format as entry_format
from storage.entry.digest import digester, master_key
from storage.entry.ledger_record import KnownBy, LedgerRecord, Tombstone
from storage.entry.model import DigestType, Entry
from storage.entry.position import START, EntryLocation, JournalPosition, LogPosition
from storage.entry.read_result import Damaged
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage
from storage.entrylog.format import Origin
from storage.entrylog.lineage_format import Lineage
from storage.errors import CorruptionError, NewerFormat
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.state import IndexState
from storage.journal import format as journal_format
from storage.ledgers import metadata_log
from storage.ledgers.metadata import plain
from storage.open_report import RebuildProgress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.index.port import IndexDirectory

KEY = b"k" * 20

# ── what real bookies left ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["file", "lmdb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def copied(name: str, to: Path) -> Layout:
    shutil.copytree(fixtures.bookie(name) / "bookie", to / "store")
    return Layout(PosixDirectory(to / "store"))


def place_of(layout: Layout, kind: str) -> IndexDirectory:
    if kind == "file":
        return FileIndexPlace(layout.ledgers)
    return LmdbIndexDirectory(layout.ledgers, layout.ledgers.path, 1 << 30)


def in_logs(name: str) -> set[tuple[int, int]]:
    """Return the entries that BookKeeper's own reader finds in the entry logs."""
    listed = fixtures.dump(name, "entrylog.ledgers")
    return {(one["ledger"], one["entry"]) for one in listed if one["kind"] == "entry"}


def acknowledged(name: str) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the entries in the manifest, without those of deleted ledgers."""
    return {
        (ledger["ledger"], entry["entry"]): entry
        for ledger in fixtures.manifest(name)["ledgers"]
        if not ledger["deleted"]
        for entry in ledger["entries"]
    }


def look_up(layout: Layout, imported: ImportedDirectory) -> Iterator[tuple[int, int, bytes]]:
    for ledger_id in imported.index.ledgers():
        for entry_id, packed in imported.index.locations(ledger_id, 0, 1 << 20):
            location = EntryLocation.unpack(packed)
            with layout.ledgers.open(filenames.entry_log(location.log_id)) as file:
                size = int.from_bytes(file.read(location.position.offset, 4), "big")
                yield ledger_id, entry_id, file.read(location.offset, size)


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("name", fixtures.SETS)
def test_every_entry_in_the_logs_gets_its_location(name: str, kind: str, tmp_path: Path) -> None:
    layout = copied(name, tmp_path)
    imported = import_directory(layout, place_of(layout, kind), STORE_ID)
    known, passwords = acknowledged(name), fixtures.passwords(name)
    found = set()
    for ledger_id, entry_id, data in look_up(layout, imported):
        wanted = known[ledger_id, entry_id]
        protection = digester(DigestType[wanted["digest_type"]], passwords[ledger_id])
        entry = entry_format.decode(data, protection)
        assert not isinstance(entry, Damaged)
        assert (entry.ledger_id, entry.entry_id) == (ledger_id, entry_id)
        assert hashlib.sha256(entry.payload).hexdigest() == wanted["sha256"]
        start = entry_format.HEAD.size
        assert data[start : start + protection.digest_type.width].hex() == wanted["digest"]
        found.add((ledger_id, entry_id))
    assert found == in_logs(name) & known.keys()
    assert imported.index.state().is_whole
    assert imported.findings == ()
    imported.index.close()
    imported.rows.close()


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("name", fixtures.SETS)
def test_the_rows_have_the_metadata_of_the_journals(name: str, kind: str, tmp_path: Path) -> None:
    layout = copied(name, tmp_path)
    imported = import_directory(layout, place_of(layout, kind), STORE_ID)
    has_lacs = name not in ("07_journal_v4_crash", "07_journal_v5_crash")
    for ledger in fixtures.manifest(name)["ledgers"]:
        row = imported.rows.rows[ledger["ledger"]]
        is_empty = not ledger["entries"]
        assert row.fenced == ledger["fenced"]
        # A bookie that fences an unknown ledger journals no key.
        assert row.master_key == (None if is_empty else bytes.fromhex(ledger["master_key"]))
        wire = ledger.get("explicit_lac_wire") if has_lacs else None
        assert row.explicit_lac == (None if wire is None else bytes.fromhex(wire))
        assert row.digest_type == (None if is_empty else DigestType[ledger["digest_type"]])
        assert row.known_by is KnownBy.INFERRED
    assert len(imported.rows.rows) == len(fixtures.manifest(name)["ledgers"])
    assert list(imported.index.rows()) == [row for _, row in sorted(imported.rows.rows.items())]
    imported.index.close()
    imported.rows.close()


@pytest.mark.parametrize("name", fixtures.SETS)
def test_nothing_is_removed_and_no_file_changes_but_the_mark(name: str, tmp_path: Path) -> None:
    layout = copied(name, tmp_path)
    root = tmp_path / "store"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    imported = import_directory(layout, place_of(layout, "file"), STORE_ID)
    changed = [path.name for path, data in before.items() if path.read_bytes() != data]
    assert changed == ["lastMark"]
    assert (root / "ledgers/current/lastMark").read_bytes()[:16] == before[root / "ledgers/current/lastMark"]
    assert mark.load(layout.ledgers) == imported.mark
    assert {path.name for path in root.rglob("*") if path.is_file()} - {path.name for path in before} == {
        "index",
        "ledgers.rows",
        "lineage",
    }


@pytest.mark.parametrize("name", ["01_clean", "08_digests"])
def test_another_import_has_the_same_result_and_keeps_the_old_index(
    name: str, kind: str, tmp_path: Path
) -> None:
    layout = copied(name, tmp_path)
    first = import_directory(layout, place_of(layout, kind), STORE_ID)
    state, rows, placed = first.index.state(), dict(first.rows.rows), list(look_up(layout, first))
    first.index.close()
    first.rows.close()
    shutil.copy(fixtures.bookie(name) / "bookie/ledgers/current/lastMark", layout.ledgers.path)
    second = import_directory(layout, place_of(layout, kind), STORE_ID)
    assert second.index.state() == replace(
        state, generation=state.generation + 1, rows_sequence=state.rows_sequence + 1
    )
    assert (dict(second.rows.rows), list(look_up(layout, second))) == (rows, placed)
    assert "index.damaged" in layout.ledgers.names()
    second.index.close()
    second.rows.close()


# ── the mark ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "position"),
    [
        (None, START),
        (b"", START),
        (bytes(9), START),
        (mark_codec.encode(Mark(JournalPosition(7, 3588))), JournalPosition(7, 3588)),
        (mark_codec.encode(Mark(JournalPosition(7, 1 << 24))), JournalPosition(7, 1 << 24)),
    ],
    ids=["missing", "empty", "short", "behind the end", "at the end of the file"],
)
def test_replay_begins_at_the_bookie_s_mark(written: bytes | None, position: JournalPosition) -> None:
    site = SimulatedDirectories()
    site.put_log(0, Log().add(*entries(1, range(2))))
    if written is not None:
        site.put_mark(written)
    imported = site.imported()
    assert imported.mark.position == imported.index.state().mark == position
    assert imported.mark.trailer == Trailer(1, position.journal_id, LogPosition(0, 1024), 1)
    assert mark.load(site.ledgers) == imported.mark


def test_a_damaged_mark_was_ours_and_the_index_replaces_it() -> None:
    site = SimulatedDirectories()
    site.put_log(0, Log().add(*entries(1, [0])))
    site.put_mark(bytes(40))
    with pytest.raises(CorruptionError, match="MRK-001"):
        site.imported()
    assert "index" not in site.ledgers.names()
    site.put_index(state=IndexState(4, JournalPosition(5, 8192)))
    assert site.imported().mark.position == JournalPosition(5, 8192)


def test_a_mark_of_ours_beside_a_bookie_s_logs_keeps_what_its_trailer_knows() -> None:
    site = SimulatedDirectories()
    site.put_log(0, Log().add(*entries(1, [0])))
    site.put_mark(mark_codec.encode(Mark(MARK, Trailer(40, 12, None, 0))))
    imported = site.imported()
    assert imported.mark == Mark(MARK, Trailer(41, 12, LogPosition(0, 1024), 1))


@pytest.mark.parametrize("of", ["the index", "a log of ours"])
def test_the_generation_is_later_than_any_there_was(of: str) -> None:
    site = SimulatedDirectories()
    site.put_mark()
    site.put_log(0, entrylog_format.encode_header(Origin(STORE_ID, 57 if of == "a log of ours" else 3, None)))
    site.put_index(state=IndexState(57 if of == "the index" else 3))
    assert site.imported().index.state().generation == 58


# ── the logs ─────────────────────────────────────────────────────────────────────────────────────────────


def imported_logs(*logs: tuple[int, Log | bytes]) -> tuple[SimulatedDirectories, ImportedDirectory]:
    site = SimulatedDirectories()
    site.put_mark()
    for log_id, log in logs:
        site.put_log(log_id, log)
    return site, site.imported()


def test_logs_of_every_kind_are_read() -> None:
    site, imported = imported_logs(
        (0, Log().add(*entries(2, range(3))).seal()),
        (1, Log().add(*entries(3, range(3)))),
        (2, direct_log()),
        (3, Log()),
        (4, b""),
        (5, bytes(1024) + Log().add(*entries(4, range(3))).file()[1024:]),
    )
    placed = site.placed(imported.index)
    assert list(placed) == [(ledger_id, entry_id) for ledger_id in (1, 2, 3, 4) for entry_id in range(3)]
    assert placed[1, 2] == entry_bytes(1, 2)
    ends = imported.index.state().log_ends
    assert ends == {0: 1024, 1: 1024, 2: 1024, 3: 1024, 4: 0, 5: 1024}
    assert imported.findings == ()


def test_leftovers_of_an_interrupted_compaction_are_ignored() -> None:
    site = SimulatedDirectories()
    site.put_mark()
    site.put_log(0, Log().add(*entries(1, range(3))))
    for name in ("7.log.compacting", "8.log.0.compacted"):
        site.put(site.ledgers, name, Log().add(*entries(9, [0])).file())
    imported = site.imported()
    assert list(imported.index.ledgers()) == [1]
    assert imported.findings == ()
    assert {"7.log.compacting", "8.log.0.compacted"} <= set(site.ledgers.names())


def test_a_compaction_with_only_its_leftover_is_a_finding() -> None:
    site = SimulatedDirectories()
    site.put_mark()
    site.put(site.ledgers, "8.log.5.compacted", Log().add(*entries(9, [0])).file())
    assert [one[:27] for one in site.imported().findings] == ["ELG-005 8.log.5.compacted@0"]


def test_the_last_log_with_a_header_is_the_last_one() -> None:
    _, imported = imported_logs((0, Log().add(*entries(1, [0]))), (1, b""), (2, b"BK"))
    state = imported.index.state()
    assert (state.last_log, state.log_ends) == (0, {0: 1024, 1: 0, 2: 2})


def test_a_directory_without_a_log_has_no_last_one() -> None:
    _, imported = imported_logs((0, b""))
    assert imported.index.state().last_log is None


def test_the_later_of_two_copies_counts() -> None:
    site, imported = imported_logs(
        (0, Log().add(entry_bytes(1, 0, b"one"), entry_bytes(1, 0, b"two"), entry_bytes(1, 1, b"old"))),
        (1, Log().add(entry_bytes(1, 1, b"new"))),
    )
    assert [data[-3:] for data in site.placed(imported.index).values()] == [b"two", b"new"]


def test_later_means_the_order_in_which_ids_are_given_out() -> None:
    site, imported = imported_logs(
        (0x7FFFFFFE, Log().add(entry_bytes(1, 0, b"old"))), (0, Log().add(entry_bytes(1, 0, b"new")))
    )
    assert site.placed(imported.index)[1, 0].endswith(b"new")
    assert imported.index.state().last_log == 0


def damaged(data: bytes, text: bytes) -> bytes:
    return flip(data, data.index(text))


def test_an_older_sound_copy_replaces_one_with_a_wrong_digest() -> None:
    newer = Log().add(entry_bytes(1, 0, b"newer"), entry_bytes(1, 1, b"other")).file()
    site, imported = imported_logs(
        (0, Log().add(*entries(1, range(4)))), (1, damaged(newer, b"newer")), (2, b"")
    )
    placed = site.placed(imported.index)
    assert placed[1, 0] == entry_bytes(1, 0)
    assert placed[1, 1].endswith(b"other")
    assert (imported.findings, imported.figures.unreadable) == ((), 0)


def test_a_newer_sound_copy_replaces_one_with_a_wrong_digest() -> None:
    older = Log().add(entry_bytes(1, 0, b"older"), *entries(1, range(1, 4))).file()
    site, imported = imported_logs((0, damaged(older, b"older")), (1, Log().add(entry_bytes(1, 0, b"newer"))))
    assert site.placed(imported.index)[1, 0].endswith(b"newer")
    assert imported.findings == ()


def test_an_entry_without_a_sound_copy_is_indexed_and_a_finding() -> None:
    log = Log().add(entry_bytes(1, 0, b"first"), entry_bytes(1, 0, b"again"), *entries(1, range(1, 4)))
    _, imported = imported_logs((0, damaged(damaged(log.file(), b"first"), b"again")))
    assert imported.index.find(1, 0) is not None
    [finding] = imported.findings
    assert finding == f"ELG-003 0.log@{1024 + 45}: ledger 1, entry 0"
    assert imported.figures.unreadable == 1
    assert imported.index.state().is_whole


def test_damage_is_found_in_first_entries_though_digest_types_are_learned_later() -> None:
    log = Log().add(*(entry_bytes(1, number, digest=DigestType.CRC32) for number in range(5))).file()
    _, imported = imported_logs((0, damaged(log, b"ledger 1 entry 0")))
    assert [one[:18] for one in imported.findings] == ["ELG-003 0.log@1024"]


def test_a_hole_is_a_finding_and_missing_entries_are_unknown() -> None:
    log = bytearray(Log().add(*entries(1, range(4))).file())
    second = 1024 + 4 + len(entry_bytes(1, 0))
    log[second : second + 30] = bytes(30)
    site, imported = imported_logs((0, bytes(log)))
    assert ids(site.placed(imported.index), 1) == [0, 2, 3]
    assert [one[:18] for one in imported.findings] == [f"ELG-004 0.log@{second}"]
    assert not imported.index.state().is_whole
    assert imported.figures.holes == 1


def test_a_torn_tail_of_a_log_is_no_finding() -> None:
    log = Log().add(*entries(1, range(4))).file()
    site, imported = imported_logs((0, log[:-9]))
    assert ids(site.placed(imported.index), 1) == [0, 1, 2]
    assert (imported.findings, imported.index.state().is_whole) == ((), True)


def test_a_sealed_log_without_its_end_is_damaged() -> None:
    log = Log().add(*entries(1, range(4))).seal().file()
    _, imported = imported_logs((0, log[: log.index(entry_bytes(1, 3))]))
    assert [one[:13] for one in imported.findings] == ["ELG-004 0.log"]
    assert not imported.index.state().is_whole


def test_a_tail_that_no_crash_leaves_is_damaged() -> None:
    _, imported = imported_logs((0, Log().add(*entries(1, range(4))).file() + b"\xff" * 40))
    assert [one[:13] for one in imported.findings] == ["ELG-004 0.log"]
    assert not imported.index.state().is_whole


def test_a_damaged_header_is_a_finding_and_loses_no_entry() -> None:
    site, imported = imported_logs((0, b"?" + Log().add(*entries(1, range(4))).file()[1:]))
    assert ids(site.placed(imported.index), 1) == [0, 1, 2, 3]
    assert [one[:15] for one in imported.findings] == ["ELG-001 0.log@0"]


def test_an_entry_whose_ledger_id_may_be_damaged_is_a_finding() -> None:
    log = Log().add(*entries(1, range(4)), *entries(2, range(4))).file()
    place = log.index(entry_bytes(1, 2))
    _, imported = imported_logs((0, flip(log, place + 3)))
    assert [one[:13] for one in imported.findings] == ["ELG-003 0.log"]
    assert not imported.index.state().is_whole


def test_a_log_that_a_newer_version_wrote_is_left_alone() -> None:
    site = SimulatedDirectories()
    site.put_mark()
    data = bytearray(entrylog_format.encode_header(Origin(STORE_ID, 1, None)))
    data[24:28] = (entrylog_format.OUR_VERSION + 1).to_bytes(4, "big")
    data[68:72] = log_header_checksum(bytes(data)).to_bytes(4, "big")
    site.put_log(0, bytes(data))
    before = site.ledgers.names()
    with pytest.raises(NewerFormat):
        site.imported()
    assert site.ledgers.names() == before


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def row_of(imported: ImportedDirectory, ledger_id: int) -> LedgerRecord:
    return replace(imported.rows.rows[ledger_id], change=0)


def unproven(ledger_id: int, digest_type: DigestType | None = DigestType.CRC32C) -> LedgerRecord:
    return LedgerRecord(ledger_id, 0, digest_type, KnownBy.INFERRED)


def test_a_ledger_whose_key_no_journal_has_is_unproven() -> None:
    _, imported = imported_logs((0, Log().add(*entries(1, range(3)))))
    assert row_of(imported, 1) == unproven(1)


def test_a_plain_ledger_needs_no_row() -> None:
    site = SimulatedDirectories()
    site.put_mark()
    site.put_log(0, Log().add(*entries(1, range(3))))
    words = [journal_format.encode_ledger_key(one, master_key(b"")) for one in (1, 2)]
    site.put_journal(1, BookieJournal(1).flush(*words, entry_record(2, 0)).file())
    assert site.imported().rows.rows == {}


def test_a_ledger_in_a_journal_only_has_a_row_if_something_is_not_plain() -> None:
    site = SimulatedDirectories()
    site.put_mark()
    journal = BookieJournal(1).flush(
        journal_format.encode_ledger_key(1, KEY),
        entry_record(1, 0),
        journal_format.encode_ledger_key(2, master_key(b"")),
        journal_format.encode_fence(2),
        journal_format.encode_fence(3),
        journal_format.encode_explicit_lac(4, entry_format.encode_lac(4, 7, digester(DigestType.MAC, b""))),
        entry_record(5, 0),
    )
    site.put_journal(1, journal.file())
    imported = site.imported()
    assert row_of(imported, 1) == replace(unproven(1), master_key=KEY)
    assert row_of(imported, 2) == replace(unproven(2, None), master_key=master_key(b""), fenced=True)
    assert row_of(imported, 3) == replace(unproven(3, None), fenced=True)
    told = row_of(imported, 4)
    assert (told.digest_type, told.known_by, told.master_key) == (DigestType.MAC, KnownBy.INFERRED, None)
    assert told.explicit_lac is not None
    assert row_of(imported, 5) == unproven(5)


def ours_and_a_bookie_s(*rows: LedgerRecord) -> SimulatedDirectories:
    """A store of ours with three ledgers in log 0, on which a bookie has run: log 1."""
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(3)), *entries(2, range(3)), *entries(3, range(3)))
    if rows:
        site.state = replace(site.state, rows_sequence=site.put_rows(*rows))
    site.put_index(*rows)
    site.put_log(1, Log().add(*entries(7, range(3))))
    site.put_mark()
    return site


def test_a_ledger_of_ours_without_a_row_stays_plain() -> None:
    imported = ours_and_a_bookie_s().imported()
    assert set(imported.rows.rows) == {7}
    assert set(imported.index.ledgers()) == {1, 2, 3, 7}


def test_a_plain_ledger_known_only_by_our_index_gets_a_row() -> None:
    site = SimulatedDirectories()
    site.put_log(0, Log().add(*entries(1, range(3)), *entries(2, range(3))))
    site.put_index(ledgers=(1,))
    site.put_mark()
    imported = site.imported()
    assert row_of(imported, 1) == plain(1)
    assert row_of(imported, 2) == unproven(2)


def test_a_declared_digest_type_wins_over_an_inferred_one() -> None:
    declared = LedgerRecord(2, 5, DigestType.MAC, master_key=KEY)
    imported = ours_and_a_bookie_s(declared).imported()
    assert imported.rows.rows[2] == declared
    assert imported.findings == ()


def test_an_unknown_digest_type_is_inferred_when_there_is_evidence() -> None:
    imported = ours_and_a_bookie_s(LedgerRecord(7, 5)).imported()
    assert imported.rows.rows[7] == LedgerRecord(7, 6, DigestType.CRC32C, KnownBy.INFERRED)


def test_fences_are_added_up_and_the_larger_lac_counts() -> None:
    small, large = (entry_format.encode_lac(2, one, digester(DigestType.CRC32C)) for one in (5, 9))
    site = ours_and_a_bookie_s(
        replace(plain(1), change=4, fenced=True), replace(plain(2), change=5, explicit_lac=large)
    )
    words = [journal_format.encode_explicit_lac(2, small), journal_format.encode_fence(3)]
    site.put_journal(1, BookieJournal(1).flush(*words).file())
    imported = site.imported()
    assert imported.rows.rows[1] == replace(plain(1), change=4, fenced=True)
    assert imported.rows.rows[2] == replace(plain(2), change=5, explicit_lac=large)
    assert imported.rows.rows[3] == replace(plain(3), change=6, fenced=True)


def test_a_known_key_stays_and_an_unknown_one_is_filled_in() -> None:
    site = ours_and_a_bookie_s(
        LedgerRecord(2, 4, DigestType.CRC32C, master_key=KEY), LedgerRecord(7, 5, DigestType.CRC32C)
    )
    site.put_journal(1, BookieJournal(1).flush(journal_format.encode_ledger_key(7, b"7" * 20)).file())
    rows = site.imported().rows.rows
    assert (rows[2].master_key, rows[7].master_key) == (KEY, b"7" * 20)


def test_the_rows_are_in_their_file_and_in_the_index_and_are_named_there() -> None:
    site = ours_and_a_bookie_s(replace(plain(1), change=4, fenced=True))
    imported = site.imported()
    loaded = metadata_log.load(site.ledgers, imported.rows.sequence)
    assert loaded.rows == imported.rows.rows == {row.ledger_id: row for row in imported.index.rows()}
    assert imported.index.state().rows_sequence == loaded.sequence == 2
    assert imported.mark.trailer is not None
    assert imported.mark.trailer.rows_sequence == 2


def test_a_row_that_only_the_index_still_has_counts() -> None:
    site = ours_and_a_bookie_s(
        replace(plain(1), change=4, fenced=True), replace(plain(3), change=2, master_key=KEY)
    )
    newer = replace(plain(3), change=6, fenced=True)
    site.put_index(replace(plain(2), change=5, fenced=True), replace(plain(1), change=3), newer)
    rows = site.imported().rows.rows
    assert (rows[1].fenced, rows[2].fenced, rows[3]) == (True, True, newer)


def test_damaged_rows_are_refused_and_nothing_is_written() -> None:
    site = ours_and_a_bookie_s(replace(plain(1), change=4, fenced=True))
    site.put(site.ledgers, filenames.LEDGER_ROWS, bytes(8192))
    before = site.disk.image()
    with pytest.raises(CorruptionError, match="LGR-002"):
        site.imported()
    assert site.disk.image() == before


# ── the lineage ──────────────────────────────────────────────────────────────────────────────────────────


def lineage_of(site: SimulatedDirectories) -> Lineage:
    found = lineage.load(site.ledgers, STORE_ID)
    assert isinstance(found, Lineage)
    return found


def test_the_lineage_of_an_import_names_all_logs_that_are_there_with_unknown_ends() -> None:
    site = ours_and_a_bookie_s()
    site.put_lineage(LogPosition(77, 8192), gone=(2,))
    imported = site.imported()
    found = lineage_of(site)
    assert {one.log_id for one in found.kept} == imported.index.state().log_ends.keys()
    assert [one.offset for one in found.kept] == [0] * len(found.kept)
    assert found.generation == imported.index.state().generation
    assert found.gone == imported.index.state().gone == ()


def test_an_index_that_is_lost_after_an_import_does_not_miss_the_logs_that_a_bookie_has_removed() -> None:
    site = SimulatedDirectories()
    for number in range(3):
        site.new_run()
        site.checkpoint(*entries(1, [number]))
    site.put_lineage()
    site.put_index()
    site.ledgers.remove("1.log")
    site.put_log(3, Log().add(*entries(7, range(2))))
    site.put_mark()
    site.state = site.imported().index.state()
    site.new_run()
    site.checkpoint(*entries(1, [9]))
    rebuilt = site.rebuilt()
    assert ids(site.placed(rebuilt.index), 1) == [0, 2, 9]
    assert ids(site.placed(rebuilt.index), 7) == [0, 1]
    assert rebuilt.findings == ()


# ── deletes ──────────────────────────────────────────────────────────────────────────────────────────────

DELETED_AT = JournalPosition(3, 12288)


def deleted(ledger_id: int, log: LogPosition | None = None, change: int = 8) -> LedgerRecord:
    return replace(plain(ledger_id), change=change, tombstone=Tombstone(DELETED_AT, log))


@pytest.mark.parametrize("log", [None, LogPosition(0, 1 << 20)])
def test_a_deleted_ledger_stays_deleted(log: LogPosition | None) -> None:
    imported = ours_and_a_bookie_s(deleted(2, log)).imported()
    assert list(imported.index.ledgers()) == [1, 3, 7]
    assert imported.findings == ()
    assert imported.rows.rows[2].tombstone is not None


def test_a_bookie_s_entries_of_a_deleted_ledger_are_indexed_and_a_finding() -> None:
    site = ours_and_a_bookie_s(deleted(7))
    imported = site.imported()
    assert ids(site.placed(imported.index), 7) == [0, 1, 2]
    assert imported.findings == (
        "LGR-003 ledger 7: deleted before a bookie ran here, and may have come back",
    )
    assert imported.rows.rows[7].master_key is None


def test_a_bookie_s_entries_of_a_deleted_ledger_may_have_another_digest_type() -> None:
    site = ours_and_a_bookie_s(deleted(8))
    crc32 = digester(DigestType.CRC32)
    back = [entry_format.encode(Entry(8, one, one - 1, 3 * (one + 1), b"123"), crc32) for one in range(3)]
    site.put_log(2, Log().add(*back))
    imported = site.imported()
    assert imported.findings == (
        "LGR-003 ledger 8: deleted before a bookie ran here, and may have come back",
    )
    assert (imported.figures.unreadable, imported.figures.holes) == (0, 0)
    assert imported.rows.rows[8].digest_type is DigestType.CRC32


def test_other_ledgers_keep_their_declared_digest_type_beside_a_deleted_one() -> None:
    site = ours_and_a_bookie_s(deleted(8), replace(plain(1), change=4, fenced=True))
    crc32 = digester(DigestType.CRC32)
    site.put_log(2, Log().add(entry_format.encode(Entry(1, 50, 49, 3, b"123"), crc32)))
    figures = site.imported().figures
    assert figures.unreadable + figures.holes == 1


def test_a_ledger_that_we_made_again_keeps_its_digest_type() -> None:
    site = SimulatedDirectories()
    end = site.checkpoint(*entries(1, range(5)))
    site.checkpoint(*entries(1, [0]))
    site.state = replace(site.state, rows_sequence=site.put_rows(deleted(1, end)))
    site.put_index(deleted(1, end), ledgers=[1])
    crc32 = digester(DigestType.CRC32)
    later = [entry_format.encode(Entry(1, one, one - 1, 3 * (one + 1), b"123"), crc32) for one in range(1, 9)]
    site.put_log(2, Log().add(*later))
    site.put_mark()
    imported = site.imported()
    assert imported.figures.unreadable + imported.figures.holes == 8
    assert imported.rows.rows[1].digest_type is DigestType.CRC32C


def test_a_ledger_that_we_made_again_may_have_another_digest_type_than_the_deleted_one() -> None:
    site = SimulatedDirectories()
    crc32 = digester(DigestType.CRC32)
    end = site.checkpoint(
        *(entry_format.encode(Entry(1, one, one - 1, 3 * (one + 1), b"123"), crc32) for one in range(8))
    )
    site.checkpoint(*entries(1, range(2)))
    site.state = replace(site.state, rows_sequence=site.put_rows(deleted(1, end)))
    site.put_mark()
    imported = site.imported()
    assert (imported.findings, imported.figures.unreadable, imported.figures.holes) == ((), 0, 0)
    assert imported.rows.rows[1].digest_type is DigestType.CRC32C


def test_a_bookie_s_journaled_entries_of_a_deleted_ledger_are_a_finding() -> None:
    site = ours_and_a_bookie_s(deleted(2))
    site.put_journal(4, BookieJournal(4).flush(entry_record(2, 0)).file())
    assert [one[:16] for one in site.imported().findings] == ["LGR-003 ledger 2"]


def test_entries_journaled_before_the_delete_are_no_finding() -> None:
    site = ours_and_a_bookie_s(deleted(2))
    journal = OurJournal(3).group(journal_format.encode_ledger_key(2, KEY), entry_record(2, 0))
    site.put_journal(3, journal.group(journal_format.encode_fence(2)).file())
    site.put_journal(2, BookieJournal(2).flush(entry_record(2, 0), journal_format.encode_fence(2)).file())
    imported = site.imported()
    assert imported.findings == ()
    assert (imported.rows.rows[2].fenced, imported.rows.rows[2].master_key) == (False, master_key(b""))


def test_an_earlier_bookie_s_entries_of_a_deleted_ledger_stay_deleted() -> None:
    site = SimulatedDirectories()
    site.put_mark()
    site.put_log(0, Log().add(*entries(1, range(3)), *entries(2, range(3))))
    first = site.imported()
    site.state = replace(first.index.state(), rows_sequence=site.put_rows(deleted(1)))
    site.put_index(deleted(1))
    site.put_log(1, Log().add(*entries(2, range(3, 6))))
    site.put_mark()
    imported = site.imported()
    assert list(imported.index.ledgers()) == [2]
    assert imported.findings == ()


def test_a_ledger_that_we_made_again_keeps_its_entries() -> None:
    site = SimulatedDirectories()
    end = site.checkpoint(*entries(1, range(5)))
    site.checkpoint(*entries(1, range(2)))
    site.state = replace(site.state, rows_sequence=site.put_rows(deleted(1, end)))
    site.put_index(deleted(1, end))
    site.put_mark()
    imported = site.imported()
    assert ids(site.placed(imported.index), 1) == [0, 1]
    assert imported.findings == ()
    assert imported.rows.rows[1] == deleted(1, end)


def test_a_deleted_ledger_stays_deleted_although_the_log_that_bounds_its_tombstone_was_removed() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(5)))
    site.new_run()
    end = site.checkpoint(*entries(2, range(5)))
    site.new_run()
    site.checkpoint(*entries(1, [7]))
    site.put_rows(deleted(1, end))
    site.ledgers.remove("1.log")
    site.put_mark()
    imported = site.imported()
    assert ids(site.placed(imported.index), 1) == [7]
    assert imported.findings == ()


def test_leftovers_of_a_deleted_ledger_stay_deleted() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(2, range(2)))
    site.write(*entries(1, range(3)))
    site.put_rows(deleted(1, LogPosition(0, 4096)))
    site.put_index()
    site.put_mark()
    assert list(site.imported().index.ledgers()) == [2]


@pytest.mark.parametrize("ledger_id", [2, 7])
def test_an_index_rebuilt_after_the_import_has_the_same_entries(ledger_id: int) -> None:
    site = ours_and_a_bookie_s(deleted(ledger_id), replace(plain(1), change=4, fenced=True))
    imported = site.imported()
    site.state = imported.index.state()
    before = site.placed(imported.index)
    rows = list(imported.rows.rows.values())
    again = site.rebuilt(*rows)
    assert site.placed(again.index) == before
    # Only the lost index had the end of our newest log.
    assert again.index.state() == replace(site.state, rows_sequence=0, log_ends={0: 1024, 1: 1024})
    site.new_run()
    site.checkpoint(*entries(9, range(2)))
    again = site.rebuilt(*rows)
    assert site.placed(again.index) == {
        **before,
        **{(9, one): entry_bytes(9, one) for one in range(2)},
    }
    assert again.findings == ()
    assert set(again.index.state().log_ends) == {0, 1, 2}


# ── damage in what is ours ───────────────────────────────────────────────────────────────────────────────


def test_a_short_log_of_ours_is_a_finding() -> None:
    site = ours_and_a_bookie_s()
    site.put_log(0, site.log(0)[:4200])
    imported = site.imported()
    assert [one[:13] for one in imported.findings] == ["ELG-004 0.log"]
    assert not imported.index.state().is_whole
    assert imported.index.state().log_ends[0] == 1024


def test_the_ends_of_our_logs_stay_known() -> None:
    site = SimulatedDirectories()
    end = site.checkpoint(*entries(1, range(3)))
    site.new_run()
    site.checkpoint(*entries(1, range(3, 6)))
    site.put_mark()
    assert site.imported().index.state().log_ends == {0: end.offset, 1: 1024}


def test_damage_after_the_end_in_our_index_is_a_leftover_of_a_checkpoint() -> None:
    site = SimulatedDirectories()
    end = site.checkpoint(*entries(1, range(3)))
    site.write(*entries(1, range(3, 6)), *entries(2, range(3)))
    log = bytearray(site.log(0))
    log[log.index(entry_bytes(1, 4)) - 4] ^= 0x40  # a size
    log[log.index(entry_bytes(2, 1)) + 40] ^= 1  # a payload
    site.put_log(0, bytes(log))
    site.put_index()
    site.put_mark()
    imported = site.imported()
    assert (imported.findings, imported.figures.unreadable, imported.index.state().is_whole) == ((), 0, True)
    assert ids(site.placed(imported.index), 1) == [0, 1, 2, 3, 4, 5]
    assert end.offset < 8192


def test_nothing_counts_after_the_end_that_another_log_notes() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(3)))
    site.write(*entries(5, range(3)))
    site.new_run()
    site.checkpoint(*entries(2, range(3)))
    site.put_mark()
    assert list(site.imported().index.ledgers()) == [1, 2]


def test_logs_of_an_earlier_bookie_count_among_logs_of_ours() -> None:
    site = SimulatedDirectories()
    site.put_log(0, Log().add(*entries(1, range(3))))
    site.put_mark()
    site.state = site.imported().index.state()
    site.checkpoint(*entries(2, range(3)))
    site.put_log(2, Log().add(*entries(3, range(3))))
    site.put_mark()
    assert list(site.imported().index.ledgers()) == [1, 2, 3]


def test_logs_of_a_store_with_another_id_count_after_the_import() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(3)))
    site.put_index()
    site.put_mark()
    imported = import_directory(site.layout, site.place, b"of another store")
    imported.rows.close()
    site.state = imported.index.state()
    assert site.state.log_ends == {0: 1024}
    site.new_run()
    site.checkpoint(*entries(2, range(3)))
    log = site.log(1)
    header = entrylog_format.encode_header(Origin(b"of another store", 3, LogPosition(0, 1024)))
    site.put_log(1, header + log[len(header) :])
    rebuilt = rebuild(site.place, site.ledgers, site.mark, b"of another store", {}, 0)
    assert list(rebuilt.index.ledgers()) == [1, 2]


def test_a_rebuilt_index_agrees_with_the_mark_if_the_last_log_lost_bytes() -> None:
    site = SimulatedDirectories()
    site.put_log(0, Log().add(*entries(1, range(3))))
    site.put_mark()
    imported = site.imported()
    site.state = imported.index.state()
    site.put_log(0, b"")
    state = site.rebuilt().index.state()
    assert imported.mark.trailer is not None
    assert state.log_end == imported.mark.trailer.log_end == LogPosition(0, 1024)


def test_a_damaged_index_is_a_finding_and_kept_aside() -> None:
    site = ours_and_a_bookie_s()
    site.put(site.ledgers, filenames.INDEX, b"rubbish")
    assert [one[:13] for one in site.imported().findings] == ["IDX-004 index"]
    with site.ledgers.open("index.damaged") as file:
        assert file.read(0, 100) == b"rubbish"


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────


def test_progress_covers_journals_and_logs() -> None:
    site = ours_and_a_bookie_s()
    site.put_journal(1, BookieJournal(1).flush(entry_record(7, 0)).file())
    told: list[RebuildProgress] = []
    import_directory(site.layout, site.place, STORE_ID, told.append)
    total = 2 * len(site.log(0)) + 2 * len(site.log(1)) + 32768
    assert [one.bytes_done for one in told] == sorted(one.bytes_done for one in told)
    assert told[-1] == RebuildProgress(total, total, 12)


def test_leftovers_of_a_checkpoint_stay_deleted_when_the_index_is_rebuilt() -> None:
    site = SimulatedDirectories()
    end = site.checkpoint(*entries(2, range(2)))
    site.write(*entries(1, range(3)))
    site.new_run()
    site.checkpoint(*entries(2, range(2, 4)))
    row = deleted(1, end)
    site.state = replace(site.state, rows_sequence=site.put_rows(row))
    site.put_log(2, Log().add(*entries(7, range(3))))
    site.put_mark()
    imported = site.imported()
    assert list(imported.index.ledgers()) == [2, 7]
    site.state = imported.index.state()
    assert list(site.rebuilt(*imported.rows.rows.values()).index.ledgers()) == [2, 7]

"""A directory in which a bookie wrote last becomes ours: with every entry, and all that its files tell."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fixtures
import pytest
from entrylogs import Log, direct_log
from file_index import FileIndexPlace
from journals import BookieJournal, OurJournal, entry_bytes, entry_record, flip
from written_logs import MARK, STORE_ID, Ground, entries, ids

from recovery.adoption import Adopted, adopt
from recovery.founding import Layout
from recovery.rebuild import rebuild
from storage import filenames, lastmark, ledger_rows
from storage.codec import entry as entry_codec
from storage.codec import entrylog as log_codec
from storage.codec import journal as journal_codec
from storage.codec import mark as mark_codec
from storage.codec.digest import digester, master_key
from storage.codec.entrylog import Origin
from storage.codec.mark import Mark, Trailer
from storage.entry import DigestType, Entry
from storage.errors import CorruptionError, NewerFormat
from storage.index_state import IndexState
from storage.lmdb_place import LmdbPlace
from storage.outcome import Damaged
from storage.position import START, EntryLocation, JournalPosition, LogPosition
from storage.posix_files import PosixDirectory
from storage.registry import plain
from storage.report import RebuildProgress
from storage.row import KnownBy, LedgerRow, Tombstone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.index import IndexPlace

KEY = b"k" * 20

# ── what real bookies left ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["file", "lmdb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def copied(name: str, to: Path) -> Layout:
    shutil.copytree(fixtures.bookie(name) / "bookie", to / "store")
    return Layout(PosixDirectory(to / "store"))


def place_of(layout: Layout, kind: str) -> IndexPlace:
    if kind == "file":
        return FileIndexPlace(layout.ledgers)
    return LmdbPlace(layout.ledgers, layout.ledgers.path, 1 << 30)


def in_logs(name: str) -> set[tuple[int, int]]:
    """The entries that BookKeeper's own reader finds in the entry logs."""
    listed = fixtures.dump(name, "entrylog.ledgers")
    return {(one["ledger"], one["entry"]) for one in listed if one["kind"] == "entry"}


def acknowledged(name: str) -> dict[tuple[int, int], dict[str, Any]]:
    """What the manifest says of the entries of ledgers that were not deleted."""
    return {
        (ledger["ledger"], entry["entry"]): entry
        for ledger in fixtures.manifest(name)["ledgers"]
        if not ledger["deleted"]
        for entry in ledger["entries"]
    }


def look_up(layout: Layout, adopted: Adopted) -> Iterator[tuple[int, int, bytes]]:
    for ledger_id in adopted.index.ledgers():
        for entry_id, packed in adopted.index.places(ledger_id, 0, 1 << 20):
            location = EntryLocation.unpack(packed)
            with layout.ledgers.open(filenames.entry_log(location.log_id)) as file:
                size = int.from_bytes(file.read(location.position.offset, 4), "big")
                yield ledger_id, entry_id, file.read(location.offset, size)


@pytest.mark.parametrize("name", fixtures.SETS)
def test_every_entry_in_the_logs_is_placed_where_its_bytes_are(name: str, kind: str, tmp_path: Path) -> None:
    layout = copied(name, tmp_path)
    adopted = adopt(layout, place_of(layout, kind))
    known, passwords = acknowledged(name), fixtures.passwords(name)
    found = set()
    for ledger_id, entry_id, data in look_up(layout, adopted):
        wanted = known[ledger_id, entry_id]
        protection = digester(DigestType[wanted["digest_type"]], passwords[ledger_id])
        entry = entry_codec.decode(data, protection)
        assert not isinstance(entry, Damaged)
        assert (entry.ledger_id, entry.entry_id) == (ledger_id, entry_id)
        assert hashlib.sha256(entry.payload).hexdigest() == wanted["sha256"]
        start = entry_codec.HEAD.size
        assert data[start : start + protection.digest_type.width].hex() == wanted["digest"]
        found.add((ledger_id, entry_id))
    assert found == in_logs(name) & known.keys()
    assert adopted.index.state().is_whole
    assert adopted.findings == ()
    adopted.index.close()
    adopted.rows.close()


@pytest.mark.parametrize("name", fixtures.SETS)
def test_the_rows_say_what_the_journals_tell(name: str, kind: str, tmp_path: Path) -> None:
    layout = copied(name, tmp_path)
    adopted = adopt(layout, place_of(layout, kind))
    has_lacs = name not in ("07_journal_v4_crash", "07_journal_v5_crash")
    for ledger in fixtures.manifest(name)["ledgers"]:
        row = adopted.rows.rows[ledger["ledger"]]
        is_empty = not ledger["entries"]
        assert row.fenced == ledger["fenced"]
        # A bookie that fences a ledger it has never seen journals no key.
        assert row.master_key == (None if is_empty else bytes.fromhex(ledger["master_key"]))
        wire = ledger.get("explicit_lac_wire") if has_lacs else None
        assert row.explicit_lac == (None if wire is None else bytes.fromhex(wire))
        assert row.digest_type == (None if is_empty else DigestType[ledger["digest_type"]])
        assert row.known_by is KnownBy.INFERRED
    assert len(adopted.rows.rows) == len(fixtures.manifest(name)["ledgers"])
    assert list(adopted.index.rows()) == [row for _, row in sorted(adopted.rows.rows.items())]
    adopted.index.close()
    adopted.rows.close()


@pytest.mark.parametrize("name", fixtures.SETS)
def test_nothing_is_removed_and_no_file_changes_but_the_mark(name: str, tmp_path: Path) -> None:
    layout = copied(name, tmp_path)
    root = tmp_path / "store"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    adopted = adopt(layout, place_of(layout, "file"))
    changed = [path.name for path, data in before.items() if path.read_bytes() != data]
    assert changed == ["lastMark"]
    assert (root / "ledgers/current/lastMark").read_bytes()[:16] == before[root / "ledgers/current/lastMark"]
    assert lastmark.load(layout.ledgers) == adopted.mark
    assert {path.name for path in root.rglob("*") if path.is_file()} - {path.name for path in before} == {
        "index",
        "ledgers.rows",
    }


@pytest.mark.parametrize("name", ["01_clean", "08_digests"])
def test_another_adoption_comes_to_the_same_and_keeps_the_old_index(
    name: str, kind: str, tmp_path: Path
) -> None:
    layout = copied(name, tmp_path)
    first = adopt(layout, place_of(layout, kind))
    state, rows, placed = first.index.state(), dict(first.rows.rows), list(look_up(layout, first))
    first.index.close()
    first.rows.close()
    shutil.copy(fixtures.bookie(name) / "bookie/ledgers/current/lastMark", layout.ledgers.path)
    second = adopt(layout, place_of(layout, kind))
    assert second.index.state() == replace(
        state, generation=state.generation + 1, rows_sequence=state.rows_sequence + 1
    )
    assert (second.rows.rows, list(look_up(layout, second))) == (rows, placed)
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
def test_replay_goes_on_from_the_bookie_s_mark(written: bytes | None, position: JournalPosition) -> None:
    ground = Ground()
    ground.put_log(0, Log().add(*entries(1, range(2))))
    if written is not None:
        ground.put_mark(written)
    adopted = ground.adopted()
    assert adopted.mark.position == adopted.index.state().mark == position
    assert adopted.mark.trailer == Trailer(1, position.journal_id, LogPosition(0, 1024), 1)
    assert lastmark.load(ground.ledgers) == adopted.mark


def test_a_damaged_mark_was_ours_and_the_index_says_the_same() -> None:
    ground = Ground()
    ground.put_log(0, Log().add(*entries(1, [0])))
    ground.put_mark(bytes(40))
    with pytest.raises(CorruptionError, match="MRK-001"):
        ground.adopted()
    assert "index" not in ground.ledgers.names()
    ground.put_index(state=IndexState(4, JournalPosition(5, 8192)))
    assert ground.adopted().mark.position == JournalPosition(5, 8192)


def test_a_mark_of_ours_beside_a_bookie_s_logs_keeps_what_its_trailer_knows() -> None:
    ground = Ground()
    ground.put_log(0, Log().add(*entries(1, [0])))
    ground.put_mark(mark_codec.encode(Mark(MARK, Trailer(40, 12, None, 0))))
    adopted = ground.adopted()
    assert adopted.mark == Mark(MARK, Trailer(41, 12, LogPosition(0, 1024), 1))


@pytest.mark.parametrize("of", ["the index", "a log of ours"])
def test_the_generation_is_later_than_any_there_was(of: str) -> None:
    ground = Ground()
    ground.put_mark()
    ground.put_log(0, log_codec.encode_header(Origin(STORE_ID, 57 if of == "a log of ours" else 3, None)))
    ground.put_index(state=IndexState(57 if of == "the index" else 3))
    assert ground.adopted().index.state().generation == 58


# ── the logs ─────────────────────────────────────────────────────────────────────────────────────────────


def adopted_logs(*logs: tuple[int, Log | bytes]) -> tuple[Ground, Adopted]:
    ground = Ground()
    ground.put_mark()
    for log_id, log in logs:
        ground.put_log(log_id, log)
    return ground, ground.adopted()


def test_logs_of_every_kind_are_read() -> None:
    ground, adopted = adopted_logs(
        (0, Log().add(*entries(2, range(3))).seal()),
        (1, Log().add(*entries(3, range(3)))),
        (2, direct_log()),
        (3, Log()),
        (4, b""),
        (5, bytes(1024) + Log().add(*entries(4, range(3))).file()[1024:]),
    )
    placed = ground.placed(adopted.index)
    assert list(placed) == [(ledger_id, entry_id) for ledger_id in (1, 2, 3, 4) for entry_id in range(3)]
    assert placed[1, 2] == entry_bytes(1, 2)
    ends = adopted.index.state().log_ends
    assert ends == {0: 1024, 1: 1024, 2: 1024, 3: 1024, 4: 0, 5: 1024}
    assert adopted.findings == ()


def test_what_an_interrupted_compaction_left_is_passed_over() -> None:
    ground = Ground()
    ground.put_mark()
    ground.put_log(0, Log().add(*entries(1, range(3))))
    for name in ("7.log.compacting", "8.log.0.compacted"):
        ground.put(ground.ledgers, name, Log().add(*entries(9, [0])).file())
    adopted = ground.adopted()
    assert list(adopted.index.ledgers()) == [1]
    assert adopted.findings == ()
    assert {"7.log.compacting", "8.log.0.compacted"} <= set(ground.ledgers.names())


def test_a_compaction_of_which_only_its_leftover_is_there_is_told() -> None:
    ground = Ground()
    ground.put_mark()
    ground.put(ground.ledgers, "8.log.5.compacted", Log().add(*entries(9, [0])).file())
    assert [one[:27] for one in ground.adopted().findings] == ["ELG-005 8.log.5.compacted@0"]


def test_the_last_log_with_a_header_is_the_last_one() -> None:
    _, adopted = adopted_logs((0, Log().add(*entries(1, [0]))), (1, b""), (2, b"BK"))
    state = adopted.index.state()
    assert (state.last_log, state.log_ends) == (0, {0: 1024, 1: 0, 2: 2})


def test_a_directory_without_a_log_has_no_last_one() -> None:
    _, adopted = adopted_logs((0, b""))
    assert adopted.index.state().last_log is None


def test_of_two_copies_the_later_counts() -> None:
    ground, adopted = adopted_logs(
        (0, Log().add(entry_bytes(1, 0, b"one"), entry_bytes(1, 0, b"two"), entry_bytes(1, 1, b"old"))),
        (1, Log().add(entry_bytes(1, 1, b"new"))),
    )
    assert [data[-3:] for data in ground.placed(adopted.index).values()] == [b"two", b"new"]


def test_later_is_by_the_order_in_which_ids_are_given_out() -> None:
    ground, adopted = adopted_logs(
        (0x7FFFFFFE, Log().add(entry_bytes(1, 0, b"old"))), (0, Log().add(entry_bytes(1, 0, b"new")))
    )
    assert ground.placed(adopted.index)[1, 0].endswith(b"new")
    assert adopted.index.state().last_log == 0


def damaged(data: bytes, text: bytes) -> bytes:
    return flip(data, data.index(text))


def test_a_copy_whose_digest_is_wrong_gives_way_to_an_older_one() -> None:
    newer = Log().add(entry_bytes(1, 0, b"newer"), entry_bytes(1, 1, b"other")).file()
    ground, adopted = adopted_logs(
        (0, Log().add(*entries(1, range(4)))), (1, damaged(newer, b"newer")), (2, b"")
    )
    placed = ground.placed(adopted.index)
    assert placed[1, 0] == entry_bytes(1, 0)
    assert placed[1, 1].endswith(b"other")
    assert (adopted.findings, adopted.figures.unreadable) == ((), 0)


def test_a_copy_whose_digest_is_wrong_gives_way_to_a_newer_one() -> None:
    older = Log().add(entry_bytes(1, 0, b"older"), *entries(1, range(1, 4))).file()
    ground, adopted = adopted_logs((0, damaged(older, b"older")), (1, Log().add(entry_bytes(1, 0, b"newer"))))
    assert ground.placed(adopted.index)[1, 0].endswith(b"newer")
    assert adopted.findings == ()


def test_an_entry_without_a_sound_copy_is_placed_and_told() -> None:
    log = Log().add(entry_bytes(1, 0, b"first"), entry_bytes(1, 0, b"again"), *entries(1, range(1, 4)))
    _, adopted = adopted_logs((0, damaged(damaged(log.file(), b"first"), b"again")))
    assert adopted.index.find(1, 0) is not None
    [finding] = adopted.findings
    assert finding == f"ELG-003 0.log@{1024 + 45}: ledger 1, entry 0"
    assert adopted.figures.unreadable == 1
    assert adopted.index.state().is_whole


def test_damage_is_told_from_the_first_entry_on_though_types_are_learned_from_later_ones() -> None:
    log = Log().add(*(entry_bytes(1, number, digest=DigestType.CRC32) for number in range(5))).file()
    _, adopted = adopted_logs((0, damaged(log, b"ledger 1 entry 0")))
    assert [one[:18] for one in adopted.findings] == ["ELG-003 0.log@1024"]


def test_a_hole_is_told_and_what_is_not_found_is_unknown() -> None:
    log = bytearray(Log().add(*entries(1, range(4))).file())
    second = 1024 + 4 + len(entry_bytes(1, 0))
    log[second : second + 30] = bytes(30)
    ground, adopted = adopted_logs((0, bytes(log)))
    assert ids(ground.placed(adopted.index), 1) == [0, 2, 3]
    assert [one[:18] for one in adopted.findings] == [f"ELG-004 0.log@{second}"]
    assert not adopted.index.state().is_whole
    assert adopted.figures.holes == 1


def test_a_torn_tail_is_what_a_crash_leaves() -> None:
    log = Log().add(*entries(1, range(4))).file()
    ground, adopted = adopted_logs((0, log[:-9]))
    assert ids(ground.placed(adopted.index), 1) == [0, 1, 2]
    assert (adopted.findings, adopted.index.state().is_whole) == ((), True)


def test_a_sealed_log_without_its_end_is_damaged() -> None:
    log = Log().add(*entries(1, range(4))).seal().file()
    _, adopted = adopted_logs((0, log[: log.index(entry_bytes(1, 3))]))
    assert [one[:13] for one in adopted.findings] == ["ELG-004 0.log"]
    assert not adopted.index.state().is_whole


def test_a_tail_that_nothing_explains_is_damaged() -> None:
    _, adopted = adopted_logs((0, Log().add(*entries(1, range(4))).file() + b"\xff" * 40))
    assert [one[:13] for one in adopted.findings] == ["ELG-004 0.log"]
    assert not adopted.index.state().is_whole


def test_a_damaged_header_is_told_and_costs_no_entry() -> None:
    ground, adopted = adopted_logs((0, b"?" + Log().add(*entries(1, range(4))).file()[1:]))
    assert ids(ground.placed(adopted.index), 1) == [0, 1, 2, 3]
    assert [one[:15] for one in adopted.findings] == ["ELG-001 0.log@0"]


def test_an_entry_whose_ledger_id_may_be_damaged_is_told() -> None:
    log = Log().add(*entries(1, range(4)), *entries(2, range(4))).file()
    place = log.index(entry_bytes(1, 2))
    _, adopted = adopted_logs((0, flip(log, place + 3)))
    assert [one[:13] for one in adopted.findings] == ["ELG-003 0.log"]
    assert not adopted.index.state().is_whole


def test_a_log_that_a_newer_version_wrote_is_left_alone() -> None:
    ground = Ground()
    ground.put_mark()
    data = bytearray(log_codec.encode_header(Origin(STORE_ID, 1, None)))
    data[24:28] = (log_codec.OUR_VERSION + 1).to_bytes(4, "big")
    data[68:72] = log_codec._header_checksum(bytes(data)).to_bytes(4, "big")
    ground.put_log(0, bytes(data))
    before = ground.ledgers.names()
    with pytest.raises(NewerFormat):
        ground.adopted()
    assert ground.ledgers.names() == before


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def row_of(adopted: Adopted, ledger_id: int) -> LedgerRow:
    return replace(adopted.rows.rows[ledger_id], change=0)


def unproven(ledger_id: int, digest_type: DigestType | None = DigestType.CRC32C) -> LedgerRow:
    return LedgerRow(ledger_id, 0, digest_type, KnownBy.INFERRED)


def test_a_ledger_whose_key_no_journal_has_is_unproven() -> None:
    _, adopted = adopted_logs((0, Log().add(*entries(1, range(3)))))
    assert row_of(adopted, 1) == unproven(1)


def test_a_plain_ledger_needs_no_row() -> None:
    ground = Ground()
    ground.put_mark()
    ground.put_log(0, Log().add(*entries(1, range(3))))
    words = [journal_codec.encode_ledger_key(one, master_key(b"")) for one in (1, 2)]
    ground.put_journal(1, BookieJournal(1).flush(*words, entry_record(2, 0)).file())
    assert ground.adopted().rows.rows == {}


def test_a_ledger_in_a_journal_only_has_a_row_if_something_is_not_plain() -> None:
    ground = Ground()
    ground.put_mark()
    journal = BookieJournal(1).flush(
        journal_codec.encode_ledger_key(1, KEY),
        entry_record(1, 0),
        journal_codec.encode_ledger_key(2, master_key(b"")),
        journal_codec.encode_fence(2),
        journal_codec.encode_fence(3),
        journal_codec.encode_explicit_lac(4, entry_codec.encode_lac(4, 7, digester(DigestType.MAC, b""))),
        entry_record(5, 0),
    )
    ground.put_journal(1, journal.file())
    adopted = ground.adopted()
    assert row_of(adopted, 1) == replace(unproven(1), master_key=KEY)
    assert row_of(adopted, 2) == replace(unproven(2, None), master_key=master_key(b""), fenced=True)
    assert row_of(adopted, 3) == replace(unproven(3, None), fenced=True)
    told = row_of(adopted, 4)
    assert (told.digest_type, told.known_by, told.master_key) == (DigestType.MAC, KnownBy.INFERRED, None)
    assert told.explicit_lac is not None
    assert row_of(adopted, 5) == unproven(5)


def ours_and_a_bookie_s(*rows: LedgerRow) -> Ground:
    """A store of ours with three ledgers in log 0, on which a bookie has run: log 1."""
    ground = Ground()
    ground.checkpoint(*entries(1, range(3)), *entries(2, range(3)), *entries(3, range(3)))
    if rows:
        ground.state = replace(ground.state, rows_sequence=ground.put_rows(*rows))
    ground.put_index(*rows)
    ground.put_log(1, Log().add(*entries(7, range(3))))
    ground.put_mark()
    return ground


def test_a_ledger_of_ours_without_a_row_stays_plain() -> None:
    adopted = ours_and_a_bookie_s().adopted()
    assert set(adopted.rows.rows) == {7}
    assert set(adopted.index.ledgers()) == {1, 2, 3, 7}


def test_a_ledger_that_only_our_index_knows_to_be_plain_has_that_written_down() -> None:
    ground = Ground()
    ground.put_log(0, Log().add(*entries(1, range(3)), *entries(2, range(3))))
    ground.put_index(ledgers=(1,))
    ground.put_mark()
    adopted = ground.adopted()
    assert row_of(adopted, 1) == plain(1)
    assert row_of(adopted, 2) == unproven(2)


def test_what_was_declared_wins_over_what_can_be_inferred() -> None:
    declared = LedgerRow(2, 5, DigestType.MAC, master_key=KEY)
    adopted = ours_and_a_bookie_s(declared).adopted()
    assert adopted.rows.rows[2] == declared
    assert adopted.findings == ()


def test_what_nobody_could_tell_before_is_told_as_soon_as_there_is_evidence() -> None:
    adopted = ours_and_a_bookie_s(LedgerRow(7, 5)).adopted()
    assert adopted.rows.rows[7] == LedgerRow(7, 6, DigestType.CRC32C, KnownBy.INFERRED)


def test_fences_are_added_up_and_the_larger_lac_counts() -> None:
    small, large = (entry_codec.encode_lac(2, one, digester(DigestType.CRC32C)) for one in (5, 9))
    ground = ours_and_a_bookie_s(
        replace(plain(1), change=4, fenced=True), replace(plain(2), change=5, explicit_lac=large)
    )
    words = [journal_codec.encode_explicit_lac(2, small), journal_codec.encode_fence(3)]
    ground.put_journal(1, BookieJournal(1).flush(*words).file())
    adopted = ground.adopted()
    assert adopted.rows.rows[1] == replace(plain(1), change=4, fenced=True)
    assert adopted.rows.rows[2] == replace(plain(2), change=5, explicit_lac=large)
    assert adopted.rows.rows[3] == replace(plain(3), change=6, fenced=True)


def test_a_key_that_was_known_stays_and_one_that_was_not_is_filled_in() -> None:
    ground = ours_and_a_bookie_s(
        LedgerRow(2, 4, DigestType.CRC32C, master_key=KEY), LedgerRow(7, 5, DigestType.CRC32C)
    )
    ground.put_journal(1, BookieJournal(1).flush(journal_codec.encode_ledger_key(7, b"7" * 20)).file())
    rows = ground.adopted().rows.rows
    assert (rows[2].master_key, rows[7].master_key) == (KEY, b"7" * 20)


def test_the_rows_are_in_their_file_and_in_the_index_and_are_named_there() -> None:
    ground = ours_and_a_bookie_s(replace(plain(1), change=4, fenced=True))
    adopted = ground.adopted()
    loaded = ledger_rows.load(ground.ledgers, adopted.rows.sequence)
    assert loaded.rows == adopted.rows.rows == {row.ledger_id: row for row in adopted.index.rows()}
    assert adopted.index.state().rows_sequence == loaded.sequence == 2
    assert adopted.mark.trailer is not None
    assert adopted.mark.trailer.rows_sequence == 2


def test_a_row_that_only_the_index_still_has_counts() -> None:
    ground = ours_and_a_bookie_s(
        replace(plain(1), change=4, fenced=True), replace(plain(3), change=2, master_key=KEY)
    )
    newer = replace(plain(3), change=6, fenced=True)
    ground.put_index(replace(plain(2), change=5, fenced=True), replace(plain(1), change=3), newer)
    rows = ground.adopted().rows.rows
    assert (rows[1].fenced, rows[2].fenced, rows[3]) == (True, True, newer)


def test_damaged_rows_are_refused_and_nothing_is_written() -> None:
    ground = ours_and_a_bookie_s(replace(plain(1), change=4, fenced=True))
    ground.put(ground.ledgers, filenames.LEDGER_ROWS, bytes(8192))
    before = ground.disk.image()
    with pytest.raises(CorruptionError, match="LGR-002"):
        ground.adopted()
    assert ground.disk.image() == before


# ── deletes ──────────────────────────────────────────────────────────────────────────────────────────────

DELETED_AT = JournalPosition(3, 12288)


def deleted(ledger_id: int, log: LogPosition | None = None, change: int = 8) -> LedgerRow:
    return replace(plain(ledger_id), change=change, tombstone=Tombstone(DELETED_AT, log))


@pytest.mark.parametrize("log", [None, LogPosition(0, 1 << 20)])
def test_a_deleted_ledger_stays_deleted(log: LogPosition | None) -> None:
    adopted = ours_and_a_bookie_s(deleted(2, log)).adopted()
    assert list(adopted.index.ledgers()) == [1, 3, 7]
    assert adopted.findings == ()
    assert adopted.rows.rows[2].tombstone is not None


def test_what_a_bookie_wrote_of_a_deleted_ledger_is_placed_and_told() -> None:
    ground = ours_and_a_bookie_s(deleted(7))
    adopted = ground.adopted()
    assert ids(ground.placed(adopted.index), 7) == [0, 1, 2]
    assert adopted.findings == ("LGR-003 ledger 7: deleted before a bookie ran here, and may have come back",)
    assert adopted.rows.rows[7].master_key is None


def test_what_a_bookie_wrote_of_a_deleted_ledger_may_be_protected_otherwise() -> None:
    ground = ours_and_a_bookie_s(deleted(8))
    crc32 = digester(DigestType.CRC32)
    back = [entry_codec.encode(Entry(8, one, one - 1, 3 * (one + 1), b"123"), crc32) for one in range(3)]
    ground.put_log(2, Log().add(*back))
    adopted = ground.adopted()
    assert adopted.findings == ("LGR-003 ledger 8: deleted before a bookie ran here, and may have come back",)
    assert (adopted.figures.unreadable, adopted.figures.holes) == (0, 0)
    assert adopted.rows.rows[8].digest_type is DigestType.CRC32


def test_beside_a_deleted_ledger_the_others_stay_protected_as_declared() -> None:
    ground = ours_and_a_bookie_s(deleted(8), replace(plain(1), change=4, fenced=True))
    crc32 = digester(DigestType.CRC32)
    ground.put_log(2, Log().add(entry_codec.encode(Entry(1, 50, 49, 3, b"123"), crc32)))
    figures = ground.adopted().figures
    assert figures.unreadable + figures.holes == 1


def test_a_ledger_made_again_by_us_stays_protected_as_it_was() -> None:
    ground = Ground()
    end = ground.checkpoint(*entries(1, range(5)))
    ground.checkpoint(*entries(1, [0]))
    ground.state = replace(ground.state, rows_sequence=ground.put_rows(deleted(1, end)))
    ground.put_index(deleted(1, end), ledgers=[1])
    crc32 = digester(DigestType.CRC32)
    later = [entry_codec.encode(Entry(1, one, one - 1, 3 * (one + 1), b"123"), crc32) for one in range(1, 9)]
    ground.put_log(2, Log().add(*later))
    ground.put_mark()
    adopted = ground.adopted()
    assert adopted.figures.unreadable + adopted.figures.holes == 8
    assert adopted.rows.rows[1].digest_type is DigestType.CRC32C


def test_a_ledger_made_again_by_us_is_sound_though_the_deleted_one_was_protected_otherwise() -> None:
    ground = Ground()
    crc32 = digester(DigestType.CRC32)
    end = ground.checkpoint(
        *(entry_codec.encode(Entry(1, one, one - 1, 3 * (one + 1), b"123"), crc32) for one in range(8))
    )
    ground.checkpoint(*entries(1, range(2)))
    ground.state = replace(ground.state, rows_sequence=ground.put_rows(deleted(1, end)))
    ground.put_mark()
    adopted = ground.adopted()
    assert (adopted.findings, adopted.figures.unreadable, adopted.figures.holes) == ((), 0, 0)
    assert adopted.rows.rows[1].digest_type is DigestType.CRC32C


def test_what_a_bookie_only_journaled_of_a_deleted_ledger_is_told() -> None:
    ground = ours_and_a_bookie_s(deleted(2))
    ground.put_journal(4, BookieJournal(4).flush(entry_record(2, 0)).file())
    assert [one[:16] for one in ground.adopted().findings] == ["LGR-003 ledger 2"]


def test_what_was_journaled_before_the_delete_is_not_told() -> None:
    ground = ours_and_a_bookie_s(deleted(2))
    journal = OurJournal(3).group(journal_codec.encode_ledger_key(2, KEY), entry_record(2, 0))
    ground.put_journal(3, journal.group(journal_codec.encode_fence(2)).file())
    ground.put_journal(2, BookieJournal(2).flush(entry_record(2, 0), journal_codec.encode_fence(2)).file())
    adopted = ground.adopted()
    assert adopted.findings == ()
    assert (adopted.rows.rows[2].fenced, adopted.rows.rows[2].master_key) == (False, master_key(b""))


def test_an_earlier_bookie_s_records_of_a_ledger_deleted_since_are_dead() -> None:
    ground = Ground()
    ground.put_mark()
    ground.put_log(0, Log().add(*entries(1, range(3)), *entries(2, range(3))))
    first = ground.adopted()
    ground.state = replace(first.index.state(), rows_sequence=ground.put_rows(deleted(1)))
    ground.put_index(deleted(1))
    ground.put_log(1, Log().add(*entries(2, range(3, 6))))
    ground.put_mark()
    adopted = ground.adopted()
    assert list(adopted.index.ledgers()) == [2]
    assert adopted.findings == ()


def test_a_ledger_made_again_by_us_keeps_what_is_its_own() -> None:
    ground = Ground()
    end = ground.checkpoint(*entries(1, range(5)))
    ground.checkpoint(*entries(1, range(2)))
    ground.state = replace(ground.state, rows_sequence=ground.put_rows(deleted(1, end)))
    ground.put_index(deleted(1, end))
    ground.put_mark()
    adopted = ground.adopted()
    assert ids(ground.placed(adopted.index), 1) == [0, 1]
    assert adopted.findings == ()
    assert adopted.rows.rows[1] == deleted(1, end)


def test_where_the_log_of_a_tombstone_is_gone_the_ledger_may_have_come_back() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(5)))
    ground.new_run()
    end = ground.checkpoint(*entries(2, range(5)))
    ground.put_rows(deleted(1, end))
    ground.ledgers.remove("1.log")
    ground.put_mark()
    assert [one[:16] for one in ground.adopted().findings] == ["LGR-003 ledger 1"]


def test_what_an_interrupted_checkpoint_left_of_a_deleted_ledger_stays_dead() -> None:
    ground = Ground()
    ground.checkpoint(*entries(2, range(2)))
    ground.write(*entries(1, range(3)))
    ground.put_rows(deleted(1, LogPosition(0, 4096)))
    ground.put_index()
    ground.put_mark()
    assert list(ground.adopted().index.ledgers()) == [2]


@pytest.mark.parametrize("ledger_id", [2, 7])
def test_an_index_made_again_after_the_adoption_has_the_same_entries(ledger_id: int) -> None:
    ground = ours_and_a_bookie_s(deleted(ledger_id), replace(plain(1), change=4, fenced=True))
    adopted = ground.adopted()
    ground.state = adopted.index.state()
    before = ground.placed(adopted.index)
    rows = list(adopted.rows.rows.values())
    again = ground.rebuilt(*rows)
    assert ground.placed(again.index) == before
    # Of the newest log of ours only the lost index knew the end.
    assert again.index.state() == replace(ground.state, rows_sequence=0, log_ends={0: 1024, 1: 1024})
    ground.new_run()
    ground.checkpoint(*entries(9, range(2)))
    again = ground.rebuilt(*rows)
    assert ground.placed(again.index) == {**before, **{(9, one): entry_bytes(9, one) for one in range(2)}}
    assert again.findings == ()
    assert set(again.index.state().log_ends) == {0, 1, 2}


# ── damage in what is ours ───────────────────────────────────────────────────────────────────────────────


def test_a_log_of_ours_that_is_shorter_than_it_was_is_told() -> None:
    ground = ours_and_a_bookie_s()
    ground.put_log(0, ground.log(0)[:4200])
    adopted = ground.adopted()
    assert [one[:13] for one in adopted.findings] == ["ELG-004 0.log"]
    assert not adopted.index.state().is_whole
    assert adopted.index.state().log_ends[0] == 1024


def test_the_ends_of_our_logs_stay_known() -> None:
    ground = Ground()
    end = ground.checkpoint(*entries(1, range(3)))
    ground.new_run()
    ground.checkpoint(*entries(1, range(3, 6)))
    ground.put_mark()
    assert ground.adopted().index.state().log_ends == {0: end.offset, 1: 1024}


def test_behind_the_end_that_our_index_knew_damage_is_what_a_checkpoint_left() -> None:
    ground = Ground()
    end = ground.checkpoint(*entries(1, range(3)))
    ground.write(*entries(1, range(3, 6)), *entries(2, range(3)))
    log = bytearray(ground.log(0))
    log[log.index(entry_bytes(1, 4)) - 4] ^= 0x40  # a size
    log[log.index(entry_bytes(2, 1)) + 40] ^= 1  # a payload
    ground.put_log(0, bytes(log))
    ground.put_index()
    ground.put_mark()
    adopted = ground.adopted()
    assert (adopted.findings, adopted.figures.unreadable, adopted.index.state().is_whole) == ((), 0, True)
    assert ids(ground.placed(adopted.index), 1) == [0, 1, 2, 3, 4, 5]
    assert end.offset < 8192


def test_behind_the_end_that_another_log_notes_nothing_counts() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(3)))
    ground.write(*entries(5, range(3)))
    ground.new_run()
    ground.checkpoint(*entries(2, range(3)))
    ground.put_mark()
    assert list(ground.adopted().index.ledgers()) == [1, 2]


def test_what_another_bookie_left_earlier_counts_behind_logs_of_ours_too() -> None:
    ground = Ground()
    ground.put_log(0, Log().add(*entries(1, range(3))))
    ground.put_mark()
    ground.state = ground.adopted().index.state()
    ground.checkpoint(*entries(2, range(3)))
    ground.put_log(2, Log().add(*entries(3, range(3))))
    ground.put_mark()
    assert list(ground.adopted().index.ledgers()) == [1, 2, 3]


def test_behind_the_adoption_logs_of_a_store_with_another_id_count() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(3)))
    ground.put_index()
    ground.put_mark()
    ground.state = ground.adopted().index.state()
    assert ground.state.log_ends == {0: 1024}
    ground.new_run()
    ground.checkpoint(*entries(2, range(3)))
    log = ground.log(1)
    header = log_codec.encode_header(Origin(b"of another store", 3, LogPosition(0, 1024)))
    ground.put_log(1, header + log[len(header) :])
    rebuilt = rebuild(ground.place, ground.ledgers, ground.mark, b"of another store", {}, 0)
    assert list(rebuilt.index.ledgers()) == [1, 2]


def test_an_index_made_again_agrees_with_the_mark_though_the_last_log_lost_what_was_never_durable() -> None:
    ground = Ground()
    ground.put_log(0, Log().add(*entries(1, range(3))))
    ground.put_mark()
    adopted = ground.adopted()
    ground.state = adopted.index.state()
    ground.put_log(0, b"")
    state = ground.rebuilt().index.state()
    assert adopted.mark.trailer is not None
    assert state.log_end == adopted.mark.trailer.log_end == LogPosition(0, 1024)


def test_a_damaged_index_is_told_and_kept_aside() -> None:
    ground = ours_and_a_bookie_s()
    ground.put(ground.ledgers, filenames.INDEX, b"rubbish")
    assert [one[:13] for one in ground.adopted().findings] == ["IDX-004 index"]
    with ground.ledgers.open("index.damaged") as file:
        assert file.read(0, 100) == b"rubbish"


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────


def test_progress_covers_journals_and_logs() -> None:
    ground = ours_and_a_bookie_s()
    ground.put_journal(1, BookieJournal(1).flush(entry_record(7, 0)).file())
    told: list[RebuildProgress] = []
    adopt(ground.layout, ground.place, told.append)
    total = 2 * len(ground.log(0)) + 2 * len(ground.log(1)) + 32768
    assert [one.bytes_done for one in told] == sorted(one.bytes_done for one in told)
    assert told[-1] == RebuildProgress(total, total, 12)


def test_an_interrupted_checkpoint_s_leftovers_stay_dead_when_the_index_is_made_again() -> None:
    ground = Ground()
    end = ground.checkpoint(*entries(2, range(2)))
    ground.write(*entries(1, range(3)))
    ground.new_run()
    ground.checkpoint(*entries(2, range(2, 4)))
    row = deleted(1, end)
    ground.state = replace(ground.state, rows_sequence=ground.put_rows(row))
    ground.put_log(2, Log().add(*entries(7, range(3))))
    ground.put_mark()
    adopted = ground.adopted()
    assert list(adopted.index.ledgers()) == [2, 7]
    ground.state = adopted.index.state()
    assert list(ground.rebuilt(*adopted.rows.rows.values()).index.ledgers()) == [2, 7]

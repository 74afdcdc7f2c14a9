"""`ledgerstore log`: entries with their locations, exact holes, and the bytes of each ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fixtures
import pytest
from shell_samples import entry_log, flipped, ledger, rows, run, sealed_log, verdict

from storage.entrylog import format as entrylog_format

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = [*ledger(1, 4), *ledger(2, 4)]
SIZE = 80


def written(directory: Path, data: bytes, name: str = "1f.log") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path, sealed_log(ENTRIES))


def kinds(listed: list[dict[str, Any]]) -> list[str]:
    return [row["kind"] for row in listed]


def test_an_entry_has_its_offset_and_the_location_after_the_length_word(log: Path) -> None:
    first = rows("log", log)[0]
    assert (first["offset"], first["size"], first["location"]) == (1024, SIZE, "0x1f00000404")
    assert (first["ledger"], first["entry"], first["lac"], first["length"], first["ok"]) == (
        1,
        0,
        -1,
        40,
        True,
    )


def test_a_sealed_log_ends_clean(log: Path) -> None:
    result = run("log", log)
    assert result.exit_code == 0
    size = log.stat().st_size
    assert verdict(result) == f"log 1f: 8 records (8 entries, 8 verified), ends cleanly at {size}, sealed"


def test_with_the_option_all_the_rows_cover_the_file_without_gaps(tmp_path: Path) -> None:
    data = entry_log(ENTRIES[:3])
    filler = entrylog_format.encode_filler(len(data))
    path = written(
        tmp_path,
        data
        + filler
        + entrylog_format.encode_record(ENTRIES[3])
        + entrylog_format.encode_ledgers_map({1: 9})[0],
    )
    listed = rows("log", path, "--all")
    assert kinds(listed) == ["entry"] * 3 + ["filler", "entry", "map"]
    ends = [1024, *(row["offset"] + row["size"] for row in listed)]
    assert [row["offset"] for row in listed] == ends[:-1]
    assert ends[-1] == path.stat().st_size


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--ledger", "2", "--entry", "1..2"), [(2, 1), (2, 2)]),
        (("--offset", "1344.."), [(2, 0), (2, 1), (2, 2), (2, 3)]),
        (("--offset", "..1104"), [(1, 0), (1, 1)]),
        (("--limit", "1"), [(1, 0)]),
    ],
    ids=["ledger and entry", "from an offset", "to an offset", "limit"],
)
def test_filters_select(log: Path, options: tuple[str, ...], expected: list[tuple[int, int]]) -> None:
    assert [(row["ledger"], row["entry"]) for row in rows("log", log, *options)] == expected


def test_a_hole_has_its_exact_extent(tmp_path: Path) -> None:
    data = sealed_log(ENTRIES)
    path = written(tmp_path, data[:1104] + b"\xa5" * 100 + data[1204:])
    listed = rows("log", path)
    assert kinds(listed) == ["entry", "hole"] + ["entry"] * 5
    assert (listed[1]["offset"], listed[1]["size"]) == (1104, 160)
    result = run("log", path)
    assert (result.exit_code, "1 hole of 160 bytes" in verdict(result)) == (1, True)


def test_a_damaged_length_word_makes_a_hole_of_four_bytes(tmp_path: Path) -> None:
    listed = rows("log", written(tmp_path, flipped(sealed_log(ENTRIES), 1104, 0x40)))
    assert [(row["offset"], row["size"]) for row in listed if row["kind"] == "hole"] == [(1104, 4)]
    assert len(listed) == 9


def test_a_bad_digest_is_a_finding(tmp_path: Path) -> None:
    path = written(tmp_path, flipped(sealed_log(ENTRIES), 1024 + 60))
    assert [row["ok"] for row in rows("log", path)] == [False] + [True] * 7
    assert run("log", path).exit_code == 1


@pytest.mark.parametrize("cut", [1, 30, 60, 76])
def test_a_truncated_tail_is_information(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, entry_log(ENTRIES)[:-cut])
    result = run("log", path)
    assert result.exit_code == 0
    assert kinds(rows("log", path)) == ["entry"] * 7 + ["torn"]
    assert "torn tail at" in verdict(result)


def test_a_log_that_grows_while_it_is_read_is_no_finding(tmp_path: Path) -> None:
    whole = entry_log(ENTRIES)
    for size in range(1024, len(whole), 23):
        assert run("log", written(tmp_path, whole[:size])).exit_code == 0


def test_a_half_written_last_entry_of_an_open_log_is_information(tmp_path: Path) -> None:
    data = entry_log(ENTRIES)
    result = run("log", written(tmp_path, data[:-20] + bytes(20)))
    assert (result.exit_code, "torn tail" in verdict(result)) == (0, True)


def test_a_half_written_last_entry_of_a_sealed_log_is_a_finding(tmp_path: Path) -> None:
    data = sealed_log(ENTRIES)
    end = 1024 + 8 * SIZE
    assert run("log", written(tmp_path, data[: end - 20] + bytes(20) + data[end:])).exit_code == 1


def test_an_empty_log_was_never_written(tmp_path: Path) -> None:
    result = run("log", written(tmp_path, b""))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "never written" in verdict(result)


def test_metadata_lists_bytes_per_ledger_and_the_header(log: Path) -> None:
    header, *ledgers = rows("log", "--metadata", log)
    assert (header["version"], header["map_offset"], header["sealed"]) == (1, 1664, True)
    assert (bytes.fromhex(header["store_id"]), header["generation"]) == (b"store-id-16bytes", 3)
    assert (header["previous_log"], header["previous_end"]) == ("1f", 4711)
    assert "generation 3, follows log 1f, which ended at 4711" in header["detail"]
    assert [(row["ledger"], row["bytes"], row["source"]) for row in ledgers] == [
        (1, 320, "map"),
        (2, 320, "map"),
    ]


def test_metadata_of_an_open_log_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path, entry_log(ENTRIES))
    ledgers = rows("log", "--metadata", path)[1:]
    assert [(row["ledger"], row["bytes"], row["source"]) for row in ledgers] == [
        (1, 320, "scan"),
        (2, 320, "scan"),
    ]


def test_a_map_that_contradicts_itself_is_a_finding_and_the_entries_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, flipped(sealed_log(ENTRIES), 19))
    result = run("log", "--metadata", path)
    assert (result.exit_code, "the ledgers map contradicts itself" in verdict(result)) == (1, True)
    assert rows("log", "--metadata", path)[1]["source"] == "scan"
    assert run("log", path).exit_code == 1


def test_metadata_takes_no_filters(log: Path) -> None:
    assert run("log", "--metadata", log, "--ledger", "1").exit_code == 2


def test_a_log_that_is_in_two_directories_needs_a_path(tmp_path: Path) -> None:
    for name in ("ledgers0", "ledgers1"):
        (tmp_path / name / "current").mkdir(parents=True)
        written(tmp_path / name / "current", sealed_log(ENTRIES))
    result = run("log", "1f", "--dir", tmp_path)
    assert (result.exit_code, "several directories" in result.stderr) == (3, True)


@pytest.mark.parametrize("name", fixtures.SETS)
def test_every_entry_log_of_a_real_bookie_is_clean(name: str) -> None:
    for path in fixtures.entry_logs(name):
        result = run("log", path)
        assert result.exit_code == 0, verdict(result)


def test_entries_of_a_real_bookie_equal_those_its_own_reader_lists() -> None:
    paths = fixtures.entry_logs("01_clean")
    theirs = [line for line in fixtures.dump("01_clean", "entrylog.ledgers") if line["kind"] == "entry"]
    ours = [(path.name, row) for path in paths for row in rows("log", path)]
    assert [(name, row["offset"], row["ledger"], row["entry"], row["digest"]) for name, row in ours] == [
        (line["file"], line["offset"], line["ledger"], line["entry"], line["digest"]) for line in theirs
    ]

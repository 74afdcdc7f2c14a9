"""`ledgerstore mark`: every state of a lastMark, given by store, directory or file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import pytest
from shell_samples import JOURNAL_ID, flipped, rows, run, store, verdict

from storage.checkpoint import mark_format
from storage.entry.position import JournalPosition

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return store(tmp_path)


def test_a_mark_is_found_from_the_root_its_directory_and_its_file(root: Path) -> None:
    current = root / "ledgers" / "current"
    for path in (root, root / "ledgers", current, current / "lastMark"):
        [row] = rows("mark", path)
        assert (row["journal"], row["file"], row["offset"]) == (f"{JOURNAL_ID:x}", f"{JOURNAL_ID:x}.txn", 512)
        assert (row["state"], row["valid"]) == ("ok", True)


def test_the_trailer_of_a_mark_is_listed(root: Path) -> None:
    [row] = rows("mark", root)
    trailer = (row["generation"], row["newest_journal"], row["log"], row["log_end"], row["rows_sequence"])
    assert trailer == (5, f"{JOURNAL_ID:x}", "0", 1500, 4)


@pytest.mark.parametrize(
    ("content", "state", "valid", "code"),
    [
        (None, "no mark", None, 0),
        (b"", "empty", None, 0),
        (bytes(9), "torn", False, 1),
        (bytes(40), "damaged", False, 1),
        (b"\xff" * 16, "damaged", False, 1),
        (bytes(16), "ok", True, 0),
    ],
    ids=["none", "empty", "short", "trailer cut", "negative", "fresh"],
)
def test_each_state_of_a_mark_is_listed(
    root: Path, content: bytes | None, state: str, valid: object, code: int
) -> None:
    path = root / "ledgers" / "current" / "lastMark"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    [row] = rows("mark", root)
    assert (row["state"], row["valid"]) == (state, valid)
    assert run("mark", root).exit_code == code


def test_a_missing_mark_is_not_counted_as_a_mark(root: Path) -> None:
    (root / "ledgers" / "current" / "lastMark").unlink()
    assert verdict(run("mark", root)) == "mark: no mark"


def test_a_flipped_bit_in_our_mark_is_damage(root: Path) -> None:
    path = root / "ledgers" / "current" / "lastMark"
    path.write_bytes(flipped(path.read_bytes(), 40))
    [row] = rows("mark", root)
    assert (row["state"], row["flaw"], row["offset"]) == ("damaged", "CHECKSUM", None)


def test_a_mark_in_a_missing_journal_is_a_finding(root: Path) -> None:
    (root / "journal" / "current" / f"{JOURNAL_ID:x}.txn").unlink()
    [row] = rows("mark", root)
    assert (row["state"], row["valid"], row["offset"]) == ("journal missing", False, 512)
    result = run("mark", root)
    assert (result.exit_code, verdict(result)) == (1, "mark: 1 mark, 1 not valid")


def test_a_mark_is_valid_if_the_journals_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "lastMark"
    path.write_bytes(mark_format.encode(mark_format.Mark(JournalPosition(5, 512))))
    assert rows("mark", path)[0]["state"] == "ok"


def test_the_marks_of_several_journal_directories_are_all_listed(root: Path) -> None:
    current = root / "ledgers" / "current"
    for index in (0, 1):
        (current / f"lastMark.{index}").write_bytes(bytes(16))
    assert [row["mark"] for row in rows("mark", root)] == ["lastMark", "lastMark.0", "lastMark.1"]


def test_a_directory_without_ledgers_has_no_mark(tmp_path: Path) -> None:
    assert run("mark", tmp_path).exit_code == 3
    assert run("mark", tmp_path / "nowhere").exit_code == 3


@pytest.mark.parametrize("name", fixtures.SETS)
def test_a_real_bookie_s_mark_is_what_its_manifest_says(name: str) -> None:
    expected = fixtures.manifest(name)["last_mark"]["bookie/ledgers/current/lastMark"]
    [row] = rows("mark", fixtures.bookie(name) / "bookie")
    assert (int(row["journal"] or "0", 16), row["offset"]) == (expected["journal_id"], expected["offset"])
    assert (row["file"] is None) == (expected["journal_id"] == 0)
    assert row["valid"] is True

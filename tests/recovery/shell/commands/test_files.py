"""`ledgerstore files`: the kind and the facts of each file in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import pytest
from shell_samples import JOURNAL_ID, bookie_journal, flipped, our_journal, rows, run, store, verdict

from storage.entrylog import format as entrylog_format

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return store(tmp_path)


def test_the_files_of_a_store_are_listed_by_kind(root: Path) -> None:
    listed = {
        row["path"]: (row["kind"], row["sealed"], row["owner"], row["version"]) for row in rows("files", root)
    }
    tops = [path.partition("/")[0] for path in listed]
    assert tops == sorted(tops)
    assert listed == {
        "journal/current/VERSION": ("cookie", None, None, 5),
        f"journal/current/{JOURNAL_ID:x}.txn": ("journal", None, "ours", 6),
        "ledgers/current/VERSION": ("cookie", None, None, 5),
        "ledgers/current/0.log": ("entry log", True, "ours", 1),
        "ledgers/current/1.log": ("entry log", False, None, None),
        "ledgers/current/lastMark": ("last mark", None, "ours", None),
    }


def test_a_log_that_is_not_yet_named_has_its_own_kind(tmp_path: Path) -> None:
    header = entrylog_format.encode_header(entrylog_format.Origin(bytes(16), 1, None))
    (tmp_path / "1f.log.draft").write_bytes(header + entrylog_format.encode_filler(len(header)))
    [row] = rows("files", tmp_path)
    assert (row["kind"], row["owner"], row["sealed"]) == ("entry log draft", "ours", False)


def test_bytes_are_the_size_of_the_file(root: Path) -> None:
    for row in rows("files", root):
        assert row["bytes"] == (root / row["path"]).stat().st_size


@pytest.mark.parametrize(
    ("content", "owner", "flaw"),
    [
        (our_journal([]), "ours", None),
        (bookie_journal([]), "bookie", None),
        (bytes(600), None, None),
        (b"", None, None),
        (flipped(our_journal([]), 20), None, "CHECKSUM"),
    ],
    ids=["ours", "bookie", "zeros", "empty", "damaged"],
)
def test_a_journal_s_owner(tmp_path: Path, content: bytes, owner: str | None, flaw: str | None) -> None:
    (tmp_path / "1.txn").write_bytes(content)
    [row] = rows("files", tmp_path)
    assert (row["owner"], row["flaw"]) == (owner, flaw)
    assert run("files", tmp_path).exit_code == (1 if flaw else 0)


@pytest.mark.parametrize(("name", "flaw"), [("VERSION", "BAD_TEXT"), ("lastMark", "FILE_SHORT")])
def test_damage_in_a_small_file_is_a_finding(root: Path, name: str, flaw: str) -> None:
    (root / "ledgers" / "current" / name).write_bytes(b"junk\n")
    flaws = {row["path"]: row["flaw"] for row in rows("files", root) if row["flaw"]}
    assert flaws == {f"ledgers/current/{name}": flaw}
    assert run("files", root).exit_code == 1


def test_an_unknown_file_is_listed_and_no_finding(root: Path) -> None:
    (root / "ledgers" / "current" / "007.log").write_bytes(b"?")
    result = run("files", root)
    assert (result.exit_code, "1 unknown" in verdict(result)) == (0, True)


def test_a_directory_of_another_store_is_one_row(root: Path) -> None:
    inner = root / "ledgers" / "current" / "elsewhere"
    inner.mkdir()
    (inner / "000004.sst").write_bytes(bytes(100))
    (inner / "LOCK").write_bytes(bytes(20))
    found = [row for row in rows("files", root) if row["path"].startswith("ledgers/current/elsewhere")]
    assert [(row["kind"], row["path"], row["bytes"]) for row in found] == [
        ("unknown", "ledgers/current/elsewhere/", 120)
    ]


def test_logs_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    for name in ("10.log", "9.log", "a.log"):
        (tmp_path / name).write_bytes(b"")
    assert [row["path"] for row in rows("files", tmp_path)] == ["9.log", "a.log", "10.log"]


def test_a_missing_directory_ends_with_exit_code_3(tmp_path: Path) -> None:
    assert run("files", tmp_path / "nowhere").exit_code == 3


@pytest.mark.parametrize("name", fixtures.SETS)
def test_a_real_bookie_s_directory_has_sound_headers(name: str) -> None:
    listed = rows("files", fixtures.bookie(name) / "bookie")
    assert {row["owner"] for row in listed if row["kind"] in ("journal", "last mark")} == {"bookie"}
    assert "unknown" not in {row["kind"] for row in listed}
    assert all(row["flaw"] is None for row in listed)

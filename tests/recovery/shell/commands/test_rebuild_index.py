"""`ledgerstore rebuild-index`: for a store and for a directory of a bookie, and what is refused."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import fixtures
import pytest
from shell_samples import rows, run, verdict

from recovery import open_store
from recovery.shell.main import ALIASES
from storage.disk import filenames
from storage.disk.posix import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path

LEDGERS = "ledgers/current"


def bookie(name: str, to: Path) -> Path:
    shutil.copytree(fixtures.bookie(name) / "bookie", to / "bookie")
    return to / "bookie"


def ours(to: Path) -> Path:
    """Make a store with two ledgers, of which the second is fenced. All entries are in entry logs."""
    with open_store(to / "store") as store:
        store.ledger(1).append_many([b"one", b"two", b"three"])
        store.ledger(2).append(b"four")
        store.ledger(2).fence()
    return to / "store"


def payloads(path: Path) -> list[bytes]:
    with open_store(path) as store:
        assert store.opened.findings == ()
        return [payload for one in store.ledgers() for payload in store.ledger(one).payloads()]


# ── a bookie's directory ─────────────────────────────────────────────────────────────────────────────────


def test_a_bookie_directory_becomes_a_store(tmp_path: Path) -> None:
    root = bookie("01_clean", tmp_path)
    [row] = rows("rebuild-index", root)
    sizes = sum(path.stat().st_size for path in (root / LEDGERS).glob("*.log"))
    assert row == {
        "directory": str(root),
        "whose": "a bookie's",
        "logs": 9,
        "bytes": sizes,
        "entries": 339,
        "ledgers": 3,
        "unreadable": 0,
        "holes": 0,
        "whole": True,
        "fenced": 0,
        "unproven": 0,
        "findings": 0,
        "old_index": None,
    }
    again = run("rebuild-index", root)
    assert again.exit_code == 0
    assert verdict(again) == "rebuild-index: 339 entries of 3 ledgers indexed, no findings"
    assert f"the old index is kept as {root / LEDGERS / 'index.damaged'}" in again.stderr


def test_fenced_and_unproven_ledgers_are_counted(tmp_path: Path) -> None:
    [row] = rows("rebuild-index", bookie("04a_fence_lac_crash", tmp_path))
    assert (row["fenced"], row["unproven"], row["entries"]) == (3, 1, 0)


def test_the_table_has_a_line_for_each_figure(tmp_path: Path) -> None:
    result = run("rebuild-index", bookie("08_digests", tmp_path))
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == [
        "figure",
        "logs",
        "bytes",
        "entries",
        "ledgers",
        "unreadable",
        "holes",
        "fenced",
        "unproven",
    ]
    assert lines[2][1] == "142,347"
    assert verdict(result) == (
        "rebuild-index: 105 entries of 5 ledgers indexed, now a store of ledgerstore, no findings"
    )


def test_damage_is_printed_and_sets_the_exit_code(tmp_path: Path) -> None:
    root = bookie("05a_compaction", tmp_path)
    log = root / LEDGERS / "0.log"
    data = bytearray(log.read_bytes())
    data[2000:2100] = bytes(100)
    data[-3000:-2900] = bytes(100)
    log.write_bytes(bytes(data))
    result = run("rebuild-index", root, "--ndjson")
    assert result.exit_code == 1
    assert "finding: ELG-003 0.log@1024: ledger 1, entry 0" in result.stderr
    assert verdict(result).endswith("2 findings")


@pytest.mark.parametrize("alias", ["rebuild-db-ledger-locations-index", "rebuild-db-ledgers-index"])
def test_names_of_bookie_shell_work_for_rebuild_index(alias: str, tmp_path: Path) -> None:
    assert ALIASES[alias] == ["rebuild-index"]
    assert rows(alias, bookie("08_digests", tmp_path))[0]["entries"] == 105


# ── a store of ledgerstore ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["sound", "lost", "damaged"])
def test_the_index_of_a_store_is_rebuilt(state: str, tmp_path: Path) -> None:
    root = ours(tmp_path)
    index = root / LEDGERS / filenames.INDEX
    if state == "lost":
        shutil.rmtree(index)
    elif state == "damaged":
        (index / "data.mdb").write_bytes(bytes(9000))
    result = run("rebuild-index", root)
    assert result.exit_code == (1 if state == "damaged" else 0)
    assert ("IDX-004" in result.stderr) == (state == "damaged")
    assert ("the old index is kept" in result.stderr) == (state != "lost")
    assert payloads(root) == [b"one", b"two", b"three", b"four"]


def test_the_new_index_has_the_ledger_metadata(tmp_path: Path) -> None:
    [row] = rows("rebuild-index", ours(tmp_path))
    assert (row["whose"], row["fenced"], row["entries"], row["ledgers"]) == ("ours", 1, 4, 2)


def test_the_next_opening_uses_the_new_index(tmp_path: Path) -> None:
    root = ours(tmp_path)
    run("rebuild-index", root)
    with open_store(root) as store:
        assert store.opened.index.name == "GOOD"


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_store_that_is_open_is_refused(tmp_path: Path) -> None:
    root = bookie("01_clean", tmp_path)
    with PosixDirectory(root).lock(filenames.LOCK):
        result = run("rebuild-index", root)
    assert result.exit_code == 3
    assert "already open in this process" in verdict(result)
    assert "index" not in {path.name for path in (root / LEDGERS).iterdir()}


def test_a_directory_that_is_no_store_is_refused_before_a_lock_file_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty" / "journal" / "current").mkdir(parents=True)
    (tmp_path / "empty" / "ledgers" / "current").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    for path, words in [
        (tmp_path, "there is no"),
        (tmp_path / "empty", "it has no journals"),
        (tmp_path / "file", "not a directory"),
        (tmp_path / "nothing", "no such directory"),
        (bookie("01_clean", tmp_path) / "ledgers", "there is no"),
    ]:
        result = run("rebuild-index", path)
        assert (result.exit_code, words in verdict(result)) == (3, True), result.stderr
    assert not list(tmp_path.rglob(filenames.LOCK))


def test_a_directory_without_its_cookie_is_refused(tmp_path: Path) -> None:
    root = bookie("01_clean", tmp_path)
    (root / "journal/current/VERSION").unlink()
    assert run("rebuild-index", root).exit_code == 3


def test_a_store_whose_mark_is_damaged_is_refused(tmp_path: Path) -> None:
    root = ours(tmp_path)
    mark = root / LEDGERS / "lastMark"
    mark.write_bytes(mark.read_bytes()[:40])
    result = run("rebuild-index", root)
    assert (result.exit_code, "MRK-001" in verdict(result)) == (3, True)

"""`ledgerstore explain`: the record at every offset, and the explanation of damage."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import fixtures
import pytest
from entry_log_builder import Log
from journal_builder import BookieJournal, change, entry_bytes, entry_record
from shell_samples import (
    JOURNAL_ID,
    bookie_journal,
    flipped,
    ledger,
    our_journal,
    records,
    rows,
    run,
    sealed_log,
    store,
    verdict,
)

from recovery.audit.findings.catalogue import KINDS
from storage.entry import ledger_record_format
from storage.entry.ledger_record import LedgerRecord
from storage.ledgers import metadata_log_format as rows_codec

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = fixtures.GOLDEN / "journal-logical.bin"
NAME = f"{JOURNAL_ID:x}.txn"


def fields(*arguments: object) -> dict[str, Any]:
    return {row["name"]: row["value"] for row in rows("explain", *arguments)}


def names(*arguments: object) -> list[str]:
    return [row["name"] for row in rows("explain", *arguments)]


@pytest.mark.parametrize("offset", [1024, 1030, "0x404", 1531])
def test_the_offset_of_any_byte_of_a_record_explains_the_record(offset: object) -> None:
    found = rows("explain", f"{GOLDEN}@{offset}")
    assert [row["name"] for row in found] == [
        "length",
        "ledger",
        "entry",
        "last add confirmed",
        "length",
        "digest",
        "payload",
    ]
    assert sum(row["size"] for row in found) == 508
    assert found[0]["offset"] == 1024
    assert found[-1]["value"] == "468 bytes"


def test_without_an_offset_the_header_is_explained() -> None:
    assert fields(GOLDEN)["version"] == 6
    assert fields(fixtures.GOLDEN / "0.log")["map offset"] == 1622


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (f"{GOLDEN}@512", "ledger-key of ledger 1, 44 bytes from 512"),
        (f"{GOLDEN}@556", "entry 0 of ledger 1, 45 bytes from 556: the digest is right"),
        (f"{GOLDEN}@2560", "fence of ledger 1, 20 bytes from 2560"),
        (f"{GOLDEN}@3072", "explicit-lac of ledger 1, 44 bytes from 3072: the digest is right"),
        (f"{GOLDEN}@3200", "padding, 468 bytes from 3116, 84 bytes into it"),
        (
            f"{fixtures.GOLDEN / '0.log'}@1630",
            "map, 56 bytes from 1622, 8 bytes into it: 2 ledgers, 598 bytes in all",
        ),
        (f"{fixtures.GOLDEN / 'lastMark'}", "lastMark of a bookie: replay begins at 19b0a1b2c3d.txn@1024"),
    ],
    ids=["key", "entry", "fence", "lac", "padding", "map", "mark"],
)
def test_the_last_line_says_what_is_at_the_offset(place: str, expected: str) -> None:
    result = run("explain", place)
    assert result.exit_code == 0
    assert verdict(result).partition(": ")[2] == expected


def test_an_offset_after_the_end_of_the_file_ends_with_exit_code_3() -> None:
    result = run("explain", f"{GOLDEN}@9999")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "ends at 3584, before offset 9999" in result.stderr


def test_the_reserve_has_no_bytes_to_explain(tmp_path: Path) -> None:
    (tmp_path / "reserve").write_bytes(bytes(16))
    result = run("explain", str(tmp_path / "reserve"))
    assert (result.exit_code, result.stdout) == (3, "")
    assert "is zeros: space that the store keeps for a full disk" in result.stderr


def test_a_seal_is_explained_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(our_journal([records(ledger(7, 3))]))
    found = fields(f"{path}@1000")
    assert (found["sequence"], found["group start"], found["records"]) == (1, 512, 3)
    assert verdict(run("explain", f"{path}@1000")).endswith("its checksum is right")


def test_a_damaged_seal_is_explained_by_its_checksum_and_not_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / NAME
    groups = [records(ledger(ledger_id, 1)) for ledger_id in (7, 8, 9)]
    path.write_bytes(flipped(our_journal(groups), 1024 + 200))  # in the padding of the second group
    result = run("explain", f"{path}@{1024 + 300}")
    assert result.exit_code == 1
    assert verdict(result).endswith("the checksum does not match")


def test_damage_before_sound_records_is_called_damage(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(flipped(our_journal([records(ledger(7, 3)), records(ledger(8, 1))]), 512, 0x40))
    result = run("explain", f"{path}@700")
    assert result.exit_code == 1
    assert "the record is longer than the rest of the file; sound records follow" in verdict(result)
    assert result.stdout


def test_a_torn_tail_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(our_journal([records(ledger(7, 3))])[: 512 + 80 + 30])
    result = run("explain", f"{path}@600")
    assert result.exit_code == 0
    assert "no sound record follows, as after an interrupted write" in verdict(result)
    assert fields(f"{path}@600")["entry"] == 1


def test_a_bad_digest_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(flipped(sealed_log(ledger(1, 3)), 1024 + 50))
    result = run("explain", f"{path}@1024")
    assert (result.exit_code, verdict(result).endswith("the digest does not match the entry")) == (1, True)


def test_a_damaged_header_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(flipped(sealed_log(ledger(1, 3)), 30))
    result = run("explain", path)
    assert (result.exit_code, "DAMAGED: the checksum does not match" in verdict(result)) == (1, True)


def test_small_files_are_found_by_name_and_explained(tmp_path: Path) -> None:
    root = store(tmp_path)
    assert fields("lastMark", "--dir", root)["newest journal"] == JOURNAL_ID
    assert fields(root / "ledgers" / "current" / "VERSION")["bookieHost"] == '"here:3181"'
    assert fields(f"{NAME}@512", "--dir", root)["entry"] == 0


def test_a_damaged_mark_is_called_one(tmp_path: Path) -> None:
    path = store(tmp_path) / "ledgers" / "current" / "lastMark"
    path.write_bytes(flipped(path.read_bytes(), 3))
    result = run("explain", path)
    assert (result.exit_code, "not valid" in verdict(result)) == (1, True)


def test_a_group_of_ledger_rows_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "ledgers.rows"
    group = [ledger_record_format.encode(LedgerRecord(ledger_id, 1, fenced=True)) for ledger_id in (5, 6)]
    first = rows_codec.encode_group(group, 0, 0, 0)
    path.write_bytes(first + rows_codec.encode_group(group[:1], 1, len(first), 0))
    assert names(f"{path}@100").count("row") == 2
    assert fields(f"{path}@4100")["sequence"] == 1
    result = run("explain", f"{path}@0")
    assert verdict(result).endswith("group 0 of 2 ledger rows at 0, sound")
    path.write_bytes(flipped(first, 60))
    assert run("explain", f"{path}@0").exit_code == 1


@pytest.mark.parametrize("place", ["x@y", "x@-1", "x@"])
def test_an_invalid_offset_is_bad_usage(place: str) -> None:
    assert run("explain", place).exit_code == 2


def test_a_file_that_cannot_be_explained_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert run("explain", tmp_path / "notes.txt").exit_code == 3


def test_an_entry_with_a_damaged_length_word_is_explained_as_a_whole(tmp_path: Path) -> None:
    log = Log().add(*(entry_bytes(1, number, b"x" * 500) for number in range(3)))
    place = log.places[1]
    path = tmp_path / "0.log"
    path.write_bytes(change(log.file(), place, (77).to_bytes(4, "big")))
    for into in (20, 200, 500):
        result = run("explain", f"{path}@{place + into}")
        assert "entry 1 of ledger 1" in verdict(result), into


def test_zeros_are_not_explained_as_a_record(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(BookieJournal(1, size=0).flush(entry_record(1, 0)).file() + bytes(4096) + b"x")
    [row] = rows("explain", f"{path}@3000")
    assert row["name"] == "zeros"


@pytest.mark.parametrize(("command", "name"), [("log", "1.txn"), ("journal", "0.log")])
def test_the_command_for_the_other_kind_of_file_is_named(tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / "1.txn").write_bytes(BookieJournal(1).flush(entry_record(1, 0)).file())
    (tmp_path / "0.log").write_bytes(Log().file())
    result = run(command, tmp_path / name)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "use `ledgerstore" in result.stderr


def test_a_file_that_is_not_regular_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.log")
    result = run("log", tmp_path / "0.log")
    assert result.exit_code == 3
    assert "not a regular file" in result.stderr


# ── findings ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_id_of_a_finding_is_explained_in_upper_or_lower_case() -> None:
    done = run("explain", "jrn-003")
    kind = KINDS["JRN-003"]
    assert (done.exit_code, verdict(done)) == (0, f"JRN-003: error, {kind.title}")
    for words in (kind.cause, kind.remedy, "ledgerstore explain FILE@OFFSET STORE"):
        assert words in done.stdout
    [row] = rows("explain", "JRN-003")
    assert set(row) == {"id", "severity", "title", "counts", "cause", "remedy", "look"}


def test_every_kind_of_finding_is_listed_and_explained() -> None:
    listed = rows("explain", "--findings")
    assert [row["id"] for row in listed] == list(KINDS)
    assert all(rows("explain", row["id"]) == [row] for row in listed)
    assert verdict(run("explain", "--findings")) == f"findings: {len(KINDS)} kinds"


def test_an_unknown_finding_is_refused() -> None:
    done = run("explain", "JRN-999")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "--findings" in verdict(done)


def test_a_file_with_the_name_of_a_finding_is_explained_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "JRN-003").write_bytes(bookie_journal([records(ledger(7, 2))]))
    assert verdict(run("explain", "JRN-003@512")).startswith("JRN-003@512: ")
    assert verdict(run("explain", "JRN-003")).startswith("JRN-003@0: ")


def test_explain_needs_an_argument() -> None:
    assert run("explain").exit_code == 2


def test_a_finding_is_explained_without_numpy() -> None:
    code = (
        "import sys\nfrom recovery.shell.main import cli\n"
        "try: cli.main(['explain', 'JRN-003'])\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "numpy" not in {name.partition(".")[0] for name in done.stderr.split()}

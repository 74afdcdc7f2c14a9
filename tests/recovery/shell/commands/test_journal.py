"""`ledgerstore journal`: its rows, its filters, and which damage is a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fixtures
import pytest
from shell_samples import (
    JOURNAL_ID,
    SALT,
    bookie_journal,
    entry,
    flipped,
    ledger,
    our_journal,
    payload,
    records,
    rows,
    run,
    verdict,
)

from storage.entry import format as entry_format
from storage.entry.digest import digester
from storage.entry.model import DigestType
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from pathlib import Path

NAME = f"{JOURNAL_ID:x}.txn"
GROUPS = [records(ledger(7, 3)), records(ledger(8, 2)), records(ledger(9, 4))]
GROUP_STARTS = (512, 1024, 1536)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return written(tmp_path, our_journal(GROUPS))


def written(directory: Path, data: bytes) -> Path:
    path = directory / NAME
    path.write_bytes(data)
    return path


def kinds(listed: list[dict[str, Any]]) -> list[str]:
    return [row["kind"] for row in listed]


def test_every_entry_has_its_row(journal: Path) -> None:
    first = rows("journal", journal)[0]
    assert first == {
        "offset": 512,
        "size": 80,
        "version": 6,
        "kind": "entry",
        "ledger": 7,
        "entry": 0,
        "lac": -1,
        "length": 40,
        "digest_type": "CRC32C",
        "digest": entry(7, 0)[32:36].hex(),
        "ok": True,
        "flaw": None,
        "detail": None,
    }
    assert [(row["ledger"], row["entry"]) for row in rows("journal", journal)] == [
        (ledger_id, entry_id) for ledger_id, count in ((7, 3), (8, 2), (9, 4)) for entry_id in range(count)
    ]


def test_the_verdict_comes_last_on_stderr(journal: Path) -> None:
    result = run("journal", journal)
    assert result.exit_code == 0
    assert (
        verdict(result) == f"journal {JOURNAL_ID:x}: 9 records (9 entries, 9 verified), ends cleanly at 2048"
    )


def test_with_the_option_all_the_rows_cover_the_file_without_gaps(journal: Path) -> None:
    listed = rows("journal", journal, "--all")
    ends = [512, *(row["offset"] + row["size"] for row in listed)]
    assert [row["offset"] for row in listed] == ends[:-1]
    assert ends[-1] == journal.stat().st_size


def test_the_row_of_a_seal_says_what_it_covers(journal: Path) -> None:
    seals = [row for row in rows("journal", journal, "--all") if row["kind"] == "seal"]
    assert [(row["sequence"], row["records"], row["durable_up_to"], row["ok"]) for row in seals] == [
        (1, 3, f"{NAME}@512", True),
        (2, 2, f"{NAME}@1024", True),
        (3, 4, f"{NAME}@1536", True),
    ]


def test_special_records_have_their_kinds(tmp_path: Path) -> None:
    packet = entry_format.encode_lac(7, 2, digester(DigestType.CRC32C))
    special = [
        journal_format.encode_fence(7),
        journal_format.encode_explicit_lac(7, packet),
        journal_format.encode_ledger_key(8, b"k" * 20),
    ]
    unknown = journal_format.encode_record(entry_format.IDS.pack(8, -0x7000))
    path = written(tmp_path, bookie_journal([[*records(ledger(7, 3)), *special, unknown]]))
    listed = rows("journal", path)[3:]
    assert kinds(listed) == ["fence", "explicit-lac", "ledger-key", "unknown"]
    assert [(row["ledger"], row["lac"], row["ok"]) for row in listed] == [
        (7, None, None),
        (7, 2, True),
        (8, None, None),
        (8, None, None),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--ledger", "8"), [(8, 0), (8, 1)]),
        (("--ledger", "7", "--ledger", "8", "--entry", "1"), [(7, 1), (8, 1)]),
        (("--entry", "2.."), [(7, 2), (9, 2), (9, 3)]),
        (("--entry", "..0"), [(7, 0), (8, 0), (9, 0)]),
        (("--offset", "0x400..1104"), [(8, 0), (8, 1)]),
        (("--offset", "600"), [(7, 1)]),
        (("--offset", "1600..", "--entry", "3"), [(9, 3)]),
        (("--limit", "2"), [(7, 0), (7, 1)]),
        (("--limit", "0"), []),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_filters_select(journal: Path, options: tuple[str, ...], expected: list[tuple[int, int]]) -> None:
    assert [(row["ledger"], row["entry"]) for row in rows("journal", journal, *options)] == expected


def test_a_partial_listing_says_so(journal: Path) -> None:
    assert verdict(run("journal", journal, "--limit", "1")).endswith("listed in part")
    assert "2 of 9 records" in verdict(run("journal", journal, "--ledger", "8"))


def test_payloads_come_as_hex_or_text(journal: Path) -> None:
    as_text, as_hex = (rows("journal", journal, "--payload", form)[0]["payload"] for form in ("text", "hex"))
    assert (as_text, bytes.fromhex(as_hex)) == (payload(7, 0).decode(), payload(7, 0))
    assert "payload" not in rows("journal", journal)[0]


def test_a_payload_that_is_not_text_stays_on_one_line(tmp_path: Path) -> None:
    data = bytearray(entry(7, 0, DigestType.DUMMY))
    data[36:42] = b"\n\x1b[2J\xff"
    path = written(tmp_path, bookie_journal([records([bytes(data)])]))
    result = run("journal", path, "--payload", "text")
    assert len(result.stdout.splitlines()) == 2
    assert "\x1b" not in result.stdout


def test_damage_is_a_row_at_its_offset_and_the_listing_continues(tmp_path: Path) -> None:
    path = written(tmp_path, flipped(our_journal(GROUPS), 1024, 0x40))
    listed = rows("journal", path)
    assert kinds(listed) == ["entry"] * 3 + ["hole"] + ["entry"] * 4
    hole = listed[3]
    assert (hole["offset"], hole["size"], hole["flaw"]) == (1024, 512, "BODY_CUT")
    result = run("journal", path)
    assert result.exit_code == 1
    assert "1 hole of 512 bytes, ends at 2048" in verdict(result)


def test_damage_in_a_bookie_s_journal_is_a_hole_up_to_the_next_good_entry(tmp_path: Path) -> None:
    path = written(tmp_path, flipped(bookie_journal(GROUPS), 512, 0x40))
    listed = rows("journal", path)
    assert (listed[0]["kind"], listed[0]["offset"], listed[0]["size"]) == ("hole", 512, 80)
    assert kinds(listed[1:]) == ["entry"] * 8
    assert run("journal", path).exit_code == 1


def test_a_bad_digest_is_listed_at_its_offset_and_is_a_finding(tmp_path: Path) -> None:
    path = written(tmp_path, flipped(bookie_journal(GROUPS), 512 + 60))
    bad = rows("journal", path)[0]
    assert (bad["kind"], bad["ok"], bad["flaw"]) == ("entry", False, "DIGEST")
    result = run("journal", path)
    assert (result.exit_code, "1 BAD" in verdict(result)) == (1, True)
    assert "BAD" in result.stdout.splitlines()[1]


def test_a_broken_seal_is_listed_without_the_option_all(tmp_path: Path) -> None:
    path = written(tmp_path, flipped(our_journal(GROUPS), 1024 - 20))
    listed = rows("journal", path)
    assert [(row["kind"], row["ok"]) for row in listed if row["kind"] != "entry"] == [("seal", False)]
    assert run("journal", path).exit_code == 1


@pytest.mark.parametrize("size", [1540, 1560, 1620, 1780, 1860, 2047])
def test_a_tail_cut_anywhere_in_the_last_group_is_information(tmp_path: Path, size: int) -> None:
    path = written(tmp_path, our_journal(GROUPS)[:size])
    result = run("journal", path)
    assert result.exit_code == 0
    assert rows("journal", path)[-1]["kind"] == "torn"
    assert "torn tail at" in verdict(result)


def with_header(filled_until: int, salt: int = SALT) -> bytes:
    return (
        journal_format.encode_header(journal_format.JournalHeader(6, salt, filled_until))
        + our_journal(GROUPS)[512:]
    )


def test_a_journal_without_its_synced_end_is_a_finding(tmp_path: Path) -> None:
    whole = run("journal", written(tmp_path, with_header(2048)))
    assert (whole.exit_code, "ends cleanly" in verdict(whole)) == (0, True)
    result = run("journal", written(tmp_path, with_header(4096)))
    assert (result.exit_code, "cut at 2048: the file has lost its end" in verdict(result)) == (1, True)


def test_another_journal_s_header_is_a_finding(tmp_path: Path) -> None:
    result = run("journal", written(tmp_path, with_header(0, SALT + 1)))
    assert result.exit_code == 1
    assert "header and groups are of different journals" in verdict(result)


def test_a_half_written_group_before_zeros_is_information(tmp_path: Path) -> None:
    path = written(tmp_path, our_journal(GROUPS)[: 1536 + 2 * 80 + 50] + bytes(4096))
    result = run("journal", path)
    assert result.exit_code == 0
    assert "torn tail at 1536" in verdict(result)
    assert "2 records of it verify" in verdict(result)


def test_a_group_without_its_seal_is_information(tmp_path: Path) -> None:
    path = written(tmp_path, our_journal(GROUPS[:2]) + b"".join(GROUPS[2]) + bytes(4096))
    result = run("journal", path)
    assert result.exit_code == 0
    assert rows("journal", path)[-1]["flaw"] == "SEAL_MISSING"
    assert "torn tail at 1536" in verdict(result)


def test_a_journal_that_grows_while_it_is_read_ends_clean(tmp_path: Path) -> None:
    whole = our_journal(GROUPS)
    seen = set()
    for size in range(512, len(whole) + 1, 37):
        path = written(tmp_path, whole[:size] + bytes(len(whole) - size))
        result = run("journal", path)
        assert result.exit_code == 0, verdict(result)
        seen.add(len(result.stdout.splitlines()) > 1)
    assert seen == {True, False}


def test_a_half_written_last_record_of_a_bookie_is_information(tmp_path: Path) -> None:
    data = bookie_journal(GROUPS[:1], version=4)
    path = written(tmp_path, data[:-20] + bytes(4096))
    result = run("journal", path)
    assert (result.exit_code, "torn tail" in verdict(result)) == (0, True)


def test_a_journal_of_zeros_was_never_written(tmp_path: Path) -> None:
    result = run("journal", written(tmp_path, bytes(4096)))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "never written" in verdict(result)


def test_a_damaged_header_is_a_finding_and_the_groups_are_still_listed(tmp_path: Path) -> None:
    path = written(tmp_path, flipped(our_journal(GROUPS), 20))
    listed = rows("journal", path)
    assert (listed[0]["kind"], listed[0]["flaw"], len(listed)) == ("damage", "CHECKSUM", 10)
    assert run("journal", path).exit_code == 1


def test_a_group_out_of_sequence_is_a_finding(tmp_path: Path) -> None:
    path = written(tmp_path, our_journal(GROUPS, sequences=(1, 5, 6)))
    assert [(row["offset"], row["flaw"]) for row in rows("journal", path) if row["ok"] is False] == [
        (1184, "SEAL_ORDER")
    ]
    assert run("journal", path).exit_code == 1


def test_a_first_group_without_the_first_sequence_number_is_a_finding(tmp_path: Path) -> None:
    path = written(tmp_path, our_journal(GROUPS, sequences=(2, 3, 4)))
    assert [row["flaw"] for row in rows("journal", path) if row["ok"] is False] == ["SEAL_ORDER"]
    assert run("journal", path).exit_code == 1


def test_a_listing_from_the_middle_of_a_group_finds_no_damage(journal: Path) -> None:
    for offset in range(512, 2048, 64):
        result = run("journal", journal, "--offset", f"{offset}..", "--all")
        assert (result.exit_code, "ends cleanly at 2048" in verdict(result)) == (0, True), offset


def test_a_group_copied_from_another_offset_is_a_finding(tmp_path: Path) -> None:
    elsewhere = our_journal([GROUPS[0], [], GROUPS[1]])
    path = written(tmp_path, our_journal(GROUPS)[:1024] + elsewhere[1536:] + our_journal(GROUPS)[1536:])
    assert [row["flaw"] for row in rows("journal", path) if row["ok"] is False] == ["OTHER_PLACE"]
    assert run("journal", path).exit_code == 1


def test_the_groups_of_a_renamed_journal_are_still_proven(tmp_path: Path) -> None:
    path = tmp_path / "evidence.bin"
    path.write_bytes(our_journal(GROUPS))
    assert run("journal", path).exit_code == 0
    assert all(row["ok"] for row in rows("journal", path, "--all"))


def test_an_id_is_found_from_the_root_and_from_its_directory(tmp_path: Path) -> None:
    current = tmp_path / "journal" / "current"
    current.mkdir(parents=True)
    written(current, our_journal(GROUPS))
    for directory in (tmp_path, tmp_path / "journal", current):
        assert len(rows("journal", f"{JOURNAL_ID:x}", "--dir", directory)) == 9


def test_the_golden_journal_is_listed_as_it_was_written() -> None:
    listed = rows("journal", fixtures.GOLDEN / "journal-logical.bin", "--all")
    assert [(row["offset"], row["kind"]) for row in listed] == [
        (512, "ledger-key"),
        (556, "entry"),
        (601, "padding"),
        (1024, "entry"),
        (1532, "padding"),
        (2048, "entry"),
        (2552, "padding"),
        (2560, "fence"),
        (2580, "padding"),
        (3072, "explicit-lac"),
        (3116, "padding"),
    ]


@pytest.mark.parametrize("name", fixtures.SETS)
def test_every_journal_of_a_real_bookie_is_clean(name: str) -> None:
    for path in fixtures.journals(name):
        result = run("journal", path)
        assert result.exit_code == 0
        assert "ends cleanly" in verdict(result)


def test_records_of_a_real_bookie_equal_those_its_own_reader_lists() -> None:
    path = fixtures.journals("04a_fence_lac_crash")[0]
    theirs = [
        line for line in fixtures.dump("04a_fence_lac_crash", "journal.journal") if line["kind"] == "journal"
    ]
    names = {"master_key": "ledger-key", "explicit_lac": "explicit-lac"}
    assert [(row["offset"], row["kind"], row["ledger"]) for row in rows("journal", path)] == [
        (line["offset"], names.get(line["type"], line["type"]), line["ledger"]) for line in theirs
    ]

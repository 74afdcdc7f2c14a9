"""`ledgerstore ledgers`, `ledger` and `read`: the contents of a store, its journals included."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import fixtures
import pytest
from shell_samples import flipped, rows, run, verdict

from recovery import open_store
from storage.entry.model import Entry

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "secret"


WRITER = """
import os, signal, sys
from recovery import open_store
from storage.entry.model import DigestType, Entry

store = open_store(sys.argv[1])
ledger = store.ledger(7)
ledger.append_many([b"payload %d" % number for number in range(5)])
ledger.set_explicit_lac(3)
guarded = store.ledger(8, digest=DigestType.MAC, password=b"secret")
guarded.append(b"guarded 0")
store.ledger(9).append(b"of the deleted one")
store.ledger(9).delete()
store.checkpoint()
ledger.append_many([b"later %d" % number for number in range(3)])
store.add(Entry(7, 12, 7, 200, b"placed"))
store.ledger(9).append(b"of the next one")
store.ledger(10).fence()
guarded.append(b"guarded 1")
guarded.fence()
store.ledger(11).append(b"gone")
store.ledger(11).delete()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process was killed: some entries are checkpointed, others only in the journal."""
    root = tmp_path_factory.mktemp("killed") / "store"
    done = subprocess.run([sys.executable, "-c", WRITER, str(root)], check=False)
    assert done.returncode == -signal.SIGKILL
    return root


@pytest.fixture
def root(killed: Path, tmp_path: Path) -> Path:
    """A copy of the store, for tests that damage it."""
    return shutil.copytree(killed, tmp_path / "copy")


def log_of(root: Path) -> Path:
    return root / "ledgers" / "current" / "0.log"


# ── ledgers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_each_ledger_has_a_row(killed: Path) -> None:
    listed = {row["ledger"]: row for row in rows("ledgers", killed)}
    assert list(listed) == [7, 8, 9, 10]
    seven = listed[7]
    assert (seven["entries"], seven["first"], seven["last"], seven["bytes"]) == (9, 0, 12, 200)
    assert (seven["lac"], seven["explicit_lac"], seven["digest_type"]) == (7, 3, "CRC32C")
    assert (seven["fenced"], seven["proven"], seven["known_by"]) == (False, True, "declared")
    assert [listed[one]["in"] for one in (7, 8, 9, 10)] == ["both", "both", "journal", None]
    assert [listed[one]["fenced"] for one in (7, 8, 9, 10)] == [False, True, False, True]
    assert (listed[8]["digest_type"], listed[8]["lac"]) == ("MAC", 0)
    assert (listed[10]["entries"], listed[10]["last"], listed[10]["bytes"]) == (0, None, 0)


def test_the_verdict_counts_what_was_listed(killed: Path) -> None:
    result = run("ledgers", killed)
    assert (result.exit_code, verdict(result)) == (0, "ledgers: 4 ledgers, 12 entries, 233 bytes")


def test_the_table_shows_what_json_says(killed: Path) -> None:
    heading, *lines = run("ledgers", killed).stdout.splitlines()
    assert heading.split()[:5] == ["ledger", "entries", "first", "last", "bytes"]
    assert lines[0].split() == ["7", "9", "0", "12", "200", "7", "3", "CRC32C", "no", "yes", "both"]
    assert lines[3].split() == ["10", "0", "-", "-", "0", "-", "-", "CRC32C", "yes", "yes", "-"]


@pytest.mark.parametrize("command", [("ledgers",), ("ledger", "7"), ("read", "7")], ids=lambda one: one[0])
def test_all_forms_have_the_same_rows(killed: Path, command: tuple[str, ...]) -> None:
    listed = rows(*command, killed)
    lines = run(*command, killed, "--ndjson").stdout.splitlines()
    assert [json.loads(line) for line in lines] == listed
    assert len(run(*command, killed).stdout.splitlines()) == 1 + len(listed)


@pytest.mark.parametrize("command", [("ledgers",), ("ledger", "9"), ("read", "7")], ids=lambda one: one[0])
def test_rows_have_the_same_keys_in_the_same_order(killed: Path, command: tuple[str, ...]) -> None:
    listed = rows(*command, killed)
    shared = [key for key in listed[0] if all(key in row for row in listed)]
    assert {tuple(key for key in row if key in shared) for row in listed} == {tuple(shared)}
    assert {*run(*command, killed).stdout.split("\n")[0].split()} <= {*shared}


def test_bookie_shell_s_names_work(killed: Path) -> None:
    assert rows("listledgers", killed) == rows("ledgers", killed)
    assert rows("readledger", "7", killed) == rows("read", "7", killed)


def test_a_ledger_whose_last_entry_is_unreadable_is_a_finding(root: Path) -> None:
    with open_store(root):
        pass
    log = root / "ledgers" / "current" / "1.log"
    log.write_bytes(log.read_bytes().replace(b"of the next one", b"of the next two"))
    [nine] = [row for row in rows("ledgers", root) if row["ledger"] == 9]
    assert (nine["flaw"], nine["bytes"], nine["last"]) == ("UNREADABLE", None, 0)
    assert "entry 0 of ledger 9 is unreadable at 1.log@" in nine["detail"]
    result = run("ledgers", root)
    assert (result.exit_code, "the last entry of 1 UNREADABLE" in verdict(result)) == (1, True)
    assert run("ledger", "9", root).exit_code == 1
    assert run("ledger", "7", root).exit_code == 0


def test_a_missing_index_is_rebuilt_in_memory_and_reported(root: Path) -> None:
    expected = rows("ledgers", root)
    shutil.rmtree(root / "ledgers" / "current" / "index")
    assert rows("ledgers", root) == expected
    assert "it was rebuilt in memory" in run("ledgers", root).stderr
    assert not (root / "ledgers" / "current" / "index").exists()


def test_damage_that_prevents_opening_is_a_finding(root: Path) -> None:
    [journal] = (root / "journal" / "current").glob("*.txn")
    data = journal.read_bytes()
    place = data.index(b"later 0")
    journal.write_bytes(flipped(data, place))
    for command in (("ledgers",), ("ledger", "7"), ("read", "7")):
        result = run(*command, root)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "JRN-003 1.txn@" in result.stderr


def test_a_lost_log_is_reported_and_the_rest_is_listed(root: Path) -> None:
    log_of(root).unlink()
    result = run("ledgers", root)
    assert result.exit_code == 1
    assert "ELG-005 0.log@0: missing" in result.stderr
    assert len(result.stdout.splitlines()) == 5


@pytest.mark.parametrize("command", [("ledgers",), ("ledger", "7"), ("read", "7")], ids=lambda one: one[0])
def test_a_directory_without_a_store_ends_with_exit_code_3(tmp_path: Path, command: tuple[str, ...]) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        result = run(*command, path)
        assert (result.exit_code, result.stdout) == (3, "")
        assert "is not a store" in result.stderr


def test_a_bookie_s_ledgers_are_listed() -> None:
    root = fixtures.bookie("08_digests") / "bookie"
    listed = {row["ledger"]: row for row in rows("ledgers", root)}
    for ledger in fixtures.manifest("08_digests")["ledgers"]:
        row = listed[ledger["ledger"]]
        assert row["digest_type"] == ledger["digest_type"]
        assert row["entries"] == len(ledger["entries"])
        assert row["bytes"] == ledger["entries"][-1]["length"]
        assert row["explicit_lac"] == ledger["explicit_lac"]
        assert row["known_by"] == "inferred"


# ── ledger ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ledger_is_listed_with_its_ranges_and_places(killed: Path) -> None:
    listed = rows("ledger", "7", killed)
    assert [row["kind"] for row in listed] == ["ledger", "range", "range", "journal", "log", "newest"]
    ledger, first, second, journal, log, newest = listed
    assert [(row["first"], row["last"], row["entries"]) for row in (first, second)] == [
        (0, 7, 8),
        (12, 12, 1),
    ]
    assert (journal["where"], journal["first"], journal["last"], journal["entries"]) == ("1.txn", 5, 12, 4)
    assert (log["where"], log["entries"], log["bytes"]) == ("0.log", 5, 5 * (4 + 32 + 4 + 9))
    assert (newest["where"], newest["last"]) == ("1.txn", 12)
    assert ledger["detail"] == "CRC32C (declared), key proven, open, lac 7, explicit_lac 3"


def test_the_listed_place_of_an_entry_can_be_passed_to_explain(root: Path) -> None:
    with open_store(root):
        pass
    [newest] = [row for row in rows("ledger", "7", root) if row["kind"] == "newest"]
    name, _, offset = newest["where"].partition("@")
    [row] = rows("log", root / "ledgers" / "current" / name, "--offset", offset)
    assert (row["ledger"], row["entry"]) == (7, 12)


def test_the_tombstone_of_an_earlier_ledger_is_listed(killed: Path) -> None:
    [tombstone] = [row for row in rows("ledger", "9", killed) if row["kind"] == "tombstone"]
    assert tombstone["where"].startswith("1.txn@")
    assert "an earlier ledger of this id was deleted" in tombstone["detail"]


def test_only_the_first_ranges_of_a_ledger_with_many_gaps_are_listed(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        for entry_id in range(0, 50, 2):
            store.add(Entry(1, entry_id, -1, entry_id, b"x"))
    kinds = [row["kind"] for row in rows("ledger", "1", tmp_path / "store")]
    assert (kinds.count("range"), kinds.count("more")) == (20, 1)
    [more] = [row for row in rows("ledger", "1", tmp_path / "store") if row["kind"] == "more"]
    assert (more["first"], more["last"], more["entries"]) == (40, 48, 5)
    assert "5 more ranges" in more["detail"]
    kinds = [row["kind"] for row in rows("ledger", "1", tmp_path / "store", "--all")]
    assert (kinds.count("range"), kinds.count("more")) == (25, 0)


@pytest.mark.parametrize(
    ("ledger_id", "words"), [(5, "there is no ledger 5 in"), (11, "it was deleted")], ids=["never", "deleted"]
)
def test_a_missing_ledger_ends_with_exit_code_3(killed: Path, ledger_id: int, words: str) -> None:
    for command in ("ledger", "read"):
        result = run(command, ledger_id, killed)
        assert (result.exit_code, result.stdout) == (3, "")
        assert words in verdict(result)


# ── read ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_entries_are_read_from_logs_and_journals_and_gaps_are_listed(killed: Path) -> None:
    listed = rows("read", "7", killed, "--payload", "text")
    assert [row["entry"] for row in listed] == [*range(9), 12]
    assert [row["payload"] for row in listed if row["kind"] == "entry"] == [
        *(f"payload {number}" for number in range(5)),
        *(f"later {number}" for number in range(3)),
        "placed",
    ]
    assert all(row["ok"] for row in listed if row["kind"] == "entry")
    gap = listed[8]
    assert (gap["kind"], gap["entry"], gap["last"]) == ("gap", 8, 11)
    assert gap["detail"] == "entries 8 to 11 are missing"
    assert [row["where"] for row in listed[4:6]] == ["0.log@4292", "journal"]
    assert listed[0]["size"] == 4 + 32 + 4 + 9
    result = run("read", "7", killed)
    assert (result.exit_code, verdict(result)) == (0, "read 7: 9 entries, 9 verified, 1 gap of 4 ids")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--from", "3", "--to", "5"), [("entry", 3), ("entry", 4), ("entry", 5)]),
        (("--from", "9", "--to", "10"), [("gap", 9)]),
        (("--from", "12", "--to", "0xf"), [("entry", 12), ("gap", 13)]),
        (("--from", "13"), []),
        (("--to", "1", "--limit", "1"), [("entry", 0)]),
    ],
    ids=["entries", "a gap", "beyond the end", "behind the end", "limit"],
)
def test_a_range_of_entries_can_be_read(
    killed: Path, options: tuple[str, ...], expected: list[tuple[str, int]]
) -> None:
    assert [(row["kind"], row["entry"]) for row in rows("read", "7", killed, *options)] == expected


def test_an_entry_whose_digest_is_wrong_is_a_finding(root: Path) -> None:
    log = log_of(root)
    log.write_bytes(log.read_bytes().replace(b"payload 3", b"payload X"))
    listed = rows("read", "7", root)
    assert [row["ok"] for row in listed[:5]] == [True, True, True, False, True]
    assert listed[3]["flaw"] == "DIGEST"
    result = run("read", "7", root)
    assert (result.exit_code, "8 verified, 1 UNREADABLE" in verdict(result)) == (1, True)
    assert run("read", "7", root, "--to", "2").exit_code == 0


def test_an_entry_that_is_not_at_its_place_is_a_finding(root: Path) -> None:
    log = log_of(root)
    log.write_bytes(log.read_bytes()[: 4292 + 10])
    listed = rows("read", "7", root)
    assert [row["flaw"] for row in listed[3:6]] == [None, "UNREADABLE", None]
    assert "entry 4 of ledger 7 is unreadable at 0.log@4292" in listed[4]["detail"]
    assert run("read", "7", root).exit_code == 1


def test_a_mac_is_verified_with_the_ledger_s_password(killed: Path) -> None:
    result = run("read", "8", killed, "--password", PASSWORD)
    assert (result.exit_code, verdict(result)) == (0, "read 8: 2 entries, 2 verified")
    result = run("read", "8", killed)
    assert (result.exit_code, verdict(result)) == (0, "read 8: 2 entries, 0 verified, 2 unverified")
    result = run("read", "8", killed, "--password", "wrong")
    assert (result.exit_code, verdict(result)) == (1, "read 8: 2 entries, 0 verified, 2 unverified")
    assert "the key of the ledger is that of another password" in result.stderr
    assert [row["ok"] for row in rows("read", "8", killed, "--password", "8=wrong")] == [None, None]


def test_without_a_ledger_key_the_entries_prove_a_password(tmp_path: Path) -> None:
    root = tmp_path / "bookie"
    shutil.copytree(fixtures.bookie("08_digests") / "bookie", root)
    [mac, *_] = [
        ledger for ledger in fixtures.manifest("08_digests")["ledgers"] if ledger["digest_type"] == "MAC"
    ]
    for journal in (root / "journal" / "current").glob("*.txn"):
        journal.unlink()
    (root / "ledgers" / "current" / "lastMark").unlink()
    [row] = [row for row in rows("ledgers", root) if row["ledger"] == mac["ledger"]]
    assert row["proven"] is False
    result = run("read", mac["ledger"], root, "--password", mac["password"])
    assert (result.exit_code, " 0 verified" in verdict(result)) == (0, False)
    result = run("read", mac["ledger"], root, "--password", "wrong")
    assert (result.exit_code, " 0 verified" in verdict(result)) == (1, True)
    assert "none of its first entries verifies with it" in result.stderr


def test_raw_is_the_payload_and_nothing_else(killed: Path) -> None:
    for entry_id, payload in ((3, b"payload 3"), (12, b"placed")):
        result = run("read", "7", killed, "--from", entry_id, "--raw")
        assert (result.exit_code, result.stdout_bytes) == (0, payload)
        assert verdict(result) == f"read 7: entry {entry_id}, verified"
    assert run("read", "8", killed, "--from", "1", "--raw").stdout_bytes == b"guarded 1"
    assert verdict(run("read", "8", killed, "--from", "1", "--raw")) == "read 8: entry 1, not verified"


def test_a_damaged_entry_read_raw_is_a_finding_and_a_missing_one_an_error(root: Path) -> None:
    log = log_of(root)
    log.write_bytes(log.read_bytes().replace(b"payload 3", b"payload X"))
    result = run("read", "7", root, "--from", "3", "--raw")
    assert (result.exit_code, result.stdout_bytes) == (1, b"payload X")
    assert verdict(result) == "read 7: entry 3, its digest is wrong"
    result = run("read", "7", root, "--from", "9", "--raw")
    assert (result.exit_code, result.stdout_bytes) == (3, b"")
    log.unlink()
    result = run("read", "7", root, "--from", "3", "--raw")
    assert (result.exit_code, result.stdout_bytes) == (1, b"")


@pytest.mark.parametrize(
    "options",
    [
        ("--raw",),
        ("--raw", "--from", "1", "--to", "2"),
        ("--raw", "--from", "1", "--json"),
        ("--from", "3", "--to", "2"),
        ("--from", "-1"),
        ("--payload", "morse"),
    ],
    ids=" ".join,
)
def test_bad_usage(killed: Path, options: tuple[str, ...]) -> None:
    assert run("read", "7", killed, *options).exit_code == 2
    assert run("ledger", "seven", killed).exit_code == 2

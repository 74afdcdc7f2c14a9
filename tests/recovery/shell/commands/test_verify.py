"""`ledgerstore verify`: findings with their places, unverified entries, and exit codes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import bookie_indexes
import fixtures
import pytest
from shell_samples import rows, run, verdict

from recovery import open_store
from storage.config import StoreConfig
from storage.entry.model import DigestType

CONFIG = StoreConfig(
    memtable_size_max=1 << 20,
    journal_size=1 << 18,
    group_size_max=1 << 16,
    entry_size_max=1 << 15,
    index_size_max=1 << 24,
    checkpoint_interval_s=None,
)
COMMAND = [sys.executable, "-c", "from recovery.shell.main import main; main()"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with two ledgers, and with a journal after the last checkpoint."""
    root = tmp_path_factory.mktemp("made") / "store"
    with open_store(root, CONFIG) as store:
        for ledger_id in (7, 8):
            store.ledger(ledger_id).append_many([b"%02d" % number * 20 for number in range(50)])
            store.ledger(ledger_id).set_explicit_lac(3)
        store.checkpoint()
        store.ledger(7).append_many([b"later"] * 5)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of the store, for tests that damage it."""
    return shutil.copytree(made, tmp_path / "copy")


def log_of(root: Path) -> Path:
    return root / "ledgers" / "current" / "0.log"


def journals_of(root: Path) -> list[Path]:
    return sorted((root / "journal" / "current").glob("*.txn"))


def flip(path: Path, offset: int) -> int:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)
    return offset


def flip_payload(path: Path) -> int:
    """Flip a bit in the payload of an entry in the middle of the log. Return its offset."""
    return flip(path, path.read_bytes().index(b"30" * 20) + 11)


# ── a store ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sound_store_is_clean_and_the_verdict_comes_last(made: Path) -> None:
    done = run("verify", made)
    assert done.exit_code == 0, done.output
    assert re.fullmatch(r"verify: sound, \d+ files \([\d.]+ \w+, [\d.]+ s\)", verdict(done))
    assert [row for row in rows("verify", made) if row["severity"] != "information"] == []


def test_a_flipped_bit_is_listed_with_its_record_and_the_command_that_shows_it(root: Path) -> None:
    at = flip_payload(log_of(root))
    done = run("verify", root)
    assert done.exit_code == 1
    assert re.match(r"verify: 1 error in \d+ files \(", verdict(done))
    [row] = [row for row in rows("verify", root) if row["severity"] == "error"]
    assert (row["kind"], row["file"], row["first_entry"]) == ("ELG-003", "0.log", row["last_entry"])
    assert row["offset"] <= at < row["end"]
    shown = run(*str(row["look"]).split()[1:])
    assert shown.exit_code == 1
    assert f"@{row['offset']}" in verdict(shown)
    assert "digest of an entry" in done.stdout


def test_json_has_the_rows_of_the_table_without_their_tone(root: Path) -> None:
    flip_payload(log_of(root))
    as_json = rows("verify", root)
    as_lines = [json.loads(line) for line in run("verify", root, "--ndjson").stdout.splitlines()]
    assert as_json == as_lines
    assert set(as_json[0]) >= {
        "severity",
        "kind",
        "file",
        "offset",
        "end",
        "ledger",
        "count",
        "detail",
        "look",
    }
    assert "tone" not in as_json[0]
    heading, *lines = run("verify", root).stdout.splitlines()
    assert set(heading.split()) <= set(as_json[0])
    assert len(lines) == len(as_json)


def test_less_severe_findings_can_be_hidden_and_are_still_counted(root: Path) -> None:
    flip_payload(log_of(root))
    (root / "ledgers" / "current" / "notes.txt").write_text("?")
    everything = rows("verify", root)
    assert {row["severity"] for row in everything} == {"error", "information"}
    assert {row["severity"] for row in rows("verify", root, "--severity", "warning")} == {"error"}
    assert run("verify", root, "--severity", "error").exit_code == 1


def test_information_alone_leaves_the_exit_code_at_0(root: Path) -> None:
    (root / "ledgers" / "current" / "notes.txt").write_text("?")
    done = run("verify", root)
    assert done.exit_code == 0
    assert "unknown file" in done.stdout


def test_unverified_entries_are_never_called_sound(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        store.ledger(1, DigestType.DUMMY).append_many([b"unprotected"] * 3)
        store.ledger(2, DigestType.MAC, b"secret").append_many([b"signed"] * 4)
    done = run("verify", tmp_path / "store")
    assert done.exit_code == 0
    assert "UNVERIFIED: 7 entries of 2 ledgers" in verdict(done)
    known = run("verify", tmp_path / "store", "--password", "2=secret")
    assert "UNVERIFIED: 3 entries of 1 ledger" in verdict(known)


def test_a_wrong_password_makes_no_entry_look_damaged(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        store.ledger(2, DigestType.MAC, b"secret").append_many([b"signed"] * 4)
    done = run("verify", tmp_path / "store", "--password", "2=another")
    assert (done.exit_code, "-003" in done.stdout) == (1, False)
    assert "ledger 2: wrong password: no entry verifies with it" in done.stderr
    assert "UNVERIFIED: 4 entries of 1 ledger; WRONG PASSWORD of 1 ledger" in verdict(done)
    assert not verdict(done).startswith("verify: sound")
    assert "the password that was given is wrong" in done.stdout


def test_with_a_proven_password_damage_is_still_reported(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        store.ledger(2, DigestType.MAC, b"secret").append(b"signed, and alone")
    flip(log_of(tmp_path / "store"), log_of(tmp_path / "store").read_bytes().index(b"signed"))
    found = rows("verify", tmp_path / "store", "--password", "secret")
    assert "ELG-003" in {row["kind"] for row in found}


def test_a_password_for_all_ledgers_may_fit_only_some_of_them(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        for ledger_id, password in ((2, b"secret"), (3, b"another")):
            store.ledger(ledger_id, DigestType.MAC, password).append_many([b"signed"] * 4)
    done = run("verify", tmp_path / "store", "--password", "secret")
    assert "UNVERIFIED: 4 entries of 1 ledger; WRONG PASSWORD of 1 ledger" in verdict(done)
    assert "ledger 3: wrong password" in done.stderr


@pytest.mark.slow
def test_a_store_that_another_process_has_open_is_verified(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        store.ledger(1).append_many([b"entry"] * 100)
        store.checkpoint()
        store.ledger(1).append_many([b"entry"] * 100)
        done = subprocess.run(
            [*COMMAND, "verify", str(tmp_path / "store")],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert store.ledger(1).append(b"goes on") == 200
    assert done.returncode == 0, done.stdout + done.stderr


def test_verify_writes_nothing_to_the_store(root: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        found = [path for path in sorted(root.rglob("*")) if path.is_file()]
        return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in found]

    before = state()
    run("verify", root)
    assert state() == before


@pytest.mark.parametrize("name", ["01_clean", "04a_fence_lac_crash"])
def test_a_bookie_directory_is_verified_except_for_its_index(name: str) -> None:
    done = run("verify", fixtures.bookie(name) / "bookie", *_passwords(name))
    assert done.exit_code == 0, done.output
    assert "not covered: the index" in done.stderr
    assert "not covered: 1" in verdict(done)


def _passwords(name: str) -> list[str]:
    return [f"--password={ledger}={text.decode()}" for ledger, text in fixtures.passwords(name).items()]


def test_the_name_of_bookie_shell_works_for_verify(made: Path) -> None:
    assert run("localconsistencycheck", made).exit_code == 0


# ── one file ─────────────────────────────────────────────────────────────────────────────────────────────


def files_of(root: Path) -> list[Path]:
    return [
        log_of(root),
        *journals_of(root),
        root / "ledgers/current/lastMark",
        root / "ledgers/current/ledgers.rows",
        root / "ledgers/current/VERSION",
    ]


def test_each_file_of_a_sound_store_is_sound_alone(made: Path) -> None:
    for path in files_of(made):
        done = run("verify", path)
        assert done.exit_code == 0, (path, done.output)
        assert verdict(done).startswith("verify: sound, 1 file (")


@pytest.mark.parametrize(
    ("name", "offset", "kind"),
    [
        ("ledgers/current/0.log", 40, "ELG-001"),
        ("ledgers/current/lastMark", 20, "MRK-001"),
        ("ledgers/current/ledgers.rows", 10, "LGR-002"),
        ("ledgers/current/VERSION", 1, "CKE-001"),
    ],
)
def test_damage_in_one_file_is_reported(root: Path, name: str, offset: int, kind: str) -> None:
    flip(root / name, offset)
    done = run("verify", root / name)
    assert done.exit_code == 1, done.output
    [row] = [row for row in rows("verify", root / name) if row["severity"] == "error"]
    assert (row["kind"], row["file"]) == (kind, Path(name).name)


def test_a_journal_alone_is_verified(root: Path) -> None:
    journal = next(path for path in journals_of(root) if b"later" in path.read_bytes())
    flip(journal, 4096 + 200)
    done = run("verify", journal)
    assert done.exit_code == 1, done.output
    assert {row["kind"] for row in rows("verify", journal)} & {"JRN-003", "JRN-004"}


def test_a_copy_under_another_name_is_recognised_by_its_first_bytes(root: Path) -> None:
    copy = root / "copy of a log"
    shutil.copy(log_of(root), copy)
    flip_payload(copy)
    [row] = [row for row in rows("verify", copy) if row["severity"] == "error"]
    assert (row["kind"], row["file"]) == ("ELG-003", "copy of a log")
    assert f" {root}" in str(row["look"])
    assert run("explain", f"{copy}@{row['offset']}").exit_code == 1


def test_a_bookie_s_files_are_sound_alone() -> None:
    for path in (*fixtures.entry_logs("01_clean"), *fixtures.journals("01_clean")):
        done = run("verify", path, *_passwords("01_clean"))
        assert done.exit_code == 0, (path, done.output)


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["nothing", "empty", "text"])
def test_a_path_that_is_no_store_ends_with_exit_code_3(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "empty":
        path.mkdir()
    elif what == "text":
        path.write_text("hello")
    done = run("verify", path)
    assert (done.exit_code, done.stdout) == (3, "")
    assert verdict(done).startswith("ledgerstore: ")


@pytest.mark.parametrize("arguments", [("--jobs", "0"), ("--severity", "loud"), ("a", "b")], ids=" ".join)
def test_bad_usage(arguments: tuple[str, ...]) -> None:
    assert run("verify", *arguments).exit_code == 2


def test_an_interrupt_ends_with_130_and_without_a_traceback(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recovery.audit.pipeline.password_check.run_audit", interrupt)
    done = run("verify", made)
    assert (done.exit_code, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr


def test_the_directories_of_a_bookie_are_named_by_its_configuration(tmp_path: Path) -> None:
    made = bookie_indexes.bookie_with_index("01_clean", tmp_path / "bookie")
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectories={made}/journal\nledgerDirectories={made}/ledgers\n")
    assert verdict(run("verify", "--conf", conf)).startswith("verify: sound")
    by_directory = run("verify", "--journal-dir", f"{made}/journal", "--ledger-dir", f"{made}/ledgers")
    assert by_directory.exit_code == 0
    (made / "ledgers/current/3.log").unlink()
    lost = run("verify", "--conf", conf)
    assert (lost.exit_code, "ELG-005" in lost.stdout) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ledger-dir", "/l"), "--journal-dir and --ledger-dir need each other"),
        (("--conf", "/no/file"), "/no/file: No such file"),
        (("--journal-dir", "/no", "--ledger-dir", "/l"), "/no: no directory of a bookie"),
        (("s3a://bucket/bookie",), "s3a://bucket/bookie: only files of a file system can be read"),
    ],
)
def test_directories_that_cannot_be_read_are_refused_with_one_sentence(
    arguments: tuple[str, ...], message: str
) -> None:
    done = run("verify", *arguments)
    assert done.exit_code in {2, 3}
    assert message in done.stderr

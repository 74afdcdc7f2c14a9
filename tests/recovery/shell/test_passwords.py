"""MAC ledgers are verified with the right password, and are not called damaged with a wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import pytest
from shell_samples import (
    JOURNAL_ID,
    bookie_journal,
    entry,
    entry_log,
    flipped,
    ledger,
    mac_records,
    our_journal,
    records,
    rows,
    run,
    verdict,
)

from recovery.shell.passwords import parse
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from pathlib import Path

MAC = mac_records(8, 3, b"secret")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / f"{JOURNAL_ID:x}.txn"
    path.write_bytes(our_journal([records(ledger(7, 2)), MAC]))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_bytes(entry_log(entry(8, entry_id, DigestType.MAC, b"secret") for entry_id in range(3)))
    return path


def test_without_a_password_a_mac_is_unverified_and_no_finding(journal: Path) -> None:
    result = run("journal", journal)
    assert result.exit_code == 0
    assert "2 verified, 3 unverified" in verdict(result)
    assert [row["ok"] for row in rows("journal", journal, "--ledger", "8")] == [None] * 4
    assert result.stdout.splitlines()[-1].split()[-1] == "?"


@pytest.mark.parametrize("given", ["secret", "8=secret"])
def test_with_its_password_a_mac_is_verified(journal: Path, given: str) -> None:
    assert [row["ok"] for row in rows("journal", journal, "--password", given)] == [True] * 6
    assert "5 entries, 5 verified" in verdict(run("journal", journal, "--password", given))


def test_a_password_for_another_ledger_is_not_used(journal: Path) -> None:
    result = run("journal", journal, "--password", "9=secret")
    assert (result.exit_code, "3 unverified" in verdict(result)) == (0, True)


def test_a_password_that_contradicts_the_ledger_key_is_reported_once_and_not_used(journal: Path) -> None:
    result = run("journal", journal, "--password", "wrong")
    assert result.stderr.count("wrong password") == 1
    assert "the ledger key at offset 1024 is that of another password" in result.stderr
    assert "BAD" not in result.stdout
    assert result.exit_code == 1


def test_with_the_right_password_a_damaged_entry_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    data = bookie_journal([MAC, records(ledger(7, 1))])
    path.write_bytes(flipped(data, data.index(b"ledger 8 entry 1")))
    assert [row["ok"] for row in rows("journal", path, "--password", "secret")] == [
        True,
        True,
        False,
        True,
        True,
    ]


def test_in_a_log_without_ledger_keys_entries_prove_a_password(log: Path) -> None:
    assert [row["ok"] for row in rows("log", log, "--password", "secret")] == [True] * 3
    result = run("log", log, "--password", "wrong")
    assert "no entry of this file verifies with it" in result.stderr
    assert (result.exit_code, "BAD" in result.stdout) == (1, False)


def test_passwords_can_be_read_from_a_file(journal: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("7=other\n8=secret\n")
    assert "5 verified" in verdict(run("journal", journal, "--password-file", secrets))
    assert run("journal", journal, "--password-file", tmp_path / "none").exit_code == 3


def test_the_later_of_two_passwords_for_a_ledger_is_used() -> None:
    passwords = parse(["all", "5=first", "5=second=with sign", "x=7"])
    assert passwords.of(5) == b"second=with sign"
    assert passwords.of(6) == b"x=7"


def test_a_real_bookie_s_mac_ledger_is_verified() -> None:
    path = fixtures.journals("08_digests")[0]
    macs = [row for row in fixtures.manifest("08_digests")["ledgers"] if row["digest_type"] == "MAC"]
    given = [option for row in macs for option in ("--password", f"{row['ledger']}={row['password']}")]
    listed = [
        row for row in rows("journal", path, *given) if row["digest_type"] == "MAC" and row["kind"] == "entry"
    ]
    assert listed
    assert all(row["ok"] for row in listed)

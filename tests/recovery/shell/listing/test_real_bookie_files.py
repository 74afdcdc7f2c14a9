"""The listings of directories that real bookies have written equal those of BookKeeper's own readers."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import fixtures
import pytest
from click.testing import CliRunner

from recovery.shell.main import cli

KINDS = {"entry": "entry", "ledger-key": "master_key", "fence": "fence", "explicit-lac": "explicit_lac"}
SPECIAL_IDS = {"ledger-key": -0x1000, "fence": -0x2000, "explicit-lac": -0x8000}


def listed(*arguments: object) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*map(str, arguments), "--ndjson"])
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def passwords(name: str) -> list[str]:
    return [
        argument
        for ledger, password in fixtures.passwords(name).items()
        for argument in ("--password", f"{ledger}={password.decode()}")
    ]


def in_their_words(row: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of a row that the dumps of the real reader have too, under the keys of the dumps."""
    cells = {
        "offset": row["offset"],
        "ledger": row["ledger"],
        "entry": SPECIAL_IDS.get(row["kind"], row["entry"]),
        "len": row["size"] - 4,
        "lac": row["lac"],
        "length": row["length"],
    }
    if row["kind"] == "entry" and row["digest_type"] != "DUMMY":
        payload = bytes.fromhex(row["payload"])
        cells |= {"digest_type": row["digest_type"], "digest": row["digest"]}
        cells |= {"payload_len": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    return {key: value for key, value in cells.items() if value is not None}


def common(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of the dumps without the cells that only the real reader has."""
    keys = (
        "offset",
        "ledger",
        "entry",
        "len",
        "lac",
        "length",
        "digest_type",
        "digest",
        "payload_len",
        "sha256",
    )
    return {key: line[key] for key in keys if line.get(key) is not None}


@pytest.mark.parametrize("name", fixtures.SETS)
def test_journal_lists_what_the_real_reader_lists(name: str) -> None:
    rows = [
        row
        for path in fixtures.journals(name)
        for row in listed("journal", path, "--payload", "hex", *passwords(name))
    ]
    theirs = [line for line in fixtures.dump(name, "journal.journal") if line["kind"] == "journal"]
    assert [in_their_words(row) for row in rows] == [common(line) for line in theirs]
    assert [KINDS[row["kind"]] for row in rows] == [line["type"] for line in theirs]
    verifiable = [row for row in rows if row["kind"] == "entry" and row["digest_type"] != "DUMMY"]
    assert verifiable
    assert all(row["ok"] is True for row in verifiable)


@pytest.mark.parametrize("name", fixtures.SETS)
def test_log_lists_what_the_real_reader_lists(name: str) -> None:
    rows = [
        row
        for path in fixtures.entry_logs(name)
        for row in listed("log", path, "--payload", "hex", *passwords(name))
    ]
    theirs = [line for line in fixtures.dump(name, "entrylog.ledgers") if line["kind"] == "entry"]
    assert [in_their_words(row) for row in rows] == [common(line) for line in theirs]
    assert all(row["ok"] is True for row in rows if row["digest_type"] != "DUMMY")


@pytest.mark.parametrize("name", fixtures.SETS)
def test_log_metadata_equals_the_map_that_the_real_reader_prints(name: str) -> None:
    headers = [line for line in fixtures.dump(name, "entrylog.ledgers") if line["kind"] == "entrylog"]
    for path, header in zip(fixtures.entry_logs(name), headers, strict=True):
        rows = [row for row in listed("log", "--metadata", path) if row["kind"] == "ledger"]
        if header["ledgers_map"] is not None:
            assert {str(row["ledger"]): row["bytes"] for row in rows} == header["ledgers_map"]
            assert {row["source"] for row in rows} == {"map"}
        else:
            assert {row["source"] for row in rows} <= {"scan"}

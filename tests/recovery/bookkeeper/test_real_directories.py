"""Every directory of a real bookie is imported with all acknowledged entries, and accepts adds afterwards.

The steps are those of an operator: `ledgerstore rebuild-index`, `open_store`, adds, a kill, another opening.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import fixtures
import pytest
from click.testing import CliRunner

from recovery import open_store
from recovery.shell.exit_codes import Exit
from recovery.shell.main import cli
from storage.entry import format as entry_format
from storage.entry.digest import digester
from storage.entry.model import NO_ENTRY, DigestType
from storage.errors import ForeignStore, LedgerFenced, LedgerUnproven, NoSuchEntry
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.ledger import Ledger
    from storage.store import Store

ADDED_TO = 77_777
"""A ledger that is in no set."""

NO_EXPLICIT_LAC = ("07_journal_v4_crash", "07_journal_v5_crash")
"""Sets whose journal version has no explicit LACs."""

WRITER = """
import os, signal, sys
from recovery import open_store
from storage.errors import LedgerFenced, LedgerUnproven
store = open_store(sys.argv[1])
for ledger_id, password in [one.split(":") for one in sys.argv[2:]]:
    ledger = store.ledger(int(ledger_id), password=bytes.fromhex(password))
    try:
        ids = ledger.append_many([b"one", b"two", b"three"])
    except (LedgerFenced, LedgerUnproven) as error:
        print(ledger_id, type(error).__name__, flush=True)
    else:
        print(ledger_id, ids.start, ids.stop, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=fixtures.SETS)
def taken_over(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """The set, and its directory after `rebuild-index`."""
    name, directory = request.param, tmp_path / "bookie"
    shutil.copytree(fixtures.bookie(name) / "bookie", directory)
    with pytest.raises(ForeignStore):
        open_store(directory)
    result = CliRunner().invoke(cli, ["rebuild-index", "--json", str(directory)])
    assert result.exit_code == Exit.CLEAN, result.stderr
    return name, directory


def ledgers_of(name: str) -> Iterator[dict[str, Any]]:
    return (one for one in fixtures.manifest(name)["ledgers"] if not one["deleted"])


def ledger_of(store: Store, told: dict[str, Any]) -> Ledger:
    return store.ledger(told["ledger"], password=told["password"].encode())


def check_entries(store: Store, told: dict[str, Any]) -> None:
    """Check last add confirmed, length, digest and payload, read singly, in a range, and as bytes."""
    ledger = ledger_of(store, told)
    protects = digester(DigestType[told["digest_type"].replace("HMAC", "MAC")], told["password"].encode())
    for expected in told["entries"]:
        entry = ledger.read(expected["entry"])
        found = (entry.last_add_confirmed, entry.length, hashlib.sha256(entry.payload).hexdigest())
        assert found == (expected["lac"], expected["length"], expected["sha256"])
        data = store.bookie.read(told["ledger"], expected["entry"])
        assert data == entry_format.encode(entry, protects)
        head = entry_format.HEAD.size
        assert data[head : head + protects.digest_type.width].hex() == expected["digest"]
        assert next(ledger.entries(entry.entry_id, entry.entry_id)) == entry


def check_facts(store: Store, name: str, told: dict[str, Any]) -> None:
    ledger = ledger_of(store, told)
    assert ledger.is_fenced == told["fenced"]
    explicit = told.get("explicit_lac")
    expected = NO_ENTRY if explicit is None or name in NO_EXPLICIT_LAC else explicit
    assert ledger.explicit_lac == expected
    if expected != NO_ENTRY:
        packet = store.bookie.explicit_lac(told["ledger"])
        assert packet is not None
        assert packet.hex() == told["explicit_lac_wire"]


def test_all_acknowledged_entries_are_there_with_fences_and_confirmations(
    taken_over: tuple[str, Path],
) -> None:
    name, directory = taken_over
    with open_store(directory) as store:
        assert store.opened.index is IndexFound.GOOD
        assert not store.opened.findings
        for told in ledgers_of(name):
            check_entries(store, told)
            check_facts(store, name, told)


@pytest.mark.sampled(one_of=3)
def test_adds_go_on_top_and_survive_a_kill(taken_over: tuple[str, Path]) -> None:
    name, directory = taken_over
    passwords = [f"{one['ledger']}:{one['password'].encode().hex()}" for one in ledgers_of(name)]
    arguments = [sys.executable, "-c", WRITER, str(directory), f"{ADDED_TO}:", *passwords]
    writer = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert writer.returncode == -signal.SIGKILL, writer.stderr
    answers = {int(words[0]): words[1:] for words in map(str.split, writer.stdout.splitlines())}
    assert answers[ADDED_TO] == ["0", "3"]
    for _ in range(2):
        with open_store(directory) as store:
            for told in ledgers_of(name):
                check_entries(store, told)
                check_facts(store, name, told)
                check_answer(ledger_of(store, told), told, answers[told["ledger"]])
            assert list(store.ledger(ADDED_TO).payloads()) == [b"one", b"two", b"three"]


def check_answer(ledger: Ledger, told: dict[str, Any], answer: list[str]) -> None:
    """Add after the last entry; a refusal must have a valid reason."""
    if told["fenced"]:
        assert answer in ([LedgerFenced.__name__], [LedgerUnproven.__name__])
    if answer[0].isdigit():
        first, stop = map(int, answer)
        assert first == max((one["entry"] for one in told["entries"]), default=NO_ENTRY) + 1 or (
            told["last_submitted_entry"] >= first - 1
        )
        assert [ledger.read(one).payload for one in range(first, stop)] == [b"one", b"two", b"three"]
    else:
        assert answer[0] in (LedgerFenced.__name__, LedgerUnproven.__name__)


def test_the_fence_that_a_bookie_forgets_is_kept(tmp_path: Path) -> None:
    """Ledger 4 of this set was fenced before it had an entry, and its key was never journaled."""
    directory = tmp_path / "bookie"
    shutil.copytree(fixtures.bookie("04a_fence_lac_crash") / "bookie", directory)
    result = CliRunner().invoke(cli, ["rebuild-index", "--json", str(directory)])
    assert json.loads(result.stdout)
    with open_store(directory) as store:
        assert store.ledger(4).is_fenced
        with pytest.raises(NoSuchEntry):
            store.ledger(4).read(0)
        with pytest.raises((LedgerFenced, LedgerUnproven)):
            store.ledger(4, password=b"p4").append(b"refused")

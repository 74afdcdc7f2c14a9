"""docs/topics.md: the programs and commands that are shown run, and the bytes are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from cluster_in_a_thread import cluster_in_a_thread

from recovery.shell.commands.topic import TopicGroup
from recovery.shell.main import cli
from storage.cluster.topics import batch_format, message_id
from storage.cluster.topics import format as entry_format
from storage.cluster.topics.format import decode_entry, encode_entry
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    BatchAcks,
    DeletedRange,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    Position,
    PositionInfo,
    encode_cursor,
    encode_managed_ledger,
    encode_position_info,
)
from storage.cluster.topics.message import Message
from storage.cluster.topics.message_id import MessageId

if TYPE_CHECKING:
    from storage.cluster.wire.protobuf import MessageTable

PAGE = (Path(__file__).parent.parent.parent / "docs" / "topics.md").read_text(encoding="utf-8")
IN_A_STORE, IN_A_CLUSTER, PRODUCING, PARTITIONS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN, PRODUCED, PARTITIONED = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
(CONSOLE,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
ENTRY, ID, TOPIC, CURSOR, STATE = (
    bytes.fromhex(re.sub(r"#.*", "", block)) for block in re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "shown"),
    [(IN_A_STORE, SHOWN), (PRODUCING, PRODUCED), (PARTITIONS, PARTITIONED)],
    ids=["store", "producing", "partitions"],
)
def test_a_program_with_one_store_prints_what_is_shown(program: str, shown: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parent.parent.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stderr, done.stdout) == ("", shown)


@pytest.mark.slow(3)
def test_a_killed_producer_is_taken_over_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    shown = "zk://127.0.0.1:2181/ledgers"
    assert IN_A_CLUSTER.count(shown) == 1
    with cluster_in_a_thread(tmp_path, 3) as address:
        command = [sys.executable, "-c", IN_A_CLUSTER.replace(shown, address)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    lost, after = done.stdout.splitlines()
    assert re.fullmatch(r"0 of \d{2,} lost", lost), lost
    assert after == "[b'after']"


def test_the_commands_say_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for shown in CONSOLE.removeprefix("$ ").split("\n$ "):
        command, verdict = shown.rstrip("\n").split("\n")
        words = command.partition(" > ")[0].split()[1:]
        done = CliRunner().invoke(cli, words)
        assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, verdict)


def test_the_entry_is_that_of_the_code() -> None:
    messages = [Message(b"hi", "k"), Message(b"you")]
    made = encode_entry(messages, producer_name="p", sequence_ids=[7, 8], publish_time_ms=1_700_000_000_000)
    assert made == ENTRY
    assert [one.payload for one in decode_entry(ENTRY).messages] == [b"hi", b"you"]


def test_the_id_and_the_metadata_are_those_of_the_code() -> None:
    assert MessageId(7, 41, -1, 1).to_bytes(2) == ID
    ledgers = (LedgerInfo(3, 2, 109, 1_700_000_000_000), LedgerInfo(7, timestamp_ms=0))
    assert encode_managed_ledger(ManagedLedgerInfo(ledgers)) == TOPIC
    passed = (DeletedRange(Position(7, 1), Position(7, 3)),)
    assert encode_cursor(ManagedCursorInfo(NO_LEDGER, Position(3, 0), passed)) == CURSOR
    part = (BatchAcks(Position(7, 0), 0b101),)
    assert encode_position_info(PositionInfo(Position(3, 0), batches=part)) == STATE


@pytest.mark.parametrize("table", [entry_format._METADATA, batch_format._SINGLE, message_id._TABLE])  # noqa: SLF001
def test_every_field_is_in_a_table(table: MessageTable) -> None:
    numbers = set(map(int, re.findall(r"\b\d{1,2}\b", PAGE.split("## Formats")[1].split("### A worked")[0])))
    assert {one.number for one in table.fields} <= numbers


@pytest.mark.parametrize("name", list(TopicGroup.entries))
def test_every_command_is_in_the_table(name: str) -> None:
    assert f"topic {name}" in PAGE.split("## Commands")[1].split("```")[0]

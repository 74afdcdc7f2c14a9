"""The README's programs do what they say, and its commands print what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from cluster_in_a_thread import cluster_in_a_thread

from recovery.shell.main import cli

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
IN_THREADS, IN_COROUTINES, LEDGERS, TAKE_OVER, TOPIC = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def _printed(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "README.md", "exec"), {})
    return capsys.readouterr().out.splitlines()


def test_the_first_program_appends_and_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _printed(IN_THREADS, tmp_path, monkeypatch, capsys)
    assert lines[:3] == ["0 range(1, 3) 3", "b'one'", "[b'two', b'three', b'four']"]
    assert (tmp_path / "data" / "ledgers" / "current" / "0.log").stat().st_size > 0


def test_the_program_with_coroutines_appends_and_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _printed(IN_COROUTINES, tmp_path, monkeypatch, capsys)
    assert lines == ["500 [b'497', b'498', b'499']"]


def test_the_program_about_ledgers_fences_and_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _printed(LEDGERS, tmp_path, monkeypatch, capsys)
    assert lines == ["0 ledger 7 is fenced: it takes no more entries", "[]"]


def test_the_program_with_a_topic_writes_and_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _printed(TOPIC, tmp_path, monkeypatch, capsys)
    assert lines == ["4611686018427387905:0:-1:-1 [b'one']"]


@pytest.mark.slow(3)
def test_the_program_with_a_killed_writer_reads_every_acknowledged_entry(tmp_path: Path) -> None:
    shown = "zk://127.0.0.1:2181/ledgers"
    assert TAKE_OVER.count(shown) == 1
    with cluster_in_a_thread(tmp_path, 3) as address:
        command = [sys.executable, "-c", TAKE_OVER.replace(shown, address)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    found = re.fullmatch(r"(\d+) acknowledged, (\d+) read, 0 lost\n", done.stdout)
    assert found is not None, done.stdout
    acknowledged, read = map(int, found.groups())
    # Without a loss there may be one more: the entry that was under way when the writer was killed.
    assert acknowledged >= 200
    assert read - acknowledged in (0, 1)


def test_the_shown_demo_has_the_figures_and_words_of_a_real_run(tmp_path: Path) -> None:
    [shown] = re.findall(r"```console\n\$ make demo\n(.*?)```", README, re.DOTALL)
    result = CliRunner().invoke(cli, ["demo", str(tmp_path / "store"), "--entries", "500", "--size", "100"])
    told, *table = shown.splitlines()[1:-2]
    real = result.stderr.splitlines()
    assert [_without_numbers(line) for line in table] == [
        _without_numbers(line) for line in result.stdout.splitlines()
    ]
    assert _without_numbers(told) == _without_numbers(real[1])
    assert _without_numbers(shown.splitlines()[-1]) == _without_numbers(real[-1])


def _without_numbers(line: str) -> list[str]:
    # After a kill right after a checkpoint there is nothing to replay, and the table has no replay speed.
    return re.sub(r"[0-9][0-9,.]*|(?<= )-(?= )", "0", line).split()


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
    ],
)
def test_every_relative_link_has_a_target(page: str) -> None:
    path = ROOT / page
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text())
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_is_named_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE))
    assert named <= targets


def test_every_command_in_the_table_exists() -> None:
    [table] = re.findall(r"\| command \| what it does \|\n(.*?)\n\n", README, re.DOTALL)
    named = set(re.findall(r"`(?:ledgerstore )?([a-z-]+)", table))
    subcommands = {"run", "replay", "report"}
    assert named - subcommands <= set(cli.list_commands(click.Context(cli)))

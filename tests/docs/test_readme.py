"""The README's commands print what it shows, and its snippet does what it says."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import fixtures
import pytest
import toy_lab
from click.testing import CliRunner

from recovery.crashlab.numbers import load
from recovery.crashlab.tested import TestedLab, Told
from recovery.shell.main import cli

README = (Path(__file__).parent.parent.parent / "README.md").read_text()


def test_the_shown_output_is_the_command_s() -> None:
    [block] = re.findall(r"```console\n\$ (ledgerstore .*?)```", README, re.DOTALL)
    command, _, shown = block.partition("\n")
    bookie = fixtures.bookie("04a_fence_lac_crash").parent
    arguments = shlex.split(command.replace("try/", f"{bookie}/"))[1:]
    result = CliRunner().invoke(cli, arguments)
    assert (result.stdout + result.stderr).split() == shown.split()


def test_the_shown_demo_has_the_figures_and_words_of_a_real_one(tmp_path: Path) -> None:
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
    # A kill right behind a checkpoint leaves nothing to replay, and no speed of it.
    return re.sub(r"[0-9][0-9,.]*|(?<= )-(?= )", "0", line).split()


def test_the_store_snippet_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [snippet, _, _, _, _] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["0 range(1, 3) 3", "b'one'", "[b'two', b'three', b'four']"]
    assert (tmp_path / "data" / "ledgers" / "current" / "0.log").stat().st_size > 0


def test_the_snippet_about_ledgers_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [_, snippet, _, _, _] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["0 ledger 7 is fenced: it takes no more entries", "[]"]


def test_the_snippet_for_coroutines_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [_, _, snippet, _, _] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    assert capsys.readouterr().out == "500 [b'497', b'498', b'499']\n"


@pytest.mark.parametrize(("cut", "words"), [(0, "ok"), (10, "from 48"), (47_000, "from 1024")])
def test_the_snippet_tells_entries_and_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cut: int, words: str
) -> None:
    [_, _, _, _, snippet] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    [path] = [path for path in fixtures.entry_logs("01_clean") if path.name == "7.log"]
    log = tmp_path / "ledgers" / "current" / "0.log"
    log.parent.mkdir(parents=True)
    data = path.read_bytes()
    log.write_bytes(data[: len(data) - cut])
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    assert words in capsys.readouterr().out


def test_the_test_with_the_fixture_finds_nothing_in_a_sound_store(tmp_path: Path) -> None:
    [_, _, _, snippet, _] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    told = Told(None, ["kill"], 1, tmp_path)
    words: dict[str, Any] = {"workload": toy_lab.sound, "recover": toy_lab.recover}
    exec(compile(snippet, "README.md", "exec"), words)
    words["test_no_crash_loses_an_add"](partial(TestedLab, told))
    assert load(tmp_path / "crash-report" / "report.json").layer("kill").counts["kills"] == 22

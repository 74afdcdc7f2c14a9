"""docs/files.md: the commands print what the page shows, and the program distinguishes entries and damage."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import fixtures
import pytest
from click.testing import CliRunner

from recovery.shell.main import cli

PAGE = (Path(__file__).parent.parent.parent / "docs" / "files.md").read_text()


def test_the_shown_output_is_the_output_of_the_command() -> None:
    [block] = re.findall(r"```console\n\$ (ledgerstore .*?)```", PAGE, re.DOTALL)
    command, _, shown = block.partition("\n")
    bookie = fixtures.bookie("04a_fence_lac_crash").parent
    arguments = shlex.split(command.replace("try/", f"{bookie}/"))[1:]
    result = CliRunner().invoke(cli, arguments)
    assert (result.stdout + result.stderr).split() == shown.split()


@pytest.mark.parametrize(("cut", "words"), [(0, "ok"), (10, "from 48"), (47_000, "from 1024")])
def test_the_program_distinguishes_entries_and_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cut: int, words: str
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    [path] = [path for path in fixtures.entry_logs("01_clean") if path.name == "7.log"]
    log = tmp_path / "ledgers" / "current" / "0.log"
    log.parent.mkdir(parents=True)
    data = path.read_bytes()
    log.write_bytes(data[: len(data) - cut])
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/files.md", "exec"), {})
    assert words in capsys.readouterr().out

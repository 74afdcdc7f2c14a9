"""Execute docs/crashlab.md: write its files, apply its changes, and compare the output of its commands.

A block of Python that begins with a file name is that file. A diff changes the file that it names. A console
block runs after everything before it. Only times may differ.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab import layers
from recovery.crashlab.judge import oracles
from recovery.crashlab.model import profile

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "crashlab.md").read_text()
COMMANDS = {
    "ledgerstore": [sys.executable, "-c", "from recovery.shell.main import main; main()"],
    "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"],
    "python": [sys.executable],
}


@dataclass(frozen=True)
class Block:
    """One fenced block of the page."""

    language: str
    text: str

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0]


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
NEEDS = {"bash": "in_bash.py:lab", "dash": "shell.py:lab"}
CONSOLES = [number for number, block in enumerate(BLOCKS) if block.language == "console"]


def set_up(directory: Path, until: int) -> None:
    """Write all files in their state before that block."""
    for block in BLOCKS[:until]:
        if block.language == "python":
            (directory / block.title.removeprefix("# ")).write_text(block.text)
        elif block.language == "diff":
            change(directory, block)


def change(directory: Path, block: Block) -> None:
    path = directory / block.title.removeprefix("--- ")
    lines = block.text.splitlines()[1:]
    before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
    after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
    text = path.read_text()
    assert text.count(before) == 1, before
    path.write_text(text.replace(before, after))


def run(directory: Path, line: str) -> subprocess.CompletedProcess[str]:
    command, *arguments = shlex.split(line)
    return subprocess.run(
        [*COMMANDS[command], *(one.replace("docs/", f"{ROOT}/docs/") for one in arguments)],
        check=False,
        capture_output=True,
        text=True,
        cwd=directory,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
    )


def said(directory: Path, line: str) -> str:
    """Return the output of a command, with standard error after standard output."""
    done = run(directory, line)
    return done.stdout + done.stderr


def session(block: Block) -> Iterator[tuple[str, str]]:
    """Return each command with its shown output."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def without_times(text: str) -> list[str]:
    return re.sub(r"\d+\.\d+s?|\(\d+ s\)", "TIME", text).split()


def console(number: int) -> object:
    """Make a test of a console block. Blocks with rot are slow, and two blocks need bash."""
    text = BLOCKS[number].text
    missing = [shell for shell in ("bash", "dash") if f"{NEEDS[shell]} " in text and not shutil.which(shell)]
    skipped = pytest.mark.skipif(bool(missing), reason=f"NOT RUN: no {', '.join(missing)}")
    return pytest.param(number, marks=[skipped, *([pytest.mark.slow] if "--layers rot" in text else [])])


@pytest.mark.parametrize("number", [*map(console, CONSOLES)])
def test_each_command_prints_what_is_shown(tmp_path: Path, number: int) -> None:
    set_up(tmp_path, number)
    for command, shown in session(BLOCKS[number]):
        assert without_times(said(tmp_path, command)) == without_times(shown)


@pytest.mark.skipif(not shutil.which("bash"), reason="NOT RUN: no bash")
def test_a_run_with_an_incomplete_layer_has_another_exit_code_than_a_clean_one(tmp_path: Path) -> None:
    set_up(tmp_path, len(BLOCKS))
    assert run(tmp_path, "ledgerstore crash run in_bash.py:lab --layers model").returncode == 3


@pytest.mark.parametrize("name", ["options.py", "fields.py"])
def test_a_script_that_is_shown_runs(tmp_path: Path, name: str) -> None:
    set_up(tmp_path, len(BLOCKS))
    done = subprocess.run([sys.executable, name], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr.splitlines()[-1:] in ([], ["AssertionError"]), done.stderr
    assert done.stdout.startswith("{")


def test_every_block_is_used() -> None:
    files = {block.title for block in BLOCKS if block.language == "python"}
    used = {
        f"# {name}" for name in ("teashop.py", "lab.py", "options.py", "fields.py", "shell.py", "in_bash.py")
    }
    assert files == used | {"# conftest.py", "# test_teashop.py"}
    assert {block.language for block in BLOCKS} == {"python", "diff", "console"}


# ── the reference ───────────────────────────────────────────────────────────────────────────────────────────


def table_below(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def names_in(title: str) -> set[str]:
    """Return the names in the first column of each row."""
    rows = re.findall(r"^\| (`.*?) \|", table_below(title), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([\w-]+)", row)}


def test_every_layer_and_every_profile_is_documented() -> None:
    from recovery.crashlab.layers.catalogue import LAYERS

    assert layers.__doc__
    assert names_in("Layers") == set(LAYERS)
    assert names_in("Profiles") == set(profile.PROFILES)


def test_every_oracle_and_every_rule_is_documented() -> None:
    known = {name for name, one in vars(oracles).items() if hasattr(one, "breaches")} - {"Oracle"}
    rules = {one.__name__ for one in oracles.Rule.__args__}
    assert known | rules <= names_in("Oracles and rules")


def test_every_outcome_of_rot_is_documented() -> None:
    from recovery.crashlab.judge.damage_verdict import DamageVerdict
    from recovery.crashlab.layers.rot import UNDECIDABLE

    assert {*DamageVerdict, UNDECIDABLE} <= names_in("Rot: kinds and fields")

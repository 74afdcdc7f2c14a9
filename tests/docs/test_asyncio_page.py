"""docs/asyncio.md: its programs print what it shows, and the methods that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from storage.aio import AsyncLedger, AsyncStore
from storage.ledger import Ledger
from storage.store import Store

PAGE = (Path(__file__).parent.parent.parent / "docs" / "asyncio.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("program", "shown"), PROGRAMS)
def test_a_program_prints_what_is_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: str,
    shown: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "asyncio.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_every_program_is_run() -> None:
    assert len(PROGRAMS) == PAGE.count("```python")


def words(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} | {"id"}


def test_every_blocking_method_is_awaitable_or_documented_as_missing() -> None:
    assert words(Ledger) - words(AsyncLedger) == {"submit"}
    assert words(Store) - words(AsyncStore) == set()


@pytest.mark.parametrize("kind", [AsyncLedger, AsyncStore])
def test_every_awaitable_method_is_in_the_table(kind: type) -> None:
    table = PAGE.partition("| blocking | awaited |")[2].partition("\n\n")[0]
    told = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", table))))
    assert words(kind) - told == set()

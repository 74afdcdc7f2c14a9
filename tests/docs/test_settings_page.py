"""docs/settings.md names every setting with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from storage.config import ReadMode, StoreConfig

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parent.parent.parent / "docs" / "settings.md").read_text()


def test_the_page_lists_every_setting_in_order_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", PAGE, re.MULTILINE)
    shown = {name: default.split(" (")[0].strip("`") for name, default in rows}
    assert shown == {field.name: _text(field.default) for field in fields(StoreConfig)}


def _text(default: object) -> str:
    return str(default) if isinstance(default, ReadMode) else repr(default)


def test_the_page_s_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/settings.md", "exec"), {})
    assert capsys.readouterr().out == "0\n"

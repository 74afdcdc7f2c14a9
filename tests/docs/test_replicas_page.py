"""docs/replicas.md: its file is read, its program prints what it shows, and what it says of errors is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recovery.audit import ensembles
from recovery.verify.finding import Severity
from recovery.verify.replica_findings import severity
from recovery.verify.replica_spans import Owed
from storage.errors import InvalidConfig

PAGE = (Path(__file__).parent.parent.parent / "docs" / "replicas.md").read_text()
FILE, PROGRAM, SHOWN = (
    re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[0] for kind in ("json", "python", "text")
)


def test_the_example_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "replicas.json").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAM, "replicas.md", "exec"), {})
    assert capsys.readouterr().out == SHOWN


def test_the_error_is_told_as_shown() -> None:
    with pytest.raises(InvalidConfig) as caught:
        ensembles.parse(FILE.replace('"bk3"]', '"bk9"]'), "replicas.json", Path())
    assert f"`{caught.value}`" in PAGE


def test_every_field_is_in_the_table() -> None:
    told = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE))
    assert set(re.findall(r'"([a-z_]+)":', FILE)) - {"first_entry"} == told


def test_the_table_of_graveness_is_what_is_judged() -> None:
    rows = re.findall(r"^\| (?:closed|open) \| .*? \| (\w+) \| (\w+)", PAGE, re.MULTILINE)
    judged = [
        tuple(severity(owed, copies, ack_quorum=2).name.lower() for copies in (1, 2))
        for owed in (Owed.CLOSED, Owed.OPEN, Owed.ON_ITS_WAY, Owed.UNCONFIRMED)
    ]
    assert rows == judged
    assert Severity.ERROR < Severity.WARNING

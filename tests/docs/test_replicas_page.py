"""docs/replicas.md: its file can be loaded, its program prints what it shows, and its statements on errors
are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recovery.audit.checks.replica_copies import Obligation, severity
from recovery.audit.findings.finding import Severity
from recovery.audit.pipeline import ensemble_file
from storage.errors import InvalidConfig

PAGE = (Path(__file__).parent.parent.parent / "docs" / "replicas.md").read_text()
FILE, PROGRAM, SHOWN = (
    re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[0] for kind in ("json", "python", "text")
)


@pytest.mark.slow
def test_the_example_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "replicas.json").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAM, "replicas.md", "exec"), {})
    assert capsys.readouterr().out == SHOWN


def test_the_error_has_the_shown_message() -> None:
    with pytest.raises(InvalidConfig) as caught:
        ensemble_file.parse(FILE.replace('"bk3"]', '"bk9"]'), "replicas.json", Path())
    assert f"`{caught.value}`" in PAGE


def test_every_field_is_in_the_table() -> None:
    told = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE))
    assert set(re.findall(r'"([a-z_]+)":', FILE)) - {"first_entry"} == told


def test_the_table_of_severities_is_that_of_the_rules() -> None:
    rows = re.findall(r"^\| (?:closed|open) \| .*? \| (\w+) \| (\w+)", PAGE, re.MULTILINE)
    judged = [
        tuple(severity(owed, copies, ack_quorum=2).name.lower() for copies in (1, 2))
        for owed in (Obligation.CLOSED, Obligation.OPEN, Obligation.IN_FLIGHT, Obligation.UNCONFIRMED)
    ]
    assert rows == judged
    assert Severity.ERROR < Severity.WARNING

"""The mutation score in the README is the one that was computed, for the bugs that are planted today."""

from __future__ import annotations

import json
import re
from pathlib import Path

from planted import PLANTED

ROOT = Path(__file__).parent.parent.parent
SCORE = json.loads((ROOT / "docs" / "mutants.json").read_text())


def test_the_score_is_that_of_all_planted_bugs() -> None:
    assert [one["name"] for one in SCORE] == [one.name for one in PLANTED]
    assert [one["rule"] for one in SCORE] == [one.rule for one in PLANTED]


def test_every_planted_bug_is_found_or_proved_to_be_none() -> None:
    assert [one["name"] for one in SCORE if not (one["found_by"] or one["proof"])] == []


def test_the_readme_says_what_was_computed() -> None:
    readme = (ROOT / "README.md").read_text()
    found = sum(bool(one["found_by"]) for one in SCORE)
    alone = sum(one["found_by"].startswith("laboratory") for one in SCORE)

    (row,) = re.findall(r"^\| planted bugs found \|([^|]*)\|", readme, re.MULTILINE)

    assert row.strip() == f"{found} of {len(SCORE)}, {alone} of them by the laboratory alone"

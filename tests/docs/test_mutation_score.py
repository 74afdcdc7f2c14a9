"""The mutation score in the README is the computed one, and covers today's planted bugs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from planted_bugs import PLANTED

ROOT = Path(__file__).parent.parent.parent
SCORE = json.loads((ROOT / "docs" / "mutants.json").read_text())
MACHINE = json.loads((ROOT / "docs" / "machine-mutants.json").read_text())


def test_the_score_covers_all_planted_bugs() -> None:
    assert [one["name"] for one in SCORE] == [one.name for one in PLANTED]
    assert [one["rule"] for one in SCORE] == [one.rule for one in PLANTED]


def test_every_planted_bug_is_found_or_has_a_proof() -> None:
    assert [one["name"] for one in SCORE if not (one["found_by"] or one["proof"])] == []


def test_the_readme_has_the_computed_score() -> None:
    readme = (ROOT / "README.md").read_text()
    found = sum(bool(one["found_by"]) for one in SCORE)
    alone = sum(one["found_by"].startswith("laboratory") for one in SCORE)

    (row,) = re.findall(r"^\| planted bugs found \|([^|]*)\|", readme, re.MULTILINE)

    assert row.strip() == f"{found} of {len(SCORE)}, {alone} of them by the laboratory alone"


def test_the_score_of_machine_made_mutants_adds_up_and_names_every_survivor() -> None:
    for tallied in ("by_operator", "by_module"):
        for count in ("asked", "found", "hang", "equivalent", "survive"):
            assert sum(one[count] for one in MACHINE[tallied].values()) == MACHINE[count]
    assert MACHINE["asked"] == MACHINE["found"] + MACHINE["equivalent"] + MACHINE["survive"]
    assert len(MACHINE["survivors"]) == MACHINE["survive"]


def test_the_readme_has_the_score_of_machine_made_mutants() -> None:
    readme = (ROOT / "README.md").read_text()
    judged = MACHINE["asked"] - MACHINE["equivalent"]

    (row,) = re.findall(r"^\| machine-made mutants found[^|]*\|([^|]*)\|", readme, re.MULTILINE)

    assert row.strip() == f"{MACHINE['found']} of {judged}, {MACHINE['survive']} known survivors"

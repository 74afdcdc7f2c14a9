"""Bugs are planted into the client and the bookies. `make cluster-mutants` finds all of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster_mutants import BUGS
from code_edits import function_of
from planted_autorecovery_bugs import AUTORECOVERY_BUGS
from planted_topic_bugs import TOPIC_BUGS

from recovery.clusterlab.oracles import INVARIANTS
from recovery.clusterlab.topics.oracles import TOPIC_INVARIANTS

if TYPE_CHECKING:
    from planted_cluster_bugs import PlantedClusterBug

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("planted", BUGS, ids=lambda one: one.name)
def test_a_planted_bug_changes_one_place_for_each_address(planted: PlantedClusterBug) -> None:
    for change in planted.changes:
        tree = ast.parse((ROOT / change.file).read_text())
        before = ast.dump(function_of(tree, change.function))
        assert ast.dump(change.edited(tree)) != before
        compile(ast.fix_missing_locations(tree), change.file, "exec")


def test_there_are_fifty_planted_bugs_with_different_names_and_known_invariants() -> None:
    assert len({one.name for one in BUGS}) == len(BUGS)
    assert len(BUGS) >= 52
    assert len(AUTORECOVERY_BUGS) >= 12
    assert len(TOPIC_BUGS) >= 8
    assert all(one.invariants <= {*INVARIANTS, *TOPIC_INVARIANTS} for one in BUGS)
    assert all(one.invariants <= set(TOPIC_INVARIANTS) for one in TOPIC_BUGS)


@pytest.mark.slow(5)
def test_the_laboratory_finds_what_the_reference_does() -> None:
    """A reader that sees too much, an add that waits for ever, a wrong length."""
    names = [one.name for one in BUGS if one.name.startswith(("n9-", "n10-", "n11-"))]
    assert len(names) == 3

    done = subprocess.run(
        [sys.executable, "tests/support/cluster_mutants.py", *names],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/support'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 planted bugs found" in done.stdout

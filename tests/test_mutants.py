"""Planted bugs and machine-made mutants can still be applied to the code. `make mutants` runs the tests that
find them."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
from code_edits import BadAddress, Drop, EditAddress, Replace, Rewrite, Swap, function_of
from equivalent_mutants import EQUIVALENT
from machine_mutants import MODULES, file_of, mutants_of, mutated
from mutants import MutantTally
from planted_bugs import PLANTED, PlantedBug
from sampling import every
from statement_records import changed_share, numbered_functions, renumbered

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(not (ROOT / "storage").is_dir(), reason="the sources are not here")


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.name)
def test_a_planted_bug_changes_exactly_one_place_for_each_address(planted: PlantedBug) -> None:
    trees = {one.file: ast.parse((ROOT / one.file).read_text()) for one in planted.changes}

    for one in planted.changes:
        before = ast.dump(function_of(trees[one.file], one.function))
        assert ast.dump(one.edited(trees[one.file])) != before

    for file, tree in trees.items():
        compile(tree, file, "exec")


def test_there_are_at_least_twenty_planted_bugs_with_different_names() -> None:
    assert len({one.name for one in PLANTED}) == len(PLANTED) >= 20


def test_the_named_tests_of_planted_bugs_exist() -> None:
    assert all((ROOT / test).is_file() for one in PLANTED for test in one.tests)


SOURCE = """
class Writer:
    def sync(self):
        # a comment
        self.file.sync(  )
        if self.end < self.half:
            self.note(self.end,
                      more=1)
        self.end = 1
"""


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (
            Drop("self.file.sync()"),
            "pass; if self.end < self.half: self.note(self.end, more=1); self.end = 1",
        ),
        (
            Swap("self.end = ...", "self.file.sync()"),
            "self.end = 1; if self.end < self.half: self.note(self.end, more=1); self.file.sync()",
        ),
        (
            Replace("self.end < ...", "True"),
            "self.file.sync(); if True: self.note(self.end, more=1); self.end = 1",
        ),
        (Rewrite("if ...: ...", "self.note(...)"), "self.file.sync(); self.note(...); self.end = 1"),
    ],
)
def test_an_edit_does_not_depend_on_the_formatting_of_the_code(
    edit: Drop | Swap | Replace | Rewrite, expected: str
) -> None:
    function = EditAddress("a", "Writer.sync", edit).edited(ast.parse(SOURCE))

    assert "; ".join(ast.unparse(one).replace("\n    ", " ") for one in function.body) == expected


@pytest.mark.parametrize(
    ("function", "edit", "why"),
    [
        ("Writer.sync", Drop("self.close()"), "0 places"),
        ("Writer.sync", Replace("self.end", "0"), "3 places"),
        ("Writer.sink", Drop("self.file.sync()"), "0 functions"),
    ],
)
def test_an_address_that_matches_no_place_or_several_is_refused(
    function: str, edit: Drop | Replace, why: str
) -> None:
    with pytest.raises(BadAddress, match=why):
        EditAddress("a", function, edit).edited(ast.parse(SOURCE))


# ── the machine's ────────────────────────────────────────────────────────────────────────────────────────

CODE = """
class Writer:
    def __init__(self):
        self.end = 0

    def sync(self, place):
        \'\'\'Syncs.\'\'\'
        assert place > 0, "a place"
        with self.lock:
            self.file.sync()
            self.end = max(self.end, place)
        if place < self.half and self.is_open:
            self.note()
        _LOG.info("synced %d", 1 + place)
        self.file.start_writeback(place + 1)
        self.events.synced(self.end)
"""


def test_the_program_makes_one_mutant_for_each_possible_mistake(tmp_path: Path) -> None:
    (tmp_path / "writer.py").write_text(CODE)

    made = {one.name.removeprefix("writer:Writer."): one.change for one in mutants_of(tmp_path, "writer")}

    test = "place < self.half and self.is_open"
    assert made == {
        "__init__:number.1": "0 → 1",
        "sync:swap.1": "with self.lock: self.file.sync() self.end = max(self.end, place)"
        f" ↔ if {test}: self.note()",
        "sync:unguarded.1": "with self.lock → without",
        "sync:drop.1": "self.file.sync() → left out",
        "sync:drop.2": "self.end = max(self.end, place) → left out",
        "sync:swap.2": "self.file.sync() ↔ self.end = max(self.end, place)",
        "sync:extreme.1": "max(self.end, place) → min(self.end, place)",
        "sync:extreme.2": "max(self.end, place) → self.end",
        "sync:extreme.3": "max(self.end, place) → place",
        "sync:condition.1": f"{test} → False",
        "sync:logic.1": f"{test} → place < self.half or self.is_open",
        "sync:condition.2": f"{test} → self.is_open",
        "sync:condition.3": f"{test} → place < self.half",
        "sync:compare.1": "place < self.half → place <= self.half",
        "sync:drop.3": "self.events.synced(self.end) → left out",
    }


@pytest.mark.slow
def test_every_machine_made_mutant_is_different_code_that_compiles() -> None:
    for module in MODULES[::12]:
        source = (ROOT / file_of(module)).read_text()
        before = ast.dump(ast.parse(source))
        for mutant in mutants_of(ROOT, module)[::80]:
            tree = ast.parse(source)
            mutated(tree, mutant)
            assert ast.dump(tree) != before
            compile(ast.fix_missing_locations(tree), module, "exec")


@pytest.mark.sampled
def test_an_equivalent_mutant_still_makes_the_change_that_was_judged() -> None:
    judged_ones = every(3, EQUIVALENT)
    judged = {tuple(one.mutant.split(":")[:2]) for one in judged_ones}
    changes = {
        one.name: one.change
        for module, functions in groupby(sorted(judged), key=itemgetter(0))
        for one in mutants_of(ROOT, module, {name for _, name in functions})
    }

    assert [one.mutant for one in judged_ones if changes.get(one.mutant) != one.change] == []
    assert all(one.why for one in EQUIVALENT)
    assert len({one.mutant for one in EQUIVALENT}) == len(EQUIVALENT)


def test_the_interval_of_a_score_is_that_of_wilson() -> None:
    low, high = MutantTally(asked=110, found=90, equivalent=10, survive=10).interval

    assert (round(low, 3), round(high, 3)) == (0.826, 0.945)


# ── which statements tests run ───────────────────────────────────────────────────────────────────────────

RECORDED = """
def first():
    one()
    if two():
        three()

def second():
    four()
    five()
"""


def test_the_record_of_a_test_is_kept_when_functions_move_or_change() -> None:
    before = numbered_functions({"a": ast.parse(RECORDED)})
    assert [list(one.statements) for one in before] == [[0, 1, 2], [3, 4]]

    grown = "def zero():\n    six()\n" + RECORDED
    moved = numbered_functions({"a": ast.parse(grown)})
    assert renumbered([0, 1, 3], before, moved) == [1, 2, 4]
    assert changed_share(before, moved) == 1 / 3

    changed = numbered_functions({"a": ast.parse(RECORDED.replace("four()", "six()\n    seven()"))})
    assert renumbered([0, 3], before, changed) == [0, 3, 4, 5]
    assert renumbered([0], before, changed) == [0]
    assert renumbered([0, 3], before, numbered_functions({"b": ast.parse(RECORDED)})) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_ends_its_forks(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from mutant_runner import MutantTask, run_warm\n"
        "def wait(_):\n"
        "    Path(sys.argv[1], 'draft').write_text(str(os.getpid()))\n"
        "    Path(sys.argv[1], 'draft').rename(Path(sys.argv[1], 'fork'))\n"
        "    signal.pause()\n"
        "question = MutantTask('one', (), wait, (), lambda: ('a test',))\n"
        "run = lambda warm: len(list(warm.ask_all([question], 1)))\n"
        "sys.exit(run_warm(run, ('tests/storage/disk/test_search.py',)))\n"
    )
    fork = tmp_path / "fork"
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent / "support")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        while not fork.exists():
            assert run.poll() is None
            os.sched_yield()
        run.send_signal(number)
        assert run.wait(60) != 0
    assert not Path("/proc", fork.read_text()).exists()

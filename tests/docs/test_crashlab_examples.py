"""The examples of docs/examples/crashlab find the violations that they announce, and no others."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.crashlab.judge.run_figures import Status
from recovery.crashlab.layers.cut import why_none
from recovery.crashlab.run import volume

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.crashlab import CrashLab, LabReport
    from recovery.crashlab.judge.run_figures import ViolationNumbers

PLACE = Path(__file__).parent.parent.parent / "docs" / "examples" / "crashlab"
SCRIPTS = sorted(path.stem for path in PLACE.glob("*.py"))


def example(name: str) -> Any:
    """Load the script as a module with a name that no worker can import, so that it is sent to workers as
    code."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", PLACE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def crashed(lab: CrashLab, place: Path, *layers: str) -> LabReport:
    report = lab.run(layers, jobs=2, out=place)
    assert report.numbers.uncovered == []
    assert [one.lost for one in report.violations if len(one.lost) > 2] == []
    return report


def only(report: LabReport, *kinds: str) -> Sequence[ViolationNumbers]:
    assert {one.kind for one in report.violations} == set(kinds)
    return report.violations


pytestmark = pytest.mark.docs

needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="NOT RUN: no C compiler (cc)")


# ── SQLite ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_sqlite_full_loses_nothing_in_any_power_cut(tmp_path: Path) -> None:
    report = crashed(example("sqlite_full").lab, tmp_path, "model", "nested")
    report.assert_ok()
    assert report.numbers.layer("model").counts["distinct images"] > 300
    assert report.numbers.layer("nested").counts["states of depth 2"] > 50


@pytest.mark.slow
def test_sqlite_full_is_clean_on_all_layers_that_it_names(tmp_path: Path) -> None:
    sqlite = example("sqlite_full")
    crashed(sqlite.lab, tmp_path, *sqlite.CLEAN).assert_ok()


@pytest.mark.slow
def test_sqlite_full_loses_entries_only_if_a_directory_sync_fails(
    tmp_path: Path,
) -> None:
    for violation in only(crashed(example("sqlite_full").lab, tmp_path, "errors"), "LOST"):
        assert "datasync ." in violation.cause


def test_rot_in_sqlite_is_read_as_data(tmp_path: Path) -> None:
    report = example("sqlite_full").lab.run(["rot"], budget="3s", out=tmp_path)
    table = report.numbers.layer("rot").table
    assert table["wal"]["silent"] > 0
    assert table["db"]["detected"] > 0
    assert {one.kind for one in report.violations} == {"SILENT"}


def test_sqlite_normal_loses_what_was_committed_since_the_last_checkpoint(tmp_path: Path) -> None:
    found = only(crashed(example("sqlite_normal").lab, tmp_path, "model", "kill"), "LOST")
    assert {one.layer for one in found} == {"model"}
    assert {one.profile for one in found} == {"ext4-ordered"}
    for violation in found:
        [lost] = violation.lost
        extent = re.match(r"bytes (\d+) to (\d+) of /cups.db-wal", lost)
        assert extent, lost
        assert int(extent[2]) - int(extent[1]) == 512  # one sector of one commit is enough


# ── LMDB ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lmdb_without_syncs_is_caught(tmp_path: Path) -> None:
    found = crashed(example("lmdb_nosync").lab, tmp_path, "model").violations
    assert "LOST" in {one.kind for one in found}
    assert {"SIGNAL", "REFUSED", "FABRICATED"} & {one.kind for one in found}
    assert "ext4-ordered" in {one.profile for one in found}


def test_lmdb_that_is_created_in_place_can_lose_its_name_or_half_of_its_first_pages(tmp_path: Path) -> None:
    found = only(crashed(example("lmdb_nosync").in_place, tmp_path, "model"), "LOST", "REFUSED")
    [nameless] = [one for one in found if one.kind == "LOST"]
    assert nameless.lost == ("/: create data.mdb (its directory was not synced)",)
    assert nameless.profile == "sector-4k"
    [half] = [one for one in found if one.kind == "REFUSED"]
    assert "{root}: MDB_INVALID" in half.cause
    assert len(half.lost) == 1


# ── a queue of files ────────────────────────────────────────────────────────────────────────────────────────


def test_the_queue_of_files_fails_because_one_line_is_missing(tmp_path: Path) -> None:
    [violation] = crashed(example("file_queue").lab, tmp_path, "model", "kill", "errors", "nested").violations
    assert violation.kind == "LOST"
    assert violation.layer == "model"
    assert violation.lost == ("/: rename message-0.tmp to message-0 (its directory was not synced)",)
    assert violation.profile == "ext4-ordered"


def test_with_the_missing_line_nothing_is_found(tmp_path: Path) -> None:
    crashed(example("file_queue").mended, tmp_path, "model", "kill", "errors", "nested").assert_ok()


@pytest.mark.parametrize(
    ("layers", "jobs"),
    [
        (["model", "kill", "errors", "nested"], (2, 2)),
        pytest.param(["model", "kill", "errors", "nested", "rot"], (1, 2), marks=pytest.mark.slow),
    ],
)
def test_two_runs_with_one_seed_give_the_same_numbers(
    tmp_path: Path, layers: list[str], jobs: tuple[int, int]
) -> None:
    lab = example("file_queue").lab
    first, second = (figures(lab.run(layers, jobs=number, out=tmp_path)) for number in jobs)
    assert first == second


def figures(report: LabReport) -> Any:
    """Return all figures except times."""
    layers = [(one.name, one.status, one.why, one.counts, one.table) for one in report.numbers.layers]
    return layers, report.violations


# ── a program in another language ───────────────────────────────────────────────────────────────────────────


@needs_cc
def test_a_store_in_c_is_tested_like_a_store_in_python(tmp_path: Path) -> None:
    report = crashed(example("in_c").lab(), tmp_path, "model", "kill", "errors", "nested")
    report.assert_ok()
    assert report.numbers.layer("kill").counts["kills"] > 20
    assert report.numbers.workloads[0].operations == 5


@needs_cc
def test_a_store_in_c_that_syncs_nothing_is_caught(tmp_path: Path) -> None:
    report = crashed(example("in_c").forgetful(), tmp_path, "model", "nested")
    [violation] = report.violations
    assert violation.kind == "LOST"
    assert len(violation.lost) == 1
    # A violation by one crash alone is not reported again for crashes inside a recovery.
    assert report.numbers.layer("nested").counts == {"broken by the first crash alone": 1}


# ── all of them ─────────────────────────────────────────────────────────────────────────────────────────────


def test_every_example_is_a_script_of_its_own() -> None:
    for name in SCRIPTS:
        text = (PLACE / f"{name}.py").read_text()
        assert f"ledgerstore crash run docs/examples/crashlab/{name}.py:lab" in text
        assert f"python docs/examples/crashlab/{name}.py" in text


@pytest.mark.parametrize(("name", "exit_code"), [("file_queue", 1), ("sqlite_normal", 1)])
def test_an_example_runs_by_itself(tmp_path: Path, name: str, exit_code: int) -> None:
    done = subprocess.run(
        [sys.executable, PLACE / f"{name}.py", "model"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == exit_code, done.stderr
    assert "LOST" in done.stdout


def test_an_example_runs_by_the_command(tmp_path: Path) -> None:
    command = "from recovery.shell.main import main; main()"
    lab = f"{PLACE / 'file_queue.py'}:lab"
    done = subprocess.run(
        [sys.executable, "-c", command, "crash", "run", lab, "--layers", "model", "--out", "report"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    assert "rename message-0.tmp to message-0" in done.stderr
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.skipif(bool(why_none()), reason=f"NOT RUN: {why_none()}")
def test_real_file_systems_lose_the_rename_too(tmp_path: Path) -> None:
    report = crashed(example("file_queue").lab, tmp_path, "cut")
    # A machine without one of the file systems reports it, and the other is tested.
    every = not any(volume.why_not(kind) for kind in volume.KINDS)
    assert report.numbers.layer("cut").status is (Status.COMPLETE if every else Status.CUT_SHORT)
    assert {one.kind for one in report.violations} == {"LOST"}

"""The laboratory as a whole: it finds each mistake in the right layer, and nothing in a correct store.

The stores are small, because these are tests of the tool.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import little_indexed_store
import pytest
import toy_lab as toy_files
from lab_kills import KillRunner
from little_lab import STORES, indexed_lab, little_lab, remember_interruptions, touch

from recovery.crashlab import CrashLab, LabError
from recovery.crashlab.judge.outcome import ObservedState
from recovery.crashlab.judge.run_figures import Status, load
from recovery.crashlab.lab import seconds_of
from recovery.crashlab.layers import violation
from recovery.crashlab.layers.replay import replayed
from recovery.crashlab.record import preload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from recovery.crashlab import Ctx, LabReport
    from recovery.crashlab.judge.run_figures import LabNumbers

pytestmark = pytest.mark.skipif(bool(preload.why_not()), reason=preload.why_not() or "nothing is missing")

ALL = ("model", "kill", "errors", "nested", "rot")
"""All layers that need no privileges."""

slow = pytest.mark.slow


def found(report: LabReport) -> set[tuple[str, str]]:
    return {(one.layer, one.kind) for one in report.violations}


# ── correct stores and mistakes ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    "layers", [("model",), *(pytest.param((name,), marks=slow) for name in ("kill", "errors", "nested"))]
)
def test_nothing_is_found_in_a_correct_store(layers: tuple[str, ...]) -> None:
    report = little_lab().run(layers, jobs=1)

    report.assert_ok()
    assert report.numbers.layer(layers[0]).status is Status.COMPLETE
    assert report.out is None


@pytest.mark.slow
def test_no_kill_finds_anything_in_a_store_with_an_index() -> None:
    report = indexed_lab().run(["kill"], jobs=1)

    report.assert_ok()
    # Before each call, in the middle of each write, and after each call; each hit the intended call.
    assert report.numbers.layer("kill").counts == {"kills": 46 + 12 + 46}


MISTAKES = {
    "NoSyncBeforeAck": ("model", "LOST"),
    "NoDirectorySyncAfterCreate": ("model", "REFUSED"),
    "NoDirectorySyncAfterRename": ("model", "LOST"),
    "RenameBeforeSync": ("model", "REFUSED"),
    "NoSyncOfData": ("model", "REFUSED"),
    "MarkBeforeData": ("kill", "REFUSED"),
    "MarkInPlace": ("kill", "REFUSED"),
    "AppendBehindTornTail": ("errors", "LOST"),
    "CarryTailOver": ("kill", "LOST"),
    "NoChecksum": ("model", "FABRICATED"),
    "SyncRetried": ("errors", "LOST"),
    "SyncErrorSwallowed": ("errors", "LOST"),
    "ShortWriteIgnored": ("errors", "LOST"),
    "OldRemovedBeforeMark": ("kill", "REFUSED"),
    "NoLatch": ("errors", "LOST"),
}
"""The layer that finds a mistake, and the breach that it shows."""


@pytest.mark.parametrize("mistake", [pytest.param(name, marks=slow) for name in MISTAKES])
def test_a_mistake_is_found_by_the_layer_that_is_made_for_it(mistake: str, tmp_path: Path) -> None:
    layer, kind = MISTAKES[mistake]

    report = little_lab(mistake).run([layer], jobs=1, out=tmp_path)

    assert (layer, kind) in found(report)
    with pytest.raises(AssertionError, match=kind):
        report.assert_ok()


def test_every_mistake_of_the_little_store_is_tried() -> None:
    assert MISTAKES.keys() == STORES.keys() - {"LittleStore"}
    assert FOUND_BY_A_KILL.keys() == little_indexed_store.STORES.keys() - {"IndexedStore"}


FOUND_BY_A_KILL = {
    "IndexedMarkBeforeData": {"REFUSED"},
    "IndexedOldRemovedBeforeMark": {"REFUSED"},
    "IndexedMarkInPlace": {"REFUSED"},
    "IndexedCarryTailOver": {"LOST"},
    "IndexInPlace": {"REFUSED"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake", ["IndexInPlace", *(pytest.param(n, marks=slow) for n in [*FOUND_BY_A_KILL][:-1])]
)
def test_a_kill_uncovers_the_mistake(mistake: str, tmp_path: Path) -> None:
    report = indexed_lab(mistake).run(["kill"], jobs=1, out=tmp_path)

    assert {one.kind for one in report.violations} >= FOUND_BY_A_KILL[mistake]


@pytest.mark.slow
def test_a_recovery_that_shows_something_else_where_it_was_crashed_is_found(tmp_path: Path) -> None:
    lab = CrashLab(touch, remember_interruptions, lambda *_: None)

    report = lab.run(["nested"], jobs=1, out=tmp_path)
    with KillRunner(lab) as kills:
        killed = kills.of_recoveries()

    assert found(report) == {("nested", "DIFFERS")}
    assert len(killed.breaches) > 4
    assert {breach.partition(" ")[0] for breach in killed.breaches} == {"DIFFERS"}
    assert "KILL_AFTER 1, create began of the recovery" in killed.breaches[0]


@pytest.mark.slow
def test_the_smallest_crash_is_reported_with_its_losses_and_its_profile(tmp_path: Path) -> None:
    report = little_lab("RenameBeforeSync").run(["model"], jobs=1, out=tmp_path)

    (first,) = report.violations
    assert first.cause == (
        "REFUSED refused with Contradiction: mark has a bad head · power cut before 16, datasync mark"
        " · lost: bytes 0 to 512 of /mark (the file was not synced)"
    )
    assert first.profile == "ext4-ordered"
    assert first.count > 3


# ── a store in one file, before and after it is mended ──────────────────────────────────────────────────────

TOY = """
import json, mmap, os, signal

def workload(root, ctx):
    fd = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    directory = os.open(root, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    for number in range(4):
        with ctx.doing("add", number, "x" * number):
            os.write(fd, json.dumps([number, "x" * number]).encode() + b"\\n")
            os.fdatasync(fd)
    os.close(fd)

def recover(root):
    if not (root / "log").exists():
        return {}
    *lines, rest = (root / "log").read_bytes().split(b"\\n")
    if rest:
        raise ValueError("half a line")
    return dict(map(json.loads, lines))

def go_on(root, ctx):
    pass

def mapped(root, ctx):
    fd = os.open(root / "map", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 4096)
    with mmap.mmap(fd, 4096) as memory:
        memory[:4] = b"data"
    os.close(fd)

def by_another_way(root, ctx):
    os.system(f"echo > {root}/file")

def forgetful(root, ctx):
    with ctx.doing("add", 1, "never written"):
        pass

def fails(root, ctx):
    raise OSError("on purpose")

def hangs(root, ctx):
    signal.pause()

def marks_nonsense(root, ctx):
    os.write(ctx._marks, b"nonsense\\n")

def nothing(root):
    return {}

def refuses(root):
    raise ValueError("not today")
"""

MENDED = ('raise ValueError("half a line")', "pass")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Write the store as a module that can be imported, whose file can be mended."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "toy_store.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    sys.modules.pop("toy_store", None)
    return importlib.import_module("toy_store")


def toy_lab(toy: ModuleType, workload: str = "workload", recover: str = "recover", **more: Any) -> CrashLab:
    return CrashLab(getattr(toy, workload), getattr(toy, recover), name="toy", **more)


def places(report: LabReport) -> list[Path]:
    assert report.out
    return [report.out / one.directory for one in report.violations]


@pytest.mark.slow
@pytest.mark.parametrize("layers", [("kill", "errors"), pytest.param(ALL, marks=slow)])
def test_a_violation_is_reproduced_byte_for_byte(
    toy: ModuleType, tmp_path: Path, layers: tuple[str, ...]
) -> None:
    report = toy_lab(toy).run(layers, jobs=1, out=tmp_path / "out")

    assert {one.layer for one in report.violations} >= set(layers) - {"nested"}
    for place in places(report):
        again = replayed(violation.load(place))
        assert again.is_same_image, place
        assert again.shows, place


@pytest.mark.slow
def test_a_violation_s_own_script_ends_with_1_until_the_store_is_mended(
    toy: ModuleType, tmp_path: Path
) -> None:
    report = toy_lab(toy).run(["model", "kill"], jobs=1, out=tmp_path / "out")
    scripts = [place / "repro.py" for place in places(report)]
    assert len(scripts) > 1

    assert [code_of(script) for script in scripts] == [1] * len(scripts)
    module = tmp_path / "modules" / "toy_store.py"
    module.write_text(TOY.replace(*MENDED))
    assert [code_of(script) for script in scripts] == [0] * len(scripts)


def code_of(script: Path) -> int:
    done = subprocess.run([sys.executable, script], check=False, capture_output=True, env=bare(), timeout=60)
    return done.returncode


def bare() -> dict[str, str]:
    """Remove the compiled module too, because it may be older than the mended file."""
    return os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": os.devnull}


def test_the_report_is_written_with_its_violations(toy: ModuleType, tmp_path: Path) -> None:
    report = toy_lab(toy).run(["model"], jobs=1, out=tmp_path / "out")

    assert load(tmp_path / "out" / "report.json") == report.numbers
    (place, *_) = places(report)
    told = json.loads((place / "violation.json").read_text())
    assert (told["kind"], told["store"], told["seed"]) == ("REFUSED", "toy", 1)
    assert "――― crash ―――" in (place / "trace.txt").read_text()
    assert (place / "image" / "log").exists()


def one_key(root: Path, ctx: Ctx) -> None:
    with ctx.doing("add", "k", b"tea"):
        toy_files.put(root, "k.log", b"tea")


def recover_one_key(root: Path, note: str) -> ObservedState:
    found = (root / "k.log").read_bytes() if (root / "k.log").exists() else b""
    return ObservedState({("k",): found} if found == b"tea" else {}, notes=(note,))


@pytest.mark.parametrize(
    ("note", "outcome"),
    [pytest.param("started in 3 ms", "silent", marks=slow), ("k.log: cut off", "reported")],
)
def test_rot_is_excused_only_by_a_note_that_names_the_damaged_file(
    tmp_path: Path, note: str, outcome: str
) -> None:
    def recover(root: Path) -> ObservedState:
        return recover_one_key(root, note if not recover_one_key(root, "").entries else "")

    report = CrashLab(one_key, recover, name="toy").run(["rot"], jobs=1, out=tmp_path / "out")

    (row,) = report.numbers.layer("rot").table.values()
    assert row[outcome] > 20
    assert {"silent", "reported"} & set(row) == {outcome}
    assert [replayed(violation.load(place)).shows for place in places(report)[:1]] == (
        [True] if outcome == "silent" else []
    )


# ── figures ─────────────────────────────────────────────────────────────────────────────────────────────────


def numbers(report: LabReport) -> Any:
    """Return everything that does not depend on the machine."""
    told: LabNumbers = report.numbers
    layers = {layer.name: (layer.status, layer.counts, layer.table) for layer in told.layers}
    workloads = [asdict(one) | {"seconds": 0} for one in told.workloads]
    return layers, workloads, [asdict(one) for one in told.violations]


@pytest.mark.slow
@pytest.mark.parametrize("layers", [("model", "nested"), pytest.param(ALL, marks=slow)])
def test_the_same_seed_gives_the_same_numbers(
    toy: ModuleType, tmp_path: Path, layers: tuple[str, ...]
) -> None:
    first, second = (
        toy_lab(toy, seed=3).run(layers, jobs=1, out=tmp_path / name) for name in ("first", "second")
    )

    assert numbers(first) == numbers(second)


@pytest.mark.slow
def test_the_explored_states_do_not_depend_on_the_number_of_workers(toy: ModuleType, tmp_path: Path) -> None:
    one, two = (toy_lab(toy).run(["model", "kill"], jobs=jobs, out=tmp_path / f"{jobs}") for jobs in (1, 2))

    assert [layer.counts for layer in one.numbers.layers] == [layer.counts for layer in two.numbers.layers]
    assert found(one) == found(two)


@pytest.mark.slow
def test_a_budget_that_is_over_says_what_it_left_out(toy: ModuleType) -> None:
    report = little_lab().run(["model", "errors"], budget=0.6, jobs=1)

    errors = report.numbers.layer("errors")
    assert errors.status is Status.CUT_SHORT
    assert "before all 228 faults were made" in errors.why
    assert errors.counts.get("error points", 0) < 228
    assert report.numbers.seconds < 10


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [(None, None), (5, 5), (0.5, 0.5), ("90s", 90), ("10m", 600), ("1.5h", 5400), (" 7 ", 7)],
)
def test_a_budget_is_read(budget: str | float | None, seconds: float | None) -> None:
    assert seconds_of(budget) == seconds


@pytest.mark.parametrize("budget", ["", "soon", "-1s", "1d", "1s2"])
def test_an_invalid_budget_is_refused(budget: str) -> None:
    with pytest.raises(ValueError, match="a budget is a number of seconds"):
        seconds_of(budget)


# ── runs that cannot test anything ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("workload", "path"), [("mapped", "map: "), ("by_another_way", "file: the recorder has not seen it made")]
)
def test_changes_that_the_recorder_does_not_see_are_reported(
    toy: ModuleType, workload: str, path: str
) -> None:
    if workload == "by_another_way":
        toy.by_another_way = _beside_the_recorder(toy)  # type: ignore[attr-defined]
    report = toy_lab(toy, workload, "nothing").run(["model"], jobs=1)

    (one,) = report.numbers.workloads
    assert [what for what in one.uncovered if what.startswith(path)]
    assert report.numbers.layer("model").why
    with pytest.raises(AssertionError, match="not covered"):
        report.assert_ok()


def _beside_the_recorder(toy: ModuleType) -> Callable[..., None]:
    def by_another_way(root: Path, ctx: Ctx) -> None:
        subprocess.run(["/bin/sh", "-c", f"echo > {root}/file"], env={}, check=True)

    return by_another_way


@pytest.mark.parametrize(
    ("workload", "recover", "why"),
    [
        (
            "fails",
            "nothing",
            "the workload fails fails without any crash: it refused with OSError: on purpose",
        ),
        ("forgetful", "nothing", "a promise is broken without any crash: LOST 1"),
        ("workload", "refuses", "a promise is broken without any crash: REFUSED"),
        ("marks_nonsense", "nothing", "nonsense|Expecting value"),
    ],
)
def test_a_promise_broken_without_a_crash_is_reported_at_once(
    toy: ModuleType, workload: str, recover: str, why: str
) -> None:
    with pytest.raises(LabError, match=why):
        toy_lab(toy, workload, recover).run(jobs=1)


def test_an_unknown_layer_is_refused(toy: ModuleType) -> None:
    with pytest.raises(ValueError, match="no layer magic: there are "):
        toy_lab(toy).run(["model", "magic"])


def test_a_value_that_is_no_program_is_refused() -> None:
    with pytest.raises(TypeError, match="neither a function nor a Command"):
        CrashLab(lambda root, ctx: None, 7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is nothing to crash"):
        CrashLab({}, lambda root: {})


def test_functions_that_workers_cannot_import_are_sent_as_code() -> None:
    said: list[str] = []

    def workload(root: Path, ctx: Ctx) -> None:
        with ctx.doing("add", "k", len(said)):
            (root / "file").write_bytes(b"k")

    report = CrashLab(workload, lambda root: {"k": 0} if (root / "file").exists() else {}).run(
        ["kill"], jobs=1
    )

    report.assert_ok()
    assert report.numbers.layer("kill").counts["kills"] > 3

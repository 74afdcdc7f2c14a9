"""`ledgerstore crash`: violations are printed, kept and reproduced; no process is left running."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lab_numbers
import pytest
import toy_lab
from shell_samples import run, verdict

from recovery.crashlab.judge.run_figures import (
    LabNumbers,
    LayerNumbers,
    Status,
    ViolationNumbers,
    WorkloadNumbers,
    load,
)
from recovery.crashlab.lab import NOT_WANTED, CrashLab, LabReport
from recovery.crashlab.run.runner import memory_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

# A shell that runs the tests in the background ignores SIGINT, and child processes inherit that.
HEARS_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{HEARS_INTERRUPTS}; from recovery.shell.main import main; main()", "crash"]
PATIENCE_S = 60


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A copy of the toy laboratory for each test, because some tests fix its bug."""
    file = tmp_path / "toy_lab.py"
    shutil.copy(toy_lab.__file__, file)
    return file


def crash(place: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    variables = os.environ | environment
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=place, env=variables
    )


def last(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


# ── run ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_sound_store_is_clean_and_the_verdict_comes_last(toy: Path) -> None:
    done = crash(toy.parent, "run", "toy_lab.py:lab", "--layers", "kill,model", "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"crash: 0 violations in \d+ distinct crash images, 22 kills \(\d+ s\)", last(done))
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["layer", "status", "tried", "of_what", "violations", "seconds", "why"]
    assert [line.split()[0] for line in lines] == ["model", "kill", "errors", "nested", "rot", "cut"]
    assert lines[1].split()[:4] == ["kill", "complete", "22", "kills"]
    assert all("NOT RUN" in line and line.endswith(NOT_WANTED) for line in lines[2:])
    assert "report: crash-report/report.html" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert sorted(path.name for path in (toy.parent / "crash-report").iterdir()) == [
        "report.html",
        "report.json",
    ]


@pytest.mark.slow
def test_a_violation_is_reproduced_until_the_bug_is_fixed(toy: Path) -> None:
    place = toy.parent
    done = crash(place, "run", "toy_lab.py:bad", "--layers", "kill", "--out", "found")
    assert done.returncode == 1, done.stderr
    assert last(done).startswith("crash: ")
    [command, *_] = re.findall(
        r"^ +ledgerstore crash (replay found/violations/kill-1)$", done.stderr, re.MULTILINE
    )
    again = crash(place, *command.split())
    assert (again.returncode, last(again)) == (1, "replay: the violation still happens")
    assert "the same, byte for byte" in again.stdout
    toy.write_text(
        toy.read_text().replace('(root / str(key)).write_bytes(b"tea")', 'put(root, str(key), b"tea")')
    )
    mended = crash(place, *command.split(), "--json")
    assert mended.returncode == 0, mended.stderr
    [row] = json.loads(mended.stdout)
    assert (row["layer"], row["shows"], row["same_image"], row["breach"]) == ("kill", False, False, None)
    assert "no longer happens" in last(mended)


@pytest.mark.slow
def test_a_violation_is_reproduced_from_another_working_directory(toy: Path, tmp_path: Path) -> None:
    crash(toy.parent, "run", "toy_lab.py:bad", "--layers", "kill")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = crash(elsewhere, "replay", "../crash-report/violations/kill-1")
    assert (done.returncode, last(done)) == (1, "replay: the violation still happens"), done.stderr


@pytest.mark.slow
def test_violations_of_rot_and_of_failing_calls_are_reproduced(toy: Path) -> None:
    toy.write_text(
        toy.read_text().replace(
            "while data:\n            data = data[file.write(data) or 0 :]", "file.write(data)"
        )
    )
    crash(toy.parent, "run", "toy_lab.py:lab", "--layers", "errors,rot")
    kept = sorted((toy.parent / "crash-report" / "violations").iterdir())
    assert {"errors", "rot"} <= {path.name.partition("-")[0] for path in kept}
    for path in {path.name.partition("-")[0]: path for path in kept}.values():
        assert last(crash(toy.parent, "replay", path)) == "replay: the violation still happens"


@pytest.mark.slow
def test_violations_of_an_earlier_run_are_removed(toy: Path) -> None:
    place = toy.parent
    crash(place, "run", "toy_lab.py:bad", "--layers", "kill")
    assert list((place / "crash-report").glob("violations/*"))
    (place / "crash-report" / "violations" / "notes").mkdir()
    crash(place, "run", "toy_lab.py:lab", "--layers", "kill")
    assert [path.name for path in (place / "crash-report").glob("violations/*")] == ["notes"]


@pytest.mark.slow
def test_json_is_all_the_numbers_and_nothing_else(toy: Path) -> None:
    done = crash(toy.parent, "run", "toy_lab:seeded", "--layers", "kill", "--seed", 7, "--json")
    numbers = json.loads(done.stdout)
    assert (numbers["name"], numbers["seed"], numbers["jobs"]) == ("toy of seed 7", 7, os.cpu_count())
    assert numbers == json.loads((toy.parent / "crash-report" / "report.json").read_text())


@pytest.mark.slow
def test_the_output_of_the_store_is_written_to_a_file(toy: Path) -> None:
    done = crash(toy.parent, "run", "toy_lab.py:chats", "--layers", "kill")
    assert "more tea?" not in done.stdout + done.stderr
    assert "more tea?" in (toy.parent / "crash-report" / "printed.txt").read_text()


@pytest.mark.slow
def test_a_workload_that_fails_by_itself_ends_with_exit_code_3(toy: Path) -> None:
    done = crash(toy.parent, "run", "toy_lab.py:fails")
    assert (done.returncode, done.stdout) == (3, "")
    assert "the workload failing fails without any crash" in last(done)
    assert "out of tea" in last(done)
    assert not (toy.parent / "crash-report").exists()


def test_without_a_compiler_the_command_says_so_and_tries_nothing(toy: Path) -> None:
    done = crash(toy.parent, "run", "toy_lab.py:lab", PATH=str(toy.parent), XDG_CACHE_HOME=str(toy.parent))
    assert done.returncode == 3
    assert last(done).startswith("ledgerstore: recording a program needs a C compiler")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("toy",), 2, "neither module:name nor"),
        (("no_such_file.py:lab",), 3, "no such file"),
        (("no_such_module:lab",), 3, "ModuleNotFoundError"),
        (("toy_lab:nothing",), 3, "has no attribute 'nothing'"),
        (("toy_lab:KEYS",), 3, "neither a CrashLab nor a function"),
        (("--layers", "kill,quake"), 2, "unknown layer: quake; the layers are model, kill"),
        (("--layers", ","), 2, "no layer is given"),
        (("--budget", "soon"), 2, "a budget is a number of seconds"),
        (("--profile", "fat32"), 2, "no profile 'fat32'"),
        (("--jobs", "0"), 2, "0 is not in the range"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(arguments: tuple[str, ...], code: int, words: str) -> None:
    result = run("crash", "run", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr


def test_a_report_cannot_be_written_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    result = run("crash", "run", "--out", tmp_path / "taken" / "below")
    assert (result.exit_code, verdict(result)) == (3, f"ledgerstore: not a directory: {tmp_path / 'taken'}")


# ── the result of a run ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def came_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Replace the run of the laboratory by one that returns these numbers."""

    def set_to(numbers: LabNumbers) -> None:
        def report(*_: object, **__: object) -> LabReport:
            (tmp_path / "out").mkdir(exist_ok=True)
            return LabReport(numbers, tmp_path / "out")

        monkeypatch.setattr(CrashLab, "run", report)

    return set_to


def ran(tmp_path: Path, *arguments: object) -> Any:
    return run("crash", "run", "toy_lab:lab", "--out", tmp_path / "out", *arguments)


def numbers(*layers: LayerNumbers, **more: Any) -> LabNumbers:
    return LabNumbers("toy", 1, "posix-strict", 601.4, layers=list(layers), **more)


KILLS = LayerNumbers("kill", counts={"kills": 6087})
NO_CUT = LayerNumbers("cut", Status.NOT_RUN, "ext4: not root")


def test_a_layer_that_did_not_run_is_in_capitals_and_has_a_reason(came_to: Any, tmp_path: Path) -> None:
    came_to(numbers(KILLS, NO_CUT))
    result = ran(tmp_path)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("cut")]
    assert "NOT RUN" in line
    assert line.endswith("ext4: not root")
    assert "; not run: " in verdict(result)
    assert verdict(result).startswith("crash: 0 violations in 6,087 kills; ")
    assert verdict(result).endswith(" (601 s)")
    assert result.exit_code == 0


def test_a_requested_layer_that_did_not_run_ends_with_exit_code_3(came_to: Any, tmp_path: Path) -> None:
    came_to(numbers(KILLS, NO_CUT))
    assert ran(tmp_path, "--layers", "kill,cut").exit_code == 3


def test_a_run_that_tried_nothing_is_not_clean(came_to: Any, tmp_path: Path) -> None:
    came_to(numbers(NO_CUT))
    result = ran(tmp_path)
    assert result.exit_code == 3
    assert verdict(result).startswith("crash: nothing was tried, so nothing is proven; not run: ")


def test_a_file_with_unrecorded_changes_is_reported(came_to: Any, tmp_path: Path) -> None:
    unseen = WorkloadNumbers("adds", uncovered=["index: it is mapped"])
    came_to(numbers(KILLS, workloads=[unseen]))
    result = ran(tmp_path)
    assert "NOT COVERED  workload adds: index: it is mapped" in result.stderr
    assert "; not covered: 1 file (601 s)" in verdict(result)
    assert result.exit_code == 3


def test_some_of_many_violations_are_printed_and_the_rest_is_counted(came_to: Any, tmp_path: Path) -> None:
    many = [
        ViolationNumbers(
            f"kill-{n}", "LOST", f"LOST {n}\x1b[31m", "kill", "adds", n, "", directory=f"violations/kill-{n}"
        )
        for n in range(12)
    ]
    came_to(numbers(KILLS, violations=many))
    result = ran(tmp_path)
    assert result.exit_code == 1
    assert result.stderr.count("ledgerstore crash replay ") == 10
    assert "… and 2 more: see the report" in result.stderr
    assert "\x1b" not in result.stderr
    assert verdict(result).startswith("crash: 12 violations in 6,087 kills; ")


# ── while it runs ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_terminal_shows_the_running_layer_and_the_time_left(toy: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["run", "toy_lab.py:bad", "--layers", "kill", "--budget", "60s"]
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        cwd=toy.parent,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    ):
        os.close(theirs)
        with os.fdopen(ours, "rb") as terminal:
            shown = b"".join(_until_closed(terminal.fileno())).decode()
    assert re.search(r"kill +\d+ kills", shown)
    assert re.search(r"0:5\d left", shown)
    assert "violations" in shown


def _until_closed(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:  # Linux: the other side is gone
            return
        if not piece:
            return
        yield piece


def hanging(toy: Path) -> tuple[subprocess.Popen[str], int, int]:
    """Yield the command while a workload hangs, its worker, and the child of the worker."""
    place = toy.parent
    os.mkfifo(place / "heard")
    heard = os.open(place / "heard", os.O_RDWR)
    (place / "tmp").mkdir()
    command = subprocess.Popen(
        [*COMMAND, "run", "toy_lab.py:hangs", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
        env=os.environ | {"TMPDIR": str(place / "tmp"), toy_lab.HEARD: str(place / "heard")},
    )
    assert select.select([heard], [], [], PATIENCE_S)[0]
    worker, child = os.read(heard, 100).split()
    os.close(heard)
    return command, int(worker), int(child)


def has_ended(process: int) -> bool:
    return bool(select.select([process], [], [], PATIENCE_S)[0])


def scratch_of(worker: int) -> list[Path]:
    return list(Path(memory_directory() or "/tmp").glob(f"crashlab-{worker}-*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupt_leaves_no_process_and_no_scratch(toy: Path, number: signal.Signals) -> None:
    command, worker, child = hanging(toy)
    with command, os.fdopen(os.pidfd_open(worker)) as first, os.fdopen(os.pidfd_open(child)) as second:
        assert scratch_of(worker)
        command.send_signal(number)
        _, stderr = command.communicate(timeout=PATIENCE_S)
        assert has_ended(first.fileno())
        assert has_ended(second.fileno())
    assert command.returncode == 130
    assert stderr == "crash: interrupted; violations so far: 0; no report is written\n"
    assert scratch_of(worker) == []
    assert list((toy.parent / "tmp").iterdir()) == []
    assert not (toy.parent / "crash-report").exists()


def test_workers_end_and_clean_up_when_the_command_is_killed(toy: Path) -> None:
    command, worker, child = hanging(toy)
    with command, os.fdopen(os.pidfd_open(worker)) as first, os.fdopen(os.pidfd_open(child)) as second:
        command.kill()
        command.communicate(timeout=PATIENCE_S)
        assert has_ended(first.fileno())
        assert has_ended(second.fileno())
    assert scratch_of(worker) == []


# ── replay and report ───────────────────────────────────────────────────────────────────────────────────────


def test_only_the_directory_of_a_violation_can_be_replayed(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "violation.json").write_text('{"path": []}')
    (tmp_path / "broken" / "violation.pickle").write_bytes(b"no pickle")
    for path, words in [
        ("nowhere", "no such directory"),
        (".", "not the directory of a violation"),
        ("broken", "cannot be loaded"),
    ]:
        result = run("crash", "replay", tmp_path / path)
        assert (result.exit_code, result.stdout) == (3, "")
        assert words in verdict(result)


def test_the_help_of_replay_warns_that_it_runs_stored_programs() -> None:
    assert "only for directories that you trust" in run("crash", "replay", "--help").stdout


def test_a_report_is_printed_again_and_its_page_is_written_again(tmp_path: Path) -> None:
    numbers(KILLS).write(tmp_path / "report.json")
    result = run("crash", "report", tmp_path)
    assert result.exit_code == 0
    assert "6,087 kills" in result.stdout
    assert verdict(result).startswith("crash: 0 violations in 6,087 kills")
    assert "6,087" in (tmp_path / "report.html").read_text()


def test_a_report_with_violations_is_a_finding(tmp_path: Path) -> None:
    lab_numbers.large().write(tmp_path / "report.json")
    assert run("crash", "report", tmp_path).exit_code == 1


def test_planted_bugs_are_added_to_the_numbers(tmp_path: Path) -> None:
    numbers(KILLS).write(tmp_path / "report.json")
    (tmp_path / "mutants.json").write_text(
        json.dumps([{"name": "m", "rule": "sync first", "found_by": "model"}])
    )
    result = run("crash", "report", tmp_path, "--mutants", tmp_path / "mutants.json")
    assert "planted 1 of 1 bug found" in result.stdout
    assert [one.name for one in load(tmp_path / "report.json").mutants] == ["m"]


def test_a_file_that_is_no_report_ends_with_exit_code_3(tmp_path: Path) -> None:
    assert run("crash", "report", tmp_path).exit_code == 3
    (tmp_path / "report.json").write_text('{"format": 99}')
    assert run("crash", "report", tmp_path).exit_code == 3
    numbers(KILLS).write(tmp_path / "report.json")
    (tmp_path / "mutants.json").write_text('[{"colour": "red"}]')
    assert run("crash", "report", tmp_path, "--mutants", tmp_path / "mutants.json").exit_code == 3
    assert load(tmp_path / "report.json").mutants == []


# ── the default laboratory ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_default_laboratory_is_that_of_ledgerstore(tmp_path: Path) -> None:
    done = crash(tmp_path, "run", "--layers", "kill", "--budget", "10s")
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "crash-report" / "report.json").name == "ledgerstore"

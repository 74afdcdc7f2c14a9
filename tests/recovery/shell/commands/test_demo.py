"""`ledgerstore demo`: no acknowledged entry is lost, a loss is detected, and no process is left running."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from shell_samples import rows, run, verdict

from recovery.demo import audit
from recovery.demo.workload import Workload
from recovery.demo.writer_process import AcknowledgedCounts, WriterDied, WriterProcess
from recovery.opening.open_store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SMALL = ("--entries", 1500, "--seconds", 10, "--size", 500, "--ledgers", 3)
# A shell that runs the tests in the background ignores SIGINT, and child processes inherit that.
HEARS_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{HEARS_INTERRUPTS}; from recovery.shell.main import main; main()"]
WORKLOAD = Workload(entries=100, size=100, ledgers=2)
PATIENCE_S = 60


def audited(path: Path, ends: Mapping[int, int]) -> audit.ReadBackResult:
    return audit.audit(str(path), WORKLOAD, ends, lambda _: None, lambda *_: None)


def filled(path: Path, entries: int) -> Path:
    """Make a store whose ledger 1 holds this number of entries of the workload."""
    with open_store(path, WORKLOAD.config) as store:
        store.ledger(1).append_many(WORKLOAD.payload(1, entry) for entry in range(entries))
    return path


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    [row] = rows("demo", tmp_path / "store", *SMALL)
    assert row["directory"] == str(tmp_path / "store")
    assert row["acknowledged"] >= 1500
    assert (row["lost"], row["wrong"]) == (0, 0)
    assert row["recovered"] == row["acknowledged"]


@pytest.mark.slow
def test_the_writer_completes_checkpoints_and_rolls_journals_before_the_kill(tmp_path: Path) -> None:
    [row] = rows("demo", tmp_path, *SMALL)
    assert row["checkpoints"] >= 1
    assert row["journals"] >= 2


def test_the_table_shows_the_figures_and_the_verdict_comes_last(tmp_path: Path) -> None:
    result = run("demo", tmp_path, *SMALL)
    shown = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()[1:]}
    assert result.exit_code == 0
    assert shown["lost"] == "0"
    assert shown["recovered"] == shown["acknowledged"]
    assert {"unacknowledged", "replayed", "replay_s", "replay_mb_s", "open_s"} <= shown.keys()
    assert re.fullmatch(
        rf"demo: 0 of {shown['acknowledged']} acknowledged entries lost \([0-9.]+ s\)", verdict(result)
    )
    assert "\x1b" not in result.output


@pytest.mark.slow
def test_the_store_is_kept_and_can_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run("demo", *SMALL)
    [kept] = tmp_path.iterdir()
    commands = re.findall(r"^  ledgerstore (.*)$", result.stderr, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["files", "journal", "log"]
    assert all(str(kept) in command for command in commands)
    looks = [run(*command.split()) for command in commands]
    assert [look.exit_code for look in looks] == [0, 0, 0]
    assert "entry" in looks[1].stdout, "the journal that is shown holds entries"


def test_a_program_that_is_not_on_the_path_is_shown_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", [".venv/bin/ledgerstore"])
    result = run("demo", tmp_path / "store", *SMALL)
    assert f"\n  .venv/bin/ledgerstore files {tmp_path / 'store'}\n" in result.stderr


def test_an_entry_that_recovery_missed_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Workload.payload

    def sabotaged(self: Workload, ledger_id: int, entry_id: int) -> bytes:
        # Only this process has the planted bug, because the writer is another process.
        return b"" if (ledger_id, entry_id) == (2, 17) else genuine(self, ledger_id, entry_id)

    monkeypatch.setattr(Workload, "payload", sabotaged)
    result = run("demo", tmp_path, *SMALL)
    assert result.exit_code == 1
    assert verdict(result).startswith("demo: 1 of ")
    assert "lost acknowledged entries" in result.stderr


def test_a_store_that_refuses_to_open_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = WriterProcess.kill

    def with_damage(victim: WriterProcess) -> None:
        kill(victim)
        for mark in tmp_path.rglob("lastMark"):
            # The index cannot stand in for the mark, because it is damaged too.
            mark.unlink()
            (mark.parent / "index" / "data.mdb").write_bytes(b"?" * 8192)

    monkeypatch.setattr(WriterProcess, "kill", with_damage)
    result = run("demo", tmp_path, *SMALL)
    assert result.exit_code == 1
    assert "can no longer be opened" in verdict(result)


def test_missing_entries_are_counted_one_by_one(tmp_path: Path) -> None:
    recovered = audited(filled(tmp_path, 10), {1: 13, 2: 1})
    assert (recovered.acknowledged, recovered.intact, recovered.lost) == (14, 10, 4)
    assert not recovered.is_sound


def test_entries_kept_beyond_the_acknowledged_are_no_loss(tmp_path: Path) -> None:
    recovered = audited(filled(tmp_path, 10), {1: 7, 2: 0})
    assert (recovered.lost, recovered.unacknowledged, recovered.wrong) == (0, 3, 0)
    assert recovered.is_sound


def test_entries_that_were_never_written_are_wrong(tmp_path: Path) -> None:
    with open_store(filled(tmp_path, 10), WORKLOAD.config) as store:
        store.ledger(1).append(WORKLOAD.payload(1, 9))
    recovered = audited(tmp_path, {1: 10, 2: 0})
    assert (recovered.lost, recovered.wrong) == (0, 1)
    assert not recovered.is_sound


def test_in_a_damaged_block_only_the_damaged_entry_is_lost(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    [log] = tmp_path.rglob("0.log")
    data = log.read_bytes()
    at = data.index(WORKLOAD.payload(1, 4))
    log.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert audited(tmp_path, {1: 10, 2: 0}).lost == 1


def test_an_acknowledgement_counts_when_its_line_is_whole() -> None:
    acknowledged = AcknowledgedCounts(range(1, 3))
    acknowledged.feed(b"1 0 64\n2 0 1\n1 64 1")
    assert acknowledged.ends == {1: 64, 2: 1}
    acknowledged.feed(b"28\n")
    assert acknowledged.ends == {1: 128, 2: 1}
    assert acknowledged.entries == 129


@pytest.mark.slow
def test_a_writer_that_ends_by_itself_is_reported_with_its_last_output(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("this is no store")
    with WriterProcess(str(tmp_path), WORKLOAD) as victim, pytest.raises(WriterDied, match=r"notes\.txt"):
        victim.listen(lambda: False)


def test_a_directory_that_is_not_empty_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run("demo", tmp_path).exit_code == 3
    assert run("demo", tmp_path / "notes.txt").exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def running(tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """Yield the running command, and the process id of its writer."""
    command = subprocess.Popen(
        [*COMMAND, "demo", "--entries", "1000000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert command.stderr is not None
    return command, int(command.stderr.readline().split()[1])


def has_ended(process: int) -> bool:
    ready, _, _ = select.select([process], [], [], PATIENCE_S)
    return bool(ready)


@pytest.mark.slow
def test_an_interrupt_leaves_neither_a_process_nor_a_directory(tmp_path: Path) -> None:
    command, pid = running(tmp_path)
    with command, os.fdopen(os.pidfd_open(pid)) as writer:
        command.send_signal(signal.SIGINT)
        _, stderr = command.communicate(timeout=PATIENCE_S)
        assert has_ended(writer.fileno())
    assert command.returncode == 130
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


def test_the_writer_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    command, pid = running(tmp_path)
    with command, os.fdopen(os.pidfd_open(pid)) as writer:
        command.kill()
        command.communicate(timeout=PATIENCE_S)
        assert has_ended(writer.fileno())


def test_the_help_says_what_it_does_and_how_to_bound_it() -> None:
    shown = run("demo", "--help").stdout
    assert "kill the writer" in shown
    assert all(option in shown for option in ("--entries", "--seconds", "--size", "--ledgers", "--json"))


def test_help_loads_no_store() -> None:
    code = (
        "import sys\nfrom recovery.shell.main import cli\n"
        "try: cli.main(['demo', '--help'])\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stderr.split()}.isdisjoint(
        {"lmdb", "msgpack", "rich", "crc32c", "numpy"}
    )

"""Audits that use kept parts have the same findings as an audit that reads everything."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from entry_log_tasks import (
    OURS,
    RecordingEngine,
    SteppingClock,
    TaskInterrupted,
    ledgers_of,
    log_file,
    part_of,
    part_values,
    scan,
)

from recovery.audit.cache.engine import CachingEngine
from recovery.audit.cache.part_cache import FOLDER, PartCache, Reuse
from recovery.audit.engines.local import Serial
from recovery.audit.engines.task import TolerantTask, UnreadFile
from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart
from storage.entry.model import DigestType
from storage.entry.read_result import Flaw

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from recovery.audit.engines.task import AuditTask, ReadThrottle, TaskEngine
    from recovery.audit.scan.entry_log import ScanLog

HOLE = FlawAt(FlawKind.HOLE, Flaw.NOT_A_RECORD, 2000, 3000)


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    (tmp_path / "store").mkdir()
    return [log_file(tmp_path / "store", log_id, count=3 + log_id) for log_id in range(6)]


@pytest.fixture
def tasks(logs: list[Path]) -> list[AuditTask[Any]]:
    # In the form in which a plan makes them.
    return [TolerantTask(scan(log)) for log in logs]


@dataclass
class Audits:
    """Several audits of the same logs, each with its own report."""

    folder: Path
    logs: list[Path]
    clock: SteppingClock

    def kept(self, report: str, reuse: Reuse = Reuse.SOUND) -> PartCache:
        return PartCache(self.folder / report, ledgers_of(*self.logs), reuse, self.clock)

    def audit(
        self,
        report: str,
        inner: TaskEngine,
        since: Sequence[str] = (),
        *,
        resumed: bool = False,
        reread: float = 0.0,
    ) -> CachingEngine:
        before = [self.kept(report, Reuse.ENDED)] if resumed else []
        return CachingEngine(inner, self.kept(report), [*before, *map(self.kept, since)], reread)


@pytest.fixture
def audits(tmp_path: Path, logs: list[Path]) -> Audits:
    return Audits(tmp_path, logs, SteppingClock())


def run(engine: TaskEngine, tasks: Sequence[AuditTask[Any]], read: list[int] | None = None) -> list[Any]:
    """Return the result of each task. Each must have exactly one."""
    told_to = [] if read is None else read
    answers = {}
    for done in engine.run(tasks, told_to.append):
        assert done.number not in answers
        part = done.part
        answers[done.number] = part_values(part) if isinstance(part, LogPart) else part
    assert sorted(answers) == list(range(len(tasks)))
    return [answers[number] for number in range(len(tasks))]


def parts_in(audits: Audits, report: str) -> set[str]:
    return {path.name for path in (audits.folder / report / FOLDER).iterdir()}


# ── --since ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_unchanged_log_is_not_read_again(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    first = run(audits.audit("monday", RecordingEngine()), tasks)
    again, read = RecordingEngine(), list[int]()
    engine = audits.audit("tuesday", again, ["monday"])
    assert run(engine, tasks, read) == first == run(RecordingEngine(), tasks)
    # The inner engine is not even called, because starting it may take seconds.
    assert (again.asked, read) == (0, [])
    assert engine.reused_bytes == sum(task.size for task in tasks)


def test_a_new_log_is_read(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    run(audits.audit("monday", RecordingEngine()), tasks[:4])
    again, read = RecordingEngine(), list[int]()
    engine = audits.audit("tuesday", again, ["monday"])
    assert run(engine, tasks, read) == run(RecordingEngine(), tasks)
    assert sorted(again.given) == sorted(task.name for task in tasks[4:])
    assert sum(read) == sum(task.size for task in tasks[4:])
    assert engine.reused_bytes == sum(task.size for task in tasks[:4])


def test_a_log_with_a_flaw_is_read_each_time(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    def finds(task: ScanLog) -> LogPart:
        return replace(part_of(task), flaws=(HOLE,) if task.log_id == 2 else ())

    first = run(audits.audit("monday", RecordingEngine(finds=finds)), tasks)
    again = RecordingEngine(finds=finds)
    assert run(audits.audit("tuesday", again, ["monday"]), tasks) == first
    assert again.given == [tasks[2].name]


def test_each_report_contains_all_parts_that_the_next_audit_uses(
    audits: Audits, tasks: list[AuditTask[Any]]
) -> None:
    run(audits.audit("monday", RecordingEngine()), tasks[:4])
    run(audits.audit("tuesday", RecordingEngine(), ["monday"]), tasks)
    again = RecordingEngine()
    run(audits.audit("wednesday", again, ["tuesday"]), tasks)
    assert again.given == []


def test_one_directory_can_be_the_report_of_every_day(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    first = audits.audit("report", RecordingEngine())
    run(first, tasks)
    first.tidy()
    again = RecordingEngine()
    second = audits.audit("report", again, ["report"])
    # The first log was collected in the meantime.
    run(second, tasks[1:])
    assert again.given == []
    second.tidy()
    assert len(parts_in(audits, "report")) == len(tasks) - 1


def test_after_a_report_without_parts_everything_is_read(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    again = RecordingEngine()
    assert run(audits.audit("monday", again, ["never"]), tasks) == run(RecordingEngine(), tasks)
    assert len(again.given) == len(tasks)


def test_other_tasks_go_to_the_inner_engine(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    others: list[AuditTask[Any]] = [Other("journal"), *tasks, TolerantTask(Other("index"))]
    run(audits.audit("monday", RecordingEngine()), others)
    again = RecordingEngine()
    answers = run(audits.audit("tuesday", again, ["monday"]), others)
    assert (answers[0], answers[-1]) == ("did journal", "did index")
    assert again.given == ["index", "journal"]


def test_a_file_that_cannot_be_read_is_not_kept(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    @dataclass
    class Refusing(RecordingEngine):
        def run(self, tasks: Any, watch: Any) -> Any:
            for done in super().run(tasks, watch):
                yield replace(done, part=UnreadFile("1.log", "no")) if done.number == 1 else done

    answers = run(audits.audit("monday", Refusing()), tasks)
    assert answers[1] == UnreadFile("1.log", "no")
    assert len(parts_in(audits, "monday")) == len(tasks) - 1


def test_a_repeated_task_reads_the_file(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    run(audits.audit("monday", RecordingEngine()), tasks)
    again = RecordingEngine()
    engine = audits.audit("tuesday", again, ["monday"])
    run(engine, tasks)
    # Errors in a live store are confirmed by a second reading, which must read the file.
    run(engine, tasks[:1])
    assert again.given == [tasks[0].name]


def test_a_log_that_was_verified_with_two_settings_is_kept_for_both(
    audits: Audits, tasks: list[AuditTask[Any]], logs: list[Path]
) -> None:
    told_better = [scan(log, replace(OURS, declared={7: DigestType.CRC32})) for log in logs]
    for report, since in (("monday", []), ("tuesday", ["monday"])):
        inner = RecordingEngine()
        engine = audits.audit(report, inner, since)
        run(engine, tasks)
        run(engine, told_better)
        assert len(inner.given) == (0 if since else 2 * len(tasks))


# ── --resume ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ended", range(7))
def test_an_interrupted_audit_is_resumed(audits: Audits, tasks: list[AuditTask[Any]], ended: int) -> None:
    def finds(task: ScanLog) -> LogPart:
        return replace(part_of(task), flaws=(HOLE,) if task.log_id % 2 else ())

    whole = run(RecordingEngine(finds=finds), tasks)
    interrupted = audits.audit("report", RecordingEngine(ended, finds))
    if ended < len(tasks):
        with pytest.raises(TaskInterrupted):
            run(interrupted, tasks)
    else:
        run(interrupted, tasks)
    rest = RecordingEngine(finds=finds)
    resumed = audits.audit("report", rest, resumed=True)
    assert run(resumed, tasks) == whole
    assert len(rest.given) == len(tasks) - ended
    assert resumed.reused_bytes == sum(task.size for task in tasks[len(tasks) - ended :])


def test_no_audit_is_resumed_without_the_option(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    run(audits.audit("report", RecordingEngine()), tasks)
    again = RecordingEngine()
    run(audits.audit("report", again), tasks)
    assert len(again.given) == len(tasks)


def test_an_incremental_audit_may_be_interrupted_too(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    run(audits.audit("monday", RecordingEngine()), tasks[:3])
    with pytest.raises(TaskInterrupted):
        run(audits.audit("tuesday", RecordingEngine(1), ["monday"]), tasks)
    rest = RecordingEngine()
    assert run(audits.audit("tuesday", rest, ["monday"], resumed=True), tasks) == run(
        RecordingEngine(), tasks
    )
    assert sorted(rest.given) == sorted(task.name for task in tasks[3:5])


def test_an_audit_continues_if_nothing_can_be_kept(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    (audits.folder / "full").mkdir()
    (audits.folder / "full" / FOLDER).write_text("in the way")
    engine = audits.audit("full", RecordingEngine())
    assert run(engine, tasks) == run(RecordingEngine(), tasks)
    assert isinstance(engine.trouble, OSError)
    # It is not tried again for each of a thousand logs, and existing files stay.
    (audits.folder / "full" / FOLDER).unlink()
    run(engine, tasks)
    engine.tidy()
    assert not (audits.folder / "full" / FOLDER).exists()


# ── the share that is read again ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.1, 1 / 3, 0.5, 1.0])
def test_every_log_is_read_again_in_turn(audits: Audits, tasks: list[AuditTask[Any]], share: float) -> None:
    run(audits.audit("0", RecordingEngine()), tasks)
    everything = sum(task.size for task in tasks)
    seen: list[str] = []
    for day in range(1, round(1 / share) + 1):
        inner, read = RecordingEngine(), list[int]()
        engine = audits.audit(str(day), inner, [str(day - 1)], reread=share)
        assert run(engine, tasks, read) == run(RecordingEngine(), tasks)
        assert share * everything <= sum(read) < share * everything + max(task.size for task in tasks)
        assert engine.reused_bytes == everything - sum(read)
        seen += inner.given
    assert set(seen) == {task.name for task in tasks}


def test_no_more_is_read_again_than_the_share(audits: Audits, tmp_path: Path) -> None:
    (tmp_path / "alike").mkdir()
    audits.logs = [log_file(tmp_path / "alike", log_id) for log_id in range(4)]
    alike = [scan(log) for log in audits.logs]
    run(audits.audit("monday", RecordingEngine()), alike)
    inner = RecordingEngine()
    run(audits.audit("tuesday", inner, ["monday"], reread=0.5), alike)
    assert len(inner.given) == 2


def test_rot_is_found_when_the_log_is_read_again(
    audits: Audits, tasks: list[AuditTask[Any]], logs: list[Path]
) -> None:
    healthy = run(audits.audit("0", RecordingEngine()), tasks)
    _rot(logs[3])
    rotten = run(RecordingEngine(), tasks)
    assert run(audits.audit("1", RecordingEngine(), ["0"]), tasks) == healthy
    answers = [
        run(audits.audit(str(day), RecordingEngine(), [str(day - 1)], reread=0.15), tasks)
        for day in range(2, 8)
    ]
    assert answers[0] == healthy
    assert answers[-1] == rotten != healthy


def test_a_resumed_audit_reads_the_same_logs_again(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    run(audits.audit("monday", RecordingEngine()), tasks)
    whole = RecordingEngine()
    run(audits.audit("whole", whole, ["monday"], reread=0.5), tasks)
    interrupted, rest = RecordingEngine(1), RecordingEngine()
    with pytest.raises(TaskInterrupted):
        run(audits.audit("tuesday", interrupted, ["monday"], reread=0.5), tasks)
    run(audits.audit("tuesday", rest, ["monday"], resumed=True, reread=0.5), tasks)
    assert len(whole.given) > 1
    assert sorted(interrupted.given + rest.given) == sorted(whole.given)


# ── with real scans ──────────────────────────────────────────────────────────────────────────────────────


def test_a_real_scan_s_parts_are_kept_as_they_are(audits: Audits, tasks: list[AuditTask[Any]]) -> None:
    first = run(audits.audit("monday", Serial()), tasks)
    never = RecordingEngine(0)
    assert run(audits.audit("tuesday", never, ["monday"]), tasks) == first
    ids = {(row[1], row[3], row[4]) for row in first[0]["runs"][1]}
    assert ids == {(7, 0, 2), (8, 0, 2)}


def test_a_real_scan_of_a_flipped_bit_is_done_again(
    audits: Audits, tasks: list[AuditTask[Any]], logs: list[Path]
) -> None:
    _rot(logs[3])
    found = run(audits.audit("monday", Serial()), tasks)
    assert [bool(part["flaws"]) for part in found] == [False, False, False, True, False, False]
    again = RecordingEngine()
    run(audits.audit("tuesday", again, ["monday"]), tasks)
    assert again.given == [tasks[3].name]


@dataclass(frozen=True)
class Other:
    """A task that is not the scan of a log."""

    name: str
    size: int = 1

    def run(self, throttle: ReadThrottle) -> str:
        raise NotImplementedError


def _rot(log: Path) -> None:
    """Flip a bit in the payload of the second entry, without other changes."""
    stat = log.stat()
    data = bytearray(log.read_bytes())
    data[1024 + 80 + 60] ^= 1
    with log.open("r+b") as file:
        file.write(data)
    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))

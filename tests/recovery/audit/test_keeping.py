"""Audits that go on from what was read before find what an audit finds that reads everything."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from kept_logs import OURS, Clock, Interrupted, Reading, log_file, part_of, scan, told, whose

from recovery.audit.keeping import Keeping
from recovery.audit.kept_parts import FOLDER, Kept, Reuse
from recovery.audit.local import Serial
from recovery.audit.plan import Careful, Unread
from recovery.verify.parts import FlawAt, FlawKind, LogPart
from storage.entry import DigestType
from storage.outcome import Flaw

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from recovery.audit.log_scan import ScanLog
    from recovery.audit.task import Engine, Pace, Task

HOLE = FlawAt(FlawKind.HOLE, Flaw.NOT_A_RECORD, 2000, 3000)


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    (tmp_path / "store").mkdir()
    return [log_file(tmp_path / "store", log_id, count=3 + log_id) for log_id in range(6)]


@pytest.fixture
def tasks(logs: list[Path]) -> list[Task[Any]]:
    # As a plan makes them.
    return [Careful(scan(log)) for log in logs]


@dataclass
class Audits:
    """Several audits of the same logs, each with a report of its own."""

    folder: Path
    logs: list[Path]
    clock: Clock

    def kept(self, report: str, reuse: Reuse = Reuse.SOUND) -> Kept:
        return Kept(self.folder / report, whose(*self.logs), reuse, self.clock)

    def audit(
        self,
        report: str,
        inner: Engine,
        since: Sequence[str] = (),
        *,
        resumed: bool = False,
        reread: float = 0.0,
    ) -> Keeping:
        before = [self.kept(report, Reuse.ENDED)] if resumed else []
        return Keeping(inner, self.kept(report), [*before, *map(self.kept, since)], reread)


@pytest.fixture
def audits(tmp_path: Path, logs: list[Path]) -> Audits:
    return Audits(tmp_path, logs, Clock())


def run(engine: Engine, tasks: Sequence[Task[Any]], read: list[int] | None = None) -> list[Any]:
    """What came of each task; each must have come once."""
    told_to = [] if read is None else read
    answers = {}
    for done in engine.run(tasks, told_to.append):
        assert done.number not in answers
        part = done.part
        answers[done.number] = told(part) if isinstance(part, LogPart) else part
    assert sorted(answers) == list(range(len(tasks)))
    return [answers[number] for number in range(len(tasks))]


def parts_in(audits: Audits, report: str) -> set[str]:
    return {path.name for path in (audits.folder / report / FOLDER).iterdir()}


# ── --since ──────────────────────────────────────────────────────────────────────────────────────────


def test_what_has_not_changed_is_not_read_again(audits: Audits, tasks: list[Task[Any]]) -> None:
    first = run(audits.audit("monday", Reading()), tasks)
    again, read = Reading(), list[int]()
    engine = audits.audit("tuesday", again, ["monday"])
    assert run(engine, tasks, read) == first == run(Reading(), tasks)
    # Not even asked: to start an engine may take seconds.
    assert (again.asked, read) == (0, [])
    assert engine.reused_bytes == sum(task.size for task in tasks)


def test_what_is_new_is_read(audits: Audits, tasks: list[Task[Any]]) -> None:
    run(audits.audit("monday", Reading()), tasks[:4])
    again, read = Reading(), list[int]()
    engine = audits.audit("tuesday", again, ["monday"])
    assert run(engine, tasks, read) == run(Reading(), tasks)
    assert sorted(again.given) == sorted(task.name for task in tasks[4:])
    assert sum(read) == sum(task.size for task in tasks[4:])
    assert engine.reused_bytes == sum(task.size for task in tasks[:4])


def test_what_has_a_flaw_is_read_each_time(audits: Audits, tasks: list[Task[Any]]) -> None:
    def finds(task: ScanLog) -> LogPart:
        return replace(part_of(task), flaws=(HOLE,) if task.log_id == 2 else ())

    first = run(audits.audit("monday", Reading(finds=finds)), tasks)
    again = Reading(finds=finds)
    assert run(audits.audit("tuesday", again, ["monday"]), tasks) == first
    assert again.given == [tasks[2].name]


def test_each_report_holds_all_that_the_next_one_goes_on_from(audits: Audits, tasks: list[Task[Any]]) -> None:
    run(audits.audit("monday", Reading()), tasks[:4])
    run(audits.audit("tuesday", Reading(), ["monday"]), tasks)
    again = Reading()
    run(audits.audit("wednesday", again, ["tuesday"]), tasks)
    assert again.given == []


def test_one_directory_may_serve_every_day(audits: Audits, tasks: list[Task[Any]]) -> None:
    first = audits.audit("report", Reading())
    run(first, tasks)
    first.tidy()
    again = Reading()
    second = audits.audit("report", again, ["report"])
    # The first log was collected meanwhile.
    run(second, tasks[1:])
    assert again.given == []
    second.tidy()
    assert len(parts_in(audits, "report")) == len(tasks) - 1


def test_a_report_without_parts_is_one_to_read_everything_after(
    audits: Audits, tasks: list[Task[Any]]
) -> None:
    again = Reading()
    assert run(audits.audit("monday", again, ["never"]), tasks) == run(Reading(), tasks)
    assert len(again.given) == len(tasks)


def test_other_tasks_just_pass(audits: Audits, tasks: list[Task[Any]]) -> None:
    others: list[Task[Any]] = [Other("journal"), *tasks, Careful(Other("index"))]
    run(audits.audit("monday", Reading()), others)
    again = Reading()
    answers = run(audits.audit("tuesday", again, ["monday"]), others)
    assert (answers[0], answers[-1]) == ("did journal", "did index")
    assert again.given == ["index", "journal"]


def test_a_file_that_cannot_be_read_is_kept_by_nobody(audits: Audits, tasks: list[Task[Any]]) -> None:
    @dataclass
    class Refusing(Reading):
        def run(self, tasks: Any, watch: Any) -> Any:
            for done in super().run(tasks, watch):
                yield replace(done, part=Unread("1.log", "no")) if done.number == 1 else done

    answers = run(audits.audit("monday", Refusing()), tasks)
    assert answers[1] == Unread("1.log", "no")
    assert len(parts_in(audits, "monday")) == len(tasks) - 1


def test_who_asks_twice_wants_it_read(audits: Audits, tasks: list[Task[Any]]) -> None:
    run(audits.audit("monday", Reading()), tasks)
    again = Reading()
    engine = audits.audit("tuesday", again, ["monday"])
    run(engine, tasks)
    # Of a live store what is wrong is looked at once more, and must be looked at.
    run(engine, tasks[:1])
    assert again.given == [tasks[0].name]


def test_what_was_verified_in_two_ways_is_kept_in_both(
    audits: Audits, tasks: list[Task[Any]], logs: list[Path]
) -> None:
    told_better = [scan(log, replace(OURS, declared={7: DigestType.CRC32})) for log in logs]
    for report, since in (("monday", []), ("tuesday", ["monday"])):
        inner = Reading()
        engine = audits.audit(report, inner, since)
        run(engine, tasks)
        run(engine, told_better)
        assert len(inner.given) == (0 if since else 2 * len(tasks))


# ── --resume ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ended", range(7))
def test_an_audit_that_was_interrupted_goes_on(audits: Audits, tasks: list[Task[Any]], ended: int) -> None:
    def finds(task: ScanLog) -> LogPart:
        return replace(part_of(task), flaws=(HOLE,) if task.log_id % 2 else ())

    whole = run(Reading(finds=finds), tasks)
    interrupted = audits.audit("report", Reading(ended, finds))
    if ended < len(tasks):
        with pytest.raises(Interrupted):
            run(interrupted, tasks)
    else:
        run(interrupted, tasks)
    rest = Reading(finds=finds)
    resumed = audits.audit("report", rest, resumed=True)
    assert run(resumed, tasks) == whole
    assert len(rest.given) == len(tasks) - ended
    assert resumed.reused_bytes == sum(task.size for task in tasks[len(tasks) - ended :])


def test_without_being_told_no_audit_goes_on(audits: Audits, tasks: list[Task[Any]]) -> None:
    run(audits.audit("report", Reading()), tasks)
    again = Reading()
    run(audits.audit("report", again), tasks)
    assert len(again.given) == len(tasks)


def test_an_audit_that_goes_on_from_an_older_one_may_be_interrupted_too(
    audits: Audits, tasks: list[Task[Any]]
) -> None:
    run(audits.audit("monday", Reading()), tasks[:3])
    with pytest.raises(Interrupted):
        run(audits.audit("tuesday", Reading(1), ["monday"]), tasks)
    rest = Reading()
    assert run(audits.audit("tuesday", rest, ["monday"], resumed=True), tasks) == run(Reading(), tasks)
    assert sorted(rest.given) == sorted(task.name for task in tasks[3:5])


def test_an_audit_goes_on_where_nothing_can_be_kept(audits: Audits, tasks: list[Task[Any]]) -> None:
    (audits.folder / "full").mkdir()
    (audits.folder / "full" / FOLDER).write_text("in the way")
    engine = audits.audit("full", Reading())
    assert run(engine, tasks) == run(Reading(), tasks)
    assert isinstance(engine.trouble, OSError)
    # It is not tried again for each of a thousand logs, and what is there stays there.
    (audits.folder / "full" / FOLDER).unlink()
    run(engine, tasks)
    engine.tidy()
    assert not (audits.folder / "full" / FOLDER).exists()


# ── the share that is read again ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.1, 1 / 3, 0.5, 1.0])
def test_every_log_is_read_again_in_its_turn(audits: Audits, tasks: list[Task[Any]], share: float) -> None:
    run(audits.audit("0", Reading()), tasks)
    everything = sum(task.size for task in tasks)
    seen: list[str] = []
    for day in range(1, round(1 / share) + 1):
        inner, read = Reading(), list[int]()
        engine = audits.audit(str(day), inner, [str(day - 1)], reread=share)
        assert run(engine, tasks, read) == run(Reading(), tasks)
        assert share * everything <= sum(read) < share * everything + max(task.size for task in tasks)
        assert engine.reused_bytes == everything - sum(read)
        seen += inner.given
    assert set(seen) == {task.name for task in tasks}


def test_no_more_is_read_again_than_the_share(audits: Audits, tmp_path: Path) -> None:
    (tmp_path / "alike").mkdir()
    audits.logs = [log_file(tmp_path / "alike", log_id) for log_id in range(4)]
    alike = [scan(log) for log in audits.logs]
    run(audits.audit("monday", Reading()), alike)
    inner = Reading()
    run(audits.audit("tuesday", inner, ["monday"], reread=0.5), alike)
    assert len(inner.given) == 2


def test_rot_is_found_when_its_turn_has_come(
    audits: Audits, tasks: list[Task[Any]], logs: list[Path]
) -> None:
    healthy = run(audits.audit("0", Reading()), tasks)
    _rot(logs[3])
    rotten = run(Reading(), tasks)
    assert run(audits.audit("1", Reading(), ["0"]), tasks) == healthy
    answers = [
        run(audits.audit(str(day), Reading(), [str(day - 1)], reread=0.15), tasks) for day in range(2, 8)
    ]
    assert answers[0] == healthy
    assert answers[-1] == rotten != healthy


def test_the_same_logs_are_due_in_an_audit_that_is_resumed(audits: Audits, tasks: list[Task[Any]]) -> None:
    run(audits.audit("monday", Reading()), tasks)
    whole = Reading()
    run(audits.audit("whole", whole, ["monday"], reread=0.5), tasks)
    interrupted, rest = Reading(1), Reading()
    with pytest.raises(Interrupted):
        run(audits.audit("tuesday", interrupted, ["monday"], reread=0.5), tasks)
    run(audits.audit("tuesday", rest, ["monday"], resumed=True, reread=0.5), tasks)
    assert len(whole.given) > 1
    assert sorted(interrupted.given + rest.given) == sorted(whole.given)


# ── with the real kernels ────────────────────────────────────────────────────────────────────────────


def test_a_real_scan_s_parts_are_kept_as_they_are(audits: Audits, tasks: list[Task[Any]]) -> None:
    first = run(audits.audit("monday", Serial()), tasks)
    never = Reading(0)
    assert run(audits.audit("tuesday", never, ["monday"]), tasks) == first
    ids = {(row[1], row[3], row[4]) for row in first[0]["runs"][1]}
    assert ids == {(7, 0, 2), (8, 0, 2)}


def test_a_real_scan_of_a_flipped_bit_is_done_again(
    audits: Audits, tasks: list[Task[Any]], logs: list[Path]
) -> None:
    _rot(logs[3])
    found = run(audits.audit("monday", Serial()), tasks)
    assert [bool(part["flaws"]) for part in found] == [False, False, False, True, False, False]
    again = Reading()
    run(audits.audit("tuesday", again, ["monday"]), tasks)
    assert again.given == [tasks[3].name]


@dataclass(frozen=True)
class Other:
    """A task that is no scan of a log."""

    name: str
    size: int = 1

    def run(self, pace: Pace) -> str:
        raise NotImplementedError


def _rot(log: Path) -> None:
    """A bit flips in the payload of the second entry, and nothing else."""
    stat = log.stat()
    data = bytearray(log.read_bytes())
    data[1024 + 80 + 60] ^= 1
    with log.open("r+b") as file:
        file.write(data)
    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))

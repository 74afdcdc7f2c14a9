"""The recorder puts every call that changes something on the tape, and can kill or fail any of them.

The recorded programs are small, because these are tests of the tool.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import file_programs
import little_indexed_store as little
import pytest
from lab_runs import UNDISTURBED, Recorder
from recorded import history_of

from recovery.crashlab.judge.outcome import Answered, Died, Hung, RecoveryRefused
from recovery.crashlab.layers.kill import every_kill
from recovery.crashlab.record import preload, tape
from recovery.crashlab.record.preload import Action, Orders
from recovery.crashlab.record.tape import Call, Event, Flag
from recovery.crashlab.run.spec import Command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(preload.why_not()), reason=preload.why_not() or "nothing is missing")

ONE_SITTING = """
mkdir records
create records/lock
write records/lock 21
mkdir index.draft
create index.draft/data.mdb
write index.draft/data.mdb 8192
rename index.draft -> index
mkdir index
sync records
create records/table-1.draft
write records/table-1.draft 20
datasync records/table-1.draft
rename records/table-1.draft -> records/table-1
create records/log-1.draft
write records/log-1.draft 20
datasync records/log-1.draft
rename records/log-1.draft -> records/log-1
sync records
create records/mark.draft
write records/mark.draft 20
datasync records/mark.draft
rename records/mark.draft -> records/mark
sync records
write records/log-1 10
datasync records/log-1
create records/table-2.draft
write records/table-2.draft 30
datasync records/table-2.draft
rename records/table-2.draft -> records/table-2
create records/log-2.draft
write records/log-2.draft 20
datasync records/log-2.draft
rename records/log-2.draft -> records/log-2
write index/data.mdb 4096
datasync index/data.mdb
write index/data.mdb 120 durable
sync records
create records/mark.draft
write records/mark.draft 20
datasync records/mark.draft
rename records/mark.draft -> records/mark
sync records
unlink records/log-1
unlink records/table-1
write records/log-2 10
datasync records/log-2
"""
"""The calls of a small store that is made and gets two records, with a checkpoint between them."""


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fresh(tmp_path)


def fresh(below: Path) -> Path:
    root = below / f"root-{len(list(below.iterdir()))}"
    root.mkdir()
    return root


def calls(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if event.call is not Call.MARK]


def words(event: Event) -> str:
    arrow = f" -> {event.target}" if event.target else ""
    size = f" {event.length}" if event.call is Call.WRITE else ""
    durable = " durable" if event.call is Call.WRITE and event.flags & Flag.DURABLE else ""
    return f"{event.call.name.lower()} {event.path}{arrow}{size}{durable}"


# ── counting ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_calls_of_a_store_and_of_its_lmdb_are_counted_in_order(recorder: Recorder, root: Path) -> None:
    run = recorder.run(little.one_sitting, root)

    assert run.outcome == Answered(None)
    assert [words(event) for event in calls(run.events)] == ONE_SITTING.split("\n")[1:-1]
    assert [event.number for event in calls(run.events)] == list(range(1, len(calls(run.events)) + 1))


def test_each_kind_of_call_is_counted(recorder: Recorder, root: Path) -> None:
    events = calls(recorder.run(file_programs.every_call, root).events)

    kinds = Counter(event.call for event in events if not event.path.startswith(("index", "mapped", ".")))
    assert kinds == {
        Call.CREATE: 2,
        Call.WRITE: 6,
        Call.TRUNCATE: 2,
        Call.ALLOCATE: 1,
        Call.SYNC: 2,
        Call.DATASYNC: 1,
        Call.MKDIR: 1,
        Call.RENAME: 1,
        Call.LINK: 1,
        Call.SYMLINK: 1,
        Call.UNLINK: 1,
        Call.RMDIR: 1,
    }
    assert {words(event) for event in events} >= {
        "rename file -> directory/named",  # by the directory's descriptor
        "link directory/named -> link",
        "symlink symbolic -> link",
        "unlink directory/named",
        "sync directory",
        "rmdir directory",
    }
    assert [event.path for event in events if event.flags & Flag.DIRECTORY] == ["directory"]


def test_a_shared_writable_mapping_shows_on_the_tape(recorder: Recorder, root: Path) -> None:
    events = calls(recorder.run(file_programs.every_call, root).events)

    mapped = {event.path for event in events if event.call is Call.MAP}
    assert mapped == {"index/lock.mdb", "mapped/lock.mdb", "mapped/data.mdb"}
    assert Call.MSYNC in {event.call for event in events}


def test_a_write_is_on_the_tape_where_the_system_put_it(recorder: Recorder, root: Path) -> None:
    events = calls(recorder.run(file_programs.write_everywhere, root).events)

    written: dict[str, bytearray] = {}
    for event in events:
        if event.call is Call.WRITE:
            assert len(event.data) == event.length
            whole = written.setdefault(event.path, bytearray())
            whole.extend(bytes(max(0, event.offset + event.length - len(whole))))
            whole[event.offset : event.offset + event.length] = event.data
    assert written == {name: (root / name).read_bytes() for name in ("log", "plain", "target")}
    offsets = [(event.offset, event.length) for event in events if event.path == "log" and event.length]
    assert offsets == [(0, 3), (3, 2), (5, 1), (6, 3)]
    # The second copy has explicit offsets; the third continues after the bytes of the first.
    copies = [(event.offset, event.length) for event in events if event.path == "target" and event.length]
    assert copies == [(4, 3), (20, 2), (7, 2)]


def test_a_write_that_is_durable_when_it_returns_says_so(recorder: Recorder, root: Path) -> None:
    events = calls(recorder.run(file_programs.write_durably, root).events)

    writes = {event.path: event.is_sync for event in events if event.call is Call.WRITE}
    assert writes == {"d": True, "s": True, "plain": False, "once": True}


def test_a_size_that_changes_is_on_the_tape(recorder: Recorder, root: Path) -> None:
    events = calls(recorder.run(file_programs.allocate, root).events)

    assert [(event.call, event.offset, event.length) for event in events] == [
        (Call.CREATE, 0, 0),
        (Call.ALLOCATE, 10, 90),
        (Call.WRITE, 0, 50),
        (Call.TRUNCATE, 0, 20),
        (Call.TRUNCATE, 0, 30),
        (Call.TRUNCATE, 0, 0),
    ]
    created, *behind = events
    assert {event.inode for event in behind if event.inode} == {created.inode}


def test_calls_with_invalid_names_fail_as_without_the_recorder(recorder: Recorder, root: Path) -> None:
    run = recorder.run(file_programs.name_nothing, root)

    assert run.outcome == Answered(None)
    assert {event.error for event in calls(run.events)} == {errno.ENOENT}
    assert list(root.iterdir()) == []


def test_nothing_outside_the_root_is_counted(recorder: Recorder, root: Path) -> None:
    beside = root.with_name(f"{root.name}-beside")
    beside.mkdir()

    assert calls(recorder.run(file_programs.write_elsewhere, root).events) == []
    assert (beside / "file").read_bytes() == b"x"


def test_a_rename_across_the_root_s_border_says_that_one_side_is_unknown(
    recorder: Recorder, root: Path
) -> None:
    root.with_name(f"{root.name}-beside").mkdir()

    renames = [event for event in recorder.run(file_programs.cross_the_border, root).events if event.target]

    assert [(event.path, event.target) for event in renames] == [("?", "came"), ("went", "?")]


def test_the_root_may_be_named_through_a_link(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to("root")

    run = recorder.run(file_programs.speak_and_write, tmp_path / "link")

    assert [event.path for event in calls(run.events)] == ["1", "2"]


def test_calls_of_several_threads_are_counted_once_each(recorder: Recorder, root: Path) -> None:
    events = calls(recorder.run(file_programs.write_in_threads, root).events)

    assert [event.number for event in events] == list(range(1, 205))
    assert Counter(event.call for event in events) == {Call.CREATE: 4, Call.WRITE: 200}
    assert len({event.thread for event in events}) == 4


def test_one_of_several_threads_creates_the_same_file(recorder: Recorder, root: Path) -> None:
    events = calls(recorder.run(file_programs.create_in_threads, root).events)

    assert Counter(event.path for event in events if event.call is Call.CREATE) == dict.fromkeys(
        map(str, range(200)), 1
    )


def test_a_child_that_is_forked_writes_to_the_same_tape(recorder: Recorder, root: Path) -> None:
    run = recorder.run(file_programs.write_in_forks, root)

    assert [words(event) for event in calls(run.events)] == [
        "create parent",
        "create child",
        "write child 12",
        "create behind",
    ]
    assert [event.number for event in calls(run.events)] == [1, 2, 3, 4]
    assert [op.kind for op in run.history.ops] == ["of the child"]


def test_programs_below_a_program_write_to_the_same_tape(recorder: Recorder, root: Path) -> None:
    inner = f"import pathlib, file_programs as f; f.write_in_programs(pathlib.Path({str(root)!r}))"

    run = recorder.run(Command([sys.executable, "-c", inner], paths()), root)

    assert run.outcome == Answered(None)
    events = calls(run.events)
    found = [words(event) for event in events if not event.path.isdigit()]
    assert found == [
        "create before",
        "create one",
        "write one 5",
        "create two",
        "write two 2",
        "write one 1",
        "rename two -> three",
        "create behind",
    ]
    # A write to a descriptor that now belongs to another file is no mark either.
    assert [event.data for event in events if event.path.isdigit() and event.data] == [b"data"] * 9
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert [event for event in run.events if event.call is Call.MARK] == []


def paths() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_mark_has_its_place_among_the_calls(recorder: Recorder, root: Path) -> None:
    run = recorder.run(file_programs.speak_and_write, root)

    told = [event.data if event.call is Call.MARK else event.path for event in run.events]
    none, one, two = (b'["invoke",%d,"%s"]\n' % pair for pair in ((1, b"none"), (2, b"one"), (3, b"two")))
    assert told == [none, "1", one, "2", two]
    assert {event.number for event in run.events if event.call is Call.MARK} == {0}


def test_the_tape_tells_the_same_history_as_the_marks(recorder: Recorder, root: Path) -> None:
    run = recorder.run(little.three_sittings, root)

    told = history_of(event.data for event in run.events if event.call is Call.MARK)
    assert len(told.ops) == 9
    assert told.ops == run.history.ops


# ── strace as a witness that does not depend on libc ────────────────────────────────────────────────────────

CHANGES = """
    write pwrite64 writev pwritev pwritev2 sendfile copy_file_range splice vmsplice
    truncate ftruncate fallocate fsync fdatasync sync_file_range mmap io_uring_setup io_submit
    rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat
    mkdir mkdirat rmdir mknod mknodat creat open openat openat2
"""
KINDS = {
    Call.WRITE: "write pwrite64 writev pwritev pwritev2 sendfile copy_file_range",
    Call.TRUNCATE: "truncate ftruncate",
    Call.ALLOCATE: "fallocate",
    Call.SYNC: "fsync",
    Call.DATASYNC: "fdatasync",
    Call.MAP: "mmap",
    Call.RENAME: "rename renameat renameat2",
    Call.LINK: "link linkat",
    Call.SYMLINK: "symlink symlinkat",
    Call.UNLINK: "unlink unlinkat",
    Call.MKDIR: "mkdir mkdirat",
    Call.RMDIR: "rmdir",
    Call.CREATE: "creat open openat",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}


def test_the_kernel_saw_the_same_calls(tmp_path: Path) -> None:
    root, seen = fresh(tmp_path), tmp_path / "seen"
    program = "import sys, pathlib, file_programs as f; f.every_call(pathlib.Path(sys.argv[1]))"

    events = record([*strace(seen), sys.executable, "-c", program, str(root)], root, tmp_path / "tape")

    found = [event.call for event in events if event.call is not Call.MSYNC]
    assert found == list(changes_in(seen, root))


def strace(seen: Path) -> list[str]:
    if not shutil.which("strace"):
        pytest.skip("the recorder's calls are not compared with the kernel's: there is no strace")
    names = ",".join(f"?{name}" for name in CHANGES.split())
    command = ["strace", "-f", "-y", "-qq", "-o", str(seen), "-e", f"trace={names}"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("the recorder's calls are not compared with the kernel's: strace may not trace here")
    return command


def changes_in(seen: Path, root: Path) -> Iterator[Call]:
    for line in seen.read_text().splitlines():
        name, arguments = re.fullmatch(r"\d+ +(\w+)\((.*)", line).groups()  # type: ignore[union-attr]
        reads_only = (name.startswith("open") and not re.search("O_CREAT|O_TRUNC", arguments)) or (
            name == "mmap" and not re.search("PROT_WRITE.*MAP_SHARED", arguments)
        )
        if str(root) in arguments and not reads_only:
            yield Call.RMDIR if "AT_REMOVEDIR" in arguments else KIND_OF[name]


# ── recording by the environment ────────────────────────────────────────────────────────────────────────────


def record(argv: list[str], root: Path, place: Path, orders: Orders = UNDISTURBED) -> list[Event]:
    """Record a program without anything of the laboratory around it."""
    place.unlink(missing_ok=True)
    place.with_name(f"{place.name}.shared").unlink(missing_ok=True)
    armed = preload.environment(root, place, -1, orders)
    # In a process group of its own, because a kill ends the whole group.
    done = subprocess.run(argv, env=os.environ | paths() | armed, check=False, process_group=0)
    assert done.returncode == (-signal.SIGKILL if orders.at else 0)
    return list(tape.decode(place.read_bytes()))


def test_any_program_can_be_recorded_and_killed(root: Path, tmp_path: Path) -> None:
    copy = ["dd", "if=/dev/zero", f"of={root}/file", "bs=1000", "count=3", "conv=fsync", "status=none"]

    whole = record(copy, root, tmp_path / "tape")
    second = [event for event in whole if event.call is Call.WRITE][1]
    killed = record(copy, root, tmp_path / "tape", Orders(second.number + 1, Action.KILL_MIDDLE))

    kinds = [event.call for event in whole if event.call is not Call.TRUNCATE]
    assert kinds == [Call.CREATE, Call.WRITE, Call.WRITE, Call.WRITE, Call.SYNC]
    assert (killed[-1].length, killed[-1].data) == (500, bytes(500))
    assert (root / "file").stat().st_size == 2500 if killed[0].call is Call.CREATE else 1500


# ── killing ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("action", [Action.KILL_BEFORE, Action.KILL_AFTER])
def test_a_program_is_killed_at_the_chosen_call(
    recorder: Recorder, root: Path, number: int, action: Action
) -> None:
    died = recorder.run(file_programs.speak_and_write, root, Orders(number, action))

    done = number if action is Action.KILL_AFTER else number - 1
    assert died.was_killed
    assert [op.kind for op in died.history.ops] == ["none", "one"][:number]
    assert sorted(path.name for path in root.iterdir()) == ["1", "2"][:done]
    # A killed call is on the tape if it had an effect.
    assert [event.path for event in calls(died.events)] == ["1", "2"][:done]


@pytest.mark.parametrize("verb", ["write", "pwrite", "writev", "pwritev", "sendfile", "copy_file_range"])
def test_the_middle_of_a_write_is_half_of_its_bytes(recorder: Recorder, tmp_path: Path, verb: str) -> None:
    program, whole, half = partial(file_programs.write_ten_bytes, verb=verb), fresh(tmp_path), fresh(tmp_path)
    events = calls(recorder.run(program, whole).events)
    (number,) = [event.number for event in events if event.path == "file" and event.length]

    died = recorder.run(program, half, Orders(number, Action.KILL_MIDDLE))

    assert died.was_killed
    assert (whole / "file").read_bytes() == b"0123456789"
    assert (half / "file").read_bytes() == b"01234"
    assert (died.events[-1].number, died.events[-1].data) == (number, b"01234")


def test_a_thread_is_killed_with_all_others(recorder: Recorder, root: Path) -> None:
    died = recorder.run(file_programs.write_in_threads, root, Orders(100, Action.KILL_BEFORE))

    assert died.was_killed
    # The hundredth call has no effect, nor has any call of another thread after it.
    assert len(calls(died.events)) == 99
    assert sum(path.stat().st_size for path in root.iterdir()) == sum(one.length for one in died.events)


@pytest.mark.parametrize("number", [2, 3])
def test_a_parent_is_killed_with_its_child(recorder: Recorder, root: Path, number: int) -> None:
    died = recorder.run(file_programs.write_in_forks, root, Orders(number, Action.KILL_AFTER))

    assert died.was_killed
    assert not (root / "behind").exists()
    assert [event.number for event in calls(died.events)] == list(range(1, number + 1))


def test_every_call_is_killed_before_and_after_and_each_write_in_the_middle() -> None:
    made, long, short = Event(Call.MKDIR, 1), Event(Call.WRITE, 2, length=2), Event(Call.WRITE, 3, length=1)

    assert list(every_kill([made, Event(Call.MARK), long, short])) == [
        (made, Action.KILL_BEFORE),
        (made, Action.KILL_AFTER),
        (long, Action.KILL_BEFORE),
        (long, Action.KILL_MIDDLE),
        (long, Action.KILL_AFTER),
        (short, Action.KILL_BEFORE),
        (short, Action.KILL_AFTER),
    ]


def test_a_kill_that_is_not_reached_lets_the_program_end(recorder: Recorder, root: Path) -> None:
    ended = recorder.run(file_programs.speak_and_write, root, Orders(3, Action.KILL_BEFORE))

    assert ended.outcome == Answered(None)
    assert len(ended.history.ops) == 3


def test_an_exception_is_reported_with_earlier_output(recorder: Recorder, root: Path) -> None:
    failed = recorder.run(file_programs.fail, root)

    assert isinstance(failed.outcome, RecoveryRefused)
    assert (failed.outcome.types[0], failed.outcome.text) == ("builtins.ValueError", "on purpose")
    assert [op.kind for op in failed.history.ops] == ["said"]


def test_a_hanging_program_is_killed(root: Path) -> None:
    with Recorder(timeout_s=0.1) as impatient:
        assert impatient.run(file_programs.hang, root).outcome == Hung()


# ── failing ─────────────────────────────────────────────────────────────────────────────────────────────────

WRITE, SYNC, SECOND_WRITE, SECOND_SYNC = 2, 3, 4, 5
"""The numbers of the calls of `note_errors`; the first creates the file."""


def noted(recorder: Recorder, root: Path, orders: Orders) -> tuple[list[object], list[Event]]:
    run = recorder.run(file_programs.note_errors, root, orders)
    assert run.outcome == Answered(None)
    return [op.args[0] for op in run.history.ops], calls(run.events)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_write_fails_once_with_the_chosen_error_and_writes_nothing(
    recorder: Recorder, root: Path, error: int
) -> None:
    told, events = noted(recorder, root, Orders(SECOND_WRITE, Action.FAIL, error))

    assert told == [10, None, error, None, 10, None]
    struck = events[SECOND_WRITE - 1]
    assert (struck.error, struck.is_injected, struck.length, struck.data) == (error, True, 10, b"")
    assert [event.number for event in events if event.error or event.is_injected] == [SECOND_WRITE]
    assert (root / "file").read_bytes() == b"0123456789" + bytes(10) + b"0123456789"


def test_a_sync_fails_once_with_the_chosen_error(recorder: Recorder, root: Path) -> None:
    told, events = noted(recorder, root, Orders(SYNC, Action.FAIL, errno.EIO))

    assert told == [10, errno.EIO, 10, None, 10, None]
    assert [event.error for event in events if event.call is Call.DATASYNC] == [errno.EIO, 0, 0]


def test_calls_of_a_kind_go_on_failing(recorder: Recorder, root: Path) -> None:
    told, _ = noted(recorder, root, Orders(SYNC, Action.FAIL, errno.EIO, tape.SYNCS))

    assert told == [10, errno.EIO, 10, errno.EIO, 10, errno.EIO]


def test_a_full_disk_still_syncs(recorder: Recorder, root: Path) -> None:
    full = Orders(SECOND_WRITE, Action.FAIL, errno.ENOSPC, frozenset({Call.WRITE, Call.CREATE}))

    told, _ = noted(recorder, root, full)

    assert told == [10, None, errno.ENOSPC, None, errno.ENOSPC, None]


def test_a_short_write_writes_half_of_its_bytes_and_says_so(recorder: Recorder, root: Path) -> None:
    told, events = noted(recorder, root, Orders(SECOND_WRITE, Action.SHORT))

    assert told == [10, None, 5, None, 10, None]
    struck = events[SECOND_WRITE - 1]
    assert (struck.offset, struck.length, struck.data, struck.is_injected) == (10, 5, b"01234", True)
    assert (root / "file").read_bytes() == b"012345678901234" + bytes(5) + b"0123456789"


def test_the_write_after_a_short_one_fails_if_ordered(recorder: Recorder, root: Path) -> None:
    told, events = noted(recorder, root, Orders(WRITE, Action.SHORT, errno.ENOSPC))

    assert told == [5, None, errno.ENOSPC, None, 10, None]
    assert [event.number for event in events if event.is_injected] == [WRITE, SECOND_WRITE]


def test_every_kind_of_call_can_be_made_to_fail(recorder: Recorder, tmp_path: Path) -> None:
    whole = calls(recorder.run(file_programs.each_kind, fresh(tmp_path)).events)
    assert len({event.call for event in whole}) == 12

    for event in whole:
        root = fresh(tmp_path)
        failed = recorder.run(file_programs.each_kind, root, Orders(event.number, Action.FAIL, errno.EIO))
        assert isinstance(failed.outcome, RecoveryRefused)
        assert f"[Errno {errno.EIO}]" in failed.outcome.text
        assert [one.call for one in calls(failed.events)] == [one.call for one in whole[: event.number]]
        assert failed.events[-1].error == errno.EIO


def test_a_program_that_dies_of_another_signal_says_of_which(recorder: Recorder, root: Path) -> None:
    command = Command(["/bin/sh", "-c", "kill -SEGV $$"])

    assert recorder.run(command, root).outcome == Died(signal.SIGSEGV)

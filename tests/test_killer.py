"""The killer counts every call that changes something, and kills at each; what survives kills is judged.

The store that is killed here is a little one: these are tests of the tool.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import file_programs
import little_indexed_store as little
import pytest
from kill_server import KillServer
from kill_walk import Aftermath, KillWalk, Trial
from syscalls import Call, Kill, When, every_kill, kill_at, record, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "nothing is missing")

ONE_SITTING = """
mkdir records
open records/lock
pwrite records/lock 21
mkdir index.draft
open index.draft/data.mdb
pwrite index.draft/data.mdb 8192
rename index.draft -> index
mkdir index
open index/data.mdb
fsync records
open records/table-1.draft
pwritev records/table-1.draft 20
fdatasync records/table-1.draft
rename records/table-1.draft -> records/table-1
open records/log-1.draft
pwritev records/log-1.draft 20
fdatasync records/log-1.draft
rename records/log-1.draft -> records/log-1
fsync records
open records/mark.draft
pwritev records/mark.draft 20
fdatasync records/mark.draft
rename records/mark.draft -> records/mark
fsync records
pwritev records/log-1 10
fdatasync records/log-1
open records/table-2.draft
pwritev records/table-2.draft 30
fdatasync records/table-2.draft
rename records/table-2.draft -> records/table-2
open records/log-2.draft
pwritev records/log-2.draft 20
fdatasync records/log-2.draft
rename records/log-2.draft -> records/log-2
pwrite index/data.mdb 4096
fdatasync index/data.mdb
pwrite index/data.mdb 120
fsync records
open records/mark.draft
pwritev records/mark.draft 20
fdatasync records/mark.draft
rename records/mark.draft -> records/mark
fsync records
unlink records/log-1
unlink records/table-1
pwritev records/log-2 10
fdatasync records/log-2
"""
"""A little store is made, two records are appended, with a checkpoint between them."""

FOUND_BY_A_KILL = {
    "MarkBeforeData": "after 14, rename records/mark.draft -> records/mark · recover: FileNotFoundError",
    "OldRemovedBeforeMark": "after 39, unlink records/log-1 · recover: FileNotFoundError",
    "MarkInPlace": "middle 39, pwritev records/mark, 20 bytes · recover: little_store.Unsound",
    "CarryTailOver": "middle 25, pwritev records/log-1, 10 bytes · after going on: lost ['later']",
    "IndexInPlace": "middle 6, pwrite index/data.mdb, 8192 bytes · recover: lmdb.InvalidError",
}


@pytest.fixture(scope="module")
def server() -> Iterator[KillServer]:
    with KillServer() as server:
        yield server


def trial(store: str = "IndexedStore", workload: str = "one_sitting") -> Trial:
    return Trial(
        getattr(little, workload), little.recover, little.contradiction, little.go_on, arguments=(store,)
    )


# --- counting -----------------------------------------------------------------------------------------------


def test_the_calls_of_a_store_and_of_its_lmdb_are_counted_in_order(
    server: KillServer, tmp_path: Path
) -> None:
    calls = server.run(little.one_sitting, tmp_path).checked().calls

    found = [f"{call.name} {call.path}" + f" {call.size}" * (call.size > 0) for call in calls]
    assert found == ONE_SITTING.split("\n")[1:-1]
    assert [call.number for call in calls] == list(range(1, len(calls) + 1))


def test_each_kind_of_call_is_counted(server: KillServer, tmp_path: Path) -> None:
    calls = server.run(file_programs.every_call, tmp_path).checked().calls

    kinds = Counter(call.name for call in calls if not call.path.startswith(("index", "mapped", "?")))
    assert kinds == {
        "open": 2,
        "write": 1,
        "pwrite": 1,
        "writev": 1,
        "pwritev": 1,
        "ftruncate": 1,
        "fallocate": 1,
        "fsync": 2,
        "fdatasync": 1,
        "sendfile": 1,
        "copy_file_range": 1,
        "truncate": 1,
        "mkdir": 1,
        "rename": 1,
        "link": 1,
        "symlink": 1,
        "unlink": 1,
        "rmdir": 1,
    }
    assert ("rename", "file -> directory/named") in {(call.name, call.path) for call in calls}
    assert ("unlink", "directory/named") in {(call.name, call.path) for call in calls}
    assert ("rmdir", "directory") in {(call.name, call.path) for call in calls}


def test_a_shared_writable_mapping_shows_in_the_trace(server: KillServer, tmp_path: Path) -> None:
    calls = server.run(file_programs.every_call, tmp_path).checked().calls

    mapped = {call.path for call in calls if call.name == "mmap"}
    assert mapped == {"index/lock.mdb", "mapped/lock.mdb", "mapped/data.mdb"}
    assert "msync" in {call.name for call in calls}


def test_nothing_outside_the_root_is_counted(server: KillServer, tmp_path: Path) -> None:
    root, beside = tmp_path / "root", tmp_path / "root-beside"
    root.mkdir()
    beside.mkdir()

    assert server.run(file_programs.write_elsewhere, root, str(beside)).checked().calls == ()
    assert (beside / "file").read_bytes() == b"x"


def test_the_root_may_be_named_through_a_link(server: KillServer, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to("root")

    ended = server.run(file_programs.speak_and_write, tmp_path / "link").checked()

    assert [call.path for call in ended.calls] == ["1", "2"]


def test_calls_of_several_threads_are_counted_once_each(server: KillServer, tmp_path: Path) -> None:
    calls = server.run(file_programs.write_in_threads, tmp_path).checked().calls

    assert [call.number for call in calls] == list(range(1, 205))
    assert Counter(call.name for call in calls) == {"open": 4, "write": 200}


def test_the_kernel_saw_the_same_calls(tmp_path: Path) -> None:
    root, seen = tmp_path / "root", tmp_path / "seen"
    root.mkdir()
    program = "import sys, pathlib, file_programs as f; f.every_call(pathlib.Path(sys.argv[1]), print)"
    env = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    calls = record([*strace(seen), sys.executable, "-c", program, str(root)], root, env)

    assert [call.name for call in calls if call.name != "msync"] == list(changes_in(seen, root))


CHANGES = """
    write pwrite64 writev pwritev pwritev2 sendfile copy_file_range splice vmsplice
    truncate ftruncate fallocate fsync fdatasync sync_file_range mmap io_uring_setup io_submit
    rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat
    mkdir mkdirat rmdir mknod mknodat creat open openat openat2
"""
OTHER_NAMES = {
    "pwrite64": "pwrite",
    "pwritev2": "pwritev",
    "renameat": "rename",
    "renameat2": "rename",
    "linkat": "link",
    "symlinkat": "symlink",
    "unlinkat": "unlink",
    "mkdirat": "mkdir",
    "openat": "open",
}


def strace(seen: Path) -> list[str]:
    """The witness that does not depend on libc, where there is one."""
    if not shutil.which("strace"):
        pytest.skip("the killer's calls are not compared with the kernel's: there is no strace")
    names = ",".join(f"?{name}" for name in CHANGES.split())
    command = ["strace", "-f", "-y", "-qq", "-o", str(seen), "-e", f"trace={names}"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("the killer's calls are not compared with the kernel's: strace may not trace here")
    return command


def changes_in(seen: Path, root: Path) -> Iterator[str]:
    for line in seen.read_text().splitlines():
        name, arguments = re.fullmatch(r"\d+ +(\w+)\((.*)", line).groups()  # type: ignore[union-attr]
        reads_only = (name.startswith("open") and not re.search("O_CREAT|O_TRUNC", arguments)) or (
            name == "mmap" and not re.search("PROT_WRITE.*MAP_SHARED", arguments)
        )
        if str(root) in arguments and not reads_only:
            yield "rmdir" if "AT_REMOVEDIR" in arguments else OTHER_NAMES.get(name, name)


# --- killing ------------------------------------------------------------------------------------------------


def test_a_program_is_killed_where_it_was_told(server: KillServer, tmp_path: Path) -> None:
    outcomes = {
        (number, when): server.run(file_programs.speak_and_write, fresh(tmp_path), kill=Kill(number, when))
        for number in (1, 2)
        for when in (When.BEFORE, When.AFTER)
    }

    assert {outcome.status for outcome in outcomes.values()} == {-signal.SIGKILL}
    assert {key: outcome.acks for key, outcome in outcomes.items()} == {
        (1, When.BEFORE): ("none",),
        (1, When.AFTER): ("none",),
        (2, When.BEFORE): ("none", "one"),
        (2, When.AFTER): ("none", "one"),
    }
    assert outcomes[2, When.BEFORE].calls == (Call(2, "open", "2", 0),)


@pytest.mark.parametrize(("when", "left"), [(When.BEFORE, set()), (When.AFTER, {"1"})])
def test_before_has_no_effect_and_after_has_it(
    server: KillServer, tmp_path: Path, when: When, left: set[str]
) -> None:
    server.run(file_programs.speak_and_write, tmp_path, kill=Kill(1, when))

    assert {path.name for path in tmp_path.iterdir()} == left


@pytest.mark.parametrize("verb", ["write", "pwrite", "writev", "pwritev", "sendfile", "copy_file_range"])
def test_the_middle_of_a_write_is_half_of_its_bytes(server: KillServer, tmp_path: Path, verb: str) -> None:
    whole = fresh(tmp_path)
    calls = server.run(file_programs.write_ten_bytes, whole, verb).checked().calls
    (number,) = [call.number for call in calls if call.path == "file" and call.size]
    half = fresh(tmp_path)

    died = server.run(file_programs.write_ten_bytes, half, verb, kill=Kill(number, When.MIDDLE))

    assert died.was_killed
    assert (whole / "file").read_bytes() == b"0123456789"
    assert (half / "file").read_bytes() == b"01234"


def test_any_program_can_be_recorded_and_killed(tmp_path: Path) -> None:
    copy = ["dd", "if=/dev/zero", f"of={tmp_path}/file", "bs=1000", "count=3", "conv=fsync"]

    names = [call.name for call in record(copy, tmp_path)]
    died = kill_at(copy, tmp_path, names.index("write") + 2, When.MIDDLE)

    assert [name for name in names if name != "ftruncate"] == ["open", "write", "write", "write", "fsync"]
    assert died.returncode == -signal.SIGKILL
    assert (tmp_path / "file").stat().st_size == 1500


def test_a_thread_is_killed_with_all_others(server: KillServer, tmp_path: Path) -> None:
    died = server.run(file_programs.write_in_threads, tmp_path, kill=Kill(100, When.BEFORE))

    assert died.was_killed
    # The hundredth call has no effect, nor has any that another thread makes after it.
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 99


def test_every_call_is_killed_before_and_after_and_each_write_in_the_middle() -> None:
    calls = [Call(1, "mkdir", "d", 0), Call(2, "write", "d/f", 2), Call(3, "write", "d/f", 1)]

    assert list(every_kill(calls)) == [
        Kill(1, When.BEFORE),
        Kill(1, When.AFTER),
        Kill(2, When.BEFORE),
        Kill(2, When.MIDDLE),
        Kill(2, When.AFTER),
        Kill(3, When.BEFORE),
        Kill(3, When.AFTER),
    ]


def test_a_kill_that_is_not_reached_lets_the_program_end(server: KillServer, tmp_path: Path) -> None:
    ended = server.run(file_programs.speak_and_write, tmp_path, kill=Kill(3, When.BEFORE))

    assert (ended.status, ended.acks, ended.calls) == (0, ("none", "one", "two"), ())


def test_an_exception_is_reported_with_what_was_said_before(server: KillServer, tmp_path: Path) -> None:
    failed = server.run(file_programs.fail, tmp_path)

    assert (failed.status, failed.acks) == (1, ("said",))
    with pytest.raises(RuntimeError, match="ValueError: on purpose"):
        failed.checked()


def test_who_hangs_is_ended(tmp_path: Path) -> None:
    with KillServer(patience_s=0.1) as impatient:
        assert impatient.run(file_programs.hang, tmp_path).status == -signal.SIGALRM


def fresh(below: Path) -> Path:
    root = below / str(len(list(below.iterdir())))
    root.mkdir()
    return root


# --- judging ------------------------------------------------------------------------------------------------


def test_a_correct_store_survives_a_kill_at_every_call(server: KillServer) -> None:
    with KillWalk(server, trial()) as walk:
        assert list(walk.violations()) == []

        assert walk.strayed == []
        assert walk.kills == {(0, When.BEFORE): 47, (0, When.MIDDLE): 12, (0, When.AFTER): 47}
        assert walk.roots == 41


@pytest.mark.parametrize(
    "mistake",
    [
        "MarkBeforeData",
        "CarryTailOver",
        "IndexInPlace",
        pytest.param("OldRemovedBeforeMark", marks=pytest.mark.slow),
        pytest.param("MarkInPlace", marks=pytest.mark.slow),
    ],
)
def test_a_kill_uncovers_the_mistake(server: KillServer, mistake: str) -> None:
    with KillWalk(server, trial(mistake)) as walk:
        assert f"one_sitting {FOUND_BY_A_KILL[mistake]}" in next(walk.violations(), "")


@pytest.mark.parametrize(
    ("aftermath", "violation"),
    [
        (Aftermath(["a"], ["a", "b"], ("asked b", "done b")), ""),
        (Aftermath(["a"], ["a"], problem="refused"), "refused"),
        (Aftermath([], ["a"]), "lost ['a']"),
        (Aftermath(["x", "a"], ["a"]), "shows ['x', 'a'], where ['a'] were asked for"),
        (Aftermath(["a"], []), "after going on: lost ['a']"),
        (Aftermath(["a"], ["a"], ("asked b", "done b")), "after going on: lost ['b']"),
    ],
)
def test_each_thing_that_is_shown_is_held_against_what_was_said(aftermath: Aftermath, violation: str) -> None:
    assert aftermath.violation(trial(), ("asked a", "done a")) == violation


def test_every_mistake_of_the_little_store_is_tried() -> None:
    assert FOUND_BY_A_KILL.keys() == little.STORES.keys() - {"IndexedStore"}


def test_a_recovery_that_shows_something_else_after_a_kill_is_found(server: KillServer) -> None:
    programs = file_programs.speak_and_write, file_programs.remember_interruptions
    with KillWalk(server, Trial(*programs, lambda *_: "", file_programs.nothing), (1, 1)) as walk:
        assert next(walk.violations()) == (
            "speak_and_write before 1, open 1 · remember_interruptions after 1, open began"
            " · shows True, and False without that kill"
        )


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "strides"), [("one_sitting", (1, 2, 41)), ("three_sittings", (1, 11))])
def test_a_correct_store_survives_kills_in_its_recovery_too(
    server: KillServer, workload: str, strides: tuple[int, ...]
) -> None:
    with KillWalk(server, trial(workload=workload), strides) as walk:
        assert list(walk.violations()) == []

        assert walk.strayed == []
        assert min(sum(walk.kills[level, when] for when in When) for level in range(len(strides))) > 100

"""What a real file system keeps of unsynced work in a power cut, and that no volume is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab.run import mounts as kernel
from recovery.crashlab.run.volume import KINDS, NoVolume, Volume, sweep, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

DURABLE = b"durable" * 3000


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def volume(kind: str) -> Iterator[Volume]:
    if reason := why_not(kind):
        pytest.skip(f"no real power cuts on {kind}: {reason}")
    with Volume(kind) as one:
        yield one


on_each_kind = pytest.mark.parametrize("kind", KINDS, indirect=True)


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def write_durably(path: Path, data: bytes) -> None:
    write(path, data)
    sync(path)
    sync(path.parent)


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def left_over() -> list[str]:
    """Return mounts and loop devices of volumes of this process."""
    mine = f"crashlab-volume-{os.getpid()}-"
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    images = [image.read_text() for image in Path("/sys/block").glob("loop*/loop/backing_file")]
    return [line for line in (*mounts, *images) if mine in line]


@contextmanager
def child(statements: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start another process that runs the statements and then waits."""
    code = f"import os, sys\n{statements}\nprint('ready', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


@on_each_kind
def test_synced_bytes_and_names_outlive_a_cut(volume: Volume) -> None:
    root = volume.fresh()
    write_durably(root / "a", DURABLE)
    volume.crash_and_remount()
    assert (root / "a").read_bytes() == DURABLE


@on_each_kind
def test_unsynced_data_is_gone(volume: Volume) -> None:
    root = volume.fresh()
    write_durably(root / "a", DURABLE)
    with (root / "a").open("ab") as file:
        file.write(b"unsynced")
    write(root / "b", b"unsynced")
    volume.crash_and_remount()
    assert (root / "a").read_bytes() == DURABLE
    assert names(root) == {"a"}


@on_each_kind
def test_a_rename_without_a_sync_of_its_directory_is_lost(volume: Volume) -> None:
    root = volume.fresh()
    write_durably(root / "draft", DURABLE)
    (root / "draft").rename(root / "final")
    volume.crash_and_remount()
    assert names(root) == {"draft"}


@on_each_kind
def test_nothing_becomes_durable_after_a_cut(volume: Volume) -> None:
    root = volume.fresh()
    with (root / "a").open("wb", buffering=0) as file:
        volume.cut()
        with pytest.raises(OSError, match="Input/output error"):
            os.fsync(file.fileno())
    volume.crash_and_remount()
    assert names(root) == set()


@on_each_kind
def test_several_cuts_in_a_row_each_lose_their_own(volume: Volume) -> None:
    root = volume.fresh()
    for number in range(5):
        write_durably(root / f"kept-{number}", DURABLE)
        write(root / f"lost-{number}", DURABLE)
        volume.crash_and_remount()
    assert names(root) == {f"kept-{number}" for number in range(5)}


@on_each_kind
def test_a_fresh_directory_is_empty_durable_and_the_only_one(volume: Volume) -> None:
    write_durably(volume.fresh() / "a", DURABLE)
    root = volume.fresh()
    volume.crash_and_remount()
    assert names(root) == set()
    assert [path for path in volume.path.iterdir() if path.name.startswith("run")] == [root]


@on_each_kind
def test_a_process_that_is_being_killed_is_waited_for(volume: Volume) -> None:
    root = volume.fresh()
    with child("kept = open(sys.argv[1], 'wb')", root / "a") as process:
        process.kill()
        volume.crash_and_remount()
    assert names(root) == set()


@on_each_kind
def test_a_cut_that_another_namespace_hides_is_no_cut(volume: Volume) -> None:
    volume.fresh()
    unshare = "import ctypes\nassert not ctypes.CDLL(None).unshare(0x20000)\n"
    keep_to_itself = (
        "assert not ctypes.CDLL(None).mount(None, b'/', None, ctypes.c_ulong(1 << 18 | 1 << 14), None)"
    )
    with child(unshare + keep_to_itself), pytest.raises(NoVolume, match="namespace"):
        volume.crash_and_remount()


@on_each_kind
@pytest.mark.usefixtures("volume")
def test_an_exception_leaves_nothing_mounted(kind: str) -> None:
    before = left_over()
    volume = Volume(kind)

    def fail() -> None:
        with volume:
            assert len(left_over()) == len(before) + 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not volume.path.exists()
    assert left_over() == before


@on_each_kind
@pytest.mark.usefixtures("volume")
def test_a_volume_that_was_cut_and_not_mounted_again_leaves_nothing(kind: str) -> None:
    before = left_over()
    with Volume(kind) as volume:
        volume.cut()
        volume.cut()
    assert not volume.path.exists()
    assert left_over() == before


@on_each_kind
@pytest.mark.usefixtures("volume")
def test_a_mount_that_fails_leaves_no_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = left_over()

    def refuse(*_: object) -> None:
        raise OSError(1, "mount: Operation not permitted")

    monkeypatch.setattr(kernel, "mount", refuse)
    with (
        pytest.raises(NoVolume, match=f"mount of {kind} refused: mount: Operation not permitted"),
        Volume(kind),
    ):
        pass
    assert left_over() == before


@on_each_kind
@pytest.mark.usefixtures("volume")
def test_volumes_of_a_killed_process_are_unmounted(kind: str) -> None:
    code = (
        f"from recovery.crashlab.run.volume import Volume; import os\n"
        f"one = Volume({kind!r}).__enter__(); print(one.path, flush=True); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    path = Path(killed.stdout.strip())
    assert path.is_mount()
    sweep()
    assert not path.exists()


@on_each_kind
def test_a_forked_child_does_not_unmount_the_volume_of_its_parent(volume: Volume) -> None:
    if (pid := os.fork()) == 0:
        volume.__exit__(None, None, None)
        os._exit(0)
    os.waitpid(pid, 0)
    assert volume.path.is_mount()


def test_a_file_system_that_cannot_be_cut_has_a_reason() -> None:
    assert why_not("btrfs") == "btrfs cannot be cut, only ext4 and xfs"


def test_a_user_who_is_not_root_gets_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoVolume, match=r"^not root$"), Volume("ext4"):
        pass


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(Path, "exists", lambda _: True)
    with pytest.raises(NoVolume, match=r"^no program mkfs\.ext4$"), Volume("ext4"):
        pass

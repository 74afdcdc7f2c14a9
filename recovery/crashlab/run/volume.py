"""A real file system for real power cuts: in memory, on a loop device.

    with Volume("ext4") as volume:
        root = volume.fresh()
        ...                             # a program writes there and is killed, or shuts the file system down
        volume.crash_and_remount()      # the log is replayed; what was not durable is gone

Needs root. `why_not("ext4")` returns in one line what else is missing.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from recovery.crashlab.run import mounts

if TYPE_CHECKING:
    from types import TracebackType

_PREFIX = "crashlab-volume-"
_MIB = 1 << 20
_BUSY_S = 10.0
_POLL_S = 0.001


class NoVolume(Exception):
    """This machine cannot provide such a file system; the text is the reason."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    size: int
    arguments: tuple[str, ...]
    options: str = ""


_RECIPES = {
    "ext4": _Recipe(
        512 * _MIB,
        ("-q", "-F", "-m0", "-Jsize=4", "-Elazy_itable_init=1,lazy_journal_init=1,nodiscard"),
        "noinit_itable",
    ),
    "xfs": _Recipe(512 * _MIB, ("-q", "-f", "-K")),
}
KINDS = tuple(_RECIPES)


@cache
def why_not(kind: str) -> str:
    """Return why power cuts on this file system are impossible here; "" if a trial cut succeeded."""
    try:
        with Volume(kind) as volume:
            volume.fresh()
            volume.crash_and_remount()
    except NoVolume as reason:
        return str(reason)
    except OSError as error:
        return f"no cut of {kind}: {_words(error)}"
    return ""


class Volume:
    """One mounted file system. After the block it is gone, with its device and its memory.

    It belongs to the process that made it. A forked child may use `path` and `cut` only.
    """

    def __init__(self, kind: str = "ext4") -> None:
        self.kind = kind
        self.path = Path()
        self._owner = 0
        self._device = ""
        self._runs = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        program = _program(self.kind)
        sweep()
        self._owner = os.getpid()
        with ExitStack() as stack:
            self._attach(stack)
            _format(program, self.kind, self._device)
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{self._owner}-"))
            stack.callback(self.path.rmdir)
            self._mount_first()
            stack.callback(self._leave)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() == self._owner:
            self._stack.close()

    def fresh(self) -> Path:
        """Return an empty, durable directory. The one of the run before is removed."""
        shutil.rmtree(self._run, ignore_errors=True)
        self._runs += 1
        self._run.mkdir()
        # Otherwise the root itself could be lost, and with it the store, which is no bug of the store.
        mounts.sync_volume(self.path)
        return self._run

    def cut(self) -> None:
        """Cut the power: the file system writes nothing from here on, and its calls fail with EIO."""
        try:
            mounts.shut_down(self.path)
        except OSError as error:
            if error.errno != errno.EIO:  # the volume was cut before
                raise

    def crash_and_remount(self) -> None:
        """Lose what was not durable. Processes with open files there must be dead or about to die."""
        self.cut()
        _unmount(self.path)
        self._mount()
        try:
            os.utime(self.path)
        except OSError as error:
            raise NoVolume("no replay: another mount namespace holds the file system that was cut") from error

    @property
    def _run(self) -> Path:
        return self.path / f"run-{self._runs}"

    def _attach(self, stack: ExitStack) -> None:
        image = os.memfd_create(f"{_PREFIX}{self._owner}-{self.kind}")
        try:
            os.ftruncate(image, _RECIPES[self.kind].size)
            self._device, device = mounts.attach(image)
        except OSError as error:
            raise NoVolume(f"no loop device: {_words(error)}") from error
        finally:
            os.close(image)
        stack.callback(mounts.detach, device)

    def _mount_first(self) -> None:
        try:
            self._mount()
        except OSError as error:
            raise NoVolume(f"mount of {self.kind} refused: {_words(error)}") from error

    def _leave(self) -> None:
        try:
            _unmount(self.path)
        except OSError as error:
            if error.errno != errno.EINVAL:  # nothing is mounted, because a mount after a cut was refused
                raise

    def _mount(self) -> None:
        mounts.mount(self._device, self.path, self.kind, _RECIPES[self.kind].options)


def sweep() -> None:
    """Unmount volumes whose process was killed; their devices and memory are freed with them."""
    for path in _mounted():
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            with suppress(OSError):  # its children may still be there, or another process sweeps too
                mounts.unmount(path)
                path.rmdir()


def _mounted() -> list[Path]:
    """Return where the volumes of all processes are mounted."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    paths = (Path(line.split()[1]) for line in lines)
    return [path for path in paths if path.name.startswith(_PREFIX)]


def _program(kind: str) -> str:
    """Return the path of the program that makes such a file system; raise if it cannot be used."""
    if kind not in _RECIPES:
        raise NoVolume(f"{kind} cannot be cut, only {' and '.join(KINDS)}")
    if not hasattr(os, "memfd_create"):
        raise NoVolume("not Linux")
    if os.geteuid():
        raise NoVolume("not root")
    if not Path("/dev/loop-control").exists():
        raise NoVolume("no loop device: /dev/loop-control is not there")
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    if (program := shutil.which(f"mkfs.{kind}", path=path)) is None:
        raise NoVolume(f"no program mkfs.{kind}")
    return program


def _format(program: str, kind: str, device: str) -> None:
    command = [program, *_RECIPES[kind].arguments, device]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode:
        lines = (made.stderr.strip() or made.stdout.strip()).splitlines() or [f"exit code {made.returncode}"]
        raise NoVolume(f"mkfs.{kind} refused: {lines[0]}")


def _unmount(path: Path) -> None:
    """Unmount, not lazily: a mount that still exists would be mounted again as it was, without a replay."""
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            return mounts.unmount(path)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)  # killed processes close their files only when they are scheduled


def _words(error: OSError) -> str:
    return error.strerror or str(error)

"""The processes of a cluster: the only module that starts them, signals them, and tells whether they run.

A process is started in a session of its own, so that Ctrl-C in the terminal reaches only the command, which
then stops the processes in order. It outlives the command that has started it. Each signal is sent only after
the start time of the process was compared, because the system may have given its number to another one.
"""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.local_cluster.state import ProcessKey

if TYPE_CHECKING:
    from collections.abc import Sequence


class ProcessState(enum.Enum):
    UP = "up"
    PAUSED = "paused"
    DOWN = "down"


def start(arguments: Sequence[str], log: Path) -> ProcessKey:
    """Start `ledgerstore` with these arguments. Its output is appended to the log."""
    command = [sys.executable, "-P", "-m", "ledgerstore", *arguments]
    # The path of this process, and not the current directory, because other packages are named `storage` too.
    search = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)  # noqa: PTH100
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Not `subprocess.Popen`, whose object would have to outlive this command as the process does.
    pid = os.posix_spawn(
        sys.executable,
        command,
        os.environ | {"PYTHONPATH": search, "PYTHONUNBUFFERED": "1"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, appending, 0o666),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # A shell that runs a command in the background has it ignore SIGINT, and children inherit that.
        setsigdef=(signal.SIGINT, signal.SIGTERM),
    )
    found = look_up(pid)
    assert found is not None, "a process stays until this one, its parent, has waited for it"
    return ProcessKey(pid, found[0])


def state_of(process: ProcessKey | None) -> ProcessState:
    """Return whether the process runs. One that has ended is waited for, if it is a child of this one."""
    if process is None:
        return ProcessState.DOWN
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    found = look_up(process.pid)
    if found is None or found[0] != process.started:
        return ProcessState.DOWN
    return found[1]


def send(process: ProcessKey, number: signal.Signals) -> None:
    """Send a signal to the process if it still runs."""
    if state_of(process) is not ProcessState.DOWN:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


_STATES = {"T": ProcessState.PAUSED, "t": ProcessState.PAUSED, "Z": ProcessState.DOWN, "X": ProcessState.DOWN}
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def look_up(pid: int) -> tuple[str, ProcessState] | None:
    """Return when the process was started, in words that no other process of its number has; its state."""
    if not sys.platform.startswith("linux"):
        return look_up_by_ps(pid)
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the name of the program in brackets, and may have blanks and brackets in it.
    fields = text.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return f"{ticks} {_BOOT_ID.read_text().strip()}", _STATES.get(state, ProcessState.UP)


def look_up_by_ps(pid: int) -> tuple[str, ProcessState] | None:
    """Look a process up where there is no /proc, as on macOS."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    done = subprocess.run(  # noqa: S603 - only a number of ours is in it
        command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
    )
    state, _, started = done.stdout.strip().partition(" ")
    return (started.strip(), _STATES.get(state[0], ProcessState.UP)) if state else None

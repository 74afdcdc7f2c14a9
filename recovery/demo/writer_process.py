"""The writing process as its parent sees it: its acknowledgements, and how it ends."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.demo.workload import Workload

_CHUNK = 1 << 16
_TICK_S = 0.1
_LATEST_S = 0.005


class WriterDied(Exception):
    """The writer ended before it was killed; the text is its last message."""


class AcknowledgedCounts:
    """For each ledger, the number of acknowledged entries. Their ids begin with 0."""

    def __init__(self, ledger_ids: range) -> None:
        self.ends = dict.fromkeys(ledger_ids, 0)
        self._rest = b""

    @property
    def entries(self) -> int:
        return sum(self.ends.values())

    def feed(self, data: bytes) -> None:
        """Take bytes from the pipe. An incomplete line waits for its end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            ledger_id, first, end = map(int, line.split())
            assert self.ends[ledger_id] == first, "ids are given out without a gap"
            self.ends[ledger_id] = end


class WriterProcess:
    """A process that writes. It is killed when the `with` block ends."""

    def __init__(self, path: str, workload: Workload) -> None:
        self.acknowledged = AcknowledgedCounts(workload.ledger_ids)
        numbers = map(str, (workload.entries, workload.size, workload.ledgers))
        # The parent's own path, and not the current directory, because other packages are named `storage`
        # too.
        search = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)  # noqa: PTH100
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "recovery.demo.writer", path, *numbers],
            env=os.environ | {"PYTHONPATH": search},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def listen(self, is_enough: Callable[[], bool]) -> None:
        """Take acknowledgements until `is_enough`, which is called at least ten times a second."""
        while not is_enough():
            if not self._hear(_TICK_S):
                raise WriterDied(self._last_words())

    def kill(self) -> None:
        """Kill the process, and take the acknowledgements until then."""
        # Wait for a random time, so that the kill does not always come right after an acknowledgement.
        time.sleep(secrets.randbelow(1000) / 1000 * _LATEST_S)
        self._process.kill()
        while self._hear(None):
            pass
        if self._process.wait() != -signal.SIGKILL:
            raise WriterDied(self._last_words())

    def _hear(self, timeout: float | None) -> bool:
        """Take what is in the pipe; return whether more may come."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        ready, _, _ = select.select([pipe], [], [], timeout)
        data = os.read(pipe, _CHUNK) if ready else b""
        self.acknowledged.feed(data)
        return bool(data) or not ready

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        lines = self._process.stderr.read().decode(errors="backslashreplace").strip().splitlines()
        return lines[-1] if lines else f"status {self._process.wait()}"

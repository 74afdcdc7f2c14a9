"""Background work as steps in the caller's thread, so that each run makes the same calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.runtime.worker import Pause


class ManualWorker:
    """A worker that steps only when the caller says so. Use it from one thread."""

    def __init__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> None:
        self.name = name
        self.pause: Pause = None
        """The pause that its last step asked for."""
        self._step = step
        self._on_failure = on_failure
        self._awake = False
        self._gone = False

    @property
    def is_awake(self) -> bool:
        """Return whether there is something to do."""
        return self._awake and not self._gone

    def wake(self) -> None:
        self._awake = True

    def stop(self) -> None:
        self._gone = True

    def step(self) -> bool:
        """Do one step; return whether there was anything to do."""
        if not self.is_awake:
            return False
        self._awake = False
        try:
            self.pause = self._step()
        except Exception as error:
            self._gone = True
            self._on_failure(error)
            return True
        self._awake = self._awake or self.pause == AT_ONCE
        return True

    def elapse(self) -> None:
        """End the pause that the last step asked for."""
        self._awake = self._awake or self.pause is not None


class SteppedWorkers:
    """The workers of one store. Use it from one thread."""

    def __init__(self) -> None:
        self.by_name: dict[str, ManualWorker] = {}

    def new_worker(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> ManualWorker:
        self.by_name[name] = ManualWorker(name, step, on_failure)
        return self.by_name[name]

    def step(self) -> bool:
        """Let each worker do one step; return whether any had something to do."""
        return sum(worker.step() for worker in self.by_name.values()) > 0

    def run(self) -> None:
        """Step until no worker has anything to do at once."""
        while any(worker.step() for worker in self.by_name.values()):
            pass

    def elapse(self) -> None:
        """Run, let every pause end, and run again."""
        self.run()
        for worker in self.by_name.values():
            worker.elapse()
        self.run()

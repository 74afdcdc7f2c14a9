"""The background tasks, stepped by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.background import DebouncedTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.runtime.worker import Pause


class RecordingFactory:
    """Creates one worker, and records that it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def __call__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> RecordingFactory:
        self.step = step
        return self

    def wake(self) -> None:
        self.woken += 1

    def stop(self) -> None:
        """A worker whose steps the test calls."""


def new_task(act: Callable[[], None], delay_s: float | None = 0.5) -> tuple[DebouncedTask, RecordingFactory]:
    crew = RecordingFactory()
    return DebouncedTask("test", delay_s, act, crew, lambda _: None), crew


def test_the_call_is_made_once_after_the_delay() -> None:
    done: list[str] = []
    delayed, crew = new_task(lambda: done.append("done"))
    delayed.notice()
    delayed.notice()
    assert crew.woken == 1
    assert crew.step() == 0.5
    assert done == []
    assert crew.step() is None
    assert done == ["done"]


def test_a_notice_during_the_call_makes_it_due_again() -> None:
    def act() -> None:
        delayed.notice()

    delayed, crew = new_task(act)
    delayed.notice()
    crew.step()
    crew.step()
    assert crew.woken == 2


def test_without_a_delay_the_task_never_runs() -> None:
    delayed, crew = new_task(lambda: None, delay_s=None)
    delayed.notice()
    assert crew.woken == 0

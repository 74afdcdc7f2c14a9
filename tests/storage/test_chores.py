"""The small background work, stepped by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.chores import Delayed

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.worker import Pause


class Crew:
    """Hires one worker, and remembers that it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def __call__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> Crew:
        self.step = step
        return self

    def wake(self) -> None:
        self.woken += 1

    def stop(self) -> None:
        """Nothing runs."""


def made(act: Callable[[], None], delay_s: float | None = 0.5) -> tuple[Delayed, Crew]:
    crew = Crew()
    return Delayed("test", delay_s, act, crew, lambda _: None), crew


def test_it_is_done_a_while_after_it_was_noticed_and_once() -> None:
    done: list[str] = []
    delayed, crew = made(lambda: done.append("done"))
    delayed.notice()
    delayed.notice()
    assert crew.woken == 1
    assert crew.step() == 0.5
    assert done == []
    assert crew.step() is None
    assert done == ["done"]


def test_what_is_noticed_while_it_is_done_wakes_it_again() -> None:
    def act() -> None:
        delayed.notice()

    delayed, crew = made(act)
    delayed.notice()
    crew.step()
    crew.step()
    assert crew.woken == 2


def test_without_a_delay_it_never_comes_to_be_due() -> None:
    delayed, crew = made(lambda: None, delay_s=None)
    delayed.notice()
    assert crew.woken == 0

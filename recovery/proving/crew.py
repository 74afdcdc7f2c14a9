"""Background work as steps in the caller's thread: a run makes the same calls each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.worker import Pause


class Hand:
    """A worker that steps only when its crew runs. For one thread."""

    def __init__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> None:
        self.name = name
        self.pause: Pause = None
        """What it asked for when it last rested."""
        self._step = step
        self._on_failure = on_failure
        self._awake = False
        self._gone = False

    @property
    def is_awake(self) -> bool:
        """Whether there is something to do."""
        return self._awake and not self._gone

    def wake(self) -> None:
        self._awake = True

    def stop(self) -> None:
        self._gone = True

    def step(self) -> bool:
        """Whether there was anything to do."""
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
        """The pause it asked for is over."""
        self._awake = self._awake or self.pause is not None


class Crew:
    """The workers of one store. For one thread."""

    def __init__(self) -> None:
        self.hands: dict[str, Hand] = {}

    def hire(self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]) -> Hand:
        self.hands[name] = Hand(name, step, on_failure)
        return self.hands[name]

    def step(self) -> bool:
        """Lets each do one step; whether anybody had anything to do."""
        return sum(hand.step() for hand in self.hands.values()) > 0

    def run(self) -> None:
        """Until nobody has anything to do at once."""
        while any(hand.step() for hand in self.hands.values()):
            pass

    def elapse(self) -> None:
        """Runs, lets every pause end, and runs again."""
        self.run()
        for hand in self.hands.values():
            hand.elapse()
        self.run()

"""Contenders of the bench that return what a test needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Toy:
    """Returns the given rates one after another."""

    def __init__(self, place: Path, rates: list[float] | None = None, fails_at: int = 0) -> None:
        self._place = place
        self._rates = rates or [1.0]
        self._fails_at = fails_at
        self._turns = 0

    def work(self) -> dict[str, float]:
        self._turns += 1
        if self._turns == self._fails_at:
            raise ValueError("the toy is broken")
        with (self._place.parent / "order").open("a") as order:
            print(self._place.name, file=order)
        return {"rate": self._rates[(self._turns - 1) % len(self._rates)]}

    def speak(self) -> str:
        print("a library that prints")
        os.write(1, b"and one that does so in C\n")
        return "understood"

    def turns(self) -> int:
        return self._turns

    def cpus(self) -> int:
        return len(os.sched_getaffinity(0))

    def die(self) -> None:
        os._exit(3)

    def close(self) -> None:
        (self._place / "closed").touch()

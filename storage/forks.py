"""A fork copies a store's memory and not its threads: the copy is told that it is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import MutableSet


class Forkable(Protocol):
    """Something that must not be used in a fork."""

    def forked(self) -> None:
        """Called in the child."""


_watched: MutableSet[Forkable] = WeakSet()


def watch(one: Forkable) -> None:
    """Tells it when it finds itself in a child process."""
    _watched.add(one)


def _tell() -> None:
    for one in list(_watched):
        one.forked()


os.register_at_fork(after_in_child=_tell)

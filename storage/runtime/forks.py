"""A fork copies a store's memory and not its threads, so a child must not use the stores of its parent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import MutableSet


class Forkable(Protocol):
    """An object that must not be used in a fork."""

    def _forked(self) -> None:
        """Called in the child process."""


_watched: MutableSet[Forkable] = WeakSet()


def watch(one: Forkable) -> None:
    """Call `_forked` of the object in each child process, as long as the object exists."""
    _watched.add(one)


def _notify_forked() -> None:
    for one in list(_watched):
        one._forked()  # noqa: SLF001 - private, because it is not for users of a store


os.register_at_fork(after_in_child=_notify_forked)

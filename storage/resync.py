"""Finding the next sound record when the framing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec import resync
from storage.window import CHUNK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.window import Window


def find_record(window: Window, start: int, is_sound: Callable[[int], bool], end: int) -> int | None:
    """The first offset in [start, end) at which a sound record begins; `None` when there is none."""
    while start < end:
        # A copy: judging a place moves the window. Most of what is searched is often zeros.
        block = bytes(window.view(start, min(CHUNK_SIZE, end - start + resync.PROBE_SIZE)))
        nothing = block.count(0) == len(block)
        for place in () if nothing else resync.places(block):
            if start + place >= end:
                return None
            if is_sound(start + place):
                return start + place
        if start + len(block) >= window.size:
            return None
        start += max(1, len(block) - resync.PROBE_SIZE + 1)
    return None

"""Blocks of entries, one entry after the other: when there is no numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.codec import entry as entry_codec
from storage.codec import journal
from storage.codec.digest import DigestCheck
from storage.codec.frames import PREFIX, Frames
from storage.entry import RECORD_SIZE_MAX

if TYPE_CHECKING:
    from storage.codec.digest import Buffer, Digester

Skip = Callable[["Buffer", int], int]
"""Where the next record begins: what stands in front of it is passed over."""

_PADDED = journal.Header(version=5)


def split_log(block: Buffer, start: int) -> Frames:
    return split(block, start, nothing_to_skip)


def split_journal(block: Buffer, start: int) -> Frames:
    return split(block, start, past_padding)


def split(block: Buffer, start: int, skip: Skip) -> Frames:
    """The entries up to the first thing that is neither one nor skipped."""
    starts: list[int] = []
    ends: list[int] = []
    at = start
    last = len(block) - PREFIX.size
    while True:
        at = skip(block, at)
        if at > last:
            break
        size, ledger_id, entry_id = PREFIX.unpack_from(block, at)
        end = at + 4 + size
        if (
            not entry_codec.HEAD.size <= size <= RECORD_SIZE_MAX
            or end > len(block)
            or ledger_id < 0
            or entry_id < 0
        ):
            break
        starts.append(at + 4)
        ends.append(end)
        at = end
    return Frames(starts, ends, at)


def nothing_to_skip(block: Buffer, at: int) -> int:  # noqa: ARG001 - one signature for both
    """Entry logs have no padding between entries."""
    return at


def past_padding(block: Buffer, at: int) -> int:
    """Where the next record of a journal begins that is not padding."""
    while block[at : at + 4] == journal.PADDING_WORD:
        prefix = memoryview(block)[at : at + journal.PREFIX_SIZE]
        frame = journal.frame(prefix, at, len(block) - at, _PADDED)
        if not isinstance(frame, journal.Frame):
            break
        at = frame.end
    return at


def mismatches(block: Buffer, frames: Frames, digester: Digester) -> list[int]:
    view = memoryview(block)
    return [
        index
        for index, (start, end) in enumerate(zip(frames.starts, frames.ends, strict=True))
        if entry_codec.check_digest(view[start:end], digester) is not DigestCheck.OK
    ]

"""Blocks of entries, one entry after the other: when there is no numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec import entry as entry_codec
from storage.codec import journal
from storage.codec.digest import DigestCheck
from storage.codec.frames import ENTRY_SIZE_MIN, PREFIX, Frames
from storage.entry import RECORD_SIZE_MAX

if TYPE_CHECKING:
    from storage.codec.digest import Buffer, Digester

_LOG_HEADER = journal.Header(version=4)
_JOURNAL_HEADER = journal.Header(version=5)


def split_log(block: Buffer, start: int) -> Frames:
    return _split(block, start, _LOG_HEADER)


def split_journal(block: Buffer, start: int) -> Frames:
    return _split(block, start, _JOURNAL_HEADER)


def _split(block: Buffer, start: int, header: journal.Header) -> Frames:
    starts: list[int] = []
    ends: list[int] = []
    at = start
    last = len(block) - PREFIX.size
    while True:
        at = past_padding(block, at, header)
        if at > last:
            break
        size, ledger_id, entry_id = PREFIX.unpack_from(block, at)
        end = at + 4 + size
        if not ENTRY_SIZE_MIN <= size <= RECORD_SIZE_MAX or end > len(block) or ledger_id < 0 or entry_id < 0:
            break
        starts.append(at + 4)
        ends.append(end)
        at = end
    return Frames(starts, ends, at)


def past_padding(block: Buffer, at: int, header: journal.Header) -> int:
    """Where the next record begins that is not padding."""
    while header.pads and block[at : at + 4] == journal.PADDING_WORD:
        prefix = memoryview(block)[at : at + journal.PREFIX_SIZE]
        frame = journal.frame(prefix, at, len(block) - at, header)
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

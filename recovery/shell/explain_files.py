"""The small files, whole, and the groups of ledger rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery import anatomy
from recovery.shell.exhibit import Exhibit
from recovery.shell.tally import counted, reason
from storage.codec import cookie, mark, rows
from storage.outcome import Damaged, EndOfData, Torn

if TYPE_CHECKING:
    from storage.files import ReadFile


def explain_mark(file: ReadFile) -> Exhibit:
    """A lastMark file."""
    data = file.read(0, mark.SIZE + 64)
    decoded = mark.decode(data)
    return Exhibit(
        0, data, anatomy.mark_file(data), _mark_words(decoded), isinstance(decoded, Torn | Damaged)
    )


def _mark_words(decoded: mark.Mark | mark.EmptyMark | Torn | Damaged) -> str:
    match decoded:
        case mark.EmptyMark():
            return "lastMark, empty: every journal is replayed"
        case mark.Mark(position=position, trailer=trailer):
            whose = "lastMark of a bookie" if trailer is None else "lastMark of ours"
            # Journal 0 is none: the mark of a directory in which nothing was checkpointed yet.
            at = f"at {position}" if position.journal_id else "with the oldest journal"
            return f"{whose}: replay begins {at}"
        case wrong:
            return f"lastMark, not to be believed: {reason(wrong)}"


def explain_cookie(file: ReadFile) -> Exhibit:
    """A VERSION file."""
    data = file.read(0, cookie.SIZE_MAX)
    decoded = cookie.decode(data)
    if isinstance(decoded, Torn | Damaged):
        return Exhibit(
            0, data, anatomy.cookie_file(data), f"VERSION, unreadable: {reason(decoded)}", is_wrong=True
        )
    words = f"VERSION: the directory of {decoded.bookie_host}, layout {decoded.layout_version}"
    return Exhibit(0, data, anatomy.cookie_file(data), words, is_wrong=False)


def explain_rows(file: ReadFile, offset: int) -> Exhibit:
    """The group of ledger rows around the offset."""
    at, size = 0, file.size()
    while True:
        head_bytes = file.read(at, rows.HEAD_SIZE)
        head = rows.decode_group_head(head_bytes, at, size - at)
        if isinstance(head, EndOfData):
            return Exhibit(offset, b"", [], f"no group here: the rows end at {at}", is_wrong=False)
        if isinstance(head, Torn | Damaged):
            data = file.read(at, min(size - at, rows.HEAD_SIZE + rows.BODY_SIZE_MAX))
            words = f"no group can be read from {at} on: {reason(head)}"
            return Exhibit(at, data, anatomy.rows_group(data, at), words, isinstance(head, Damaged))
        if head.end > offset:
            return _group(file, head, head_bytes)
        at = head.end


def _group(file: ReadFile, head: rows.GroupHead, head_bytes: bytes) -> Exhibit:
    data = file.read(head.start, head.end - head.start)
    body = data[rows.HEAD_SIZE : rows.HEAD_SIZE + head.body_size]
    decoded = rows.decode_group_body(head, head_bytes, body)
    words = f"group {head.sequence} of {counted(head.count, 'ledger row')} at {head.start}"
    if isinstance(decoded, Damaged):
        return Exhibit(
            head.start, data, anatomy.rows_group(data, head.start), f"{words}: {decoded}", is_wrong=True
        )
    return Exhibit(head.start, data, anatomy.rows_group(data, head.start), f"{words}, sound", is_wrong=False)

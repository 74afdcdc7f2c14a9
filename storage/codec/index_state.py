"""The state of an index: a msgpack array with a checksum, committed with every change.

    ├ version, generation, mark: journal id, offset, last log, log ends,
      rows sequence, is whole ┼ crc u32 ┤

    last log    nil │ log id
    log ends    log id, end, log id, end, …    the ids ascending

The crc is CRC-32C over the array's bytes.
"""

from __future__ import annotations

import struct
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import msgpack
from crc32c import crc32c

from storage.entry import ID_MAX
from storage.index_state import IndexState
from storage.outcome import Damaged, Flaw, wrong_version
from storage.position import LOG_ID_MAX, JournalPosition

if TYPE_CHECKING:
    from storage.codec.digest import Buffer

VERSION = 1

_CHECKSUM = struct.Struct(">I")
_FIELDS = 8


def encode(state: IndexState) -> bytes:
    """The state with its checksum; the same state is always the same bytes."""
    body: bytes = msgpack.packb(
        (
            VERSION,
            state.generation,
            state.mark.journal_id,
            state.mark.offset,
            state.last_log,
            tuple(chain.from_iterable(sorted(state.log_ends.items()))),
            state.rows_sequence,
            state.is_whole,
        )
    )
    return body + _CHECKSUM.pack(crc32c(body))


def decode(data: Buffer) -> IndexState | Damaged:
    """The state, its checksum verified before anything in it is believed."""
    data = bytes(data)
    body, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if not body or _CHECKSUM.pack(crc32c(body)) != checksum:
        return Damaged(0, Flaw.CHECKSUM)
    try:
        fields = msgpack.unpackb(body, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        return Damaged(0, Flaw.BAD_TEXT, str(error))
    if not isinstance(fields, tuple) or not fields or type(fields[0]) is not int:
        return Damaged(0, Flaw.BAD_FIELD, "not a state")
    if fields[0] != VERSION:
        return Damaged(0, wrong_version(fields[0], VERSION), f"version {fields[0]}")
    return _state(fields) if len(fields) == _FIELDS else Damaged(0, Flaw.BAD_FIELD, f"{len(fields)} fields")


def _state(fields: tuple[Any, ...]) -> IndexState | Damaged:
    _, generation, journal_id, offset, last_log, log_ends, rows_sequence, is_whole = fields
    if not all(map(_is_size, (generation, journal_id, offset, rows_sequence))):
        return Damaged(0, Flaw.BAD_FIELD, "a number that is none, or out of range")
    if not (last_log is None or _is_log(last_log)):
        return Damaged(0, Flaw.BAD_FIELD, "the last log")
    if not _are_log_ends(log_ends):
        return Damaged(0, Flaw.BAD_FIELD, "the ends of the logs")
    if type(is_whole) is not bool:
        return Damaged(0, Flaw.BAD_FIELD, "whether it is whole")
    ends = dict(zip(log_ends[::2], log_ends[1::2], strict=True))
    mark = JournalPosition(journal_id, offset)
    return IndexState(generation, mark, last_log, ends, rows_sequence, is_whole)


def _are_log_ends(numbers: object) -> bool:
    if not isinstance(numbers, tuple) or len(numbers) % 2:
        return False
    logs, ends = numbers[::2], numbers[1::2]
    return (
        all(map(_is_log, logs))
        and all(map(_is_size, ends))
        and all(one < following for one, following in pairwise(logs))
    )


def _is_log(number: object) -> bool:
    return type(number) is int and 0 <= number <= LOG_ID_MAX


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number <= ID_MAX

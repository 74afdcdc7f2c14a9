"""The state of an index: a msgpack array with a checksum, committed with every change.

    ├ version, generation, mark: journal id, offset, last log, log ends,
      rows sequence, is whole, gone ┼ crc u32 ┤

    last log    nil │ log id
    log ends    log id, end, log id, end, …    the ids ascending
    gone        log id, log id, …              ascending; version 2 only

Version 1 has no field `gone`. It is still written while no log is gone, so that an older release can open an
index that has nothing which that release would not understand. The crc is CRC-32C over the array's bytes.
"""

from __future__ import annotations

import struct
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import msgpack
from crc32c import crc32c

from storage.entry.model import ID_MAX
from storage.entry.position import LOG_ID_MAX, JournalPosition
from storage.entry.read_result import Damaged, Flaw, wrong_version
from storage.index.state import IndexState

if TYPE_CHECKING:
    from storage.entry.digest import Buffer

VERSION = 2
_VERSION_WITHOUT_GONE = 1

_CHECKSUM = struct.Struct(">I")
_FIELDS = {_VERSION_WITHOUT_GONE: 8, VERSION: 9}
"""The number of fields by version."""


def encode(state: IndexState) -> bytes:
    """Encode the state with its checksum. Equal states have equal bytes."""
    body: bytes = msgpack.packb(
        (
            VERSION if state.gone else _VERSION_WITHOUT_GONE,
            state.generation,
            state.mark.journal_id,
            state.mark.offset,
            state.last_log,
            tuple(chain.from_iterable(sorted(state.log_ends.items()))),
            state.rows_sequence,
            state.is_whole,
            *((state.gone,) if state.gone else ()),
        )
    )
    return body + _CHECKSUM.pack(crc32c(body))


def decode(data: Buffer) -> IndexState | Damaged:
    """Decode the state after verifying its checksum."""
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
    if fields[0] not in _FIELDS:
        return Damaged(0, wrong_version(fields[0], VERSION), f"version {fields[0]}")
    if len(fields) != _FIELDS[fields[0]]:
        return Damaged(0, Flaw.BAD_FIELD, f"{len(fields)} fields")
    return _state(fields)


def _state(fields: tuple[Any, ...]) -> IndexState | Damaged:
    """Return the state that these fields make, or the first field that is wrong."""
    _, generation, journal_id, offset, last_log, log_ends, rows_sequence, is_whole, *rest = fields
    if not all(map(_is_size, (generation, journal_id, offset, rows_sequence))):
        return Damaged(0, Flaw.BAD_FIELD, "a field that is no number, or out of range")
    if not (last_log is None or _is_log(last_log)):
        return Damaged(0, Flaw.BAD_FIELD, "the last log")
    if not _are_log_ends(log_ends):
        return Damaged(0, Flaw.BAD_FIELD, "the ends of the logs")
    if type(is_whole) is not bool:
        return Damaged(0, Flaw.BAD_FIELD, "whether it is whole")
    gone = rest[0] if rest else ()
    if not _are_logs(gone):
        return Damaged(0, Flaw.BAD_FIELD, "the logs that are gone")
    ends = dict(zip(log_ends[::2], log_ends[1::2], strict=True))
    mark = JournalPosition(journal_id, offset)
    return IndexState(generation, mark, last_log, ends, rows_sequence, is_whole, gone)


def _are_log_ends(numbers: object) -> bool:
    if not isinstance(numbers, tuple) or len(numbers) % 2:
        return False
    logs, ends = numbers[::2], numbers[1::2]
    return _are_logs(logs) and all(map(_is_size, ends))


def _are_logs(ids: object) -> bool:
    """Return whether they are ids of logs that ascend."""
    if not isinstance(ids, tuple) or not all(map(_is_log, ids)):
        return False
    return all(one < following for one, following in pairwise(ids))


def _is_log(number: object) -> bool:
    return type(number) is int and 0 <= number <= LOG_ID_MAX


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number <= ID_MAX

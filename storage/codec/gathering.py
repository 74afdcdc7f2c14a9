"""Blocks of a journal in one pass: groups are verified, and what they hold is noted, stretch by stretch.

As in `storage.codec.blocks` each loop ends at the first thing that has to be looked at: an end, damage,
something rare, or the end of the block. On what lies before, whoever looks at each record would agree.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.codec import journal, seal, stretch
from storage.codec.blocks import SIZE_MAX, sealed_end
from storage.codec.record import HEAD_FRONT_SIZE
from storage.codec.seal import GroupFlag, Seal
from storage.position import LENGTH_WORD_SIZE, JournalPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Heads = Callable[[memoryview], Iterator[tuple[int, int, int]]]

_PREFIX = struct.Struct(">iqq")
_ATOMIC = seal.encode_atomic_mark()
_ATOMIC_CHECKSUM = crc32c(_ATOMIC)
_KNOWN = (seal.MAGIC, seal.VERSION)
_STRIDES_MAX = 1024

_WORD = 4
_LAST = _PREFIX.size // _WORD - 1
_CYCLE = 256
_COUNTING = bytes(range(_CYCLE))
_MANY = 64
"""Of more than these it is faster to compare than to count."""

Taken = tuple[int, int, int, bytes]
"""Ledger, first id, the id behind the last one, and the stretch as it is kept."""


class Noted(NamedTuple):
    """What was come by: stretches of entries, and all else with the place it stands in."""

    stretches: list[Taken]
    special: list[tuple[int, bytes]]


class Begun(NamedTuple):
    """How far a group has been passed, and what its seal must agree with."""

    start: int
    """In the file."""
    record_count: int = 0
    checksum: int = 0
    flags: GroupFlag = GroupFlag.NONE
    first_record: int | None = None


class Gathered(NamedTuple):
    """What a block begins with: the groups that end in it, then a part of the next one."""

    groups: list[tuple[Seal, int]]
    """The seal of each, and where it ends in the file."""
    begun: Begun
    end: int
    """How far the block was passed."""
    stretches: int
    """How many of those that were noted are in groups that have ended."""
    special: int


def gather(block: memoryview, offset: int, last: Seal | None, begun: Begun, into: Noted) -> Gathered:
    """Passes on from `offset` in the file, where the group has been passed so far that follows the last one.

    Only groups that hold: checksum, place and number, and nothing unknown in the seal. Without a last one,
    none.
    """
    assert len(block) <= SIZE_MAX, "a block is a piece of a file"
    start, count, checksum, flags, first = begun
    groups: list[tuple[Seal, int]] = []
    at, stretches, special = 0, 0, 0
    while True:
        if last and offset + at == start and block[at : at + len(_ATOMIC)] == _ATOMIC:
            at, checksum, flags = at + len(_ATOMIC), _ATOMIC_CHECKSUM, GroupFlag.ATOMIC
        records_at = at
        number, at, checksum = take_stretches(block, at, offset, checksum, into)
        if number:
            count += number
            first = offset + records_at if first is None else first
        end = None if last is None else sealed_end(block, at)
        if last is None or end is None:
            break
        behind = _seal_behind(last, block[at:end], (flags, start, count, checksum))
        if behind is None:
            break
        last = behind
        groups.append((last, offset + end))
        stretches, special = len(into.stretches), len(into.special)
        at, start, count, checksum, flags, first = end, offset + end, 0, 0, GroupFlag.NONE, None
    return Gathered(groups, Begun(start, count, checksum, flags, first), at, stretches, special)


def _seal_behind(last: Seal, padding: memoryview, begun: tuple[GroupFlag, int, int, int]) -> Seal | None:
    flags, start, record_count, checksum = begun
    *fields, durable_id, durable_offset, count, stored = seal.STORED.unpack_from(padding[-seal.SIZE :])
    if stored != crc32c(padding[: -seal.CHECKSUM_SIZE], checksum) or count != record_count:
        return None
    sequence = last.sequence + 1
    if fields != [*_KNOWN, flags, last.journal_id, last.salt, sequence, start]:
        return None
    if durable_id < 0 or durable_offset < 0:
        return None
    durable_up_to = JournalPosition(durable_id, durable_offset)
    return Seal(last.journal_id, last.salt, sequence, start, durable_up_to, count, flags)


def take_stretches(
    block: memoryview, start: int, offset: int, checksum: int, into: Noted
) -> tuple[int, int, int]:
    """Notes the records that stand one behind the other from `start` on, in a block that lies at `offset`.

    Answers with their number, where the last one ends, and the group's checksum there.
    """
    unpack_from, size, last = _PREFIX.unpack_from, len(block), len(block) - _PREFIX.size
    add, pack, count = into.stretches.append, stretch.pack, 0
    while start <= last:
        length, ledger_id, entry_id = unpack_from(block, start)
        end = start + LENGTH_WORD_SIZE + length
        if length < journal.BODY_SIZE_MIN or end > size:
            break
        if (ledger_id | entry_id) < 0 or end - start < HEAD_FRONT_SIZE:
            into.special.append((offset + start, bytes(block[start:end])))
            number, checksum = 1, crc32c(block[start:end], checksum)
        else:
            number, stride = 1, end - start
            if end <= last:
                behind, next_ledger, next_id = unpack_from(block, end)
                if next_ledger == ledger_id and next_id == entry_id + 1:
                    passing = _even if behind == length else _uneven
                    number, end, stride = passing(block, start, length, ledger_id, entry_id)
            before, checksum = checksum, crc32c(block[start:end], checksum)
            packed = pack(entry_id, offset + start, number, end - start, stride, before, checksum)
            add((ledger_id, entry_id, entry_id + number, packed))
        count += number
        start = end
    return count, start, checksum


def _even(block: memoryview, start: int, length: int, ledger_id: int, entry_id: int) -> tuple[int, int, int]:
    """How many records of this length go on from `start` on, where the last one ends, and what each takes."""
    stride = LENGTH_WORD_SIZE + length
    limit = min(len(block), start + max(stride, stretch.SIZE_MAX))
    most, far = (limit - start) // stride, start + _MANY * stride
    # One look ahead: if it goes on there, it goes on in between, most likely.
    goes_on = most > _MANY and _PREFIX.unpack_from(block, far) == (length, ledger_id, entry_id + _MANY)
    if goes_on and stride % _WORD == 0:
        number = _compared(block, start, stride, min(most, _CYCLE - entry_id % _CYCLE))
    else:
        number = _counted(block[start : start + most * stride], length, ledger_id, entry_id)
    return number, start + number * stride, stride


def _counted(records: memoryview, length: int, ledger_id: int, entry_id: int) -> int:
    """How many records begin as is due, looked at one by one."""
    next_id = entry_id
    for found_length, found_ledger, found_id in _heads(LENGTH_WORD_SIZE + length)(records):
        if found_id != next_id or found_length != length or found_ledger != ledger_id:
            break
        next_id += 1
    return next_id - entry_id


def _compared(block: memoryview, start: int, stride: int, most: int) -> int:
    """The same, of all at once: word by word of what each begins with; the id's last byte counts."""
    words, step = block[start : start + most * stride].cast("I"), stride // _WORD
    head = bytes(block[start : start + _PREFIX.size])
    for number in range(_PREFIX.size // _WORD):
        due = bytearray(head[number * _WORD : (number + 1) * _WORD] * most)
        if number == _LAST:
            due[_WORD - 1 :: _WORD] = _COUNTING[head[-1] : head[-1] + most]
        found = words[number : most * step : step].tobytes()
        if found != due:
            most = _agreeing(found, due)
    return most


def _agreeing(found: bytes, due: bytearray) -> int:
    """How many words are the same before the first that is not."""
    difference = int.from_bytes(found, "big") ^ int.from_bytes(due, "big")
    return (len(due) - (difference.bit_length() + 7) // 8) // _WORD


@lru_cache(_STRIDES_MAX)
def _heads(stride: int) -> _Heads:
    return struct.Struct(f"{_PREFIX.format}{stride - _PREFIX.size}x").iter_unpack


def _uneven(
    block: memoryview, start: int, length: int, ledger_id: int, entry_id: int
) -> tuple[int, int, int]:
    """The same for records of any length: what each takes is 0."""
    unpack_from, next_id, end = _PREFIX.unpack_from, entry_id + 1, start + LENGTH_WORD_SIZE + length
    limit = min(len(block), start + max(end - start, stretch.UNEVEN_SIZE_MAX))
    while end + _PREFIX.size <= limit:
        length, found_ledger, found_id = unpack_from(block, end)
        behind = end + LENGTH_WORD_SIZE + length
        is_short = length < HEAD_FRONT_SIZE - LENGTH_WORD_SIZE
        if found_ledger != ledger_id or found_id != next_id or is_short or behind > limit:
            break
        end = behind
        next_id += 1
    number = next_id - entry_id
    return number, end, 0 if number > 1 else end - start

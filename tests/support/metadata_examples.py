"""Random metadata of ledgers. From a seed, because fifty thousand of them are tested."""

from __future__ import annotations

import string
from random import Random

from storage import DigestType
from storage.cluster.metadata.ledger import (
    ClusterLedgerMetadata,
    ClusterLedgerState,
    CustomField,
    LedgerSegment,
)
from storage.cluster.wire import protobuf

ENTRY_MAX = (1 << 63) - 1

_BOOKIE = string.ascii_letters + string.digits + ".:-_"
_NEWER_TEXT = (b"later: 5", b'newer: "a\\"b"', b"deep {\n  a: 1\n  b {\n    c: X\n  }\n}")
_TEXT = string.printable + "\u00e4\u20ac\U0001f4d2\0"


def ledger_metadata(seed: int) -> ClusterLedgerMetadata:
    """Return metadata of any format, state and shape, with fields of newer versions."""
    dice = Random(seed)
    version = dice.choice([1, 2, 3, 3])
    return _old(dice) if version == 1 else _new(dice, version)


def _old(dice: Random) -> ClusterLedgerMetadata:
    size, state = dice.randint(1, 4), dice.choice([*ClusterLedgerState])
    quorum = dice.randint(1, size)
    last = _number(dice) if state is ClusterLedgerState.CLOSED else -1
    segments = tuple(LedgerSegment(first, _bookies(dice, size)) for first in _firsts(dice))
    return ClusterLedgerMetadata(size, quorum, quorum, segments, state, last, _number(dice), format_version=1)


def _new(dice: Random, version: int) -> ClusterLedgerMetadata:
    size = dice.randint(1, 5)
    write = dice.randint(1, size)
    return ClusterLedgerMetadata(
        ensemble_size=size,
        write_quorum=write,
        ack_quorum=dice.randint(1, write),
        segments=tuple(
            LedgerSegment(first, _bookies(dice, size), _unknown(dice, version)) for first in _firsts(dice)
        ),
        state=dice.choice([*ClusterLedgerState]),
        last_entry=dice.choice([-1, _number(dice)]),
        length=_number(dice),
        digest_type=dice.choice([None, *DigestType]),
        password=dice.choice([None, b"", dice.randbytes(dice.randrange(20))]),
        created_ms=dice.choice([None, _number(dice)]),
        custom=tuple(
            CustomField(_words(dice), dice.randbytes(dice.randrange(9)), _unknown(dice, version))
            for _ in range(dice.randrange(3))
        ),
        creator_token=dice.choice([None, 0, _number(dice)]) if version == 3 else None,
        format_version=version,
        unknown=_unknown(dice, version),
    )


def _number(dice: Random) -> int:
    return dice.getrandbits(dice.randrange(64)) & ENTRY_MAX


def _firsts(dice: Random) -> list[int]:
    return sorted({_number(dice) for _ in range(dice.randint(1, 3))})


def _bookies(dice: Random, size: int) -> tuple[str, ...]:
    return tuple("".join(dice.choices(_BOOKIE, k=dice.randint(1, 12))) for _ in range(size))


def _words(dice: Random) -> str:
    return "".join(dice.choices(_TEXT, k=dice.randrange(9)))


def _unknown(dice: Random, version: int) -> bytes:
    if version == 2:
        return b"\n".join(dice.sample(_NEWER_TEXT, dice.randrange(3)))
    return b"".join(_unknown_field(dice) for _ in range(dice.randrange(3)))


def _unknown_field(dice: Random) -> bytes:
    """A field that the table does not have, of any wire type."""
    number, data = dice.randint(100, 1 << 28) << 3, dice.randbytes(dice.randrange(12))
    match dice.randrange(4):
        case 0:
            return protobuf.encode_varint(number) + protobuf.encode_varint(dice.getrandbits(64))
        case 1:
            return protobuf.encode_varint(number | 1) + dice.randbytes(8)
        case 2:
            return protobuf.encode_varint(number | 5) + dice.randbytes(4)
    return protobuf.encode_varint(number | 2) + protobuf.encode_varint(len(data)) + data

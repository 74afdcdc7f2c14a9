"""The records of ZooKeeper's protocol: known bytes, a way back for each, and no prefix that is taken."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from storage.cluster.zookeeper.jute import (
    LAYOUTS,
    REQUESTS,
    JuteReader,
    MalformedRecord,
    encode,
    encode_multi,
    encode_notification,
    encode_request,
)
from storage.cluster.zookeeper.records import (
    OPEN_ACL,
    Acl,
    ConnectRequest,
    Create,
    ErrorOnly,
    Multi,
    Nothing,
    OpCode,
    PathAndVersion,
    PathAndWatch,
    PathOnly,
    SetWatches,
    Stat,
    StatOnly,
    WatcherEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

STAT = Stat(1, 2, 3, 4, 5, -6, 7, 8, 9, 10, 11)

_MADE: dict[str, Callable[[Random], Any]] = {
    "i": lambda dice: dice.choice([0, -1, 1, -(1 << 31), (1 << 31) - 1]),
    "l": lambda dice: dice.choice([0, -1, 1, -(1 << 63), (1 << 63) - 1]),
    "?": lambda dice: dice.random() < 0.5,
    "b": lambda dice: dice.choice([None, b"", dice.randbytes(20)]),
    "s": lambda dice: dice.choice(["", "/a", "/ä/漢/𝄞"]),
    "P": lambda dice: tuple("/" + "x" * dice.randrange(9) for _ in range(dice.randrange(4))),
    "A": lambda dice: tuple(Acl(dice.randrange(32), "world", "anyone") for _ in range(dice.randrange(3))),
    "C": lambda dice: tuple(("ip", "127.0.0.1") for _ in range(dice.randrange(3))),
    "T": lambda dice: Stat(*(dice.randrange(1 << 31) for _ in range(11))),
}


def some(kind: type[tuple[Any, ...]], dice: Random) -> tuple[Any, ...]:
    return kind(*[_MADE[letter](dice) for letter in LAYOUTS[kind]])


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.__name__)
def test_each_record_is_read_as_it_was_written_and_no_prefix_of_it_is_a_record(
    kind: type[tuple[Any, ...]],
) -> None:
    dice = Random(kind.__name__)
    for _ in range(30):
        record = some(kind, dice)
        data = encode(record)
        reader = JuteReader(data)
        assert reader.record(kind) == record
        assert reader.rest == 0
        for size in range(len(data)):
            with pytest.raises(MalformedRecord):
                JuteReader(data[:size]).record(kind)


def test_the_bytes_of_a_request_to_connect() -> None:
    request = ConnectRequest(0, 0x11, 10_000, 0x22, bytes(16))
    assert encode(request).hex() == ("00000000000000000000001100002710000000000000002200000010" + "00" * 16)


def test_the_bytes_of_a_request_to_create() -> None:
    request = Create("/a", b"xy", OPEN_ACL, 3)
    assert encode_request(OpCode.CREATE, request).hex() == (
        "000000022f61000000027879000000010000001f00000005776f726c6400000006616e796f6e6500000003"
    )


def test_the_bytes_of_a_notification() -> None:
    assert encode_notification(WatcherEvent(3, 3, "/a"), 0x99).hex() == (
        "0000001effffffff0000000000000099000000000000000300000003000000022f61"
    )


def test_a_multi_is_read_as_it_was_written() -> None:
    parts = (
        (OpCode.CREATE, Create("/a", None, OPEN_ACL, 0)),
        (OpCode.CHECK, PathAndVersion("/a", 3)),
        (OpCode.DELETE, PathAndVersion("/b", -1)),
    )
    assert JuteReader(encode_multi(Multi(parts))).request(OpCode.MULTI) == Multi(parts)
    results = Multi(
        (
            (OpCode.CREATE, PathOnly("/a")),
            (OpCode.SET_DATA, StatOnly(STAT)),
            (OpCode.DELETE, Nothing()),
            (OpCode.ERROR, ErrorOnly(-101)),
        )
    )
    assert JuteReader(encode_multi(results)).response(OpCode.MULTI) == results


@pytest.mark.parametrize("opcode", [OpCode.MULTI, OpCode.PING, OpCode.GET_DATA, 99])
def test_a_multi_takes_no_other_requests(opcode: int) -> None:
    kind = REQUESTS.get(opcode, Nothing)
    data = bytearray(encode_multi(Multi(((OpCode.ERROR, ErrorOnly(0)),))))
    data[:4] = opcode.to_bytes(4, "big")
    with pytest.raises(MalformedRecord, match="opcode"):
        JuteReader(bytes(data)).request(OpCode.MULTI)
    assert kind in LAYOUTS


def test_the_first_form_of_set_watches_has_three_vectors() -> None:
    watches = SetWatches(7, ("/a",), (), ("/b", "/c"))
    data = encode_request(OpCode.SET_WATCHES, watches)
    assert JuteReader(data).request(OpCode.SET_WATCHES) == watches
    assert encode_request(OpCode.SET_WATCHES2, watches) == data + bytes(8)


def test_a_null_vector_is_an_empty_one_and_a_null_string_is_malformed() -> None:
    assert JuteReader(b"\xff\xff\xff\xff").strings() == ()
    with pytest.raises(MalformedRecord, match="null"):
        JuteReader(b"\xff\xff\xff\xff").string()


def test_a_boolean_is_one_byte() -> None:
    assert encode(PathAndWatch("/", True))[-1:] == b"\x01"
    assert encode(PathAndWatch("/", False))[-1:] == b"\x00"

"""The state that an index keeps beside its places."""

from __future__ import annotations

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journals import flip

from storage.codec import index_state as codec
from storage.index_state import IndexState
from storage.outcome import Damaged, Flaw
from storage.position import START, JournalPosition

IDS = st.integers(0, 2**63 - 1)
LOGS = st.integers(0, 2**31 - 1)
STATES = st.builds(
    IndexState,
    generation=IDS,
    mark=st.builds(JournalPosition, IDS, IDS),
    last_log=st.none() | LOGS,
    log_ends=st.dictionaries(LOGS, IDS, max_size=6),
    rows_sequence=IDS,
    is_whole=st.booleans(),
)
STATE = IndexState(7, JournalPosition(3, 8192), 1, {0: 4096, 1: 70_000}, 12, is_whole=False)
GOOD = [1, 7, 3, 8192, 1, [0, 4096, 1, 70_000], 12, False]


def signed(value: object) -> bytes:
    body: bytes = msgpack.packb(value)
    return body + crc32c(body).to_bytes(4, "big")


@given(STATES)
def test_a_state_reads_back(state: IndexState) -> None:
    assert codec.decode(codec.encode(state)) == state


def test_the_array_that_a_state_is() -> None:
    assert codec.encode(STATE) == signed(GOOD)
    assert codec.encode(IndexState()) == signed([1, 0, START.journal_id, START.offset, None, [], 0, True])


def test_the_order_in_which_logs_were_noted_does_not_show() -> None:
    assert codec.encode(IndexState(log_ends={1: 70_000, 0: 4096})) == codec.encode(
        IndexState(log_ends={0: 4096, 1: 70_000})
    )


def test_no_flipped_bit_and_no_prefix_of_a_state_is_believed() -> None:
    encoded = codec.encode(STATE)
    for bit in range(len(encoded) * 8):
        assert isinstance(codec.decode(flip(encoded, bit // 8, bit % 8)), Damaged), bit
    for size in range(len(encoded)):
        assert isinstance(codec.decode(encoded[:size]), Damaged), size


NUMBERS: tuple[object, ...] = (-1, 2**63, True, None, 1.0, "x")
ENDS: tuple[object, ...] = (None, 7, b"\0\1", [1], [1, 2, 1, 2], [2, 0, 1, 0], {})
WRONG_FIELDS = [
    *((field, wrong) for field in (1, 2, 3, 6) for wrong in NUMBERS),
    *((4, wrong) for wrong in (-1, 2**31, True, 1.0, "x")),
    *((5, wrong) for wrong in ENDS),
    *((5, [wrong, 0]) for wrong in (-1, 2**31, None, True)),
    *((5, [0, wrong]) for wrong in NUMBERS),
    *((7, wrong) for wrong in (0, 1, None, "x")),
]


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS)
def test_a_field_of_the_wrong_kind_is_damage(field: int, value: object) -> None:
    answer = codec.decode(signed([*GOOD[:field], value, *GOOD[field + 1 :]]))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_FIELD


NO_STATES = [
    ([2, *GOOD[1:]], Flaw.FUTURE_VERSION),
    ([2], Flaw.FUTURE_VERSION),
    ([0, *GOOD[1:]], Flaw.BAD_VERSION),
    ([True, *GOOD[1:]], Flaw.BAD_FIELD),
    ([None], Flaw.BAD_FIELD),
    (GOOD[:7], Flaw.BAD_FIELD),
    ([*GOOD, 1], Flaw.BAD_FIELD),
    ([], Flaw.BAD_FIELD),
    (7, Flaw.BAD_FIELD),
    ({}, Flaw.BAD_FIELD),
]


@pytest.mark.parametrize(("value", "flaw"), NO_STATES)
def test_what_is_no_state(value: object, flaw: Flaw) -> None:
    answer = codec.decode(signed(value))
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw


def test_bytes_that_are_no_msgpack() -> None:
    body = b"\xc1\xc1"
    answer = codec.decode(body + crc32c(body).to_bytes(4, "big"))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_TEXT

"""The encoding of an index's state."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import flip

from storage.entry.position import START, JournalPosition
from storage.entry.read_result import Damaged, Flaw
from storage.index import state_format
from storage.index.state import IndexState

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
    gone=st.lists(LOGS, max_size=4, unique=True).map(sorted).map(tuple),
)
STATE = IndexState(7, JournalPosition(3, 8192), 1, {0: 4096, 1: 70_000}, 12, is_whole=False)
GOOD = [1, 7, 3, 8192, 1, [0, 4096, 1, 70_000], 12, False]
WITH_GONE = [2, *GOOD[1:], [5, 9]]


def signed(value: object) -> bytes:
    body: bytes = msgpack.packb(value)
    return body + crc32c(body).to_bytes(4, "big")


@given(STATES)
def test_a_state_reads_back(state: IndexState) -> None:
    assert state_format.decode(state_format.encode(state)) == state


def test_the_encoded_array_of_a_state() -> None:
    assert state_format.encode(STATE) == signed(GOOD)
    assert state_format.encode(IndexState()) == signed(
        [1, 0, START.journal_id, START.offset, None, [], 0, True]
    )


def test_logs_that_are_gone_are_a_field_of_the_second_version() -> None:
    state = replace(STATE, gone=(5, 9))
    assert state_format.encode(state) == signed(WITH_GONE)
    assert state_format.decode(signed(WITH_GONE)) == state


def test_a_state_of_the_first_version_has_no_logs_that_are_gone() -> None:
    assert state_format.decode(signed(GOOD)) == replace(STATE, gone=())


@pytest.mark.parametrize("gone", [None, 7, [9, 5], [5, 5], [-1], [2**31], [True], [1.0], {}])
def test_logs_that_cannot_be_gone_are_damage(gone: object) -> None:
    answer = state_format.decode(signed([*WITH_GONE[:-1], gone]))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_FIELD


def test_the_order_of_the_logs_does_not_change_the_bytes() -> None:
    assert state_format.encode(IndexState(log_ends={1: 70_000, 0: 4096})) == state_format.encode(
        IndexState(log_ends={0: 4096, 1: 70_000})
    )


def test_no_flipped_bit_and_no_prefix_of_a_state_is_believed() -> None:
    encoded = state_format.encode(STATE)
    for bit in range(len(encoded) * 8):
        assert isinstance(state_format.decode(flip(encoded, bit // 8, bit % 8)), Damaged), bit
    for size in range(len(encoded)):
        assert isinstance(state_format.decode(encoded[:size]), Damaged), size


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
    answer = state_format.decode(signed([*GOOD[:field], value, *GOOD[field + 1 :]]))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_FIELD


NO_STATES = [
    ([3, *WITH_GONE[1:]], Flaw.FUTURE_VERSION),
    ([3], Flaw.FUTURE_VERSION),
    ([2, *GOOD[1:]], Flaw.BAD_FIELD),
    ([1, *WITH_GONE[1:]], Flaw.BAD_FIELD),
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
def test_bytes_that_are_no_state(value: object, flaw: Flaw) -> None:
    answer = state_format.decode(signed(value))
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw


def test_bytes_that_are_no_msgpack() -> None:
    body = b"\xc1\xc1"
    answer = state_format.decode(body + crc32c(body).to_bytes(4, "big"))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_TEXT

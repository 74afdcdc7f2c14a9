"""Message ids: text, order, and the bytes of a broker's client."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.cluster.topics.errors import InvalidMessageId
from storage.cluster.topics.message_id import EARLIEST, LATEST, MessageId

IDS = st.builds(
    MessageId,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
)


@pytest.mark.parametrize(
    ("id_", "batch_size", "expected"),
    [
        (MessageId(1, 2), 0, "080110023000"),
        (MessageId(1, 2), None, "08011002"),
        (MessageId(1, 2, 0), None, "080110021800"),
        (MessageId(1, 2, -1, 0), 0, "0801100220003000"),
        (MessageId(1, 2, 3, 4), 10, "0801100218032004300a"),
        (MessageId(300, 70000, -1, 0), 2, "08ac0210f0a20420003002"),
        (MessageId(14, 0), 0, "080e10003000"),
        (MessageId(20, 0, -1, 0), 0, "0814100020003000"),
    ],
)
def test_the_bytes_are_those_of_a_brokers_client(
    id_: MessageId, batch_size: int | None, expected: str
) -> None:
    assert id_.to_bytes(batch_size).hex() == expected
    assert MessageId.from_bytes(bytes.fromhex(expected)) == id_


def test_a_text_has_four_fields_and_three_are_read() -> None:
    assert str(MessageId(300, 70000)) == "300:70000:-1:-1"
    assert MessageId.parse("300:70000:-1") == MessageId(300, 70000)
    assert MessageId.parse("300:70000:2:5") == MessageId(300, 70000, 2, 5)


@given(IDS)
def test_text_and_bytes_give_the_same_id_back(id_: MessageId) -> None:
    assert MessageId.parse(str(id_)) == id_
    assert MessageId.from_bytes(id_.to_bytes()) == id_


@pytest.mark.parametrize("end", [EARLIEST, LATEST, MessageId(7, -1)])
def test_places_without_a_message_have_text_and_bytes(end: MessageId) -> None:
    assert MessageId.parse(str(end)) == end
    assert MessageId.from_bytes(end.to_bytes()) == end


def test_ids_are_ordered_by_ledger_entry_partition_and_batch() -> None:
    ascending = [
        EARLIEST,
        MessageId(3, -1),
        MessageId(3, 9),
        MessageId(3, 9, -1, 0),
        MessageId(3, 9, 0, -1),
        MessageId(3, 10, -1, -1),
        MessageId(4, 0),
        LATEST,
    ]
    assert sorted(set(ascending)) == ascending


def test_the_id_of_the_entry_has_no_batch_index() -> None:
    assert MessageId(1, 2, 3, 4).of_entry == MessageId(1, 2, 3)


def test_an_id_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(MessageId(1, 2, 3, 4))) == MessageId(1, 2, 3, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1:2",
        "1:2:3:4:5",
        "1:2:3:",
        "-2:0:-1:-1",
        "1:-2:-1:-1",
        "1:2:-3:-1",
        "1:2:3:-4",
        "-1:0:-1:-1",
        "1:-1:-1:0",
        "1: 2:3:4",
        "+1:2:3:4",
        "1:2:3:4\n",
        "a:2:3:4",
        "9223372036854775808:0:-1:-1",
        "1:2:2147483648:-1",
        "\u0661:2:3:4",
    ],
)
def test_a_text_that_is_no_id_is_refused_and_named(text: str) -> None:
    with pytest.raises(InvalidMessageId, match="message id") as refused:
        MessageId.parse(text)
    assert refused.value.given == text
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "ledger is missing"),
        ("0801", "entry is missing"),
        ("08011002ff", "ends early"),
        ("080110023a0408011001", "chunked"),
        ("0801100220feffffffffffffffff01", "only negative number"),
    ],
)
def test_bytes_that_are_no_id_are_refused(data: str, reason: str) -> None:
    with pytest.raises(InvalidMessageId, match=reason):
        MessageId.from_bytes(bytes.fromhex(data))

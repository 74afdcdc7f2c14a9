"""Adds and reads that are decoded as runs are the same as those that are decoded one by one."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import many

from storage.cluster.bookie.connection import ConnectionLimits, ConnectionState
from storage.cluster.wire import frames, v2, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    AddEntry,
    AddOptions,
    AddRun,
    FoundEntry,
    Incoming,
    Protocol,
    ReadEntry,
    ReadRun,
)
from storage.cluster.wire.protobuf import Malformed

if TYPE_CHECKING:
    from storage.cluster.wire.messages import Request

V2, V3 = Protocol.V2, Protocol.V3
both = pytest.mark.parametrize("protocol", [V2, V3])
KEY, OTHER_KEY = bytes(range(20)), bytes(range(1, 21))
ORDINARY, RECOVERY = AddOptions(), AddOptions(is_recovery=True)


def add(
    ledger_id: int, entry_id: int, payload: bytes, key: bytes = KEY, options: AddOptions = ORDINARY
) -> AddEntry:
    entry = ledger_id.to_bytes(8, signed=True) + entry_id.to_bytes(8, signed=True) + payload
    return AddEntry(ledger_id, entry_id, key, entry, options, b"")


def frame_of(request: Request, protocol: Protocol, txn_id: int) -> bytes:
    return v2.encode_request(request) if protocol is V2 else v3.encode_request(request, txn_id)


def one_by_one(data: bytes) -> tuple[list[Incoming], bool]:
    """Return the requests in these bytes up to the first that is none, and whether there is one."""
    bodies, _, flaw = frames.split(data)
    found: list[Incoming] = []
    for body in bodies:
        protocol = frames.protocol_of(body)
        incoming = v3.decode_request(body) if protocol is V3 else v2.decode_request(body)
        if protocol is None or isinstance(incoming, Malformed):
            return found, True
        found.append(incoming)
    return found, flaw is not None


def in_runs(data: bytes) -> tuple[list[Incoming], bool, list[AddRun]]:
    """Return the same as a connection decodes it, and the runs."""
    received = ConnectionState(ConnectionLimits()).receive(data)
    found: list[Incoming] = []
    for one in received.requests:
        if isinstance(one, ReadRun):
            found += [incoming for incoming, _ in one.requests()]
        else:
            found += one.requests() if isinstance(one, AddRun) else [one]
    return found, received.flaw is not None, [one for one in received.requests if isinstance(one, AddRun)]


steps = st.tuples(
    st.sampled_from([1, 1, 1, 1, 1, 1, 0, 2, 127, 128, 1 << 40]),  # to the next id
    st.sampled_from([5, 5, 5, 5, 5, 300, -1]),
    st.sampled_from([KEY, KEY, KEY, KEY, OTHER_KEY]),
    st.sampled_from([ORDINARY, ORDINARY, ORDINARY, RECOVERY, AddOptions(is_urgent=True)]),
    st.sampled_from([b"", b"x" * 90, b"x" * 90, b"x" * 200]),
)


@both
@given(
    first_id=st.sampled_from([-1, 0, 100, 127, 16_300, 2_097_100]),
    txn_id=st.sampled_from([0, 100, 16_380, (1 << 64) - 30]),
    sequence=st.lists(steps, min_size=1, max_size=20),
    cut=st.integers(0, 300),
)
def test_a_stream_is_decoded_to_the_same_adds(
    protocol: Protocol,
    first_id: int,
    txn_id: int,
    sequence: list[tuple[int, int, bytes, AddOptions, bytes]],
    cut: int,
) -> None:
    entry_id, stream = first_id, b""
    for number, (step, ledger_id, key, options, payload) in enumerate(sequence):
        stream += frame_of(add(ledger_id, entry_id, payload, key, options), protocol, txn_id + number)
        entry_id += step
    for data in (stream, stream[: max(0, len(stream) - cut)]):
        expected, _ = one_by_one(data)
        found, flaw, runs = in_runs(data)
        assert (found, flaw) == (expected, False)
        assert all(run.size == sum(map(len, run.entries)) for run in runs)


@both
def test_adds_of_one_writer_are_few_runs(protocol: Protocol) -> None:
    stream = b"".join(frame_of(add(5, number, b"x" * 90), protocol, 1000 + number) for number in range(500))
    found, _, runs = in_runs(stream)
    assert (found, len(found)) == (one_by_one(stream)[0], 500)
    # In version 3 a run ends where the varint of the entry id gets another byte.
    assert len(runs) == (1 if protocol is V2 else 2)


@both
def test_a_frame_above_the_limit_ends_a_run_and_closes_the_connection(protocol: Protocol) -> None:
    requests = [add(5, number, b"x" * size) for number, size in zip(count(), (90, 90, 600), strict=False)]
    stream = b"".join(frame_of(one, protocol, number) for number, one in enumerate(requests))
    requests_, flaw = ConnectionState(ConnectionLimits(frame_size_max=500)).receive(stream)
    assert [len(one.entries) for one in requests_ if isinstance(one, AddRun)] == [2]
    assert flaw is not None


@both
@pytest.mark.parametrize("code", [Code.OK, Code.FENCED])
def test_the_answers_to_a_run_are_those_to_its_adds(protocol: Protocol, code: Code) -> None:
    stream = b"".join(
        frame_of(add(5, number, b"x" * 90), protocol, 120 + number) for number in range(100, 150)
    )
    connection = ConnectionState(ConnectionLimits())
    runs = [one for one in connection.receive(stream).requests if isinstance(one, AddRun)]
    assert connection.unanswered > len(stream)
    answers = b"".join(connection.answer_adds(run, code) for run in runs)
    assert connection.unanswered == 0
    decode = v2.decode_answer if protocol is V2 else v3.decode_answer
    found = [decode(body) for body in frames.split(answers).bodies]
    assert [(one.entry_id, one.code) for one in found if not isinstance(one, Malformed)] == [
        (number, code) for number in range(100, 150)
    ]


@both
@given(
    first_id=st.sampled_from([-1, 0, 100, 127, 16_300, 2_097_100]),
    txn_id=st.sampled_from([0, 100, 16_380, (1 << 64) - 30]),
    sequence=st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 1, 1, 0, 2, 128]),
            st.sampled_from([5, 5, 5, 5, 300, -1]),
            st.sampled_from([None, None, None, None, KEY]),
        ),
        min_size=1,
        max_size=20,
    ),
)
def test_a_stream_is_decoded_to_the_same_reads(
    protocol: Protocol, first_id: int, txn_id: int, sequence: list[tuple[int, int, bytes | None]]
) -> None:
    entry_id, stream = first_id, b""
    for number, (step, ledger_id, key) in enumerate(sequence):
        read = ReadEntry(ledger_id, entry_id, key, fences=key is not None)
        stream += frame_of(read, protocol, txn_id + number)
        entry_id += step
    found, flaw, _ = in_runs(stream)
    assert (found, flaw) == (one_by_one(stream)[0], False)


@both
def test_reads_of_consecutive_entries_are_few_runs_and_have_the_answers_of_single_reads(
    protocol: Protocol,
) -> None:
    ids = range(100, 400)
    stream = b"".join(frame_of(ReadEntry(5, one), protocol, 16_200 + one) for one in ids)
    connection = ConnectionState(ConnectionLimits())
    runs = [one for one in connection.receive(stream).requests if isinstance(one, ReadRun)]
    assert sum(len(run.headers) for run in runs) == len(ids)
    # In version 3 the varints of the ids get another byte at 128 and at 16,384.
    assert len(runs) == (1 if protocol is V2 else 3)
    lac, answers, expected = 1000, b"", b""
    encode = v2.encode_answer if protocol is V2 else v3.encode_answer
    for run in runs:
        entries = [bytes(30 + (one > 200) * 1000) for one, _ in enumerate(run.headers, run.first_entry_id)]
        first = connection.answer_reads(run, entries[:7], lac)
        answers += first + connection.answer_reads(run.after(7), entries[7:], lac)
        for (incoming, request), entry in zip(run.requests(), entries, strict=True):
            expected += encode(incoming, FoundEntry(entry, request.entry_id, lac)) or b""
    assert answers == expected
    assert connection.unanswered == 0


@pytest.mark.sampled
def test_mutated_runs_are_decoded_as_one_by_one() -> None:
    rng = random.Random(11)
    lengths = []
    for _ in range(many(50_000, 700)):
        protocol, first = rng.choice((V2, V3)), rng.choice((0, 100, 120, 16_380))
        stream = bytearray(
            b"".join(
                frame_of(add(5, first + number, b"x" * 20), protocol, 90 + number) for number in range(6)
            )
            + b"".join(frame_of(ReadEntry(5, first + number), protocol, 126 + number) for number in range(3))
        )
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(stream))
            if rng.random() < 0.8:
                stream[at] = rng.choice((rng.randrange(256), stream[at] ^ 1 << rng.randrange(8)))
            else:
                stream[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        data = bytes(stream)
        found, flaw, runs = in_runs(data)
        assert (found, flaw) == one_by_one(data), data.hex()
        lengths += [len(run.entries) for run in runs]
    assert {1, 2, 3, 4, 5} <= set(lengths)

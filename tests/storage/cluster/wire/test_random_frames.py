"""Any message survives encoding and decoding, and no bytes make a decoder raise."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import many

from storage.cluster.wire import entry_list, frames, protobuf, v2, v3, v3_tables
from storage.cluster.wire.codes import JAVA_EXCEPTIONS, Code, code_of
from storage.cluster.wire.frames import LENGTH
from storage.cluster.wire.messages import (
    AddEntry,
    AddOptions,
    AnswerTo,
    Authenticate,
    BatchRead,
    BookieInfo,
    CodeAnswer,
    DiskSpaceAnswer,
    EntryList,
    ForceLedger,
    FoundEntries,
    FoundEntry,
    FoundLac,
    Incoming,
    ListEntries,
    LongPoll,
    ReadEntry,
    ReadLac,
    StartTls,
    UnknownRequest,
    WriteLac,
)
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable, ProtobufMessage
from storage.errors import (
    AnswerUnknown,
    DiskFull,
    EntryTooLarge,
    LedgerFenced,
    LedgerUnproven,
    NoSuchEntry,
    NoSuchLedger,
    Overloaded,
    Unauthorized,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.cluster.wire.messages import Answer, Request

ids = st.integers(-1, (1 << 63) - 1)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
keys = st.binary(min_size=20, max_size=20)
packets = st.binary(max_size=200)
booleans = st.booleans()
options = st.builds(AddOptions, booleans, booleans, booleans)
TXN = st.integers(0, (1 << 64) - 1)


@st.composite
def adds(draw: st.DrawFn) -> AddEntry:
    ledger_id, entry_id = draw(ids), draw(ids)
    entry = ledger_id.to_bytes(8, signed=True) + entry_id.to_bytes(8, signed=True) + draw(packets)
    return AddEntry(ledger_id, entry_id, draw(keys), entry, draw(options), b"")


no_key, unfenced, fencing = st.none(), st.just(value=False), st.just(value=True)
reads = st.builds(ReadEntry, ids, ids, no_key, unfenced, booleans) | st.builds(
    ReadEntry, ids, ids, keys, fencing, booleans
)
auths = st.builds(Authenticate, st.text(max_size=20), packets)
both = adds() | reads | auths
v2_requests = both | st.builds(
    BatchRead, ids, ids, numbers, st.integers(-(1 << 31), (1 << 31) - 1), numbers, no_key, unfenced, booleans
)
v3_requests = (
    both
    | st.builds(LongPoll, ids, ids, ids, st.none() | st.integers(0, 1 << 40), booleans)
    | st.builds(WriteLac, ids, ids, keys, packets)
    | st.builds(ReadLac, ids)
    | st.builds(BookieInfo, st.integers(0, 3))
    | st.builds(StartTls)
    | st.builds(ForceLedger, ids)
    | st.builds(ListEntries, ids)
)


def body_of(frame: bytes) -> bytes:
    return frame[LENGTH.size :]


def without_success(request: Request) -> Request:
    return request._replace(success=b"") if isinstance(request, AddEntry) else request


@given(v2_requests)
def test_a_request_of_version_2_is_decoded_to_itself(request: Request) -> None:
    if isinstance(request, AddEntry):
        request = request._replace(options=request.options._replace(is_deferred=False))  # it cannot say so
    found = v2.decode_request(body_of(v2.encode_request(request)))
    assert isinstance(found, Incoming)
    assert without_success(found.request) == request


@given(v3_requests, TXN)
def test_a_request_of_version_3_is_decoded_to_itself(request: Request, txn_id: int) -> None:
    found = v3.decode_request(body_of(v3.encode_request(request, txn_id)))
    assert isinstance(found, Incoming)
    assert without_success(found.request) == request
    answer = v3.decode_answer(body_of(v3.encode_answer(found, CodeAnswer(Code.OK))))
    assert isinstance(answer, AnswerTo)
    assert (answer.number, answer.code) == (txn_id, Code.OK)


@given(adds() | reads, TXN)
def test_a_shortcut_decodes_as_the_tables_do(request: Request, txn_id: int) -> None:
    body = body_of(v3.encode_request(request, txn_id))
    assert v3.decode_request(body) == v3_tables.decode_request(body)


@given(adds() | reads, TXN)
def test_a_shortcut_encodes_as_the_tables_do(request: Request, txn_id: int) -> None:
    assert v3.encode_request(request, txn_id) == v3_tables.encode_request(request, txn_id)


@given(
    adds() | reads,
    TXN,
    packets,
    st.none() | ids,
    st.none() | st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)),
)
def test_a_shortcut_decodes_an_answer_as_the_tables_do(
    request: AddEntry | ReadEntry,
    txn_id: int,
    entry: bytes,
    lac: int | None,
    changed: tuple[int, int] | None,
) -> None:
    incoming = v3.decode_request(body_of(v3.encode_request(request, txn_id)))
    assert isinstance(incoming, Incoming)
    is_read = isinstance(request, ReadEntry)
    answer = FoundEntry(entry, request.entry_id, lac) if is_read else CodeAnswer(Code.OK)
    body = bytearray(body_of(v3.encode_answer(incoming, answer)))
    if changed is not None:
        at, value = changed
        body[at % len(body)] = value
    assert v3.decode_answer(bytes(body)) == v3_tables.decode_answer(bytes(body))


@given(v3_requests, TXN, st.sampled_from(sorted(JAVA_EXCEPTIONS, key=str)))
def test_a_failure_of_version_3_is_decoded_to_its_code(request: Request, txn_id: int, code: Code) -> None:
    incoming = v3.decode_request(body_of(v3.encode_request(request, txn_id)))
    assert isinstance(incoming, Incoming)
    back = v3.decode_answer(body_of(v3.encode_answer(incoming, CodeAnswer(code))))
    assert isinstance(back, AnswerTo)
    assert (back.number, back.code, back.answer) == (txn_id, code, CodeAnswer(code))


@given(reads, TXN, st.binary(min_size=1, max_size=300), st.none() | ids)
def test_an_entry_is_decoded_from_its_answer(
    request: ReadEntry, txn_id: int, entry: bytes, lac: int | None
) -> None:
    incoming = v3.decode_request(body_of(v3.encode_request(request, txn_id)))
    assert isinstance(incoming, Incoming)
    back = v3.decode_answer(body_of(v3.encode_answer(incoming, FoundEntry(entry, request.entry_id, lac))))
    assert isinstance(back, AnswerTo)
    assert back.answer == FoundEntry(entry, request.entry_id, lac)
    assert (back.number, back.ledger_id) == (txn_id, request.ledger_id)


ANSWERS: list[tuple[Request, Answer]] = [
    (LongPoll(1, -1, 3, 10, wants_entry=True), FoundEntry(b"entry", 4, lac=5, lac_time_ms=123)),
    (LongPoll(1, -1, 3, 10, wants_entry=True), FoundEntry(None, -1, lac=3)),
    (ReadEntry(1, 7), FoundEntry(b"entry", 7, lac=9)),
    (ReadLac(1), FoundLac(None, b"last")),
    (BookieInfo(2), DiskSpaceAnswer(None, 77)),
    (ListEntries(1), EntryList(entry_list.encode([range(3)]))),
]


@pytest.mark.parametrize(("request_", "answer"), ANSWERS)
def test_an_answer_of_version_3_is_decoded_to_itself(request_: Request, answer: Answer) -> None:
    incoming = v3.decode_request(body_of(v3.encode_request(request_, 5)))
    assert isinstance(incoming, Incoming)
    back = v3.decode_answer(body_of(v3.encode_answer(incoming, answer)))
    assert isinstance(back, AnswerTo)
    assert back.answer == answer


@given(st.lists(packets, max_size=4), numbers)
def test_the_answer_to_a_batch_read_has_its_request_id_also_if_it_failed(
    entries: list[bytes], request_id: int
) -> None:
    request = BatchRead(1, 2, request_id, 10, 1000)
    incoming = v2.decode_request(body_of(v2.encode_request(request)))
    assert isinstance(incoming, Incoming)
    answers: tuple[Answer, ...] = (FoundEntries(tuple(entries)), CodeAnswer(Code.NO_ENTRY))
    for answer in answers:
        frame = v2.encode_answer(incoming, answer)
        assert frame is not None
        back = v2.decode_answer(body_of(frame))
        assert isinstance(back, AnswerTo)
        assert (back.number, back.answer) == (request_id, answer)


def test_version_2_answers_an_unknown_request_by_a_close_and_never_sends_107() -> None:
    incoming = v2.decode_request(bytes((2, 9, 0, 0)))
    assert isinstance(incoming, Incoming)
    assert incoming.request == UnknownRequest(9)
    assert v2.encode_answer(incoming, CodeAnswer(Code.BAD_REQUEST)) is None
    read = Incoming(incoming.protocol, b"", ReadEntry(1, 2))
    frame = v2.encode_answer(read, CodeAnswer(Code.UNKNOWN_LEDGER_STATE))
    assert frame is not None
    assert int.from_bytes(frame[8:12]) == 101
    # A Java bookie does send it.
    back = v2.decode_answer(frame[4:8] + (107).to_bytes(4) + frame[12:])
    assert isinstance(back, AnswerTo)
    assert back.code is Code.UNKNOWN_LEDGER_STATE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoSuchEntry(1, 2), Code.NO_ENTRY),
        (NoSuchLedger(1), Code.NO_LEDGER),
        (LedgerFenced(1), Code.FENCED),
        (Unauthorized(1), Code.UNAUTHORIZED),
        (LedgerUnproven(1), Code.IO_ERROR),
        (AnswerUnknown(1, 2), Code.UNKNOWN_LEDGER_STATE),
        (DiskFull("path"), Code.READ_ONLY),
        (Overloaded(1.0), Code.TOO_MANY_REQUESTS),
        (EntryTooLarge(2, 1), Code.BAD_REQUEST),
        (OSError(5, "of the disk"), Code.IO_ERROR),
    ],
)
def test_an_error_of_the_store_has_the_code_that_a_java_bookie_would_send(
    error: Exception, code: Code
) -> None:
    assert code_of(error) is code


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.integers(0, 400))
def test_frames_are_found_wherever_the_bytes_were_divided(bodies: list[bytes], at: int) -> None:
    stream = b"".join(LENGTH.pack(len(body)) + body for body in bodies)
    first = frames.split(stream[:at])
    second = frames.split(stream[first.consumed :])
    assert first.bodies + second.bodies == bodies
    assert first.consumed + second.consumed == len(stream)
    assert (first.flaw, second.flaw) == (None, None)


@pytest.mark.parametrize("length", [0, frames.FRAME_SIZE_MAX - 3, 1 << 31, (1 << 32) - 1])
def test_a_frame_of_an_impossible_length_is_refused_before_its_bytes_are_there(length: int) -> None:
    good = LENGTH.pack(1) + b"\x02"
    found = frames.split(good + LENGTH.pack(length))
    assert (found.bodies, found.consumed) == ([b"\x02"], len(good))
    assert found.flaw is not None
    assert str(length) in found.flaw


def test_the_largest_frame_counts_its_length_word() -> None:
    body = bytes(frames.FRAME_SIZE_MAX - LENGTH.size)
    assert frames.split(LENGTH.pack(len(body)) + body).bodies == [body]


def test_a_message_of_neither_version_has_no_protocol() -> None:
    assert frames.protocol_of(b"\x03\x01") is None
    assert frames.protocol_of(b"GET / HTTP/1.1") is None


# ── bad bytes ────────────────────────────────────────────────────────────────────────────────────────────


def _mutated(rng: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 5))):
        kind = rng.randrange(4)
        at = rng.randrange(len(changed)) if changed else 0
        if kind == 0 and changed:
            changed[at] = rng.randrange(256)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = rng.randbytes(rng.randrange(1, 12))
        elif changed:
            changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.sampled
def test_mutated_messages_never_raise_and_what_is_decoded_came_with_the_bytes() -> None:
    rng = random.Random(7)
    decoders: list[Callable[[bytes], object]] = [
        v2.decode_request,
        v3.decode_request,
        v2.decode_answer,
        v3.decode_answer,
        entry_list.decode,
    ]
    key = bytes(range(20))
    entry = (5).to_bytes(8) + (6).to_bytes(8) + b"payload"
    requests: list[Request] = [
        AddEntry(5, 6, key, entry, AddOptions(is_recovery=True, is_urgent=True), b""),
        ReadEntry(5, 6, key, fences=True),
        Authenticate("plugin", b"payload"),
    ]
    bodies = [body_of(v3.encode_request(one, 300)) for one in requests]
    bodies += [body_of(v2.encode_request(one)) for one in requests]
    bodies += [body_of(v3.encode_request(one, 300)) for one, _ in ANSWERS]
    for request, answer in ANSWERS:
        incoming = v3.decode_request(body_of(v3.encode_request(request, 9)))
        assert isinstance(incoming, Incoming)
        bodies.append(body_of(v3.encode_answer(incoming, answer)))
    bodies.append(entry_list.encode([range(3), range(5, 9)]))
    outcomes = set()
    for _ in range(many(200_000, 2_000)):
        body = _mutated(rng, rng.choice(bodies))
        for decode in decoders:
            found = decode(body)
            outcomes.add(type(found))
            if isinstance(found, Incoming) and isinstance(found.request, AddEntry):
                assert len(found.request.entry) <= len(body)
                assert len(found.request.master_key) <= len(body)
    assert {Incoming, AnswerTo, Malformed, list} <= outcomes


def test_a_varint_of_eleven_bytes_a_long_field_and_deep_messages_are_malformed() -> None:
    eleven = b"\x08" + b"\x80" * 10 + b"\x01"
    assert isinstance(v3.decode_request(b"\x0a\x0c" + eleven), Malformed)
    assert isinstance(v3.decode_request(b"\x0a\xff\xff\xff\xff\x0f"), Malformed)
    deep = MessageTable("deep")
    deep = MessageTable("outer", MessageField(1, "inner", FieldKind.MESSAGE, deep))
    object.__setattr__(deep.fields[0], "table", deep)  # it holds itself
    body = b""
    for _ in range(40):
        body = b"\x0a" + protobuf.encode_varint(len(body)) + body
    found = protobuf.decode(deep, body)
    assert isinstance(found, Malformed)
    assert "inside each other" in found.reason


# ── protocol buffers ─────────────────────────────────────────────────────────────────────────────────────

INNER = MessageTable(
    "Inner", MessageField(1, "number", FieldKind.INTEGER), MessageField(2, "text", FieldKind.TEXT)
)
OUTER = MessageTable(
    "Outer",
    MessageField(1, "signed", FieldKind.INTEGER),
    MessageField(2, "unsigned", FieldKind.UNSIGNED),
    MessageField(3, "data", FieldKind.BYTES),
    MessageField(4, "inner", FieldKind.MESSAGE, INNER),
    MessageField(5, "texts", FieldKind.TEXT, is_repeated=True),
)
NARROW = MessageTable("Narrow", OUTER.fields[2])
outers = st.fixed_dictionaries(
    {},
    optional={
        "signed": numbers,
        "unsigned": st.integers(0, (1 << 64) - 1),
        "data": packets,
        "inner": st.builds(
            ProtobufMessage,
            st.fixed_dictionaries({}, optional={"number": numbers, "text": st.text(max_size=9)}),
        ),
        "texts": st.lists(st.text(max_size=9), min_size=1, max_size=3).map(tuple),
    },
)


@given(outers)
def test_a_message_is_decoded_to_itself_and_fields_that_a_table_does_not_name_survive(
    values: dict[str, protobuf.Value],
) -> None:
    raw = protobuf.encode(OUTER, ProtobufMessage(values))
    assert protobuf.decode(OUTER, raw) == ProtobufMessage(values)
    narrow = protobuf.decode(NARROW, raw)
    assert isinstance(narrow, ProtobufMessage)
    assert narrow.values.keys() <= {"data"}
    again = protobuf.decode(OUTER, protobuf.encode(NARROW, narrow))
    assert again == ProtobufMessage(values)


def test_a_missing_required_field_is_malformed() -> None:
    table = MessageTable("Needs", MessageField(1, "it", FieldKind.INTEGER, is_required=True))
    found = protobuf.decode(table, b"")
    assert isinstance(found, Malformed)
    assert "it is missing" in found.reason


# ── lists of entries ─────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=20))
def test_a_list_of_entries_is_decoded_to_its_ranges(steps: list[tuple[int, int]]) -> None:
    runs, at = [], 0
    for gap, size in steps:
        runs.append(range(at + gap, at + gap + size))
        at += gap + size
    assert entry_list.decode(entry_list.encode(runs)) == runs


def test_a_group_of_several_runs_is_read_although_none_is_written() -> None:
    header = (0).to_bytes(4) + (1).to_bytes(4) + bytes(56)
    group = (10).to_bytes(8) + (18).to_bytes(8) + (2).to_bytes(4) + (4).to_bytes(4)
    assert entry_list.decode(header + group) == [range(10, 12), range(14, 16), range(18, 20)]


@pytest.mark.parametrize(
    "group",
    [
        (10, 18, 2, 0),  # several runs without a period
        (10, 18, 5, 4),  # runs that overlap
        (10, 17, 2, 4),  # the last run is none of them
        (18, 10, 2, 4),
        (0, 0, 0, 0),
        (-1, -1, 1, 0),
        (0, 1 << 40, 1, 1),  # more runs than anyone can hold
    ],
)
def test_a_group_that_no_writer_makes_is_malformed(group: tuple[int, int, int, int]) -> None:
    first, last, size, period = group
    raw = (
        first.to_bytes(8, signed=True) + last.to_bytes(8, signed=True) + size.to_bytes(4) + period.to_bytes(4)
    )
    assert isinstance(entry_list.decode((0).to_bytes(4) + (1).to_bytes(4) + bytes(56) + raw), Malformed)


def test_a_request_of_very_many_fields_is_refused_before_they_take_time_and_memory() -> None:
    header = b"\x0a\x06\x08\x03\x10\x01\x18\x01"
    for field in (b"\xc2\x0c\x00", b"\x10\x00"):  # a message without fields, a number that is not known
        assert isinstance(v3.decode_request(header + field * 900), Incoming)
        assert isinstance(v3.decode_request(header + field * 1100), Malformed)

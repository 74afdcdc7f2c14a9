"""Version 2 of the protocol: fixed offsets, big-endian. Offsets count from after the length word.

    header word   version u8 (2) · operation u8 · flags u16
    add           header · master key [20] · entry: ledger id i64, entry id i64, last add confirmed, length, …
    read          header · ledger id i64 · entry id i64 [· master key [20], if it fences]
    batch read    header · ledger id · first entry id · request id i64 · count max i32 · size max i64 [· key]
    auth          header · message {1: plugin text, 2: payload}
    answer        header · code i32 · ledger id · entry id of the request [· entry]
    to a batch    header · code i32 · ledger id · entry id · request id [· (size u32 · entry) …]

The answer has the request's ids even if the entry is another one, as for a read of the last entry, because
the client finds its call by them. An answer to a batch read has the request id also if it failed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from storage.cluster.wire import protobuf
from storage.cluster.wire.codes import OF_V2, UNKNOWN_LEDGER_STATE_OF_V2, Code
from storage.cluster.wire.frames import LENGTH
from storage.cluster.wire.messages import (
    MASTER_KEY_SIZE,
    AddEntry,
    AddOptions,
    AddRun,
    AnswerTo,
    Authenticate,
    BatchRead,
    CodeAnswer,
    FoundEntries,
    FoundEntry,
    Incoming,
    OperationCode,
    Protocol,
    ReadEntry,
    ReadRun,
    UnknownRequest,
)
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable, ProtobufMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from storage.cluster.wire.messages import Answer, Request

_ADD, _READ, _AUTH, _BATCH_READ = 1, 2, 3, 7
_FENCE, _RECOVERY, _URGENT = 1, 2, 4
"""The flags of a header word: fence for reads, recovery for adds, high priority for both."""

_HEADER = struct.Struct(">BBH")
_READ_REQUEST = struct.Struct(">BBHqq")
_BATCH_REQUEST = struct.Struct(">BBHqqqiq")
_IDS = struct.Struct(">qq")
_ANSWER = struct.Struct(">IBBHiqq")
_ANSWER_SIZE = _ANSWER.size - LENGTH.size
_BATCH_ANSWER = struct.Struct(">IBBHiqqq")
_REQUEST_ID = struct.Struct(">q")
_VERSION = 2
_ENTRY_AT = _HEADER.size + MASTER_KEY_SIZE
_ORDINARY_ADD = _HEADER.pack(_VERSION, _ADD, 0)
"""The header of an add without options."""
_SUCCESS = LENGTH.pack(_ANSWER_SIZE) + _ORDINARY_ADD + bytes(4)
"""The answer to a successful add, up to the ids."""
_ADD_START = struct.Struct(f">I{_ENTRY_AT}sqq")
"""The frame of an add up to the ids in its entry: length, header with master key, ids."""

_READ_START = LENGTH.pack(_READ_REQUEST.size) + _HEADER.pack(_VERSION, _READ, 0)
"""The frame of a read without flags, up to its ids."""
_ORDINARY_READ = struct.Struct(f">{len(_READ_START)}sqq")

AUTH_MESSAGE = MessageTable(
    "AuthMessage",
    MessageField(1, "plugin", FieldKind.TEXT, is_required=True),
    MessageField(2, "payload", FieldKind.BYTES, is_required=True),
)

_OPTIONS: Mapping[int, AddOptions] = {
    flags: AddOptions(is_recovery=bool(flags & _RECOVERY), is_urgent=bool(flags & _URGENT))
    for flags in range(_FENCE | _RECOVERY | _URGENT + 1)
}
_OPERATIONS: Mapping[int, OperationCode] = {
    _ADD: OperationCode.ADD_ENTRY,
    _READ: OperationCode.READ_ENTRY,
    _AUTH: OperationCode.AUTH,
    _BATCH_READ: OperationCode.BATCH_READ_ENTRY,
}


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────


def decode_adds(data: bytes, at: int, size_max: int) -> tuple[AddRun, int] | None:
    """Return the run of ordinary adds that begins at `at`, and where it ends; `None` if none does.

    One loop without calls of our own, because a bookie does hardly anything else.
    """
    end = len(data)
    if end - at < _ADD_START.size:
        return None
    length, start, ledger_id, first_id = _ADD_START.unpack_from(data, at)
    if not start.startswith(_ORDINARY_ADD):
        return None
    entries: list[bytes] = []
    successes: list[bytes] = []
    length_min, length_max = _ADD_START.size - LENGTH.size, size_max - LENGTH.size
    begin, next_id = at, first_id
    while length_min <= length <= length_max and (stop := at + LENGTH.size + length) <= end:
        entry_at = at + LENGTH.size + _ENTRY_AT
        entries.append(data[entry_at:stop])
        successes.append(_SUCCESS + data[entry_at : entry_at + _IDS.size])
        at, next_id = stop, next_id + 1
        if end - at < _ADD_START.size:
            break
        length, found, ledger, entry_id = _ADD_START.unpack_from(data, at)
        if found != start or ledger != ledger_id or entry_id != next_id:
            break
    if not entries:
        return None
    key, headers = start[_HEADER.size :], [_ORDINARY_ADD] * len(entries)
    size = at - begin - len(entries) * (LENGTH.size + _ENTRY_AT)
    return AddRun(Protocol.V2, ledger_id, first_id, key, _OPTIONS[0], entries, headers, successes, size), at


def decode_reads(data: bytes, at: int) -> tuple[ReadRun, int] | None:
    """Return the run of ordinary reads that begins at `at`, and where it ends; `None` if none does."""
    end, size = len(data), _ORDINARY_READ.size
    if not data.startswith(_READ_START, at) or end - at < size:
        return None
    _, ledger_id, first_id = _ORDINARY_READ.unpack_from(data, at)
    next_id = first_id
    while end - at >= size and _ORDINARY_READ.unpack_from(data, at) == (_READ_START, ledger_id, next_id):
        at, next_id = at + size, next_id + 1
    return ReadRun(
        Protocol.V2, ledger_id, first_id, [_READ_START[-_HEADER.size :]] * (next_id - first_id)
    ), at


def decode_request(body: bytes) -> Incoming | Malformed:
    """Return the request in the body of a frame."""
    header = body[: _HEADER.size]
    if len(header) < _HEADER.size:
        return Malformed("a request without a header word", len(body))
    _, operation, flags = _HEADER.unpack(header)
    request: Request
    if operation == _ADD:
        if len(body) < _ENTRY_AT + _IDS.size:
            return Malformed("an add without an entry", len(body))
        ledger_id, entry_id = _IDS.unpack_from(body, _ENTRY_AT)
        request = AddEntry(
            ledger_id,
            entry_id,
            body[_HEADER.size : _ENTRY_AT],
            body[_ENTRY_AT:],
            _OPTIONS[flags & (_RECOVERY | _URGENT)],
            _SUCCESS + body[_ENTRY_AT : _ENTRY_AT + _IDS.size],
        )
    elif operation == _READ:
        fences = bool(flags & _FENCE)
        if len(body) != _READ_REQUEST.size + fences * MASTER_KEY_SIZE:
            return Malformed(f"a read of {len(body)} bytes", 0)
        *_, ledger_id, entry_id = _READ_REQUEST.unpack_from(body)
        key = body[_READ_REQUEST.size :] or None
        request = ReadEntry(ledger_id, entry_id, key, fences, bool(flags & _URGENT))
    elif operation == _BATCH_READ:
        fences = bool(flags & _FENCE)
        if len(body) != _BATCH_REQUEST.size + fences * MASTER_KEY_SIZE:
            return Malformed(f"a batch read of {len(body)} bytes", 0)
        *_, ledger_id, first, request_id, count_max, size_max = _BATCH_REQUEST.unpack_from(body)
        key = body[_BATCH_REQUEST.size :] or None
        urgent = bool(flags & _URGENT)
        request = BatchRead(ledger_id, first, request_id, count_max, size_max, key, fences, urgent)
    elif operation == _AUTH:
        message = protobuf.decode(AUTH_MESSAGE, body[_HEADER.size :])
        if isinstance(message, Malformed):
            return message
        request = Authenticate(message.text("plugin"), message.data("payload"))
    else:
        request = UnknownRequest(operation)
    return Incoming(Protocol.V2, header, request)


def encode_request(request: Request) -> bytes:
    """Return the frame of a request. Version 2 has no other requests than these four."""
    match request:
        case AddEntry(_, _, key, entry, options):
            flags = options.is_recovery * _RECOVERY | options.is_urgent * _URGENT
            return LENGTH.pack(_ENTRY_AT + len(entry)) + _HEADER.pack(_VERSION, _ADD, flags) + key + entry
        case ReadEntry(ledger_id, entry_id, key, fences, is_urgent):
            flags = fences * _FENCE | is_urgent * _URGENT
            fields = _READ_REQUEST.pack(_VERSION, _READ, flags, ledger_id, entry_id)
            body = fields + (key or b"" if fences else b"")
        case BatchRead():
            flags = request.fences * _FENCE | request.is_urgent * _URGENT
            fields = _BATCH_REQUEST.pack(
                _VERSION,
                _BATCH_READ,
                flags,
                request.ledger_id,
                request.first_entry_id,
                request.request_id,
                request.count_max,
                request.size_max,
            )
            body = fields + (request.master_key or b"" if request.fences else b"")
        case Authenticate(plugin, payload):
            body = _HEADER.pack(_VERSION, _AUTH, 0) + _auth(plugin, payload)
        case _:
            raise AssertionError(f"version 2 has no such request: {request}")
    return LENGTH.pack(len(body)) + body


def _auth(plugin: str, payload: bytes) -> bytes:
    return protobuf.encode(AUTH_MESSAGE, ProtobufMessage({"plugin": plugin, "payload": payload}))


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────


def encode_answer(incoming: Incoming, answer: Answer) -> bytes | None:
    """Return the frame that answers a request; `None` if only closing the connection can answer it.

    A request that is unknown is answered by a close, as by old bookies: a client then falls back to what they
    know, which it does not do for any code.
    """
    request = incoming.request
    code = answer.code if isinstance(answer, CodeAnswer) else Code.OK
    match request:
        case AddEntry():
            if code is Code.OK:
                return request.success
            return _ANSWER.pack(_ANSWER_SIZE, _VERSION, _ADD, 0, code.v2, request.ledger_id, request.entry_id)
        case ReadEntry():
            entry = (answer.entry or b"") if isinstance(answer, FoundEntry) else b""
            return (
                _ANSWER.pack(
                    _ANSWER_SIZE + len(entry),
                    _VERSION,
                    _READ,
                    0,
                    code.v2,
                    request.ledger_id,
                    request.entry_id,
                )
                + entry
            )
        case BatchRead():
            entries = answer.entries if isinstance(answer, FoundEntries) else ()
            parts = [part for entry in entries for part in (LENGTH.pack(len(entry)), entry)]
            size = _BATCH_ANSWER.size - LENGTH.size + sum(map(len, parts))
            first = _BATCH_ANSWER.pack(
                size,
                _VERSION,
                _BATCH_READ,
                0,
                code.v2,
                request.ledger_id,
                request.first_entry_id,
                request.request_id,
            )
            return b"".join((first, *parts))
        case Authenticate():
            if not isinstance(answer, Authenticate):
                return None
            body = _HEADER.pack(_VERSION, _AUTH, 0) + _auth(answer.plugin, answer.payload)
            return LENGTH.pack(len(body)) + body
        case _:
            return None


def encode_reads(run: ReadRun, entries: Sequence[bytes]) -> bytes:
    """Return the frames that answer the first reads of a run with these entries."""
    ledger_id, pack = run.ledger_id, _ANSWER.pack
    parts: list[bytes] = []
    for entry_id, entry in enumerate(entries, run.first_entry_id):
        size = _ANSWER_SIZE + len(entry)
        parts += (pack(size, _VERSION, _READ, 0, 0, ledger_id, entry_id), entry)
    return b"".join(parts)


def decode_answer(body: bytes) -> AnswerTo | Malformed:
    """Return the answer in the body of a frame."""
    if len(body) < _HEADER.size:
        return Malformed("an answer without a header word", len(body))
    number = body[1]
    operation = _OPERATIONS.get(number)
    if operation is None:
        return Malformed(f"an answer to the unknown operation {number}", 1)
    if operation is OperationCode.AUTH:
        message = protobuf.decode(AUTH_MESSAGE, body[_HEADER.size :])
        if isinstance(message, Malformed):
            return message
        said = Authenticate(message.text("plugin"), message.data("payload"))
        return AnswerTo(Protocol.V2, operation, -1, -1, -1, Code.OK, said)
    return _decode_ids(operation, body)


def _decode_ids(operation: OperationCode, body: bytes) -> AnswerTo | Malformed:
    """Return an answer that has a code and ids, which all have but those of an authentication."""
    if len(body) < _ANSWER_SIZE:
        return Malformed("an answer without ids", len(body))
    _, _, _, _, raw_code, ledger_id, entry_id = _ANSWER.unpack_from(
        LENGTH.pack(len(body)) + body[:_ANSWER_SIZE]
    )
    code = Code.UNKNOWN_LEDGER_STATE if raw_code == UNKNOWN_LEDGER_STATE_OF_V2 else OF_V2.get(raw_code)
    if code is None:
        return Malformed(f"the unknown code {raw_code}", _HEADER.size)
    answer: Answer = CodeAnswer(code)
    request_id = -1
    if operation is OperationCode.BATCH_READ_ENTRY:
        if len(body) < _ANSWER_SIZE + _REQUEST_ID.size:
            return Malformed("an answer to a batch read without its request id", len(body))
        (request_id,) = _REQUEST_ID.unpack_from(body, _ANSWER_SIZE)
        entries = _entries(body, _ANSWER_SIZE + _REQUEST_ID.size)
        if isinstance(entries, Malformed):
            return entries
        if code is Code.OK:
            answer = FoundEntries(entries)
    elif operation is OperationCode.READ_ENTRY and code is Code.OK:
        answer = FoundEntry(body[_ANSWER_SIZE:], entry_id)
    return AnswerTo(Protocol.V2, operation, request_id, ledger_id, entry_id, code, answer)


def _entries(body: bytes, at: int) -> tuple[bytes, ...] | Malformed:
    entries = []
    while at < len(body):
        if len(body) - at < LENGTH.size:
            return Malformed("an entry without its size", at)
        (size,) = LENGTH.unpack_from(body, at)
        at += LENGTH.size
        if size > len(body) - at:
            return Malformed("an entry ends after its frame", at)
        entries.append(body[at : at + size])
        at += size
    return tuple(entries)

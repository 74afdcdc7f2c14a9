"""The messages of version 3 as tables, and their bytes by these tables.

    request   {1: header {1: version 3, 2: operation, 3: transaction id, 4: priority}, 100…108: the request}
    answer    {1: header without priority, 2: status, 100…108: the answer {1: status, 2: ledger id, …}}

Both statuses are the same. Every message can be encoded and decoded here; `v3` has faster ways for adds and
for reads, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.cluster.wire import protobuf
from storage.cluster.wire.codes import OF_V3, Code
from storage.cluster.wire.frames import LENGTH
from storage.cluster.wire.messages import (
    AddEntry,
    AddOptions,
    AnswerTo,
    Authenticate,
    BookieInfo,
    CodeAnswer,
    DiskSpaceAnswer,
    EntryList,
    ForceLedger,
    FoundEntry,
    FoundLac,
    Incoming,
    ListEntries,
    LongPoll,
    OperationCode,
    Protocol,
    ReadEntry,
    ReadLac,
    StartTls,
    UnknownRequest,
    WriteLac,
)
from storage.cluster.wire.protobuf import (
    FieldKind,
    Malformed,
    MessageField,
    MessageTable,
    ProtobufMessage,
    encode_varint,
)
from storage.cluster.wire.v2 import AUTH_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.cluster.wire.messages import Answer, Request

_VERSION = 3
URGENT = 100
"""The priority that a client gives to requests of a recovery. Any number above 0 is high priority."""

_FIELDS_MAX = 1000
"""The fields of a request. One of ours has a dozen; a frame of 5 MiB could have two million, and the event
loop would be busy with it for seconds."""

FENCE_LEDGER, _ENTRY_PIGGYBACK = 1, 2
RECOVERY_ADD = 1
DEFERRED_SYNC = 1

# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────

_HEADER = MessageTable(
    "BKPacketHeader",
    MessageField(1, "version", FieldKind.INTEGER, is_required=True),
    MessageField(2, "operation", FieldKind.INTEGER, is_required=True),
    MessageField(3, "txn_id", FieldKind.UNSIGNED, is_required=True),
    MessageField(4, "priority", FieldKind.UNSIGNED),
)
_LEDGER = MessageTable("ledger", MessageField(1, "ledger_id", FieldKind.INTEGER, is_required=True))
_READ = MessageTable(
    "ReadRequest",
    MessageField(100, "flag", FieldKind.INTEGER),
    MessageField(1, "ledger_id", FieldKind.INTEGER, is_required=True),
    MessageField(2, "entry_id", FieldKind.INTEGER, is_required=True),
    MessageField(3, "master_key", FieldKind.BYTES),
    MessageField(4, "previous_lac", FieldKind.INTEGER),
    MessageField(5, "timeout", FieldKind.INTEGER),
)
_ADD = MessageTable(
    "AddRequest",
    MessageField(100, "flag", FieldKind.INTEGER),
    MessageField(1, "ledger_id", FieldKind.INTEGER, is_required=True),
    MessageField(2, "entry_id", FieldKind.INTEGER, is_required=True),
    MessageField(3, "master_key", FieldKind.BYTES, is_required=True),
    MessageField(4, "body", FieldKind.BYTES, is_required=True),
    MessageField(5, "write_flags", FieldKind.INTEGER),
)
_WRITE_LAC = MessageTable(
    "WriteLacRequest",
    MessageField(1, "ledger_id", FieldKind.INTEGER, is_required=True),
    MessageField(2, "lac", FieldKind.INTEGER, is_required=True),
    MessageField(3, "master_key", FieldKind.BYTES, is_required=True),
    MessageField(4, "packet", FieldKind.BYTES, is_required=True),
)
_INFO = MessageTable("GetBookieInfoRequest", MessageField(1, "requested", FieldKind.INTEGER))
_EMPTY = MessageTable("StartTLS")
_CONTEXT = MessageTable(
    "ContextPair", MessageField(1, "key", FieldKind.TEXT), MessageField(2, "value", FieldKind.TEXT)
)

_REQUEST = MessageTable(
    "Request",
    MessageField(1, "header", FieldKind.MESSAGE, _HEADER, is_required=True),
    MessageField(100, "read", FieldKind.MESSAGE, _READ),
    MessageField(101, "add", FieldKind.MESSAGE, _ADD),
    MessageField(102, "auth", FieldKind.MESSAGE, AUTH_MESSAGE),
    MessageField(103, "write_lac", FieldKind.MESSAGE, _WRITE_LAC),
    MessageField(104, "read_lac", FieldKind.MESSAGE, _LEDGER),
    MessageField(105, "info", FieldKind.MESSAGE, _INFO),
    MessageField(106, "start_tls", FieldKind.MESSAGE, _EMPTY),
    MessageField(107, "force", FieldKind.MESSAGE, _LEDGER),
    MessageField(108, "list_entries", FieldKind.MESSAGE, _LEDGER),
    MessageField(200, "context", FieldKind.MESSAGE, _CONTEXT, is_repeated=True),
)

_STATUS = MessageField(1, "status", FieldKind.INTEGER, is_required=True)
_LEDGER_ANSWERED = MessageField(2, "ledger_id", FieldKind.INTEGER, is_required=True)
_READ_ANSWER = MessageTable(
    "ReadResponse",
    _STATUS,
    _LEDGER_ANSWERED,
    MessageField(3, "entry_id", FieldKind.INTEGER, is_required=True),
    MessageField(4, "body", FieldKind.BYTES),
    MessageField(5, "max_lac", FieldKind.INTEGER),
    MessageField(6, "lac_time", FieldKind.INTEGER),
)
_ADD_ANSWER = MessageTable(
    "AddResponse", _STATUS, _LEDGER_ANSWERED, MessageField(3, "entry_id", FieldKind.INTEGER, is_required=True)
)
_LEDGER_ANSWER = MessageTable("answer about a ledger", _STATUS, _LEDGER_ANSWERED)
_READ_LAC_ANSWER = MessageTable(
    "ReadLacResponse",
    _STATUS,
    _LEDGER_ANSWERED,
    MessageField(3, "packet", FieldKind.BYTES),
    MessageField(4, "last_entry", FieldKind.BYTES),
)
_INFO_ANSWER = MessageTable(
    "GetBookieInfoResponse",
    _STATUS,
    MessageField(2, "total", FieldKind.INTEGER),
    MessageField(3, "free", FieldKind.INTEGER),
)
_LIST_ANSWER = MessageTable(
    "GetListOfEntriesOfLedgerResponse",
    _STATUS,
    _LEDGER_ANSWERED,
    MessageField(3, "condensed", FieldKind.BYTES),
)
_ANSWER = MessageTable(
    "Response",
    MessageField(1, "header", FieldKind.MESSAGE, _HEADER, is_required=True),
    MessageField(2, "status", FieldKind.INTEGER, is_required=True),
    MessageField(100, "read", FieldKind.MESSAGE, _READ_ANSWER),
    MessageField(101, "add", FieldKind.MESSAGE, _ADD_ANSWER),
    MessageField(102, "auth", FieldKind.MESSAGE, AUTH_MESSAGE),
    MessageField(103, "write_lac", FieldKind.MESSAGE, _LEDGER_ANSWER),
    MessageField(104, "read_lac", FieldKind.MESSAGE, _READ_LAC_ANSWER),
    MessageField(105, "info", FieldKind.MESSAGE, _INFO_ANSWER),
    MessageField(106, "start_tls", FieldKind.MESSAGE, _EMPTY),
    MessageField(107, "force", FieldKind.MESSAGE, _LEDGER_ANSWER),
    MessageField(108, "list_entries", FieldKind.MESSAGE, _LIST_ANSWER),
)

_BODIES: Mapping[OperationCode, str] = {
    OperationCode.READ_ENTRY: "read",
    OperationCode.ADD_ENTRY: "add",
    OperationCode.AUTH: "auth",
    OperationCode.WRITE_LAC: "write_lac",
    OperationCode.READ_LAC: "read_lac",
    OperationCode.GET_BOOKIE_INFO: "info",
    OperationCode.START_TLS: "start_tls",
    OperationCode.FORCE_LEDGER: "force",
    OperationCode.GET_LIST_OF_ENTRIES: "list_entries",
}
"""The field of the envelope that belongs to an operation."""

# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


def decode_request(body: bytes) -> Incoming | Malformed:
    """Return the request in the body of a frame."""
    envelope = protobuf.decode(_REQUEST, body, _FIELDS_MAX)
    if isinstance(envelope, Malformed):
        return envelope
    head = envelope.message("header")
    assert head is not None, "it is required"
    number = head.integer("operation")
    header = _header(number, head.integer("txn_id"))
    request: Request = UnknownRequest(number)
    if head.integer("version") == _VERSION and number in OperationCode.__members__.values():
        name = _BODIES.get(OperationCode(number))
        inner = None if name is None else envelope.message(name)
        if inner is not None:
            request = _request(OperationCode(number), inner, header, head.integer("priority"))
    return Incoming(Protocol.V3, header, request)


def _header(number: int, txn_id: int) -> bytes:
    """Return the header that an answer repeats, without its key and size."""
    return b"\x08\x03\x10" + encode_varint(number) + b"\x18" + encode_varint(txn_id)


_PLAIN: Mapping[OperationCode, Callable[..., Request]] = {
    OperationCode.AUTH: Authenticate,
    OperationCode.WRITE_LAC: WriteLac,
    OperationCode.READ_LAC: ReadLac,
    OperationCode.GET_BOOKIE_INFO: BookieInfo,
    OperationCode.START_TLS: StartTls,
    OperationCode.FORCE_LEDGER: ForceLedger,
    OperationCode.GET_LIST_OF_ENTRIES: ListEntries,
}
"""The requests whose fields are those of the message, by the same names."""


def _request(operation: OperationCode, inner: ProtobufMessage, header: bytes, urgency: int) -> Request:
    plain = _PLAIN.get(operation)
    if plain is not None:
        return plain(**inner.values)
    ledger_id, entry_id = inner.integer("ledger_id"), inner.integer("entry_id")
    flag, is_urgent = inner.integer("flag"), urgency > 0
    if operation is OperationCode.ADD_ENTRY:
        is_deferred = bool(inner.integer("write_flags") & DEFERRED_SYNC)
        options = AddOptions(flag == RECOVERY_ADD, is_urgent, is_deferred)
        success = success_frame(header, encode_varint(ledger_id), encode_varint(entry_id))
        return AddEntry(ledger_id, entry_id, inner.data("master_key"), inner.data("body"), options, success)
    assert operation is OperationCode.READ_ENTRY, operation
    if "previous_lac" in inner.values:
        timeout = inner.integer("timeout") if "timeout" in inner.values else None
        previous_lac = inner.integer("previous_lac")
        return LongPoll(ledger_id, entry_id, previous_lac, timeout, flag == _ENTRY_PIGGYBACK)
    key = inner.data("master_key") if "master_key" in inner.values else None
    return ReadEntry(ledger_id, entry_id, key, flag == FENCE_LEDGER, is_urgent)


def encode_request(request: Request, txn_id: int) -> bytes:
    """Return the frame of a request."""
    operation, values = _fields_of(request)
    is_urgent = isinstance(request, ReadEntry) and request.is_urgent
    if isinstance(request, AddEntry):
        is_urgent = request.options.is_urgent
    header: dict[str, protobuf.Value] = {"version": _VERSION, "operation": operation, "txn_id": txn_id}
    if is_urgent:
        header["priority"] = URGENT
    present = {name: value for name, value in values.items() if value is not None}
    envelope = ProtobufMessage(
        {"header": ProtobufMessage(header), _BODIES[operation]: ProtobufMessage(present)}
    )
    body = protobuf.encode(_REQUEST, envelope)
    return LENGTH.pack(len(body)) + body


def _fields_of(request: Request) -> tuple[OperationCode, Mapping[str, protobuf.Value | None]]:
    match request:
        case AddEntry(ledger_id, entry_id, key, entry, options):
            return OperationCode.ADD_ENTRY, {
                "flag": RECOVERY_ADD if options.is_recovery else None,
                "ledger_id": ledger_id,
                "entry_id": entry_id,
                "master_key": key,
                "body": entry,
                "write_flags": DEFERRED_SYNC if options.is_deferred else None,
            }
        case ReadEntry(ledger_id, entry_id, read_key, fences):
            return OperationCode.READ_ENTRY, {
                "flag": FENCE_LEDGER if fences else None,
                "ledger_id": ledger_id,
                "entry_id": entry_id,
                "master_key": read_key,
            }
        case LongPoll(ledger_id, entry_id, previous_lac, timeout_ms, wants_entry):
            return OperationCode.READ_ENTRY, {
                "flag": _ENTRY_PIGGYBACK if wants_entry else None,
                "ledger_id": ledger_id,
                "entry_id": entry_id,
                "previous_lac": previous_lac,
                "timeout": timeout_ms,
            }
    for operation, plain in _PLAIN.items():
        if isinstance(request, plain):  # type: ignore[arg-type]
            return operation, {name: getattr(request, name) for name in request.__slots__}
    raise AssertionError(f"version 3 has no such request: {request}")


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────

OK = encode_varint(Code.OK.v3)
_FIXED_OF_SUCCESS = 7
"""The bytes of the answer to an add besides its header and its inner message."""

_TABLES: Mapping[type, tuple[str, MessageTable]] = {
    AddEntry: ("add", _ADD_ANSWER),
    ReadEntry: ("read", _READ_ANSWER),
    LongPoll: ("read", _READ_ANSWER),
    Authenticate: ("auth", AUTH_MESSAGE),
    WriteLac: ("write_lac", _LEDGER_ANSWER),
    ReadLac: ("read_lac", _READ_LAC_ANSWER),
    BookieInfo: ("info", _INFO_ANSWER),
    StartTls: ("start_tls", _EMPTY),
    ForceLedger: ("force", _LEDGER_ANSWER),
    ListEntries: ("list_entries", _LIST_ANSWER),
}
"""By the type of a request: the field of the envelope with its answer, and the table of that."""


def encode_answer(incoming: Incoming, answer: Answer) -> bytes:
    """Return the frame that answers a request."""
    request = incoming.request
    code = answer.code if isinstance(answer, CodeAnswer) else Code.OK
    is_bare = isinstance(request, Authenticate) and not isinstance(answer, Authenticate)
    if is_bare or type(request) not in _TABLES or (isinstance(request, StartTls) and code is not Code.OK):
        return _envelope(incoming.header, code, b"")
    values: dict[str, protobuf.Value | None] = {"status": code.v3}
    for name in ("ledger_id", "entry_id"):
        values[name] = getattr(request, name, None)
    if isinstance(answer, FoundEntry):
        values |= {"body": answer.entry, "max_lac": answer.lac, "lac_time": answer.lac_time_ms}
        if isinstance(request, LongPoll):
            values["entry_id"] = answer.entry_id
    elif isinstance(answer, Authenticate):
        values |= {"plugin": answer.plugin, "payload": answer.payload}
    elif isinstance(answer, FoundLac | DiskSpaceAnswer | EntryList):
        values |= answer._asdict()
    name, table = _TABLES[type(request)]
    inner = protobuf.encode(
        table, ProtobufMessage({name: one for name, one in values.items() if one is not None})
    )
    return _envelope(incoming.header, code, _ANSWER_KEYS[name] + encode_varint(len(inner)) + inner)


_ANSWER_KEYS: Mapping[str, bytes] = {one.name: encode_varint(one.number << 3 | 2) for one in _ANSWER.fields}


def _envelope(header: bytes, code: Code, inner: bytes) -> bytes:
    body = b"".join((b"\x0a", len(header).to_bytes(), header, b"\x10", encode_varint(code.v3), inner))
    return LENGTH.pack(len(body)) + body


def success_frame(header: bytes, ledger: bytes, entry: bytes) -> bytes:
    """Return the frame that answers an add with success, from the bytes of its header and its ids."""
    before, middle = around_success(header, ledger, entry)
    return b"".join((before, header, middle, entry))


def around_success(header: bytes, ledger: bytes, entry: bytes) -> tuple[bytes, bytes]:
    """Return what stands before the header in such a frame, and what stands between it and the entry id."""
    inner = b"\x08" + OK + b"\x10" + ledger + b"\x18"
    inner_size = len(inner) + len(entry)
    size = _FIXED_OF_SUCCESS + len(header) + inner_size
    before = LENGTH.pack(size) + b"\x0a" + len(header).to_bytes()
    return before, b"\x10" + OK + b"\xaa\x06" + inner_size.to_bytes() + inner


def decode_answer(body: bytes) -> AnswerTo | Malformed:
    """Return the answer in the body of a frame."""
    envelope = protobuf.decode(_ANSWER, body)
    if isinstance(envelope, Malformed):
        return envelope
    head = envelope.message("header")
    assert head is not None, "it is required"
    number = head.integer("operation")
    if number not in OperationCode.__members__.values():
        return Malformed(f"an answer to the unknown operation {number}")
    operation = OperationCode(number)
    name = _BODIES.get(operation)
    inner = None if name is None else envelope.message(name)
    # The inner status is the more precise one, where there is one.
    status = envelope.integer("status")
    if inner is not None:
        status = inner.integer("status", status)
    code = OF_V3.get(status)
    if code is None:
        return Malformed(f"the unknown status {status}")
    ledger_id = entry_id = -1
    answer: Answer = CodeAnswer(code)
    if inner is not None:
        ledger_id, entry_id = inner.integer("ledger_id", -1), inner.integer("entry_id", -1)
        if code is Code.OK:
            answer = _answer(operation, inner, entry_id)
    return AnswerTo(Protocol.V3, operation, head.integer("txn_id"), ledger_id, entry_id, code, answer)


def _answer(operation: OperationCode, inner: ProtobufMessage, entry_id: int) -> Answer:
    def data(name: str) -> bytes | None:
        return inner.data(name) if name in inner.values else None

    def integer(name: str) -> int | None:
        return inner.integer(name) if name in inner.values else None

    match operation:
        case OperationCode.READ_ENTRY:
            return FoundEntry(data("body"), entry_id, integer("max_lac"), integer("lac_time"))
        case OperationCode.READ_LAC:
            return FoundLac(data("packet"), data("last_entry"))
        case OperationCode.GET_BOOKIE_INFO:
            return DiskSpaceAnswer(integer("total"), integer("free"))
        case OperationCode.GET_LIST_OF_ENTRIES:
            return EntryList(inner.data("condensed"))
        case OperationCode.AUTH:
            return Authenticate(inner.text("plugin"), inner.data("payload"))
        case _:
            return CodeAnswer(Code.OK)

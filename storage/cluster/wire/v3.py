"""Version 3 of the protocol: protocol buffers, with a shortcut for adds and for reads.

    request   {1: header {1: version 3, 2: operation, 3: transaction id, 4: priority}, 100…108: the request}
    answer    {1: header without priority, 2: status, 100…108: the answer {1: status, 2: ledger id, …}}

Both statuses are the same. The shortcuts are regular expressions for the bytes that every known client
writes for an add and for a read. They find the varints without decoding them, so that the answer repeats them
as they came. Whatever does not match is decoded by the tables, with the same result.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from storage.cluster.wire import protobuf
from storage.cluster.wire.codes import OF_V3, Code
from storage.cluster.wire.frames import LENGTH
from storage.cluster.wire.messages import (
    AddEntry,
    AddOptions,
    AddRun,
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
    ReadRun,
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
    decode_varint,
    encode_varint,
    signed,
)
from storage.cluster.wire.v2 import AUTH_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from storage.cluster.wire.messages import Answer, Request

_VERSION = 3
_URGENT = 100
"""The priority that a client gives to requests of a recovery. Any number above 0 is high priority."""

_FIELDS_MAX = 1000
"""The fields of a request. One of ours has a dozen; a frame of 5 MiB could have two million, and the event
loop would be busy with it for seconds."""

_FENCE_LEDGER, _ENTRY_PIGGYBACK = 1, 2
_RECOVERY_ADD = 1
_DEFERRED_SYNC = 1

# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────

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

# ── shortcuts ────────────────────────────────────────────────────────────────────────────────────────────

_V = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_ADD_BYTES = re.compile(
    rb"\x0a([\x06-\x15])(\x08\x03\x10\x02\x18" + _V + rb")(?:\x20" + _V + rb")?"  # header
    rb"\xaa\x06" + _V + rb"(?:(\xa0\x06\x01))?"  # add, its flag
    rb"\x08" + _V + rb"\x10" + _V + rb"\x1a\x14([\x00-\xff]{20})\x22" + _V
)
"""The bytes of an add up to its entry."""

_READ_BYTES = re.compile(
    rb"\x0a([\x06-\x0f])(\x08\x03\x10\x01\x18" + _V + rb")\xa2\x06([\x02-\x16])\x08" + _V + rb"\x10" + _V
)
"""The bytes of a read that neither fences nor waits."""

_ADDED_BYTES = re.compile(
    rb"\x0a([\x06-\x0f])(\x08\x03\x10\x02\x18" + _V + rb")\x10\x00"  # header, status
    rb"\xaa\x06([\x06-\x18])(\x08\x00\x10" + _V + rb"\x18" + _V + rb")"
)
"""The bytes of the answer to an add that has succeeded."""

_FOUND_BYTES = re.compile(
    rb"\x0a([\x06-\x0f])(\x08\x03\x10\x01\x18" + _V + rb")\x10\x00"  # header, status
    rb"\xa2\x06" + _V + rb"(\x08\x00\x10" + _V + rb"\x18" + _V + rb"\x22)" + _V
)
"""The bytes of the answer to a read up to the entry that was found."""

_LAC_BYTES = re.compile(rb"(?:\x28" + _V + rb")?")
"""What follows the entry there: the last add confirmed that the bookie knows, or nothing."""

_SUCCESS = CodeAnswer(Code.OK)
_ADD_HEADER = b"\x08\x03\x10\x02\x18"
"""The header of an add up to its transaction id."""

_OPTIONS: Mapping[tuple[bool, bool], AddOptions] = {
    (is_recovery, is_urgent): AddOptions(is_recovery, is_urgent)
    for is_recovery in (False, True)
    for is_urgent in (False, True)
}
_OK = encode_varint(Code.OK.v3)
_FIXED_OF_SUCCESS = 7
"""The bytes of the answer to an add besides its header and its inner message."""


def decode_adds(data: bytes, at: int, size_max: int) -> tuple[AddRun, int] | None:
    """Return the run of ordinary adds that begins at `at`, and where it ends; `None` if none does.

    The ids inside of the entries are for the receiver to check.
    """
    stop = _end_of_frame(data, at, size_max)
    found = _ADD_BYTES.match(data, at + LENGTH.size, stop)
    if found is None:
        return None
    header_size, header, _, priority, add_size, flag, ledger, entry, key, entry_size = found.groups()
    entry_at = found.end()
    if (
        priority is not None
        or flag is not None
        or header_size[0] != len(header)
        or decode_varint(add_size) != stop - found.end(5)
        or decode_varint(entry_size) != stop - entry_at
    ):
        return None
    txn_ids, entry_ids = _same_frames(data, (at, *found.span(3), *found.span(8), entry_at), stop - at)
    header, (before, middle) = header[: -len(txn_ids[0])], _around_success(header, ledger, entry)
    starts = range(entry_at, entry_at + len(txn_ids) * (stop - at), stop - at)
    run = AddRun(
        Protocol.V3,
        signed(decode_varint(ledger)),
        signed(decode_varint(entry)),
        key,
        _OPTIONS[False, False],
        [data[start : start + stop - entry_at] for start in starts],
        [header + txn_id for txn_id in txn_ids],
        [
            b"".join((before, header, txn_id, middle, entry_id))
            for txn_id, entry_id in zip(txn_ids, entry_ids, strict=True)
        ],
        (stop - entry_at) * len(txn_ids),
    )
    return run, at + len(txn_ids) * (stop - at)


def decode_reads(data: bytes, at: int, size_max: int) -> tuple[ReadRun, int] | None:
    """Return the run of ordinary reads that begins at `at`, and where it ends; `None` if none does."""
    stop = _end_of_frame(data, at, size_max)
    found = _READ_BYTES.fullmatch(data, at + LENGTH.size, stop)
    if found is None:
        return None
    header_size, header, _, read_size, ledger, entry = found.groups()
    if header_size[0] != len(header) or read_size[0] != stop - found.end(4):
        return None
    txn_ids, entry_ids = _same_frames(data, (at, *found.span(3), *found.span(6), stop), stop - at)
    header = header[: -len(txn_ids[0])]
    headers = [header + txn_id for txn_id in txn_ids]
    first_id = signed(decode_varint(entry))
    run = ReadRun(Protocol.V3, signed(decode_varint(ledger)), first_id, headers, entry_ids)
    return run, at + len(txn_ids) * (stop - at)


def _end_of_frame(data: bytes, at: int, size_max: int) -> int:
    """Return where the frame ends; `at` if it is not whole, or larger than it may be."""
    if len(data) - at < LENGTH.size:
        return at
    (length,) = LENGTH.unpack_from(data, at)
    stop = at + LENGTH.size + length
    return at if stop > len(data) or length > size_max - LENGTH.size else stop


def _same_frames(
    data: bytes, bounds: tuple[int, int, int, int, int, int], size: int
) -> tuple[list[bytes], list[bytes]]:
    """Return the varints of the transaction ids and of the entry ids of all frames like the first one.

    They have the same size and the same bytes at the same places, but for the transaction id and the entry
    id, and consecutive entry ids. So the sizes inside of them are right if those of the first are. `bounds`
    are those of the first frame: its begin, both ends of its transaction id, both ends of its entry id, and
    the end of what is compared. One loop with hardly a call of our own, because a bookie does hardly anything
    else.
    """
    at, txn_at, txn_end, entry_at, entry_end, stop = bounds
    end, from_bytes = len(data), int.from_bytes
    if end - at < 2 * size:  # a client that awaits each answer sends one frame at a time
        return [data[txn_at:txn_end]], [data[entry_at:entry_end]]
    layout = (
        f"{txn_at - at}s{txn_end - txn_at}s{entry_at - txn_end}s{entry_end - entry_at}s{stop - entry_end}s"
    )
    unpack_from = struct.Struct(layout).unpack_from
    before, txn_id, between, entry_id, after = unpack_from(data, at)
    # A varint is whole if all its bytes but the last one have the highest bit.
    txn_bits, entry_bits = from_bytes(b"\x80" * len(txn_id)), from_bytes(b"\x80" * len(entry_id))
    next_id = from_bytes(entry_id, "little")
    txn_ids: list[bytes] = []
    entry_ids: list[bytes] = []
    while (
        from_bytes(entry_id, "little") == next_id
        and next_id & entry_bits == entry_bits >> 8
        and from_bytes(txn_id, "little") & txn_bits == txn_bits >> 8
    ):
        txn_ids.append(txn_id)
        entry_ids.append(entry_id)
        at += size
        if end - at < size:
            break
        # The next varint is this one plus 1, unless its lowest seven bits overflow.
        if next_id & 0x7F != 0x7F:
            next_id += 1
        else:
            next_id = from_bytes(encode_varint(decode_varint(entry_id) + 1), "little")
        same_before, txn_id, same_between, entry_id, same_after = unpack_from(data, at)
        if same_before != before or same_between != between or same_after != after:
            break
    return txn_ids, entry_ids


def decode_request(body: bytes) -> Incoming | Malformed:
    """Return the request in the body of a frame."""
    found = _ADD_BYTES.match(body)
    if found is not None:
        header_size, header, _, priority, add_size, flag, ledger, entry, key, entry_size = found.groups()
        at = found.end()
        # The sizes must be those of these fields and no others, or the table decides.
        if (
            decode_varint(entry_size) == len(body) - at
            and decode_varint(add_size) == len(body) - found.end(5)
            and header_size[0] == found.end(2 if priority is None else 4) - found.start(2)
        ):
            is_urgent = priority is not None and decode_varint(priority) > 0
            request = AddEntry(
                signed(decode_varint(ledger)),
                signed(decode_varint(entry)),
                key,
                body[at:],
                _OPTIONS[flag is not None, is_urgent],
                _success(header, ledger, entry),
            )
            return Incoming(Protocol.V3, header, request)
    found = _READ_BYTES.fullmatch(body)
    if found is not None:
        header_size, header, _, read_size, ledger, entry = found.groups()
        if header_size[0] == len(header) and read_size[0] == len(body) - found.end(4):
            read = ReadEntry(signed(decode_varint(ledger)), signed(decode_varint(entry)))
            return Incoming(Protocol.V3, header, read)
    return decode_by_table(body)


def _success(header: bytes, ledger: bytes, entry: bytes) -> bytes:
    """Return the frame that answers an add with success, from the bytes of its header and its ids."""
    before, middle = _around_success(header, ledger, entry)
    return b"".join((before, header, middle, entry))


def _around_success(header: bytes, ledger: bytes, entry: bytes) -> tuple[bytes, bytes]:
    """Return what stands before the header in such a frame, and what stands between it and the entry id."""
    inner = b"\x08" + _OK + b"\x10" + ledger + b"\x18"
    inner_size = len(inner) + len(entry)
    size = _FIXED_OF_SUCCESS + len(header) + inner_size
    before = LENGTH.pack(size) + b"\x0a" + len(header).to_bytes()
    return before, b"\x10" + _OK + b"\xaa\x06" + inner_size.to_bytes() + inner


# ── requests by the tables ───────────────────────────────────────────────────────────────────────────────


def decode_by_table(body: bytes) -> Incoming | Malformed:
    """Return any request, without the shortcuts."""
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
        is_deferred = bool(inner.integer("write_flags") & _DEFERRED_SYNC)
        options = AddOptions(flag == _RECOVERY_ADD, is_urgent, is_deferred)
        success = _success(header, encode_varint(ledger_id), encode_varint(entry_id))
        return AddEntry(ledger_id, entry_id, inner.data("master_key"), inner.data("body"), options, success)
    assert operation is OperationCode.READ_ENTRY, operation
    if "previous_lac" in inner.values:
        timeout = inner.integer("timeout") if "timeout" in inner.values else None
        previous_lac = inner.integer("previous_lac")
        return LongPoll(ledger_id, entry_id, previous_lac, timeout, flag == _ENTRY_PIGGYBACK)
    key = inner.data("master_key") if "master_key" in inner.values else None
    return ReadEntry(ledger_id, entry_id, key, flag == _FENCE_LEDGER, is_urgent)


def encode_request(request: Request, txn_id: int) -> bytes:
    """Return the frame of a request."""
    if type(request) is AddEntry:
        ((_, frame, _),) = encode_adds([request], txn_id)
        return frame
    if type(request) is ReadEntry:
        return _read_frame(request, txn_id)
    return encode_request_by_table(request, txn_id)


EncodedAdd = tuple[bytes, bytes, bytes]
"""The header that the answer to an add repeats; its frame; and what follows the header in the answer if the
add has succeeded."""


def encode_adds(requests: Sequence[AddEntry], first_txn_id: int) -> list[EncodedAdd]:
    """Return the frames of adds with consecutive transaction ids.

    Adds of one writer whose parts have the same sizes have the same bytes between what differs. These are
    made once, because a writer does hardly anything else.
    """
    found: list[EncodedAdd] = []
    shape: object = None
    before, middle, key, after, success = b"", b"", b"", b"", b""
    for txn_id, request in enumerate(requests, first_txn_id):
        ledger_id, entry_id, master_key, entry, options, _ = request
        header, entry_varint = _ADD_HEADER + encode_varint(txn_id), encode_varint(entry_id)
        new_shape = len(header), len(entry_varint), len(entry), ledger_id, master_key, options
        if new_shape != shape:
            shape = new_shape
            ledger = encode_varint(ledger_id)
            priority = b"\x20" + encode_varint(_URGENT) if options.is_urgent else b""
            flag = b"\xa0\x06" + encode_varint(_RECOVERY_ADD) if options.is_recovery else b""
            ids = flag + b"\x08" + ledger + b"\x10"
            key = b"\x1a" + encode_varint(len(master_key)) + master_key + b"\x22" + encode_varint(len(entry))
            after = b"\x28" + encode_varint(_DEFERRED_SYNC) if options.is_deferred else b""
            inner = len(ids) + len(entry_varint) + len(key) + len(entry) + len(after)
            middle = priority + b"\xaa\x06" + encode_varint(inner) + ids
            header_size = len(header) + len(priority)
            size = 2 + len(header) + len(middle) - len(ids) + inner
            before = LENGTH.pack(size) + b"\x0a" + header_size.to_bytes()
            _, success = _around_success(header, ledger, entry_varint)
        frame = b"".join((before, header, middle, entry_varint, key, entry, after))
        found.append((header, frame, success + entry_varint))
    return found


def add_header(txn_id: int) -> bytes:
    """Return the header that the answer to an add repeats."""
    return _ADD_HEADER + encode_varint(txn_id)


def _read_frame(request: ReadEntry, txn_id: int) -> bytes:
    """Return the frame of a read without the tables, because recoveries and readers send many."""
    ledger_id, entry_id, key, fences, is_urgent = request
    header = b"\x08\x03\x10\x01\x18" + encode_varint(txn_id)
    if is_urgent:
        header += b"\x20" + encode_varint(_URGENT)
    inner = b"".join(
        (
            b"\xa0\x06" + encode_varint(_FENCE_LEDGER) if fences else b"",
            b"\x08",
            encode_varint(ledger_id),
            b"\x10",
            encode_varint(entry_id),
            b"" if key is None else b"\x1a" + encode_varint(len(key)) + key,
        )
    )
    read = b"\xa2\x06" + encode_varint(len(inner)) + inner
    size = 2 + len(header) + len(read)
    return b"".join((LENGTH.pack(size), b"\x0a", len(header).to_bytes(), header, read))


def encode_request_by_table(request: Request, txn_id: int) -> bytes:
    """Return the frame of any request, without the shortcuts."""
    operation, values = _fields_of(request)
    is_urgent = isinstance(request, ReadEntry) and request.is_urgent
    if isinstance(request, AddEntry):
        is_urgent = request.options.is_urgent
    header: dict[str, protobuf.Value] = {"version": _VERSION, "operation": operation, "txn_id": txn_id}
    if is_urgent:
        header["priority"] = _URGENT
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
                "flag": _RECOVERY_ADD if options.is_recovery else None,
                "ledger_id": ledger_id,
                "entry_id": entry_id,
                "master_key": key,
                "body": entry,
                "write_flags": _DEFERRED_SYNC if options.is_deferred else None,
            }
        case ReadEntry(ledger_id, entry_id, read_key, fences):
            return OperationCode.READ_ENTRY, {
                "flag": _FENCE_LEDGER if fences else None,
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
    if isinstance(request, AddEntry) and code is Code.OK:
        return request.success
    if type(request) is ReadEntry and type(answer) is FoundEntry and answer.entry is not None:
        return _found(incoming.header, request, answer.entry, answer.lac)
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


def encode_reads(run: ReadRun, entries: Sequence[bytes], lac: int) -> bytes:
    """Return the frames that answer the first reads of a run with these entries.

    Frames of the same sizes have the same bytes between what differs, so that these are made once.
    """
    before_id = b"\x08" + _OK + b"\x10" + encode_varint(run.ledger_id) + b"\x18"
    after = b"\x28" + encode_varint(lac)
    parts: list[bytes] = []
    sizes, start, middle, entry_size = (-1, -1, -1), b"", b"", b""
    for header, varint, entry in zip(run.headers, run.id_varints, entries, strict=False):
        if sizes != (len(header), len(varint), len(entry)):
            sizes = len(header), len(varint), len(entry)
            entry_size = b"\x22" + encode_varint(len(entry))
            inner = len(before_id) + len(varint) + len(entry_size) + len(entry) + len(after)
            middle = b"\x10" + _OK + b"\xa2\x06" + encode_varint(inner) + before_id
            size = 2 + len(header) + len(middle) - len(before_id) + inner
            start = LENGTH.pack(size) + b"\x0a" + len(header).to_bytes()
        parts += (start, header, middle, varint, entry_size, entry, after)
    return b"".join(parts)


def _found(header: bytes, request: ReadEntry, entry: bytes, lac: int | None) -> bytes:
    """Return the frame that answers a read with an entry, without the tables, because reads are many."""
    before = b"".join(
        (
            b"\x08" + _OK + b"\x10",
            encode_varint(request.ledger_id),
            b"\x18",
            encode_varint(request.entry_id),
            b"\x22",
            encode_varint(len(entry)),
        )
    )
    after = b"" if lac is None else b"\x28" + encode_varint(lac)
    key = b"\x10" + _OK + b"\xa2\x06" + encode_varint(len(before) + len(entry) + len(after))
    size = 2 + len(header) + len(key) + len(before) + len(entry) + len(after)
    return b"".join((LENGTH.pack(size), b"\x0a", len(header).to_bytes(), header, key, before, entry, after))


_ANSWER_KEYS: Mapping[str, bytes] = {one.name: encode_varint(one.number << 3 | 2) for one in _ANSWER.fields}


def _envelope(header: bytes, code: Code, inner: bytes) -> bytes:
    body = b"".join((b"\x0a", len(header).to_bytes(), header, b"\x10", encode_varint(code.v3), inner))
    return LENGTH.pack(len(body)) + body


def decode_answer(body: bytes) -> AnswerTo | Malformed:
    """Return the answer in the body of a frame."""
    return _added(body) or _found_entry(body) or decode_answer_by_table(body)


def _added(body: bytes) -> AnswerTo | None:
    """Return the answer to an add that has succeeded, if it is one in the usual form."""
    match = _ADDED_BYTES.fullmatch(body)
    if match is None:
        return None
    header_size, header, txn_id, inner_size, inner, ledger_id, entry_id = match.groups()
    if header_size[0] != len(header) or inner_size[0] != len(inner):
        return None
    number, ledger, entry = decode_varint(txn_id), decode_varint(ledger_id), decode_varint(entry_id)
    return AnswerTo(
        Protocol.V3, OperationCode.ADD_ENTRY, number, signed(ledger), signed(entry), Code.OK, _SUCCESS
    )


def _found_entry(body: bytes) -> AnswerTo | None:
    """Return the answer to a read that has found an entry, if it is one in the usual form."""
    match = _FOUND_BYTES.match(body)
    if match is None:
        return None
    header_size, header, txn_id, inner_size, _, ledger_id, raw_id, entry_size = match.groups()
    start = match.end()
    end = start + decode_varint(entry_size)
    last = _LAC_BYTES.fullmatch(body, end)
    if (
        header_size[0] != len(header)
        or last is None
        or decode_varint(inner_size) != len(body) - match.start(5)
        or end > len(body)
    ):
        return None
    lac = None if last[1] is None else signed(decode_varint(last[1]))
    entry_id = signed(decode_varint(raw_id))
    found = FoundEntry(body[start:end], entry_id, lac)
    number, ledger = decode_varint(txn_id), signed(decode_varint(ledger_id))
    return AnswerTo(Protocol.V3, OperationCode.READ_ENTRY, number, ledger, entry_id, Code.OK, found)


def decode_answer_by_table(body: bytes) -> AnswerTo | Malformed:
    """Return any answer, without the shortcuts."""
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

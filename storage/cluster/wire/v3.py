"""Version 3 of the protocol: protocol buffers, with a shortcut for adds and for reads.

The shortcuts are regular expressions for the bytes that every known client writes for an add and for a read.
They find the varints without decoding them, so that the answer repeats them as they came. Everything that
does not match goes through the tables of `v3_tables`, with the same result.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from storage.cluster.wire import v3_tables
from storage.cluster.wire.codes import Code
from storage.cluster.wire.frames import LENGTH
from storage.cluster.wire.messages import (
    AddEntry,
    AddOptions,
    AddRun,
    AnswerTo,
    CodeAnswer,
    FoundEntry,
    Incoming,
    OperationCode,
    Protocol,
    ReadEntry,
    ReadRun,
)
from storage.cluster.wire.protobuf import decode_varint, encode_varint, signed
from storage.cluster.wire.v3_tables import (
    DEFERRED_SYNC,
    FENCE_LEDGER,
    OK,
    RECOVERY_ADD,
    URGENT,
    around_success,
    success_frame,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from storage.cluster.wire.messages import Answer, Request
    from storage.cluster.wire.protobuf import Malformed

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
"""The bytes after the entry in that answer: the last add confirmed that the bookie knows, or nothing."""

_SUCCESS = CodeAnswer(Code.OK)
_ADD_HEADER = b"\x08\x03\x10\x02\x18"
"""The header of an add up to its transaction id."""

_OPTIONS: Mapping[tuple[bool, bool], AddOptions] = {
    (is_recovery, is_urgent): AddOptions(is_recovery, is_urgent)
    for is_recovery in (False, True)
    for is_urgent in (False, True)
}


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
    header, (before, middle) = header[: -len(txn_ids[0])], around_success(header, ledger, entry)
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
                success_frame(header, ledger, entry),
            )
            return Incoming(Protocol.V3, header, request)
    found = _READ_BYTES.fullmatch(body)
    if found is not None:
        header_size, header, _, read_size, ledger, entry = found.groups()
        if header_size[0] == len(header) and read_size[0] == len(body) - found.end(4):
            read = ReadEntry(signed(decode_varint(ledger)), signed(decode_varint(entry)))
            return Incoming(Protocol.V3, header, read)
    return v3_tables.decode_request(body)


def encode_request(request: Request, txn_id: int) -> bytes:
    """Return the frame of a request."""
    if type(request) is AddEntry:
        ((_, frame, _),) = encode_adds([request], txn_id)
        return frame
    if type(request) is ReadEntry:
        return _read_frame(request, txn_id)
    return v3_tables.encode_request(request, txn_id)


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
            priority = b"\x20" + encode_varint(URGENT) if options.is_urgent else b""
            flag = b"\xa0\x06" + encode_varint(RECOVERY_ADD) if options.is_recovery else b""
            ids = flag + b"\x08" + ledger + b"\x10"
            key = b"\x1a" + encode_varint(len(master_key)) + master_key + b"\x22" + encode_varint(len(entry))
            after = b"\x28" + encode_varint(DEFERRED_SYNC) if options.is_deferred else b""
            inner = len(ids) + len(entry_varint) + len(key) + len(entry) + len(after)
            middle = priority + b"\xaa\x06" + encode_varint(inner) + ids
            header_size = len(header) + len(priority)
            size = 2 + len(header) + len(middle) - len(ids) + inner
            before = LENGTH.pack(size) + b"\x0a" + header_size.to_bytes()
            _, success = around_success(header, ledger, entry_varint)
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
        header += b"\x20" + encode_varint(URGENT)
    inner = b"".join(
        (
            b"\xa0\x06" + encode_varint(FENCE_LEDGER) if fences else b"",
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


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────


def encode_answer(incoming: Incoming, answer: Answer) -> bytes:
    """Return the frame that answers a request."""
    request = incoming.request
    if isinstance(request, AddEntry) and answer == _SUCCESS:
        return request.success
    if type(request) is ReadEntry and type(answer) is FoundEntry and answer.entry is not None:
        return _found(incoming.header, request, answer.entry, answer.lac)
    return v3_tables.encode_answer(incoming, answer)


def encode_reads(run: ReadRun, entries: Sequence[bytes], lac: int) -> bytes:
    """Return the frames that answer the first reads of a run with these entries.

    Frames of the same sizes have the same bytes between what differs, so that these are made once.
    """
    before_id = b"\x08" + OK + b"\x10" + encode_varint(run.ledger_id) + b"\x18"
    after = b"\x28" + encode_varint(lac)
    parts: list[bytes] = []
    sizes, start, middle, entry_size = (-1, -1, -1), b"", b"", b""
    for header, varint, entry in zip(run.headers, run.id_varints, entries, strict=False):
        if sizes != (len(header), len(varint), len(entry)):
            sizes = len(header), len(varint), len(entry)
            entry_size = b"\x22" + encode_varint(len(entry))
            inner = len(before_id) + len(varint) + len(entry_size) + len(entry) + len(after)
            middle = b"\x10" + OK + b"\xa2\x06" + encode_varint(inner) + before_id
            size = 2 + len(header) + len(middle) - len(before_id) + inner
            start = LENGTH.pack(size) + b"\x0a" + len(header).to_bytes()
        parts += (start, header, middle, varint, entry_size, entry, after)
    return b"".join(parts)


def _found(header: bytes, request: ReadEntry, entry: bytes, lac: int | None) -> bytes:
    """Return the frame that answers a read with an entry, without the tables, because reads are many."""
    before = b"".join(
        (
            b"\x08" + OK + b"\x10",
            encode_varint(request.ledger_id),
            b"\x18",
            encode_varint(request.entry_id),
            b"\x22",
            encode_varint(len(entry)),
        )
    )
    after = b"" if lac is None else b"\x28" + encode_varint(lac)
    key = b"\x10" + OK + b"\xa2\x06" + encode_varint(len(before) + len(entry) + len(after))
    size = 2 + len(header) + len(key) + len(before) + len(entry) + len(after)
    return b"".join((LENGTH.pack(size), b"\x0a", len(header).to_bytes(), header, key, before, entry, after))


def decode_answer(body: bytes) -> AnswerTo | Malformed:
    """Return the answer in the body of a frame."""
    return _added(body) or _found_entry(body) or v3_tables.decode_answer(body)


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

"""Frames that the real Java classes wrote are decoded, and encoded to the same bytes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from storage.cluster.wire import entry_list, frames, v2, v3
from storage.cluster.wire.codes import Code
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
    OperationCode,
    Protocol,
    ReadEntry,
    ReadLac,
    Request,
    UnknownRequest,
    WriteLac,
)

WIRE = Path(__file__).parents[3] / "fixtures" / "wire"
KEY = bytes.fromhex("9c31dcb7214645e06dbf8a67daa6cfcdcd13a611")
"""The master key of the password `pwd`."""
ENTRY = (WIRE / "entry-L1E0-crc32c.bin").read_bytes()
PACKET = (WIRE / "lacbody-L1-lac0-crc32c.bin").read_bytes()
AUTH = Authenticate("AuthDisabledPlugin", b"")
ORDINARY, RECOVERY = AddOptions(), AddOptions(is_recovery=True)


def golden(name: str) -> bytes:
    return (WIRE / f"{name}.bin").read_bytes()


def body_of(frame: bytes) -> bytes:
    split = frames.split(frame)
    assert (split.consumed, split.flaw) == (len(frame), None)
    (body,) = split.bodies
    return body


def add(options: AddOptions) -> AddEntry:
    return AddEntry(1, 0, KEY, ENTRY, options, b"")


REQUESTS: dict[str, Request] = {
    "v2-req-add": add(ORDINARY),
    "v2-req-add-recovery": add(AddOptions(is_recovery=True, is_urgent=True)),
    "v2-req-add-replicator": add(RECOVERY),
    "v2-req-read": ReadEntry(1, 0),
    "v2-req-read-lac": ReadEntry(1, -1),
    "v2-req-fence": ReadEntry(1, -1, KEY, fences=True),
    "v2-req-recovery-read": ReadEntry(1, 3, KEY, fences=True, is_urgent=True),
    "v2-req-batchread": BatchRead(1, 0, 7, 4, 1 << 20),
    "v2-req-auth": AUTH,
    "v3-req-add": add(ORDINARY),
    "v3-req-add-recovery": add(AddOptions(is_recovery=True, is_urgent=True)),
    "v3-req-add-deferred": add(AddOptions(is_deferred=True)),
    "v3-req-read": ReadEntry(1, 0),
    "v3-req-read-lac": ReadEntry(1, -1),
    "v3-req-fence": ReadEntry(1, -1, KEY, fences=True),
    "v3-req-longpoll": LongPoll(1, -1, 3, 500, wants_entry=True),
    "v3-req-readlac": ReadLac(1),
    "v3-req-writelac": WriteLac(1, 0, KEY, PACKET),
    "v3-req-bookieinfo": BookieInfo(3),
    "v3-req-force": ForceLedger(1),
    "v3-req-listentries": ListEntries(1),
    "v3-req-auth": AUTH,
}
ANSWERS = {
    "v2-resp-add-ok": ("v2-req-add", CodeAnswer(Code.OK)),
    "v2-resp-read-ok": ("v2-req-read", FoundEntry(ENTRY, 0)),
    "v2-resp-read-lac-ok": ("v2-req-read-lac", FoundEntry(ENTRY, -1)),
    "v2-resp-batchread-ok": ("v2-req-batchread", FoundEntries((ENTRY, ENTRY))),
    "v2-resp-auth": ("v2-req-auth", AUTH),
    "v3-resp-add-ok": ("v3-req-add", CodeAnswer(Code.OK)),
    "v3-resp-read-ok": ("v3-req-read", FoundEntry(ENTRY, 0, lac=-1)),
    "v3-resp-fence-ok": ("v3-req-fence", FoundEntry(ENTRY, -1)),
    "v3-resp-readlac-ok": ("v3-req-readlac", FoundLac(PACKET, ENTRY)),
    "v3-resp-writelac-ok": ("v3-req-writelac", CodeAnswer(Code.OK)),
    "v3-resp-bookieinfo-ok": ("v3-req-bookieinfo", DiskSpaceAnswer(1 << 40, 1 << 39)),
    "v3-resp-force-ok": ("v3-req-force", CodeAnswer(Code.OK)),
    "v3-resp-listentries-ok": (
        "v3-req-listentries",
        EntryList(golden("availability-0-1-2-5-6-9-12-15-20")),
    ),
    "v3-resp-auth": ("v3-req-auth", AUTH),
}
"""Successful answers: to which request, and what the answer says."""


def decoded(name: str) -> Incoming:
    codec = v2 if name.startswith("v2") else v3
    found = codec.decode_request(body_of(golden(name)))
    assert isinstance(found, Incoming)
    return found


def txn_of(name: str) -> int:
    """Return the transaction id of a golden request, which ends its header."""
    return decoded(name).header[-1]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_golden_request_is_decoded_and_encoded_to_the_same_bytes(name: str) -> None:
    frame, wanted = golden(name), REQUESTS[name]
    incoming = decoded(name)
    found = incoming.request
    if isinstance(found, AddEntry):
        found = found._replace(success=b"")
    assert found == wanted
    assert incoming.protocol is (Protocol.V2 if name.startswith("v2") else Protocol.V3)
    assert frames.protocol_of(body_of(frame)) is incoming.protocol
    again = v2.encode_request(wanted) if name.startswith("v2") else v3.encode_request(wanted, txn_of(name))
    assert again == frame


@pytest.mark.parametrize("name", ANSWERS)
def test_a_golden_answer_is_encoded_to_the_same_bytes_and_decoded(name: str) -> None:
    to, answer = ANSWERS[name]
    codec, frame = (v2 if name.startswith("v2") else v3), golden(name)
    back = codec.decode_answer(body_of(frame))
    assert isinstance(back, AnswerTo)
    assert (back.code, back.answer) == (Code.OK, answer)
    # The golden answers to requests of version 3 have numbers of their own.
    request = v2.encode_request(REQUESTS[to]) if codec is v2 else v3.encode_request(REQUESTS[to], back.number)
    incoming = codec.decode_request(body_of(request))
    assert isinstance(incoming, Incoming)
    assert codec.encode_answer(incoming, answer) == frame


@pytest.mark.parametrize(
    ("name", "request_", "code"),
    [
        ("v2-resp-add-fenced", AddEntry(1, 3, KEY, ENTRY, ORDINARY, b""), Code.FENCED),
        ("v2-resp-add-readonly", AddEntry(1, 3, KEY, ENTRY, ORDINARY, b""), Code.READ_ONLY),
        ("v2-resp-read-noentry", ReadEntry(1, 9), Code.NO_ENTRY),
        ("v2-resp-read-noledger", ReadEntry(1, -1), Code.NO_LEDGER),
    ],
)
def test_a_golden_failure_of_version_2_is_encoded_to_the_same_bytes_and_decoded(
    name: str, request_: Request, code: Code
) -> None:
    frame = golden(name)
    assert v2.encode_answer(Incoming(Protocol.V2, b"", request_), CodeAnswer(code)) == frame
    back = v2.decode_answer(body_of(frame))
    assert isinstance(back, AnswerTo)
    assert (back.ledger_id, back.code, back.answer) == (1, code, CodeAnswer(code))


@pytest.mark.parametrize(
    ("name", "request_", "operation", "code"),
    [
        ("v3-resp-add-fenced", AddEntry(1, 3, KEY, ENTRY, ORDINARY, b""), 2, Code.FENCED),
        ("v3-resp-read-noentry", ReadEntry(1, 9), 1, Code.NO_ENTRY),
        ("v3-resp-unknown-op", UnknownRequest(12), 12, Code.BAD_REQUEST),
    ],
)
def test_a_golden_failure_of_version_3_is_encoded_to_the_same_bytes_and_decoded(
    name: str, request_: Request, operation: int, code: Code
) -> None:
    frame = golden(name)
    back = v3.decode_answer(body_of(frame))
    assert isinstance(back, AnswerTo)
    assert (back.operation, back.code, back.answer) == (OperationCode(operation), code, CodeAnswer(code))
    header = bytes((8, 3, 16, operation, 24, back.number))
    assert v3.encode_answer(Incoming(Protocol.V3, header, request_), CodeAnswer(code)) == frame


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        (
            "availability-0-1-2-5-6-9-12-15-20",
            [range(3), range(5, 7), range(9, 10), range(12, 13), range(15, 16), range(20, 21)],
        ),
        ("availability-0..99", [range(100)]),
    ],
)
def test_a_golden_list_of_entries_is_decoded_and_encoded_to_the_same_bytes(
    name: str, runs: list[range]
) -> None:
    assert entry_list.decode(golden(name)) == runs
    assert entry_list.encode(runs) == golden(name)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_every_message_of_a_captured_session_is_decoded_to_its_operation(protocol: str) -> None:
    seen = set()
    with (WIRE / f"session-real-client-{protocol}.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            body = bytes.fromhex(row["body_hex(first 160 bytes, without the 4-byte length)"])
            if len(body) < int(row["frame_len"]):
                continue  # the capture has only the first 160 bytes of it
            codec = v2 if row["proto"] == "v2" else v3
            if row["dir"] == "req":
                incoming = codec.decode_request(body)
                assert isinstance(incoming, Incoming), row
                assert not isinstance(incoming.request, UnknownRequest), row
                if not isinstance(incoming.request, AddEntry):
                    again = (
                        v2.encode_request(incoming.request)
                        if codec is v2
                        else v3.encode_request(incoming.request, int(row["detail"].split()[0][4:]))
                    )
                    assert body_of(again) == body, row
            else:
                assert isinstance(codec.decode_answer(body), AnswerTo), row
            seen.add((row["dir"], row["op"]))
    assert len(seen) > 10

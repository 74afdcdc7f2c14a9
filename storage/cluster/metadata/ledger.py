"""The metadata of a ledger: which bookies have its entries, and whether it is closed.

    BookieMetadataFormatVersion\\t3\\n              the version of the format, in decimal
    body                                          by version:
      3   varint(length) and a protobuf message of that length
      2   the same message in protobuf's text form
      1   lines: write quorum, ensemble size, length, then one for each segment,
          "first entry\\tbookie\\tbookie…", and at last nothing (open), "-102\\tCLOSED" (in recovery)
          or "last entry\\tCLOSED"; no newline at the end of the last one

A rewrite keeps the version of the format, and every field that this code does not know. So a ledger that
another client has written stays readable to that client.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from storage.cluster.wire import protobuf, text
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable, ProtobufMessage
from storage.entry.model import NO_ENTRY, DigestType

if TYPE_CHECKING:
    from collections.abc import Sequence


class ClusterLedgerState(enum.Enum):
    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class LedgerSegment:
    """The bookies that have the entries from `first_entry` on, up to the next segment."""

    first_entry: int
    bookies: tuple[str, ...]
    unknown: bytes = b""
    """Fields that this version does not know, in the form of the ledger's format."""


@dataclass(frozen=True, slots=True)
class CustomField:
    """A value that an application has stored with its ledger."""

    key: str
    value: bytes
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class ClusterLedgerMetadata:
    """The metadata of one ledger. Changes return a new value."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    segments: tuple[LedgerSegment, ...]
    state: ClusterLedgerState = ClusterLedgerState.OPEN
    last_entry: int | None = NO_ENTRY
    """Says something only of a closed ledger. `None` if the field is absent."""
    length: int = 0
    """Says something only of a closed ledger."""
    digest_type: DigestType | None = None
    password: bytes | None = field(default=None, repr=False)
    """`None` if the field is absent: then the digest type says nothing either."""
    created_ms: int | None = None
    custom: tuple[CustomField, ...] = ()
    creator_token: int | None = None
    """A random number of the client that made the ledger: it knows by it whether a create was its own."""
    format_version: int = 3
    unknown: bytes = b""
    """Fields that this version does not know, in the form of the ledger's format."""

    @property
    def is_closed(self) -> bool:
        return self.state is ClusterLedgerState.CLOSED

    def segment_of(self, entry_id: int) -> LedgerSegment:
        """Return the segment that has the entry."""
        return self.segments[max(0, bisect_right(self.segments, entry_id, key=attrgetter("first_entry")) - 1)]

    def with_ensemble_change(self, first_entry: int, bookies: Sequence[str]) -> ClusterLedgerMetadata:
        """Let other bookies have the entries from `first_entry` on.

        If the last segment begins at the same entry, it has none yet, and is replaced.
        """
        last = self.segments[-1].first_entry
        assert first_entry >= last, f"a segment at {first_entry} after that at {last}"
        assert len(bookies) == self.ensemble_size
        kept = self.segments[:-1] if first_entry == last else self.segments
        return replace(self, segments=(*kept, LedgerSegment(first_entry, tuple(bookies))))

    def with_bookies(self, first_entry: int, bookies: Sequence[str]) -> ClusterLedgerMetadata:
        """Replace the bookies of the segment that begins at `first_entry`, after its entries were copied."""
        assert len(bookies) == self.ensemble_size
        assert any(segment.first_entry == first_entry for segment in self.segments)
        changed = tuple(
            replace(segment, bookies=tuple(bookies)) if segment.first_entry == first_entry else segment
            for segment in self.segments
        )
        return replace(self, segments=changed)

    def in_recovery(self) -> ClusterLedgerMetadata:
        return replace(self, state=ClusterLedgerState.IN_RECOVERY)

    def closed(self, last_entry: int, length: int) -> ClusterLedgerMetadata:
        return replace(self, state=ClusterLedgerState.CLOSED, last_entry=last_entry, length=length)


# ── the message ───────────────────────────────────────────────────────────────────────────────────────────

_SEGMENT = MessageTable(
    "Segment",
    MessageField(1, "ensembleMember", FieldKind.TEXT, is_repeated=True),
    MessageField(2, "firstEntryId", FieldKind.INTEGER, is_required=True),
)
_CUSTOM = MessageTable(
    "cMetadataMapEntry", MessageField(1, "key", FieldKind.TEXT), MessageField(2, "value", FieldKind.BYTES)
)
_STATES = {state.value: state.name for state in ClusterLedgerState}
_DIGEST_TYPES = {kind.value: kind for kind in DigestType}
_DIGEST_NAMES = {1: "CRC32", 2: "HMAC", 3: "CRC32C", 4: "DUMMY"}

LEDGER_METADATA = MessageTable(
    "LedgerMetadataFormat",
    MessageField(1, "quorumSize", FieldKind.INTEGER, is_required=True),
    MessageField(2, "ensembleSize", FieldKind.INTEGER, is_required=True),
    MessageField(3, "length", FieldKind.INTEGER, is_required=True),
    MessageField(4, "lastEntryId", FieldKind.INTEGER),
    MessageField(5, "state", FieldKind.INTEGER, is_required=True, names=_STATES),
    MessageField(6, "segment", FieldKind.MESSAGE, _SEGMENT, is_repeated=True),
    MessageField(7, "digestType", FieldKind.INTEGER, names=_DIGEST_NAMES),
    MessageField(8, "password", FieldKind.BYTES),
    MessageField(9, "ackQuorumSize", FieldKind.INTEGER),
    MessageField(10, "ctime", FieldKind.INTEGER),
    MessageField(11, "customMetadata", FieldKind.MESSAGE, _CUSTOM, is_repeated=True),
    MessageField(12, "cToken", FieldKind.INTEGER),
)

_HEADER = b"BookieMetadataFormatVersion\t"
_VERSION_DIGITS_MAX = 10
_LENGTH = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")


def encode(metadata: ClusterLedgerMetadata) -> bytes:
    """Encode the data of a ledger's node."""
    head = b"%s%d\n" % (_HEADER, metadata.format_version)
    match metadata.format_version:
        case 1:
            return head + _encode_lines(metadata)
        case 2:
            # BookKeeper never wrote the creator's token in text.
            return head + text.encode(LEDGER_METADATA, _message(replace(metadata, creator_token=None)))
        case _:
            body = protobuf.encode(LEDGER_METADATA, _message(metadata))
            return head + protobuf.encode_varint(len(body)) + body


class _MalformedMetadata(Exception):
    """Ends a decoding that has met malformed data. `decode` returns it as a value."""


def decode(data: bytes) -> ClusterLedgerMetadata | Malformed:
    """Return the metadata in the data of a ledger's node, or what is wrong with it."""
    try:
        metadata = _decode(data)
        _check(metadata)
    except _MalformedMetadata as flaw:
        return Malformed(str(flaw))
    return metadata


def _decode(data: bytes) -> ClusterLedgerMetadata:
    if not data.startswith(_HEADER):
        raise _MalformedMetadata("no ledger metadata: the header is missing")
    number, newline, body = data[len(_HEADER) :].partition(b"\n")
    if not newline or not number.isdigit() or len(number) > _VERSION_DIGITS_MAX:
        raise _MalformedMetadata(
            f"no version of the format after the header: {number[:_VERSION_DIGITS_MAX]!r}"
        )
    match int(number):
        case 1:
            return _decode_lines(body)
        case 2:
            return _metadata(text.decode(LEDGER_METADATA, body), 2)
        case 3:
            return _metadata(protobuf.decode(LEDGER_METADATA, _delimited(body)), 3)
        case version:
            raise _MalformedMetadata(f"format version {version}; this program knows 1 to 3")


def _delimited(body: bytes) -> bytes:
    match = _LENGTH.match(body)
    if match is None:
        raise _MalformedMetadata("no length of the message")
    size, rest = protobuf.decode_varint(match[0]), body[match.end() :]
    if len(rest) != size:
        raise _MalformedMetadata(f"{len(rest)} bytes after the length, which says {size}")
    return rest


def _message(metadata: ClusterLedgerMetadata) -> ProtobufMessage:
    segments = tuple(
        ProtobufMessage({"ensembleMember": one.bookies, "firstEntryId": one.first_entry}, one.unknown)
        for one in metadata.segments
    )
    values = {
        "quorumSize": metadata.write_quorum,
        "ensembleSize": metadata.ensemble_size,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry,
        "state": metadata.state.value,
        "segment": segments,
        "digestType": None if metadata.digest_type is None else metadata.digest_type.value,
        "password": metadata.password,
        "ackQuorumSize": metadata.ack_quorum,
        "ctime": metadata.created_ms,
        "customMetadata": tuple(
            ProtobufMessage({"key": one.key, "value": one.value}, one.unknown) for one in metadata.custom
        ),
        "cToken": metadata.creator_token,
    }
    return ProtobufMessage(
        {name: value for name, value in values.items() if value is not None}, metadata.unknown
    )


def _metadata(message: ProtobufMessage | Malformed, version: int) -> ClusterLedgerMetadata:
    if isinstance(message, Malformed):
        raise _MalformedMetadata(message.reason)
    state, digest = message.integer("state"), message.integer("digestType")
    if state not in _STATES:
        raise _MalformedMetadata(f"state {state}")
    if "digestType" in message and digest not in _DIGEST_TYPES:
        raise _MalformedMetadata(f"digest type {digest}")
    write_quorum = message.integer("quorumSize")
    return ClusterLedgerMetadata(
        ensemble_size=message.integer("ensembleSize"),
        write_quorum=write_quorum,
        ack_quorum=message.integer("ackQuorumSize", write_quorum),
        segments=tuple(
            LedgerSegment(one.integer("firstEntryId"), one.texts("ensembleMember"), one.unknown)
            for one in message.messages("segment")
        ),
        state=ClusterLedgerState(state),
        last_entry=message.integer("lastEntryId") if "lastEntryId" in message else None,
        length=message.integer("length"),
        digest_type=_DIGEST_TYPES.get(digest),
        password=message.data("password") if "password" in message else None,
        created_ms=message.integer("ctime") if "ctime" in message else None,
        custom=tuple(
            CustomField(one.text("key"), one.data("value"), one.unknown)
            for one in message.messages("customMetadata")
        ),
        creator_token=message.integer("cToken") if "cToken" in message else None,
        format_version=version,
        unknown=message.unknown,
    )


def _check(metadata: ClusterLedgerMetadata) -> None:
    """Refuse metadata by which no entry could be found."""
    if not metadata.ensemble_size >= metadata.write_quorum >= metadata.ack_quorum >= 1:
        sizes = f"{metadata.ensemble_size}, {metadata.write_quorum}, {metadata.ack_quorum}"
        raise _MalformedMetadata(f"ensemble, write quorum and ack quorum of {sizes}")
    if not metadata.segments:
        raise _MalformedMetadata("no segment")
    before = -1
    for segment in metadata.segments:
        if segment.first_entry <= before:
            raise _MalformedMetadata(f"a segment at entry {segment.first_entry} after that at {before}")
        if len(segment.bookies) != metadata.ensemble_size:
            raise _MalformedMetadata(
                f"{len(segment.bookies)} bookies in the segment at entry {segment.first_entry},"
                f" and an ensemble size of {metadata.ensemble_size}"
            )
        before = segment.first_entry
    if metadata.is_closed and (metadata.last_entry is None or metadata.last_entry < NO_ENTRY):
        raise _MalformedMetadata(f"closed at entry {metadata.last_entry}")


# ── version 1 ─────────────────────────────────────────────────────────────────────────────────────────────

_IN_RECOVERY = -102
_CLOSED_TAG = "CLOSED"


def _encode_lines(metadata: ClusterLedgerMetadata) -> bytes:
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(metadata.length)]
    lines += ["\t".join([str(one.first_entry), *one.bookies]) for one in metadata.segments]
    match metadata.state:
        case ClusterLedgerState.OPEN:
            lines.append("")
        case ClusterLedgerState.IN_RECOVERY:
            lines.append(f"{_IN_RECOVERY}\t{_CLOSED_TAG}")
        case ClusterLedgerState.CLOSED:
            lines.append(f"{metadata.last_entry}\t{_CLOSED_TAG}")
    return "\n".join(lines).encode()


def _decode_lines(body: bytes) -> ClusterLedgerMetadata:
    try:
        quorum, size, length, *rest = body.decode().split("\n")
        segments = [_decode_segment(line) for line in rest[:-1]]
        last = _decode_segment(rest[-1]) if rest and rest[-1] else None
        metadata = ClusterLedgerMetadata(
            int(size), int(quorum), int(quorum), tuple(segments), length=int(length), format_version=1
        )
    except ValueError as error:
        raise _MalformedMetadata(f"format version 1: {error}") from None
    if last is None:
        return metadata
    if last.bookies != (_CLOSED_TAG,):
        return replace(metadata, segments=(*metadata.segments, last))
    if last.first_entry == _IN_RECOVERY:
        return metadata.in_recovery()
    return metadata.closed(last.first_entry, metadata.length)


def _decode_segment(line: str) -> LedgerSegment:
    first, *bookies = line.split("\t")
    return LedgerSegment(int(first), tuple(bookies))

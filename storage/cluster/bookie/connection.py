"""The state of one connection, without its socket: bytes to requests, answers to bytes, and their sizes.

A connection begins in plain text. START_TLS makes it secure, if nothing else is under way then:

    PLAIN       requests are served, or refused if the bookie wants TLS
    UPGRADING   START_TLS is answered; what arrives is kept until the handshake is over
    SECURE      requests are served, or refused if the client's certificate has no authorized role

A connection is not read while it holds too much, because a refusal would make each writer replace this bookie
at once, and a queue without a limit would take all memory. Bytes of requests count from their arrival to
their answer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.bookie.unanswered_adds import UnansweredAdds
from storage.cluster.wire import frames, v2, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    AddEntry,
    AddRun,
    BatchRead,
    CodeAnswer,
    Incoming,
    LongPoll,
    Protocol,
    ReadRun,
    StartTls,
)
from storage.cluster.wire.protobuf import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.bookie.access import Subject
    from storage.cluster.wire.messages import Answer

    Arrived = Incoming | AddRun | ReadRun
    """A request, or several of one kind. Each add is in a run."""

REQUEST_SIZE = 256
"""The approximate memory that a request takes besides its entry."""

BATCH_WEIGHT = 16
"""A batch read counts as so many reads, because its answer may be as large as a frame."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much one connection may hold."""

    frame_size_max: int = frames.FRAME_SIZE_MAX
    unanswered_max: int = 8 << 20
    """Bytes of requests that are not answered yet."""
    unsent_max: int = 1 << 20
    """Bytes of answers that the peer has not taken yet."""
    reads_max: int = 64
    """Reads and other requests with large answers that are under way at once: the sum of their weights."""
    silence_s: float = 30.0
    """How long a peer may take no answer before its connection is closed."""
    refused_frame_max: int = 64 << 10
    """The largest frame of a client whose requests are not served."""
    refused_s: float = 10.0
    """How long a connection stays open whose requests are not served. TLS has to begin in that time."""


class Received(NamedTuple):
    """The requests in some bytes, and why the connection has to be closed after them."""

    requests: list[Arrived]
    flaw: str | None


class TlsStage(enum.Enum):
    """How far the upgrade to TLS is."""

    PLAIN = "plain"
    UPGRADING = "upgrading"
    SECURE = "secure"


class ConnectionState:
    """The state of one connection: the bytes of an incomplete frame, and the size of unanswered requests."""

    def __init__(self, limits: ConnectionLimits, policy: AccessPolicy = AccessPolicy()) -> None:  # noqa: B008
        self.limits = limits
        self.unanswered = 0
        self.adds = UnansweredAdds()
        self.stage = TlsStage.PLAIN
        self.is_served = policy.serves_plain_text
        """Whether its requests are served. Otherwise each is refused as unauthorized."""
        self._policy = policy
        self._rest = bytearray()
        """The beginning of a frame. Bytes are appended to it without a copy of those that are there, because
        a frame may arrive in a million pieces."""
        self._needed = 0
        """The size of `_rest` at which its frame is complete."""

    @property
    def is_full(self) -> bool:
        """Whether it may not be read until more of its requests are answered."""
        return self.unanswered >= self.limits.unanswered_max

    @property
    def incomplete(self) -> int:
        """The bytes that have arrived of a request that is not complete."""
        return len(self._rest)

    def receive(self, data: bytes) -> Received:
        """Return the requests that are complete with these bytes."""
        if self._rest or self.stage is TlsStage.UPGRADING:
            if len(self._rest) + len(data) < self._needed or self.stage is TlsStage.UPGRADING:
                self._rest += data
                return Received([], None)
            data = b"".join((self._rest, data))
        limits = self.limits
        size_max = limits.frame_size_max if self.is_served else limits.refused_frame_max
        requests: list[Arrived] = []
        at, end, flaw = 0, len(data), None
        while at < end:
            # Nearly all requests are ordinary adds and reads, so the rest is tried last.
            run: tuple[Arrived, int] | None
            if data.startswith(frames.V3_FIRST, at + frames.LENGTH.size):
                run = v3.decode_adds(data, at, size_max) or v3.decode_reads(data, at, size_max)
            else:
                run = v2.decode_adds(data, at, size_max) or v2.decode_reads(data, at)
            if run is not None:
                found: Arrived | str
                found, at = run
            else:
                bodies, at, flaw = frames.split(data, size_max, at, 1)
                if not bodies:
                    break
                found = _decode(bodies[0])
                if isinstance(found, Incoming) and type(found.request) is StartTls and self._may_upgrade:
                    if at < end:
                        # Else a peer between the two could put requests of its own before the client's.
                        found = "bytes in plain text after START_TLS"
                    else:
                        self.stage = TlsStage.UPGRADING
                if isinstance(found, str):
                    flaw = found
                    break
            self._take(found)
            requests.append(found)
        rest = data[at:]
        self._rest, self._needed = bytearray(rest), frames.size_of_first(rest)
        return Received(requests, flaw)

    def _take(self, found: Arrived) -> None:
        self.unanswered += size_of(found)
        if type(found) is AddRun:
            self.adds.note_arrived(found.ledger_id, len(found.entries))

    @property
    def _may_upgrade(self) -> bool:
        """Whether TLS may begin: it is offered, it has not begun, and no answer is under way."""
        is_offered = self._policy.channels is not Channels.PLAIN_ONLY
        return is_offered and self.stage is TlsStage.PLAIN and not self.unanswered

    def secure(self, subject: Subject | None) -> str | None:
        """Note that the handshake is over; return why the client is not served, or `None` if it is.

        `subject` is that of the client's verified certificate. `receive` with no bytes returns the requests
        that have arrived meanwhile.
        """
        self.stage = TlsStage.SECURE
        refusal = self._policy.refusal_of(subject)
        self.is_served = refusal is None
        self._needed = frames.size_of_first(bytes(self._rest))
        return refusal

    def answer(self, incoming: Incoming, answer: Answer) -> bytes | None:
        """Return the frame of an answer; `None` if only closing the connection answers the request."""
        self.unanswered -= size_of(incoming)
        if incoming.protocol is Protocol.V3:
            return v3.encode_answer(incoming, answer)
        return v2.encode_answer(incoming, answer)

    def answer_adds(self, run: AddRun, code: Code) -> bytes:
        """Return the frames of the answers to the adds of a run, which are all the same."""
        self.unanswered -= size_of(run)
        self.adds.note_answered(run.ledger_id, len(run.entries))
        if code is Code.OK:
            return b"".join(run.successes)
        answer, encode = (
            CodeAnswer(code),
            v3.encode_answer if run.protocol is Protocol.V3 else v2.encode_answer,
        )
        return b"".join([encode(incoming, answer) or b"" for incoming in run.requests()])

    def answer_reads(self, run: ReadRun, entries: Sequence[bytes], lac: int) -> bytes:
        """Return the frames of the answers to the first reads of a run. Version 2 cannot carry the `lac`."""
        self.unanswered -= REQUEST_SIZE * len(entries)
        return (
            v3.encode_reads(run, entries, lac)
            if run.protocol is Protocol.V3
            else v2.encode_reads(run, entries)
        )


def _decode(body: bytes) -> Arrived | str:
    """Return the request in the body of a frame, or why the connection has to be closed."""
    protocol = frames.protocol_of(body)
    incoming = v3.decode_request(body) if protocol is Protocol.V3 else v2.decode_request(body)
    if protocol is None or isinstance(incoming, Malformed):
        reason = f"byte {body[0]} begins no request" if protocol is None else str(incoming)
        return f"{reason}; the first bytes are {body[:16].hex()}"
    return AddRun.of(incoming, request) if type(request := incoming.request) is AddEntry else incoming


def weight_of(incoming: Arrived) -> int:
    """Return how much of `reads_max` a request takes until it is answered.

    An add has a small answer. A long poll that waits has none yet: it comes again when its wait is over, and
    must not keep the requests after it waiting until then.
    """
    if isinstance(incoming, AddRun):
        return 0
    if isinstance(incoming, ReadRun):
        return len(incoming.headers)
    request = incoming.request
    if type(request) is LongPoll and request.timeout_ms is not None:
        return 0
    return BATCH_WEIGHT if type(request) is BatchRead else 1


def size_of(incoming: Arrived) -> int:
    """Return how much memory a request takes until it is answered."""
    if isinstance(incoming, AddRun):
        return REQUEST_SIZE * len(incoming.entries) + incoming.size
    return REQUEST_SIZE * len(incoming.headers) if isinstance(incoming, ReadRun) else REQUEST_SIZE

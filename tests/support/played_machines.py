"""State machines of the client whose bookies and metadata are played by a test, answer by answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.client.deferred_writer import DeferredLedgerWriter
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.effects import (
    AddsAcknowledged,
    NoAnswer,
    ReadMetadata,
    Send,
    SendAdds,
    Sending,
    Token,
    Wait,
    WriteMetadata,
)
from storage.cluster.client.entries import entry_codec
from storage.cluster.client.placement import Candidates
from storage.cluster.client.recoverer import LedgerRecoverer
from storage.cluster.client.tailer import LedgerTailer
from storage.cluster.client.writer import LedgerWriter, WriterLimits
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Unknown, Written
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, CodeAnswer, ForceLedger, FoundEntry
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from storage.cluster.client.effects import BookieAnswer, Effect, LedgerMachine
    from storage.cluster.metadata.znodes import Conflict

LEDGER = 7
ENTRIES = entry_codec(LEDGER, DigestType.CRC32C, b"secret")
USUAL = Quorums(3, 3, 2)


def open_metadata(quorums: Quorums = USUAL) -> ClusterLedgerMetadata:
    """Return the metadata of a new ledger at b1, b2 and so on."""
    bookies = tuple(f"b{number}" for number in range(1, quorums.ensemble + 1))
    return ClusterLedgerMetadata(quorums.ensemble, quorums.write, quorums.ack, (LedgerSegment(0, bookies),))


def candidates(count: int) -> Candidates:
    """Return that many bookies, from b1 on."""
    return Candidates(frozenset(f"b{number}" for number in range(1, count + 1)))


def stored(entry_id: int, lac: int = -1, payload: bytes = b"abc", length: int | None = None) -> bytes:
    """Return the bytes of an entry of a ledger in which all payloads have three bytes."""
    return ENTRIES.encode(entry_id, lac, 3 * (entry_id + 1) if length is None else length, payload)


class SentCopy(NamedTuple):
    """One copy of an entry, which a bookie has not answered."""

    bookie: str
    request: AddEntry
    token: Token
    sending: Sending


class PlayedMachine:
    """A machine, the requests that it has sent, and the metadata of its ledger."""

    def __init__(self, machine: LedgerMachine, node: Versioned[ClusterLedgerMetadata]) -> None:
        self._machine = machine
        self.node = node
        self.sends: list[Send | SentCopy] = []
        """Requests that are not answered yet."""
        self.writes: list[WriteMetadata] = []
        self.reads = 0
        """Reads of metadata that are under way."""
        self.waits: list[float] = []
        self.reports: list[Effect] = []
        self.log: list[Effect] = []
        """All effects in their order."""

    # ── bookies ───────────────────────────────────────────────────────────────────────────────────────

    def answer_send(self, send: Send | SentCopy, answer: BookieAnswer) -> None:
        self.sends.remove(send)
        if isinstance(send, SentCopy):
            self._take(self._machine.added(send.sending, [send.token.entry_id], answer))
        else:
            self._take(self._machine.answered(send.token, answer))

    def _copy(self, entry_id: int, bookie: str) -> SentCopy:
        return next(
            one
            for one in self.sends
            if isinstance(one, SentCopy) and (one.token.entry_id, one.bookie) == (entry_id, bookie)
        )

    def answer(self, entry_id: int, bookie: str, code: Code = Code.OK) -> None:
        """Answer the oldest unanswered copy of an entry at a bookie."""
        self.answer_send(self._copy(entry_id, bookie), CodeAnswer(code))

    def lose_answer(self, entry_id: int, bookie: str) -> None:
        self.answer_send(self._copy(entry_id, bookie), NoAnswer("timed out"))

    def store(self, entry_id: int, *bookies: str) -> None:
        for bookie in bookies:
            self.answer(entry_id, bookie)

    def read_answer(self, entry_id: int, bookie: str, answer: BookieAnswer | bytes) -> None:
        """Answer the read of an entry at a bookie, with an entry's bytes or otherwise."""
        send = next(
            one
            for one in self.sends
            if not isinstance(one, SentCopy) and (one.token.entry_id, one.bookie) == (entry_id, bookie)
        )
        self.answer_send(send, FoundEntry(answer, entry_id) if isinstance(answer, bytes) else answer)

    # ── metadata ──────────────────────────────────────────────────────────────────────────────────────

    def written(self) -> None:
        """Let the write of metadata that is under way succeed."""
        self.changed_by_another(self.writes[-1].metadata)
        self._take(self._machine.metadata_written(Written(self.node.version)))

    def write_is_lost(self) -> None:
        """Lose the answer to a write that has not taken place."""
        self._take(self._machine.metadata_written(Unknown("the connection was lost")))

    def written_without_answer(self) -> None:
        """Lose the answer to a write that has taken place."""
        self.changed_by_another(self.writes[-1].metadata)
        self.write_is_lost()

    def conflict(self, answer: Conflict) -> None:
        self._take(self._machine.metadata_written(answer))

    def read(self) -> None:
        """Let the read of metadata that is under way succeed."""
        self.reads -= 1
        self._take(self._machine.metadata_read(self.node))

    def read_fails(self) -> None:
        self.reads -= 1
        self._take(self._machine.metadata_read(Unknown("no connection")))

    def changed_by_another(self, metadata: ClusterLedgerMetadata) -> None:
        """Let another client write the metadata."""
        self.node = Versioned(metadata, self.node.version + 1)

    def waited(self) -> None:
        self.waits.clear()
        self._take(self._machine.waited())

    # ── what the machine has done ─────────────────────────────────────────────────────────────────────

    @property
    def waiting(self) -> list[tuple[int, str]]:
        """The entry and bookie of each request that is not answered."""
        return sorted((send.token.entry_id, send.bookie) for send in self.sends)

    @property
    def adding(self) -> list[tuple[int, str]]:
        """The same for copies only."""
        return sorted((one.token.entry_id, one.bookie) for one in self.sends if isinstance(one, SentCopy))

    @property
    def segments(self) -> list[tuple[int, tuple[str, ...]]]:
        """The segments that the machine has last asked to write."""
        return [(one.first_entry, one.bookies) for one in self.writes[-1].metadata.segments]

    def _take(self, effects: list[Effect]) -> None:
        self.log += effects
        for effect in effects:
            match effect:
                case Send():
                    self.sends.append(effect)
                case SendAdds(copies):
                    self.sends += [
                        SentCopy(one.bookie, add, Token(add.entry_id, one.bookie_index, 1), one)
                        for add, sendings in copies
                        for one in sendings
                    ]
                case WriteMetadata():
                    self.writes.append(effect)
                case ReadMetadata():
                    self.reads += 1
                case Wait(seconds):
                    self.waits.append(seconds)
                case report:
                    self.reports.append(report)


class PlayedWriter(PlayedMachine):
    """The writer of a new ledger at b1, b2 and so on. The spare bookies follow these in number."""

    def __init__(
        self,
        quorums: Quorums = USUAL,
        spares: int = 2,
        limits: WriterLimits | None = None,
        kind: type[LedgerWriter] = LedgerWriter,
    ) -> None:
        node = Versioned(open_metadata(quorums), 0)
        self.machine = kind(ENTRIES, node, candidates(quorums.ensemble + spares), 1, limits)
        super().__init__(self.machine, node)

    def add(self, *payloads: bytes) -> None:
        self._take(self.machine.add(payloads))

    def close(self) -> None:
        self._take(self.machine.close())

    def at(self, now: float) -> None:
        """Let the machine look at the time."""
        self._take(self.machine.check_time(now))

    def tell_confirmed(self) -> None:
        self._take(self.machine.tell_confirmed())

    def lose_connection(self, bookie: str) -> None:
        self._take(self.machine.connection_lost(bookie))

    def use_bookies(self, *names: str) -> None:
        """Let these bookies be the ones that take adds."""
        self.machine.candidates = Candidates(frozenset(names))

    @property
    def acknowledged(self) -> list[tuple[int, int]]:
        return [
            (one.first_entry, one.last_entry) for one in self.reports if isinstance(one, AddsAcknowledged)
        ]


class PlayedDeferredWriter(PlayedWriter):
    """The writer of a new ledger with deferred syncs."""

    def __init__(self, quorums: Quorums = USUAL, spares: int = 2) -> None:
        super().__init__(quorums, spares, kind=DeferredLedgerWriter)
        assert isinstance(self.machine, DeferredLedgerWriter)
        self.deferred = self.machine

    def force(self) -> None:
        self._take(self.deferred.force())

    def answer_force(self, *bookies: str, answer: BookieAnswer = CodeAnswer(Code.OK)) -> None:  # noqa: B008
        for bookie in bookies:
            forces = (one for one in self.sends if isinstance(one.request, ForceLedger))
            self.answer_send(next(one for one in forces if one.bookie == bookie), answer)


class PlayedRecoverer(PlayedMachine):
    """The recovery of a ledger. Two bookies are spare."""

    def __init__(self, metadata: ClusterLedgerMetadata | None = None, read_ahead: int = 2) -> None:
        node = Versioned(open_metadata() if metadata is None else metadata, 5)
        count = len({bookie for segment in node.value.segments for bookie in segment.bookies})
        self.machine = LedgerRecoverer(ENTRIES, node, candidates(count + 2), 1, read_ahead)
        super().__init__(self.machine, node)
        self._take(self.machine.begin())

    def missing(self, entry_id: int, *bookies: str) -> None:
        for bookie in bookies:
            self.read_answer(entry_id, bookie, CodeAnswer(Code.NO_ENTRY))


class PlayedTailer(PlayedMachine):
    """A reader that follows a ledger."""

    def __init__(self, metadata: ClusterLedgerMetadata | None = None) -> None:
        node = Versioned(open_metadata() if metadata is None else metadata, 5)
        self.machine = LedgerTailer(ENTRIES, node)
        super().__init__(self.machine, node)
        self._take(self.machine.begin())

    def change(self, metadata: ClusterLedgerMetadata) -> None:
        """Let the watch show newer metadata."""
        self.changed_by_another(metadata)
        self._take(self.machine.metadata_changed(self.node))

    def resume(self) -> None:
        self._take(self.machine.resume())

    def poll_answer(self, answer: BookieAnswer) -> None:
        """Answer the poll that is under way."""
        self.answer_send(self.sends[-1], answer)

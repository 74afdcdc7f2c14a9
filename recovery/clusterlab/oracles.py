"""The invariants. T1 to T6 are from the TLA+ specifications of the protocol, the others are ours.

    T1  a client that knows a ledger as closed knows what the metadata say
    T2  an acknowledged entry has Qa copies in the ensemble that the metadata name
    T3  every entry of a closed ledger has Qa copies there
    T4  every copy has the payload that the writer gave to its id
    O1  no entry that a reader was shown is absent from the closed ledger
    O2  a reader is shown entries in order, and of an open ledger only acknowledged ones
    O3  last entry and length of a closed ledger never change, and the length is that of its payloads
    O4  no entry after the end of a closed ledger is acknowledged
    O5  the state of a ledger only goes forward, and the first entries of its segments grow
    O6  a writer that closes its ledger reports every bookie that lacks a copy of an entry
    O8  every call ends, and nothing is busy for ever
    O9  a bookie that has answered a fence takes no more entries from a writer, also after a crash
    O11 a writer is fenced only if another client has taken its ledger over

T5 is about several ledgers. T6, that both definitions of coverage agree, is a test of its own. O7, O10 and
O12, and more of O6 and O11, are about the repair of ledgers (`repair_oracles`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.cluster.errors import LedgerCutShort, WriterFenced
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.entry.format import HEAD
from storage.entry.model import NO_ENTRY

if TYPE_CHECKING:
    from recovery.clusterlab.bookies import ModelBookie
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.errors import ClusterError
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.entry.model import Entry

INVARIANTS = (
    *("T1", "T2", "T3", "T4"),
    *("O1", "O2", "O3", "O4", "O5", "O6", "O7", "O8", "O9", "O10", "O11", "O12"),
)

_ORDER = {
    ClusterLedgerState.OPEN: 0,
    ClusterLedgerState.IN_RECOVERY: 1,
    ClusterLedgerState.CLOSED: 2,
}


class InvariantViolated(Exception):
    """An invariant that does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Oracles:
    """Compares the answers that clients got with the entries at bookies and with the metadata."""

    def __init__(self, quorums: Quorums, entries: EntryCodec, metadata: ClusterLedgerMetadata) -> None:
        self._quorums = quorums
        self._payload_at = HEAD.size + entries.digester.digest_type.width
        self.bookies: dict[str, ModelBookie] = {}
        self._ledger_id = entries.ledger_id
        self._metadata = metadata
        self._payloads: list[bytes] = []
        self._lengths: list[int] = []
        self.acknowledged = NO_ENTRY
        self._shown: dict[str, int] = {}
        """By reader: the last entry that it was shown."""
        self._closed_by = ""
        """The client whose write has closed the ledger."""
        self._fenced: set[str] = set()
        """The bookies that have answered a fence."""

    # ── what clients do and are told ──────────────────────────────────────────────────────────────────

    def added(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self._payloads.append(payload)
            self._lengths.append((self._lengths[-1] if self._lengths else 0) + len(payload))

    def entries_acknowledged(self, first: int, last: int) -> None:
        if first != self.acknowledged + 1 or last < first:
            raise InvariantViolated("O4", f"{first} to {last} acknowledged after {self.acknowledged}")
        if self._metadata.is_closed and last > self._end:
            raise InvariantViolated("O4", f"{last} acknowledged, but the ledger is closed at {self._end}")
        self.acknowledged = last
        for entry_id in range(first, last + 1):
            self._check_copies("T2", entry_id, self._metadata)

    def writer_lost(self, writer: str, error: ClusterError) -> None:
        if isinstance(error, WriterFenced) and self._metadata.state is ClusterLedgerState.OPEN:
            raise InvariantViolated("O11", f"{writer} is fenced, and nothing has taken its ledger over")

    def shown(self, reader: str, entry: Entry) -> None:
        expected = self._shown.get(reader, NO_ENTRY) + 1
        if entry.entry_id != expected:
            raise InvariantViolated("O2", f"{reader} was shown {entry.entry_id} instead of {expected}")
        if entry.payload != self._payloads[expected] or entry.length != self._lengths[expected]:
            raise InvariantViolated("T4", f"{reader} was shown another payload or length of {expected}")
        if self._metadata.is_closed and expected > self._end:
            raise InvariantViolated(
                "O1", f"{reader} was shown {expected}, after the end of the ledger at {self._end}"
            )
        if not self._metadata.is_closed and expected > self.acknowledged:
            raise InvariantViolated("O2", f"{reader} was shown {expected}, which is not acknowledged")
        self._shown[reader] = expected

    def reader_ended(self, reader: str, error: ClusterError | None) -> None:
        if isinstance(error, LedgerCutShort):
            raise InvariantViolated("O1", f"{reader}: {error}")

    def knows_closed(self, client: str, metadata: ClusterLedgerMetadata) -> None:
        known = metadata.is_closed, metadata.last_entry, metadata.length
        if known != (self._metadata.is_closed, self._metadata.last_entry, self._metadata.length):
            raise InvariantViolated("T1", f"{client} believes {known}")

    # ── what bookies do ───────────────────────────────────────────────────────────────────────────────

    def fence_answered(self, bookie: str, ledger_id: int) -> None:
        assert ledger_id == self._ledger_id
        self._fenced.add(bookie)

    def add_stored(self, bookie: str, ledger_id: int, entry_id: int) -> None:
        assert ledger_id == self._ledger_id
        if bookie in self._fenced:
            raise InvariantViolated("O9", f"{bookie} has answered a fence, and has taken entry {entry_id}")

    # ── metadata ──────────────────────────────────────────────────────────────────────────────────────

    def metadata_written(
        self, client: str, before: ClusterLedgerMetadata, after: ClusterLedgerMetadata
    ) -> None:
        firsts = [segment.first_entry for segment in after.segments]
        if _ORDER[after.state] < _ORDER[before.state] or firsts != sorted(set(firsts)):
            raise InvariantViolated(
                "O5", f"{after.state.name} with segments {firsts} after {before.state.name}"
            )
        if before.is_closed and (before.last_entry, before.length) != (after.last_entry, after.length):
            raise InvariantViolated("O3", f"closed at {before.last_entry}, then at {after.last_entry}")
        self._metadata = after
        if after.is_closed and not before.is_closed:
            self._closed_by = client
            self._check_close()
        for entry_id in range(self.acknowledged + 1):
            self._check_copies("T2", entry_id, after)

    def _check_close(self) -> None:
        if self._end < self.acknowledged:
            raise InvariantViolated("T2", f"closed at {self._end}, but {self.acknowledged} is acknowledged")
        if self._end >= len(self._payloads):
            raise InvariantViolated("T4", f"closed at {self._end}, and no such entry was added")
        length = self._lengths[self._end] if self._end >= 0 else 0
        if self._metadata.length != length:
            raise InvariantViolated("O3", f"closed with length {self._metadata.length} instead of {length}")
        for reader, last in self._shown.items():
            if last > self._end:
                raise InvariantViolated(
                    "O1", f"{reader} was shown {last}, and the ledger is closed at {self._end}"
                )
        for entry_id in range(self._end + 1):
            self._check_copies("T3", entry_id, self._metadata)

    @property
    def state(self) -> tuple[object, ...]:
        """The memory of the oracles, beside the states of clients and bookies."""
        return self.acknowledged, self._closed_by, frozenset(self._fenced), len(self._payloads)

    def check_now(self) -> None:
        """Check what must hold in every state, also without a reader."""
        if self._metadata.is_closed and self.acknowledged > self._end:
            raise InvariantViolated(
                "O4", f"{self.acknowledged} is acknowledged, and the ledger is closed at {self._end}"
            )
        for entry_id in range(self.acknowledged + 1):
            self._check_copies("T2", entry_id, self._metadata)
        for name, bookie in self.bookies.items():
            ledger = bookie.ledgers.get(self._ledger_id)
            if ledger is None or ledger.last_add_confirmed <= self.acknowledged:
                continue
            told = f"{name} tells readers of entry {ledger.last_add_confirmed}"
            if not self._metadata.is_closed:
                raise InvariantViolated("O2", f"{told}, and {self.acknowledged} is acknowledged")
            if ledger.last_add_confirmed > self._end:
                raise InvariantViolated("O1", f"{told}, and the ledger is closed at {self._end}")

    def check_end(self, metadata: ClusterLedgerMetadata) -> None:
        """Check a ledger that was recovered after everything was mended."""
        if not metadata.is_closed:
            raise InvariantViolated("O8", "the ledger is not closed although nothing prevents it")
        for entry_id in range(self._end + 1):
            self._check_copies("T3", entry_id, metadata)

    def check_reported(self, writer: str, lacking: frozenset[str]) -> None:
        """Check what a writer has reported, if it has closed the ledger."""
        if self._closed_by != writer:
            return
        for entry_id in range(self._end + 1):
            bookies = self._metadata.segment_of(entry_id).bookies
            for index in self._quorums.write_set(entry_id):
                if bookies[index] not in lacking and self._copy(bookies[index], entry_id) is None:
                    raise InvariantViolated(
                        "O6", f"{bookies[index]} lacks entry {entry_id}, and is not reported"
                    )

    def _copy(self, bookie: str, entry_id: int) -> bytes | None:
        ledger = self.bookies[bookie].ledgers.get(self._ledger_id)
        return None if ledger is None else ledger.entries.get(entry_id)

    def check_shown(self, reader: str, count: int) -> None:
        """Check that a reader which has followed a ledger to its end was shown all entries."""
        if count != self._end + 1:
            raise InvariantViolated("O8", f"{reader} has ended after {count} entries of {self._end + 1}")

    @property
    def _end(self) -> int:
        assert self._metadata.last_entry is not None
        return self._metadata.last_entry

    def _check_copies(self, invariant: str, entry_id: int, metadata: ClusterLedgerMetadata) -> None:
        bookies = metadata.segment_of(entry_id).bookies
        copies = 0
        for index in self._quorums.write_set(entry_id):
            data = self._copy(bookies[index], entry_id)
            if data is None:
                continue
            copies += 1
            length: int = HEAD.unpack_from(data)[3]
            if data[self._payload_at :] != self._payloads[entry_id] or length != self._lengths[entry_id]:
                raise InvariantViolated("T4", f"{bookies[index]} has another payload or length of {entry_id}")
        if copies < self._quorums.ack:
            named = ",".join(bookies)
            raise InvariantViolated(
                invariant, f"entry {entry_id} has {copies} copies at its bookies in {named}"
            )

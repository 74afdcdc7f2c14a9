"""The store as a bookie shows itself: for who speaks for clients, over a network or to other stores.

Entries come and go as the bytes that a client has made, digest and all; a client is told by the master key it
sends. A bookie knows no passwords: what it cannot verify it hands on, and says nothing of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from storage.access import Access, Purpose
from storage.codec import entry as entry_codec
from storage.codec.digest import DigestCheck, Digester
from storage.codec.survey import lac_digest_type, told_digest_type
from storage.entry import NO_ENTRY, DigestType
from storage.errors import DigestMismatch, DiskFull, EntryTooLarge, InvalidEntry, NoSuchLedger
from storage.outcome import Damaged
from storage.presence import exists, missing, waited_for
from storage.request import check_id
from storage.warden import confirmed_by

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from storage.codec.entry import Head
    from storage.parts import Parts
    from storage.row import LedgerRow

KEY_SIZE_MAX = 1024
"""A client sends 20 bytes; more than so many are no key."""

PACKET_SIZE_MAX = entry_codec.LAC_PACKET.size + max(digest_type.width for digest_type in DigestType)
"""A last add confirmed with the largest digest."""


class Bookie:
    """One bookie's answers. Cheap to make, and shared like its store; threads may share it."""

    __slots__ = ("_adding", "_latch", "_notice", "_parts")

    def __init__(self, parts: Parts, notice: Callable[[], None]) -> None:
        self._parts = parts
        self._adding = parts.adding
        self._latch = parts.latch
        self._notice = notice

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    def add(self, data: bytes, master_key: bytes) -> None:
        """Adds an entry as its writer has made it; returns when a crash can no longer lose it.

        `LedgerFenced` once the ledger is; `Unauthorized` with another key than its first add came with;
        `DigestMismatch` where the entry's digest can be verified and is wrong.
        """
        head = self._checked(data)
        self._adding.place_bytes(self._access(head, data, master_key, Purpose.WRITING), head, bytes(data))

    def recover(self, data: bytes, master_key: bytes) -> None:
        """The same for who copies what is left of a ledger: a fence lets it pass."""
        head = self._checked(data)
        access = self._access(head, data, master_key, Purpose.RECOVERING)
        self._adding.place_bytes(access, head, bytes(data))

    def submit(self, data: bytes, master_key: bytes) -> Future[int]:
        """As `add`, but answers with a future: the sync is shared with what comes within `group_wait_s`."""
        head = self._checked(data)
        access = self._access(head, data, master_key, Purpose.WRITING)
        future = self._adding.submit_bytes(access, head, bytes(data))
        self._notice()
        return future

    def defer(self, data: bytes, master_key: bytes) -> None:
        """Takes an entry whose writer does not wait for it: only `force` says that it is durable.

        Nobody reads it before that. One that was lost to a full disk makes the next `force` fail.
        """
        head = self._checked(data)
        self._adding.defer(self._access(head, data, master_key, Purpose.WRITING), head, bytes(data))
        self._notice()

    def force(self, ledger_id: int) -> None:
        """Returns when everything that was added to the ledger before is durable."""
        self._latch.check_reads()
        check_id("ledger", ledger_id)
        self._adding.force(ledger_id)

    def _checked(self, data: bytes) -> Head:
        self._latch.check_reads()
        head = entry_codec.decode_head(data)
        if isinstance(head, Damaged):
            raise InvalidEntry(f"these bytes are no entry: {head}")
        if len(data) > self._parts.config.entry_size_max:
            raise EntryTooLarge(len(data), self._parts.config.entry_size_max)
        return head

    def _access(self, head: Head, data: bytes, master_key: bytes, purpose: Purpose) -> Access:
        """What the caller shows; of a new ledger its first entry tells the digest type."""
        _check_key(head.ledger_id, master_key)
        tail = self._parts.tails.of(head.ledger_id)
        if tail.tells_digest:
            self._verify(tail.facts.digest_type, head, data)
            return Access(master_key, purpose=purpose)
        digest_type = told_digest_type(data)
        self._verify(digest_type, head, data)
        return Access(master_key, digest_type, purpose=purpose, is_told=True)

    @staticmethod
    def _verify(digest_type: DigestType | None, head: Head, data: bytes) -> None:
        if digest_type is None:
            return
        if entry_codec.check_digest(data, Digester(digest_type)) is DigestCheck.MISMATCH:
            raise DigestMismatch(head.ledger_id, head.entry_id)

    # ── what is said of a ledger ─────────────────────────────────────────────────────────────────────

    def fence(self, ledger_id: int, master_key: bytes) -> bytes | None:
        """The last entry, when the ledger is fenced and no crash can open it again; `None` if it has none.

        Where that cannot be told it is `AnswerUnknown`, and the ledger fenced all the same.
        """
        self._latch.check_reads()
        check_id("ledger", ledger_id)
        _check_key(ledger_id, master_key)
        self._parts.warden.fence(ledger_id, Access(master_key))
        last_id = self._parts.tails.of(ledger_id).end.entry_id
        if last_id != NO_ENTRY:
            return self.read(ledger_id, last_id)
        self._check_none(ledger_id)
        return None

    def is_fenced(self, ledger_id: int) -> bool:
        """Whether the ledger is fenced. Raises if there is none, or if that cannot be told."""
        self._latch.check_reads()
        check_id("ledger", ledger_id)
        if not (fenced := self._parts.registry.of(ledger_id).fenced):
            self._check_none(ledger_id)
        return fenced

    def set_explicit_lac(self, ledger_id: int, packet: bytes, master_key: bytes) -> None:
        """Keeps the packet as the client has made it; returns when it is durable."""
        self._latch.check_reads()
        check_id("ledger", ledger_id)
        _check_key(ledger_id, master_key)
        self._check_packet(ledger_id, packet)
        self._parts.warden.confirm(ledger_id, Access(master_key), bytes(packet))

    def _check_packet(self, ledger_id: int, packet: bytes) -> None:
        if not entry_codec.LAC_PACKET.size <= len(packet) <= PACKET_SIZE_MAX:
            raise InvalidEntry(f"a last add confirmed of {len(packet)} bytes")
        named, confirmed = entry_codec.LAC_PACKET.unpack_from(packet)
        if named != ledger_id or confirmed < NO_ENTRY:
            raise InvalidEntry(f"a last add confirmed {confirmed} of ledger {named}, for ledger {ledger_id}")
        tail = self._parts.tails.of(ledger_id)
        digest_type = tail.facts.digest_type if tail.tells_digest else None
        # Where nothing tells, its own width does: a replay believes none that it cannot take apart.
        digest_type = digest_type or lac_digest_type(packet)
        if digest_type is None:
            raise InvalidEntry(f"a last add confirmed of {len(packet)} bytes")
        if isinstance(entry_codec.decode_lac(packet, Digester(digest_type)), Damaged):
            raise DigestMismatch(ledger_id, confirmed)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet, as it was set; `None` if none was."""
        self._latch.check_reads()
        check_id("ledger", ledger_id)
        row = self._parts.registry.of(ledger_id)
        if row.explicit_lac is None:
            self._check_none(ledger_id)
        return row.explicit_lac

    def _check_none(self, ledger_id: int) -> None:
        """Raises unless it is certain that the ledger exists, and lacks nothing."""
        if self._parts.registry.may_lack(ledger_id) or not exists(self._parts, ledger_id):
            missing(self._parts, ledger_id)

    def delete(self, ledger_id: int) -> None:
        """Deletes a ledger that its clients have given up, whatever its key. `NoSuchLedger` if none is."""
        self._latch.check_reads()
        check_id("ledger", ledger_id)
        if not self._parts.warden.delete(ledger_id):
            raise NoSuchLedger(ledger_id)

    def enter_limbo(self, ledger_id: int) -> None:
        """From here on what is not found of the ledger is unknown: entries that others have may be missing.

        Durable when it returns.
        """
        self._set_limbo(ledger_id, lambda row: replace(row, in_limbo=True))

    def leave_limbo(self, ledger_id: int) -> None:
        """What is not found is missing again: everything that should be here is. Durable when it returns."""
        self._set_limbo(ledger_id, lambda row: replace(row, in_limbo=False))

    def _set_limbo(self, ledger_id: int, revise: Callable[[LedgerRow], LedgerRow]) -> None:
        self._latch.check_writes()
        check_id("ledger", ledger_id)
        try:
            self._parts.registry.declare({ledger_id: revise})
        except DiskFull:
            raise
        except OSError as error:
            raise self._parts.committer.fail(error) from error

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def read(self, ledger_id: int, entry_id: int) -> bytes:
        """The entry's bytes, its digest verified where that can be.

        `NoSuchEntry` and `NoSuchLedger` are certain; `AnswerUnknown` where they could not be.
        """
        with self._latch.reading():
            check_id("ledger", ledger_id)
            check_id("entry", entry_id)
            digester = self._parts.registry.digester(ledger_id)
            data = self._parts.reading.data(ledger_id, entry_id, digester)
            return data if data is not None else missing(self._parts, ledger_id, entry_id)

    def read_last(self, ledger_id: int) -> bytes:
        """The entry with the largest id."""
        with self._latch.reading():
            check_id("ledger", ledger_id)
            last_id = self._parts.tails.of(ledger_id).end.entry_id
        if last_id == NO_ENTRY:
            missing(self._parts, ledger_id, max(last_id, 0))
        return self.read(ledger_id, last_id)

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Whether there is such an entry; says nothing of its bytes. `AnswerUnknown` if it cannot be told."""
        with self._latch.reading():
            check_id("ledger", ledger_id)
            check_id("entry", entry_id)
            found = self._parts.reading.has(ledger_id, entry_id)
        if not found and self._parts.registry.may_lack(ledger_id):
            missing(self._parts, ledger_id, entry_id)
        return found

    def entry_ids(self, ledger_id: int) -> list[range]:
        """The ids of its entries, ascending, in ranges without a gap."""
        with self._latch.reading():
            check_id("ledger", ledger_id)
            found = self._parts.reading.entry_ids(ledger_id)
        if not found:
            self._check_none(ledger_id)
        return found

    def last_add_confirmed(self, ledger_id: int) -> int:
        """The largest that its writer has said, with an entry or explicitly; -1 while it has said nothing.

        Not what is durable here: of an entry that others have not got yet, no reader may know.
        """
        with self._latch.reading():
            check_id("ledger", ledger_id)
            tail = self._parts.tails.of(ledger_id)
            said = max(tail.lac_seen, confirmed_by(self._parts.registry.of(ledger_id)))
            last_id = tail.end.entry_id  # once: a delete may come in between
            if last_id != NO_ENTRY:
                head = self._parts.reading.head(ledger_id, last_id)
                said = said if head is None else max(said, head.last_add_confirmed)
        if said == NO_ENTRY:
            self._check_none(ledger_id)
        return said

    def wait_for_last_add_confirmed(self, ledger_id: int, beyond: int, timeout_s: float | None = None) -> int:
        """The last add confirmed when it has passed `beyond`, or in the end when that takes too long.

        Comes back at once where the ledger is fenced, or the store closed or failed: whoever waits has to
        ask elsewhere.
        """
        return waited_for(
            self._parts, ledger_id, lambda: self.last_add_confirmed(ledger_id), beyond, timeout_s
        )


def _check_key(ledger_id: int, master_key: bytes) -> None:
    # No bytes, or only zeros, are what a bookie writes of a ledger whose key it does not know.
    if len(master_key) > KEY_SIZE_MAX or not any(master_key):
        raise InvalidEntry(f"these {len(master_key)} bytes are no key for ledger {ledger_id}")

"""The bookie's face of the store: for programs that serve clients, such as a network server.

Entries are passed as the bytes that a client has made, with their digest, and a client is identified by the
master key that it sends. A bookie knows no passwords, so it passes on digests that need one unverified.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from hmac import compare_digest
from typing import TYPE_CHECKING, NoReturn

from crc32c import crc32c

from storage.commit.pending import ClientEntry, ClientRun, confirmed_without_entries
from storage.entry import format as entry_format
from storage.entry.credentials import Access, Purpose
from storage.entry.digest import DigestCheck, Digester
from storage.entry.digest_inference import digest_type_of_lac, infer_digest_type
from storage.entry.model import ID_MAX, NO_ENTRY, DigestType
from storage.entry.read_result import MISSING, Damaged, Missing, Unreadable
from storage.errors import DigestMismatch, DiskFull, EntryTooLarge, EntryTruncated, InvalidEntry, NoSuchLedger
from storage.read.points import unreadable
from storage.validation import check_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from storage.engine import Engine
    from storage.entry.ledger_record import LedgerRecord
    from storage.ledgers.state import LedgerState

_HEAD = entry_format.HEAD
_LENGTH = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")
_CRC32C_FRONT = struct.Struct(">qqqqI")
"""The head of an entry and its digest under CRC-32C."""
_CRC32C = DigestType.CRC32C  # looked up once, because an enum's member costs as much as a call
_CRC32C_SIZE = _HEAD.size + _CHECKSUM.size

KEY_SIZE_MAX = 1024
"""A client sends 20 bytes. Anything longer than this is refused."""

PACKET_SIZE_MAX = entry_format.LAC_PACKET.size + max(digest_type.width for digest_type in DigestType)
"""The size of an explicit last add confirmed with the largest digest."""


class Bookie:
    """The operations of a bookie on one store. Cheap to make; threads may share it."""

    __slots__ = ("_commit", "_engine", "_notice", "_states", "_store", "_store_state")

    def __init__(self, engine: Engine, notice: Callable[[], None], store: object) -> None:
        """`store` is kept so that it is not collected, and closed, while the program uses this object."""
        self._store = store
        self._engine = engine
        self._states = engine.states
        self._commit = engine.committer.commit
        self._store_state = engine.store_state
        self._notice = notice

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    def add(self, data: bytes, master_key: bytes) -> None:
        """Add an entry as its writer has made it; return when a crash can no longer lose it.

        `LedgerFenced` if the ledger is fenced; `Unauthorized` if the key is not that of the ledger's first
        add; `DigestMismatch` if the digest of the entry can be verified and is wrong.
        """
        self._commit(self.pending_entry(data, master_key, Purpose.WRITING))

    def recover(self, data: bytes, master_key: bytes) -> None:
        """Add an entry for a client that recovers the ledger: also a fenced ledger takes it."""
        self._commit(self.pending_entry(data, master_key, Purpose.RECOVERING))

    def submit(self, data: bytes, master_key: bytes) -> Future[int]:
        """Add an entry, and return a future. It shares its sync with adds of the next `group_wait_s`."""
        future = self._engine.submit(self.pending_entry(data, master_key, Purpose.WRITING))
        self._notice()
        return future

    def defer(self, data: bytes, master_key: bytes) -> None:
        """Accept an entry without waiting until it is durable, for a writer that calls `force` later.

        No reader sees the entry before it is durable. If a full disk loses it, the next `force` fails.
        """
        self._engine.defer(self.pending_entry(data, master_key, Purpose.WRITING))
        self._notice()

    def force(self, ledger_id: int) -> None:
        """Return when everything that was added to the ledger before is durable."""
        self._store_state.check_reads()
        check_id("ledger", ledger_id)
        self._engine.force(ledger_id)

    def pending_entry(self, data: bytes, master_key: bytes, purpose: Purpose) -> ClientEntry:
        """Return the entry as work for a commit. Its digest is verified if the bookie can do that."""
        if self._store_state.gone is not None:
            self._store_state.check_reads()
        size = len(data)
        if not _HEAD.size <= size <= self._engine.config.entry_size_max:
            self._refuse(data)
        if type(data) is not bytes:
            data = bytes(data)
        head = ledger_id, entry_id, confirmed, length = _HEAD.unpack_from(data)
        if ledger_id < 0 or entry_id < 0 or confirmed < NO_ENTRY or length < 0:
            self._refuse(data)
        state = self._states.of(ledger_id)
        # Nearly every entry is another one of a writer whose credentials were checked with the one before.
        # They are used again, because the ledger compares credentials by identity first.
        access = state.admitted
        if (
            access is not None
            and purpose is Purpose.WRITING
            and access.purpose is Purpose.WRITING
            and state.facts.digest_type is _CRC32C
            and state.next_id
            and size >= _CRC32C_SIZE
            and compare_digest(access.master_key, master_key)
        ):
            if (
                crc32c(data[_CRC32C_SIZE:], crc32c(data[: _HEAD.size]))
                != _CHECKSUM.unpack_from(data, _HEAD.size)[0]
            ):
                raise DigestMismatch(ledger_id, entry_id)
        else:
            access = self._access(state, entry_id, data, master_key, purpose)
        return ClientEntry(state, access, head, data)

    def pending_run(
        self, ledger_id: int, first_id: int, entries: Sequence[bytes], master_key: bytes
    ) -> ClientRun | None:
        """Return consecutive entries as one piece of work; `None` if they must be added one by one.

        That is so unless the writer's credentials were checked with the entry before, and all entries have
        these ids, the right digest, and lengths that count their payloads. One loop, because a server does
        hardly anything else.
        """
        state = self._states.of(ledger_id)
        access = state.admitted
        if (
            access is None
            or access.purpose is not Purpose.WRITING
            or state.facts.digest_type is not _CRC32C
            or not state.next_id
            or self._store_state.gone is not None
            or not compare_digest(access.master_key, master_key)
        ):
            return None
        fronts: list[bytes] = []
        payloads: list[bytes] = []
        size_max, unpack, pack_length = (
            self._engine.config.entry_size_max,
            _CRC32C_FRONT.unpack_from,
            _LENGTH.pack,
        )
        highest_lac, length, size, length_word = NO_ENTRY, -1, -1, b""
        for entry_id, data in enumerate(entries, first_id):
            if len(data) != size:
                size = len(data)
                length_word = pack_length(size)
                if not _CRC32C_SIZE <= size <= size_max:
                    return None
            found_ledger, found_id, confirmed, found_length, checksum = unpack(data)
            payload = data[_CRC32C_SIZE:]
            if (
                checksum != crc32c(payload, crc32c(data[: _HEAD.size]))
                or found_id != entry_id
                or found_ledger != ledger_id
                or confirmed < NO_ENTRY
                or (found_length != length + len(payload) and fronts)
            ):
                return None
            length = found_length
            if confirmed > highest_lac:
                highest_lac = confirmed
            fronts.append(length_word + data[:_CRC32C_SIZE])
            payloads.append(payload)
        if ledger_id < 0 or first_id < 0 or length < 0:
            return None
        head = ledger_id, first_id, highest_lac, length
        return ClientRun(state, access, head, b"".join(fronts), payloads)

    def _refuse(self, data: bytes) -> NoReturn:
        head = entry_format.decode_head(data)
        if isinstance(head, Damaged):
            raise InvalidEntry(f"these bytes are no entry: {head}")
        raise EntryTooLarge(len(data), self._engine.config.entry_size_max)

    def _access(
        self, state: LedgerState, entry_id: int, data: bytes, master_key: bytes, purpose: Purpose
    ) -> Access:
        """Return the credentials of the caller. The first entry of a new ledger shows the digest type."""
        _check_key(state.ledger_id, master_key)
        digest_type = state.facts.digest_type if state.tells_digest else infer_digest_type(data)
        # Stated even if the ledger's type is known, because the ledger may be deleted before the entry joins
        # a commit. The entry then makes a new ledger, which would otherwise be stored with CRC-32C.
        access = Access(master_key, digest_type, purpose=purpose, is_told=True)
        if digest_type is None:
            return access
        if entry_format.check_digest(data, Digester(digest_type)) is DigestCheck.MISMATCH:
            raise DigestMismatch(state.ledger_id, entry_id)
        return access

    # ── fence, explicit last add confirmed, delete, limbo ───────────────────────────────────────────────

    def fence(self, ledger_id: int, master_key: bytes) -> bytes | None:
        """Fence the ledger; return its last entry when no crash can undo that.

        `None` if it has no entry, or if the last one was truncated. `AnswerUnknown` if entries of the ledger
        may have been lost; the ledger is fenced nevertheless.
        """
        self._store_state.check_reads()
        check_id("ledger", ledger_id)
        _check_key(ledger_id, master_key)
        self._engine.control.fence(ledger_id, Access(master_key))
        last_id = self._states.of(ledger_id).end.entry_id
        if last_id != NO_ENTRY:
            with suppress(EntryTruncated):
                return self.read(ledger_id, last_id)
        self._check_none(ledger_id)
        return None

    def is_fenced(self, ledger_id: int) -> bool:
        """Return whether the ledger is fenced. Raises if it does not exist, or if that is unknown."""
        self._store_state.check_reads()
        check_id("ledger", ledger_id)
        if not (fenced := self._engine.metadata.of(ledger_id).fenced):
            self._check_none(ledger_id)
        return fenced

    def set_explicit_lac(self, ledger_id: int, packet: bytes, master_key: bytes) -> None:
        """Store an explicit last add confirmed as the client has made it; return when it is durable.

        It may confirm more entries than there are here, as on any bookie, because the ledger's writer makes
        the packet, and other bookies may have the entries that this one lacks.
        """
        self._store_state.check_reads()
        check_id("ledger", ledger_id)
        _check_key(ledger_id, master_key)
        self._check_packet(ledger_id, packet)
        self._engine.control.set_explicit_lac(ledger_id, Access(master_key), bytes(packet))

    def _check_packet(self, ledger_id: int, packet: bytes) -> None:
        if not entry_format.LAC_PACKET.size <= len(packet) <= PACKET_SIZE_MAX:
            raise InvalidEntry(f"a last add confirmed of {len(packet)} bytes")
        named, confirmed = entry_format.LAC_PACKET.unpack_from(packet)
        if named != ledger_id or confirmed < NO_ENTRY:
            raise InvalidEntry(f"a last add confirmed {confirmed} of ledger {named}, for ledger {ledger_id}")
        state = self._states.of(ledger_id)
        digest_type = state.facts.digest_type if state.tells_digest else None
        # If the ledger's digest type is not known, the size of the packet decides, as in a replay.
        digest_type = digest_type or digest_type_of_lac(packet)
        if digest_type is None:
            raise InvalidEntry(f"a last add confirmed of {len(packet)} bytes")
        if isinstance(entry_format.decode_lac(packet, Digester(digest_type)), Damaged):
            raise DigestMismatch(ledger_id, confirmed)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """Return the packet with the explicit last add confirmed; `None` if none was set."""
        self._store_state.check_reads()
        check_id("ledger", ledger_id)
        row = self._engine.metadata.of(ledger_id)
        if row.explicit_lac is None:
            self._check_none(ledger_id)
        return row.explicit_lac

    def _check_none(self, ledger_id: int) -> None:
        """Raise unless it is certain that the ledger exists and has lost no entries."""
        if self._engine.metadata.may_have_lost_entries(ledger_id) or not self._engine.exists(ledger_id):
            self._engine.raise_missing(ledger_id)

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger, whatever its key; return when that is durable. `NoSuchLedger` if none exists."""
        self._store_state.check_reads()
        check_id("ledger", ledger_id)
        if not self._engine.control.delete(ledger_id):
            raise NoSuchLedger(ledger_id)

    def delete_all(self, ledger_ids: Iterable[int]) -> None:
        """Delete many ledgers at once, whatever their keys, with one group of metadata records.

        Returns when no crash can bring any of them back. If one does not exist, nothing is deleted, and
        `NoSuchLedger` names the first.
        """
        self._store_state.check_reads()
        ids = list(ledger_ids)
        for ledger_id in ids:
            check_id("ledger", ledger_id)
        if (missing := self._engine.control.delete_all(ids)) is not None:
            raise NoSuchLedger(missing)

    def truncate(self, ledger_id: int, before: int) -> None:
        """Give up the entries before that one, whatever the ledger's key; return when that is durable.

        As `Ledger.truncate`: reads of them raise `EntryTruncated`, and the ids go on. Entries before it that
        a client adds later are acknowledged and truncated at once, so that a client which copies a ledger
        from other bookies does not fail. Other bookies have no truncation, and keep their copies.
        """
        self._store_state.check_reads()
        check_id("ledger", ledger_id)
        check_id("entry", before)
        self._engine.truncate(ledger_id, before)

    def first_entry_id(self, ledger_id: int) -> int:
        """The first id that was not truncated; 0 if none was, or if there is no such ledger."""
        self._store_state.check_reads()
        check_id("ledger", ledger_id)
        return self._engine.metadata.first_entry_id(ledger_id)

    def enter_limbo(self, ledger_id: int) -> None:
        """Note that this bookie may lack entries of the ledger; return when the note is durable.

        From now on an entry that is not found is `AnswerUnknown` and not missing.
        """
        self._set_limbo(ledger_id, lambda row: replace(row, in_limbo=True))

    def leave_limbo(self, ledger_id: int) -> None:
        """Note that the ledger is complete here: an absent entry is missing. Return when that is durable."""
        self._set_limbo(ledger_id, lambda row: replace(row, in_limbo=False))

    def _set_limbo(self, ledger_id: int, revise: Callable[[LedgerRecord], LedgerRecord]) -> None:
        self._store_state.check_writes()
        check_id("ledger", ledger_id)
        try:
            self._engine.metadata.persist_now({ledger_id: revise})
        except DiskFull:
            raise
        except OSError as error:
            raise self._engine.committer.fail(error) from error

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def read(self, ledger_id: int, entry_id: int) -> bytes:
        """Return the bytes of an entry. Its digest is verified if the bookie can do that.

        `NoSuchEntry` and `NoSuchLedger` are certain answers; otherwise it is `AnswerUnknown`.
        """
        found: bytes | Missing | Unreadable | None = None
        if type(ledger_id) is type(entry_id) is int and self._store_state.gone is None:
            row = self._engine.metadata.find(ledger_id)
            if (row is None or row.digest_type is _CRC32C) and 0 <= entry_id <= ID_MAX:
                found = self._engine.reader.crc32c_data(ledger_id, entry_id)
                if type(found) is bytes:
                    return found
        with self._store_state.reading():
            check_id("ledger", ledger_id)
            check_id("entry", entry_id)
            if found is None:
                digester = self._engine.metadata.digester(ledger_id)
                found = self._engine.reader.data(ledger_id, entry_id, digester)
            if isinstance(found, Unreadable):
                raise unreadable(ledger_id, entry_id, found)
            return self._engine.raise_missing(ledger_id, entry_id) if found is MISSING else found

    def read_run(self, ledger_id: int, first_id: int, count: int, size_max: int) -> list[bytes]:
        """Return consecutive entries from the first on, verified, as many as lie together.

        At most `count`, and no more when they have `size_max` bytes; none if the first must be read alone.
        """
        row = self._engine.metadata.find(ledger_id)
        if self._store_state.gone is not None or (row is not None and row.digest_type is not _CRC32C):
            return []
        return self._engine.reader.crc32c_run(ledger_id, first_id, count, size_max)

    def read_last(self, ledger_id: int) -> bytes:
        """Return the entry with the largest id."""
        with self._store_state.reading():
            check_id("ledger", ledger_id)
            last_id = self._states.of(ledger_id).end.entry_id
        if last_id == NO_ENTRY:
            self._engine.raise_missing(ledger_id, max(last_id, 0))
        return self.read(ledger_id, last_id)

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether the entry exists, without reading its bytes. `AnswerUnknown` if that is unknown."""
        with self._store_state.reading():
            check_id("ledger", ledger_id)
            check_id("entry", entry_id)
            found = self._engine.reader.has(ledger_id, entry_id)
        if not found and self._engine.metadata.may_have_lost_entries(ledger_id):
            self._engine.raise_missing(ledger_id, entry_id)
        return found

    def entry_ids(self, ledger_id: int) -> list[range]:
        """Return the ids of the ledger's entries as ascending ranges without gaps."""
        with self._store_state.reading():
            check_id("ledger", ledger_id)
            found = self._engine.reader.entry_ids(ledger_id)
        if not found:
            self._check_none(ledger_id)
        return found

    def last_add_confirmed(self, ledger_id: int) -> int:
        """Return the largest last add confirmed that the writer has sent, with an entry or explicitly, or -1.

        It can be smaller than the last durable id here, because readers must not see an entry that other
        bookies may still lack.
        """
        with self._store_state.reading():
            check_id("ledger", ledger_id)
            state = self._states.of(ledger_id)
            confirmed = max(state.lac_seen, confirmed_without_entries(self._engine.metadata.of(ledger_id)))
            last_id = state.end.entry_id  # once: a delete may come in between
            if last_id != NO_ENTRY:
                head = self._engine.reader.head(ledger_id, last_id)
                if isinstance(head, Unreadable):
                    raise unreadable(ledger_id, last_id, head)
                confirmed = confirmed if head is MISSING else max(confirmed, head.last_add_confirmed)
        if confirmed == NO_ENTRY:
            self._check_none(ledger_id)
        return confirmed

    def wait_for_last_add_confirmed(self, ledger_id: int, beyond: int, timeout_s: float | None = None) -> int:
        """Wait until the last add confirmed is larger than `beyond`, and return it.

        Returns the present one when `timeout_s` is over, and at once if it will not grow any more: when the
        ledger is fenced or was deleted, the store closed or failed, or `Store.stop_followers` was called.
        Then the client has to ask another bookie.
        """
        return self._engine.wait_for_lac(
            ledger_id, lambda: self.last_add_confirmed(ledger_id), beyond, timeout_s
        )


def _check_key(ledger_id: int, master_key: bytes) -> None:
    # A bookie writes no bytes, or only zeros, for a ledger whose key it does not know.
    if len(master_key) > KEY_SIZE_MAX or not any(master_key):
        raise InvalidEntry(f"these {len(master_key)} bytes are no key for ledger {ledger_id}")

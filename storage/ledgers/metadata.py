"""The metadata of ledgers: fences, master keys, digest types and tombstones.

`LedgerMetadata` keeps a record in memory for each ledger that is not plain. It writes the records as rows of
`ledgers.rows`, and checkpoints write them to the index, which then has the same rows. There are four ways to
change a record, which differ in when it becomes durable there:

    apply_journaled       with the next checkpoint, because the journal has a durable record of the change
    persist_now           in `ledgers.rows`, before the first acknowledgement that depends on it
    persist_tombstones    in `ledgers.rows`, followed by an empty group, before the delete is answered
    persist_truncation    in the same way, before the truncation is answered

Commits, deletes and checkpoints call it in different threads. The records in memory change under one lock,
and the file is written under another, so that a commit need not wait while a delete is synced. Readers take
no lock.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from storage.capacity.guard import NO_ROOM, Need
from storage.entry.digest import Digester, master_key
from storage.entry.ledger_record import LedgerRecord, Tombstone, Truncation
from storage.entry.ledger_record_table import is_plain_tombstone
from storage.entry.model import DigestType
from storage.entry.position import LogPosition
from storage.errors import NO_SPACE, DiskFull, StoreClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from storage.capacity.guard import RoomMaker
    from storage.entry.position import JournalPosition
    from storage.index.location_cache import LocationCache
    from storage.index.state import IndexState
    from storage.index.visible import VisibleIndex
    from storage.ledgers.metadata_log import MetadataLog
    from storage.memtable.table import Memtable, Slot

    Revision = Callable[[LedgerRecord], LedgerRecord]

PLAIN_KEY = master_key(b"")
"""The key of a ledger without a password."""

_LEDGER_ID = attrgetter("ledger_id")

BEFORE_ALL_LOGS = LogPosition(0, 0)
"""The position before every record of every log."""


def plain(ledger_id: int) -> LedgerRecord:
    """Return the record of a plain ledger, which is not stored: CRC-32C, no password, open."""
    return LedgerRecord(ledger_id, 0, DigestType.CRC32C, master_key=PLAIN_KEY)


def as_claimed(row: LedgerRecord, claim: LedgerRecord) -> LedgerRecord:
    """Return the record with the key and the digest type of the ledger's first caller, `claim`."""
    return replace(row, digest_type=claim.digest_type, known_by=claim.known_by, master_key=claim.master_key)


def _deleted_up_to(row: LedgerRecord) -> JournalPosition | None:
    """Return the position up to which journal records belong to a deleted ledger of that id."""
    return None if row.tombstone is None else row.tombstone.journal


class LedgerMetadata:
    """The records of all ledgers that are not plain. Any thread may read; changes take the locks below."""

    def __init__(
        self,
        rows: MetadataLog,
        state: IndexState,
        index: VisibleIndex,
        cache: LocationCache,
        slot: Slot,
        new_lock: Callable[[], AbstractContextManager[object]],
        room: RoomMaker = NO_ROOM,
    ) -> None:
        self._room = room
        self._index = index
        self._cache = cache
        self._slot = slot
        self._is_whole = state.is_whole
        # The locks, in the order in which a thread takes them:
        self._writing = new_lock()
        self._lock = new_lock()
        self._forgetting = new_lock()
        # The shared fields:     written by                under                   read by
        # _rows, the file        deletes, checkpoints,     _writing                its writers
        #                        new ledgers
        # _rows.rows, its table  the same                  _writing                any thread, no lock
        # _known                 commits, deletes,         _lock                   any thread, no lock
        #                        checkpoints
        # last_change            the same                  _lock                   any thread, no lock
        # _in_doubt              persist_now, _write       _writing                commits, no lock
        # _is_closed             close                     _writing                writers of the file
        # _cache, forgetting     commits, checkpoints      _forgetting             any thread, no lock
        self._rows = rows
        # Without plain tombstones, because there may be very many.
        self._known: dict[int, LedgerRecord] = dict(rows.rows.living)
        self.find = self._known.get
        """Return the record of a ledger that is not plain; `None` for a plain one or a plain tombstone."""
        self._is_closed = False
        self._in_doubt: set[int] = set()
        """Ledgers for which the file may hold a row that was refused, until the file is rewritten."""
        self.last_change = rows.rows.highest_change
        """The largest number of any change of a record."""

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def of(self, ledger_id: int) -> LedgerRecord:
        """Return the durable metadata of a ledger; for an unknown ledger, that of a new one."""
        return self._known.get(ledger_id) or self._rows.rows.get(ledger_id) or plain(ledger_id)

    def digest_type(self, ledger_id: int) -> DigestType | None:
        """Return the digest type of the ledger's entries; `None` if it is not known."""
        row = self._known.get(ledger_id)
        return DigestType.CRC32C if row is None else row.digest_type

    def digester(self, ledger_id: int) -> Digester | None:
        """Return a digester that needs no password; `None` if the digest type is not known."""
        digest_type = self.digest_type(ledger_id)
        return None if digest_type is None else Digester(digest_type)

    def may_have_lost_entries(self, ledger_id: int) -> bool:
        """Return whether an entry that is not found may have existed, because a part of the store was
        lost."""
        return not self._is_whole or self.of(ledger_id).in_limbo

    def is_plain_and_whole(self, ledger_id: int) -> bool:
        """Return whether the ledger is plain, and nothing of it or of the store is known to be lost."""
        return self._is_whole and ledger_id not in self._known

    def contradicts(self, claim: LedgerRecord) -> bool:
        """Return whether the ledger would differ from the claim of its first caller after a crash.

        A replay takes a key that is in no row from the journals, but does not change a key that is in a row.
        Such a row may be left from an add that was refused, so that the ledger does not exist yet.
        """
        if claim.ledger_id in self._in_doubt:
            return True
        row = self._known.get(claim.ledger_id)
        if row is None:
            return claim.digest_type is not DigestType.CRC32C
        is_other_key = row.master_key not in (None, PLAIN_KEY, claim.master_key)
        return row.digest_type is not claim.digest_type or is_other_key

    def first_entry_id(self, ledger_id: int) -> int:
        """Return the first id of the ledger that was not truncated."""
        row = self._known.get(ledger_id)
        return 0 if row is None else row.first_entry_id

    def deleted_at(self, ledger_id: int) -> JournalPosition | None:
        """Return the end of the journals at the ledger's last delete; `None` if it was never deleted.

        No two deletes have the same position, because a ledger that is made again has records in between.
        """
        tombstone = self.of(ledger_id).tombstone
        return None if tombstone is None else tombstone.journal

    def was_deleted(self, ledger_id: int, deleted_at: JournalPosition | None) -> bool:
        """Return whether the ledger was deleted since `deleted_at()` returned this."""
        # A tombstone that has disappeared is not a new delete.
        return self.deleted_at(ledger_id) not in (None, deleted_at)

    def existing_ledgers(self) -> list[int]:
        """Return the ledgers that exist even if they have no entries."""
        return [row.ledger_id for row in list(self._known.values()) if row.makes_a_ledger]

    def count_tombstones(self) -> int:
        """Return how many deleted ledgers are remembered."""
        deleted = self._rows.rows.tombstones
        others = [row for row in list(self._known.values()) if row.tombstone is not None]
        return len(deleted) + sum(row.ledger_id not in deleted for row in others)

    @property
    def is_file_unknown(self) -> bool:
        """Whether it is unknown which file of rows a power cut would leave, so that nothing may be
        written."""
        return self._rows.is_name_unknown

    @property
    def sequence(self) -> int:
        """The sequence number of the last durable group of `ledgers.rows`."""
        return self._rows.sequence

    # ── changes by a journal record, and by a new ledger ────────────────────────────────────────────────

    def apply_journaled(self, ledger_id: int, revise: Revision, table: Memtable) -> LedgerRecord:
        """Revise a record as a durable journal record says. The checkpoint of `table` makes it durable."""
        with self._lock:
            before = self.of(ledger_id)
            row = revise(before)
            if row != before:
                row = self._remember(row)
                table.put_row(row)
            return row

    def persist_now(self, revisions: Mapping[int, Revision]) -> None:
        """Revise records and make them durable, before an acknowledgement depends on them.

        `DiskFull` if there is no space. The file may have the rows nevertheless, but nothing depends on them
        yet.
        """
        with self._writing, self._lock:
            self._append_revised(
                [revise(self._latest(ledger_id)) for ledger_id, revise in revisions.items()], Need.ADDS
            )

    def _append_revised(self, revised: Sequence[LedgerRecord], need: Need) -> None:
        try:
            self._append([self._numbered(row) for row in revised], need)
        except OSError as error:
            if error.errno in NO_SPACE and not self.is_file_unknown:
                # These rows may appear after a crash. So the next claim of such a ledger is written to a new
                # file, whatever it is.
                self._in_doubt.update(row.ledger_id for row in revised)
                raise DiskFull(self._rows.path) from error
            raise

    def _latest(self, ledger_id: int) -> LedgerRecord:
        """Return the newer of the ledger's records in memory and on disk. A delete under way has its
        tombstone only on disk."""
        known, durable = self.of(ledger_id), self._rows.rows.get(ledger_id)
        return known if durable is None or durable.change < known.change else durable

    # ── deletes: see `storage.commit.deletes` for their order ──────────────────────────────────────────────

    def persist_tombstones(self, deletes: Mapping[int, JournalPosition]) -> list[LedgerRecord]:
        """Make a tombstone durable for each ledger. Return the records with the tombstones.

        A tombstone deletes the ledger's journal records before the given position, and all its records that
        are in entry logs now. Readers find the ledgers until `hide_deleted`. `DiskFull` if nothing was
        written; after any other error it is unknown what was written.
        """
        with self._writing:
            with self._lock:
                rows = [
                    LedgerRecord(
                        ledger_id,
                        self._next_change(),
                        DigestType.CRC32C,
                        master_key=PLAIN_KEY,
                        tombstone=Tombstone(upto),
                    )
                    for ledger_id, upto in deletes.items()
                ]
                for ledger_id in deletes:
                    # Kept until `hide_deleted`, so that a follower that begins meanwhile sees this delete.
                    # Otherwise `of` would return the tombstone of a plain ledger as soon as that is durable.
                    self._known.setdefault(ledger_id, self.of(ledger_id))
            self._append_tombstones(rows)
            # Before the answer, because damage to the file's last group looks like a write that was cut
            # short.
            self._prove_last_group()
            return rows

    def hide_deleted(self, rows: Sequence[LedgerRecord]) -> None:
        """Hide ledgers whose tombstones are durable, so that no reader finds an entry of them.

        Only the leader of a commit may call this, because tables change.
        """
        with self._lock:
            # The index before the tables, because the tables have newer copies of the entries.
            for row in rows:
                assert row.tombstone is not None, "it was deleted"
                self._index.hide(row.ledger_id, row.tombstone.journal)
            with self._forgetting:
                self._cache.drop(set(map(_LEDGER_ID, rows)))
            tables = self._slot.tables
            for row in rows:
                tables.drop(row.ledger_id)
                # The record last, because readers that still find an entry verify it with the deleted
                # ledger's key and digest type.
                known = self._known.get(row.ledger_id)
                if known is not None and known.change < row.change:
                    del self._known[row.ledger_id]
                # The next checkpoint removes the locations, and completes the tombstone with the position
                # from which on the logs may hold records of a new ledger of this id.
                tables.active.put_row(row)

    def deletes_before(self, frozen: Memtable) -> dict[int, JournalPosition]:
        """Return the deletes that came before the table was frozen. The locations of these ledgers in the
        index are obsolete, but their entries in the table are not."""
        deletes = {row.ledger_id: _deleted_up_to(row) for row in frozen.rows.values()}
        return {
            ledger_id: deleted_up_to
            for ledger_id, deleted_up_to in deletes.items()
            if deleted_up_to is not None and self._index.is_hidden_by(ledger_id, deleted_up_to)
        }

    def unhide(self, removed: Mapping[int, JournalPosition]) -> None:
        """Let readers see the index of these ledgers again, because it has no obsolete locations of them."""
        self._index.unhide(removed)

    def forget_locations(self, ledger_ids: Collection[int]) -> None:
        """Forget cached locations of these ledgers, so that readers see the present index, or a newer one."""
        with self._forgetting:
            self._cache.forget(ledger_ids)

    # ── truncations: see `storage.engine` for their order ──────────────────────────────────────────────

    def persist_truncation(
        self, ledger_id: int, truncation: Truncation, deleted_at: JournalPosition | None
    ) -> bool:
        """Make a truncation durable, unless the ledger has one that goes at least as far.

        Return False if the ledger was deleted since `deleted_at()` returned this; then nothing is written,
        because the row of a new ledger of this id must not have it. Readers find the entries until
        `hide_truncated`. `DiskFull` if there is no space: then a crash may still truncate the ledger.
        """
        with self._writing:
            # Both locks during the write, because a commit that revised the record meanwhile would do so
            # without the truncation, and its version would be the later one.
            with self._lock:
                row = self._latest(ledger_id)
                if _deleted_up_to(row) not in (None, deleted_at):
                    return False
                if row.first_entry_id >= truncation.first:
                    return True
                before = self.of(ledger_id)
                self._append_revised([replace(row, truncation=truncation)], Need.FINISHING)
            # Before the answer, as for tombstones: damage to the last group must not bring the entries back.
            try:
                self._prove_last_group()
            except OSError:
                # The store stops, and readers go on seeing the entries: the record must not say otherwise.
                with self._lock:
                    self._known[ledger_id] = before
                raise
            return True

    def hide_truncated(self, ledger_id: int) -> Truncation | None:
        """Hide the entries before the ledger's durable truncation, so that no reader finds them.

        Return the truncation; `None` if the ledger was deleted meanwhile. Only the leader of a commit may
        call this, because tables change.
        """
        with self._lock:
            row = self._known.get(ledger_id)
            if row is None or row.truncation is None:
                return None
            # The index before the cache and the tables, because a reader that does not find an entry there
            # asks the index.
            self._index.truncate(ledger_id, row.first_entry_id)
            with self._forgetting:
                self._cache.truncate(ledger_id, row.first_entry_id)
            self._slot.tables.truncate(ledger_id, row.first_entry_id)
            # The next checkpoint removes the locations.
            self._slot.tables.active.put_row(row)
            return row.truncation

    def hide_all_truncated(self) -> None:
        """Hide the entries that were truncated earlier. For an opening, which replaces index and tables."""
        first_ids = {row.ledger_id: row.first_entry_id for row in self._known.values() if row.truncation}
        self._index.truncate_only(first_ids)
        for ledger_id, first_id in first_ids.items():
            self._slot.tables.truncate(ledger_id, first_id)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────

    def persist_changed(self, frozen: Memtable, committed: IndexState) -> list[LedgerRecord]:
        """Make the records that changed with the table durable, in their present version.

        Ledgers that were deleted since the freeze are left out, even if the delete is still under way. A row
        after the tombstone would bring the ledger back, and the index must not have a tombstone before a
        checkpoint has removed the ledger's locations.
        """
        with self._writing, self._lock:
            changed = [(row, self._latest(row.ledger_id)) for row in frozen.rows.values()]
            end = committed.log_end or BEFORE_ALL_LOGS
            rows = [
                self._with_log_position(row, end)
                for before, row in changed
                if _deleted_up_to(row) == _deleted_up_to(before)
            ]
            if rows:
                self._append(rows, Need.FINISHING)
            return rows

    # ── tombstones that kill nothing ─────────────────────────────────────────────────────────────────

    def plain_tombstones(self) -> Mapping[int, bytes]:
        """Return a copy of the durable records that only say that a ledger was deleted, encoded."""
        return self._rows.rows.tombstones.copy()

    @property
    def plain_tombstones_count(self) -> int:
        """How many such records there are."""
        return len(self._rows.rows.tombstones)

    def purge(
        self, changes: Mapping[int, int], forget_in_index: Callable[[Collection[int]], IndexState]
    ) -> tuple[int, IndexState | None]:
        """Purge plain tombstones that kill nothing any more, given with their numbers.

        First from the file, durably, then from the index, and then from memory. One that was replaced since
        stays. Return how many were purged, and the state that `forget_in_index` has committed, if any.
        """
        # Held to the end, so that no row is written between the three steps.
        with self._writing:
            if self._is_closed:
                raise StoreClosed(self._rows.path)
            purged = [one for one, change in changes.items() if self._may_be_purged(one, change)]
            if not purged:
                return 0, None
            self._rows.rewrite_without(purged)
            after = forget_in_index(purged)
            self._rows.rows.remove(purged)
            return len(purged), after

    def _may_be_purged(self, ledger_id: int, change: int) -> bool:
        table, tables = self._rows.rows, self._slot.tables
        row = table.get(ledger_id) if ledger_id in table.tombstones else None
        return (
            row is not None
            and row.change == change
            # The numbers of later changes continue from the largest in the file.
            and change < table.highest_change
            # A delete under way, and a record that a checkpoint is going to write.
            and ledger_id not in self._known
            and not any(ledger_id in one.rows for one in tables.both)
        )

    def _with_log_position(self, row: LedgerRecord, end: LogPosition) -> LedgerRecord:
        """Return the record with its tombstone completed: records before the end of the logs, as it was
        before this checkpoint, belong to the deleted ledger."""
        tombstone = row.tombstone
        if tombstone is None or tombstone.log is not None:
            return row
        return self._numbered(replace(row, tombstone=replace(tombstone, log=end)))

    def _append_tombstones(self, rows: Sequence[LedgerRecord]) -> None:
        is_new_file = not self._rows.is_open
        try:
            self._write(rows, Need.FINISHING)
        except OSError as error:
            # A file that existed before may have the rows in spite of the error.
            if error.errno in NO_SPACE and is_new_file and not self.is_file_unknown:
                raise DiskFull(self._rows.path) from error
            raise

    def _append(self, rows: Sequence[LedgerRecord], need: Need) -> None:
        self._write(rows, need)
        for row in rows:
            if is_plain_tombstone(row):
                self._known.pop(row.ledger_id, None)
            else:
                self._known[row.ledger_id] = row

    def _prove_last_group(self) -> None:
        rounds = self._room.rounds
        try:
            self._rows.prove_last_group()
        except OSError as error:
            if self.is_file_unknown or not self._may_repeat(error, Need.FINISHING, rounds):
                raise
            self._rows.rewrite()  # a rewritten file proves all its groups durable

    def close(self) -> None:
        """Return when no thread writes rows any more.

        Called before the directory's lock is released, so that this store cannot replace the file of the next
        process that opens the directory.
        """
        with self._writing:
            self._is_closed = True

    def _write(self, rows: Sequence[LedgerRecord], need: Need) -> None:
        if self._is_closed:
            raise StoreClosed(self._rows.path)
        rounds = self._room.rounds
        try:
            self._rows.append(rows)
        except OSError as error:
            if self.is_file_unknown or not self._may_repeat(error, need, rounds):
                raise
            # Into a new file, because another sync of the old one would prove nothing.
            self._rows.append(rows)
        # After an error the file is a new one, with the known rows only.
        self._in_doubt.clear()

    def _may_repeat(self, error: OSError, need: Need, rounds: int) -> bool:
        """Return whether the rows may be written again, to a new file. A full disk needs room first."""
        return error.errno not in NO_SPACE or self._room.may_repeat(error, need, rounds)

    def _remember(self, row: LedgerRecord) -> LedgerRecord:
        row = self._numbered(row)
        self._known[row.ledger_id] = row
        return row

    def _numbered(self, row: LedgerRecord) -> LedgerRecord:
        return replace(row, change=self._next_change())

    def _next_change(self) -> int:
        self.last_change += 1
        return self.last_change

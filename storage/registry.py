"""What is known of the ledgers beside their entries: fences, keys, digest types, tombstones.

Kept in memory, a row for each ledger that is not plain; written to `ledgers.rows`, and to the index, which
holds the same rows. Three ways lead there, by what an answer waits for:

    settle     what a record in the journal has made durable: written down with the table of that time
    declare    before the first acknowledgement that depends on it, in `ledgers.rows`
    erase      before its answer, in `ledgers.rows` and in the index: either of them alone may rot

Turns and checkpoints both come here: each change of a row is made under one lock, each commit of the index
under another. Readers take none.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

from storage.codec.digest import Digester, master_key
from storage.entry import DigestType
from storage.errors import DiskFull, StoreClosed
from storage.position import LogPosition
from storage.row import LedgerRow, Tombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from storage.index import Index
    from storage.index_state import IndexState
    from storage.ledger_rows import LedgerRows
    from storage.location_cache import LocationCache
    from storage.memtable import Memtable, Slot
    from storage.position import JournalPosition

    Revision = Callable[[LedgerRow], LedgerRow]

PLAIN_KEY = master_key(b"")
"""The key of a ledger without a password."""

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})

NOWHERE = LogPosition(0, 0)
"""Before every record of every log."""


def plain(ledger_id: int) -> LedgerRow:
    """A ledger of which nothing is to be written down: CRC-32C, no password, open."""
    return LedgerRow(ledger_id, 0, DigestType.CRC32C, master_key=PLAIN_KEY)


def as_claimed(row: LedgerRow, claim: LedgerRow) -> LedgerRow:
    """The row with the key and the digest type that the ledger's first caller has brought."""
    return replace(row, digest_type=claim.digest_type, known_by=claim.known_by, master_key=claim.master_key)


class Registry:
    """The rows of all ledgers that are not plain. Any thread may ask; changes come one at a time."""

    def __init__(
        self,
        rows: LedgerRows,
        index: Index,
        cache: LocationCache,
        slot: Slot,
        new_lock: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._rows = rows
        self._index = index
        self._cache = cache
        self._slot = slot
        self._lock = new_lock()
        self.committing = new_lock()
        """To be held by who commits to the index, from the last look at what was erased."""
        self._is_whole = index.state().is_whole
        self._known: dict[int, LedgerRow] = dict(rows.rows)
        self.find = self._known.get
        """The row of a ledger that is not plain."""
        self._is_closed = False
        self._in_doubt: set[int] = set()
        """Ledgers of which the file may hold a row that was refused: until it is written anew."""
        self._last_change = max((row.change for row in self._known.values()), default=0)

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────

    def of(self, ledger_id: int) -> LedgerRow:
        """What is durable of a ledger; of one that nobody knows what every ledger begins with."""
        return self._known.get(ledger_id) or plain(ledger_id)

    def digest_type(self, ledger_id: int) -> DigestType | None:
        """How the ledger's entries are protected; `None` where nothing tells."""
        row = self._known.get(ledger_id)
        return DigestType.CRC32C if row is None else row.digest_type

    def digester(self, ledger_id: int) -> Digester | None:
        """What verifies the ledger's entries, where that takes no password; `None` where nothing tells."""
        digest_type = self.digest_type(ledger_id)
        return None if digest_type is None else Digester(digest_type)

    def may_lack(self, ledger_id: int) -> bool:
        """Whether what is not found may have been here all the same."""
        return not self._is_whole or self.of(ledger_id).in_limbo

    def contradicts(self, claim: LedgerRow) -> bool:
        """Whether, behind a crash, the ledger would not be what its first caller claims.

        A key that no row names is told by the journals; one that a row names they do not change. Such a row
        may be that of an add that was refused: nobody has the ledger yet.
        """
        if claim.ledger_id in self._in_doubt:
            return True
        row = self._known.get(claim.ledger_id)
        if row is None:
            return claim.digest_type is not DigestType.CRC32C
        is_other_key = row.master_key not in (None, PLAIN_KEY, claim.master_key)
        return row.digest_type is not claim.digest_type or is_other_key

    def knows(self, ledger_id: int) -> bool:
        """Whether anything of the ledger is not plain."""
        return ledger_id in self._known

    def existing(self) -> list[int]:
        """The ledgers that exist whether or not they have entries."""
        return [row.ledger_id for row in list(self._known.values()) if row.makes_a_ledger]

    @property
    def is_lost(self) -> bool:
        """Whether nobody knows which file of rows a power cut leaves: nothing may be written any more."""
        return self._rows.is_name_unknown

    @property
    def sequence(self) -> int:
        """The last durable group of `ledgers.rows`."""
        return self._rows.sequence

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────

    def settle(self, ledger_id: int, revise: Revision, table: Memtable) -> LedgerRow:
        """Revises a row by what is durable in the journal; it is written down when the table is."""
        with self._lock:
            before = self.of(ledger_id)
            row = revise(before)
            if row != before:
                row = self._know(row)
                table.put_row(row)
            return row

    def declare(self, revisions: Mapping[int, Revision]) -> None:
        """Revises rows, and makes them durable at once: something is about to depend on them.

        `DiskFull` when there is no space: nothing depends on them yet, should they stand all the same.
        """
        with self._lock:
            revised = [revise(self.of(ledger_id)) for ledger_id, revise in revisions.items()]
            try:
                self._append([self._numbered(row) for row in revised])
            except OSError as error:
                if error.errno in NO_SPACE and not self.is_lost:
                    # A crash may bring these to light: who claims such a ledger next says so in a new file.
                    self._in_doubt.update(revisions)
                    raise DiskFull(self._rows.path) from error
                raise

    def erase(self, ledger_id: int, upto: JournalPosition) -> None:
        """Deletes a ledger: whatever the journals hold of it before that place, and the logs by now, is dead.

        When it returns, that is durable, and no reader finds an entry any more. After an error nobody knows.
        """
        with self.committing, self._lock:
            row = replace(plain(ledger_id), change=self._next_change(), tombstone=Tombstone(upto))
            # The rows before the index: they are what an index is made of.
            self._append_surely(row)
            # And the index, before the answer: the last group of the rows could rot, and nobody would know.
            with self._index.change() as change:
                change.remove([ledger_id])
                change.put_rows([row])
                change.commit(None)
            # Before another has this id: what a table or the cache still knows is the deleted ledger's.
            self._slot.tables.drop(ledger_id)
            self._cache.forget({ledger_id})
            # Not before: what a reader finds until then it verifies as the deleted ledger's. And should the
            # index fail, the ledger is read as it was, until an opening has decided.
            self._known[ledger_id] = row
            self._slot.tables.active.put_row(row)

    def write_down(self, frozen: Memtable, committed: IndexState) -> list[LedgerRow]:
        """Makes the rows durable that have changed with the table; as they are now, which may be later.

        A tombstone that the table already had has outlived all that was written of its ledger: what was
        committed before this checkpoint is dead, and nothing behind it.
        """
        with self._lock:
            rows = [self._rested(row, committed.log_end or NOWHERE) for row in frozen.rows.values()]
            if rows:
                self._append(rows)
            return rows

    def _rested(self, frozen: LedgerRow, end: LogPosition) -> LedgerRow:
        row = self.of(frozen.ledger_id)
        tombstone = row.tombstone
        # Another one than the table had: that delete came later, and what it kills is being written just now.
        if tombstone is None or tombstone.log is not None or tombstone != frozen.tombstone:
            return row
        return self._numbered(replace(row, tombstone=replace(tombstone, log=end)))

    def still_standing(self, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
        """Those that were not erased since they were written down. Ask while `committing`."""
        return [row for row in rows if self.of(row.ledger_id).tombstone == row.tombstone]

    def _append_surely(self, row: LedgerRow) -> None:
        is_sure = not self._rows.is_open
        try:
            self._write([row])
        except OSError as error:
            # In a file that was there already the row may stand all the same: nobody knows then.
            if error.errno in NO_SPACE and is_sure and not self.is_lost:
                raise DiskFull(self._rows.path) from error
            raise

    def _append(self, rows: Sequence[LedgerRow]) -> None:
        self._write(rows)
        self._known |= {row.ledger_id: row for row in rows}

    def close(self) -> None:
        """Returns when no row is being written any more. Before the lock is let go: the next who opens the
        directory must not find its file replaced by one of ours."""
        with self._lock:
            self._is_closed = True

    def _write(self, rows: Sequence[LedgerRow]) -> None:
        if self._is_closed:
            raise StoreClosed(self._rows.path)
        try:
            self._rows.append(rows)
        except OSError as error:
            if self.is_lost or error.errno in NO_SPACE:
                raise
            self._rows.append(rows)  # into a new file: of the old one nobody knows what a sync would prove
        # After an error the file is a new one, and only what is known has gone into it.
        self._in_doubt.clear()

    def _know(self, row: LedgerRow) -> LedgerRow:
        row = self._numbered(row)
        self._known[row.ledger_id] = row
        return row

    def _numbered(self, row: LedgerRow) -> LedgerRow:
        return replace(row, change=self._next_change())

    def _next_change(self) -> int:
        self._last_change += 1
        return self._last_change

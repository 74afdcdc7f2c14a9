"""One ledger of a view, with the reading methods of `Ledger`."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NoReturn

from storage.commit.pending import confirmed_by, confirmed_without_entries
from storage.entry.digest import Digester
from storage.entry.model import NO_ENTRY, DigestType
from storage.entry.read_result import MISSING, Unreadable
from storage.errors import (
    AnswerUnknown,
    DigestDiffers,
    DigestUnknown,
    EntryTruncated,
    NoSuchEntry,
    NoSuchLedger,
    Unauthorized,
)
from storage.ledgers.state import LedgerState, truncated_end
from storage.read.points import unreadable
from storage.validation import check_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.view.view import View
    from storage.entry.batch import EntryBatch
    from storage.entry.credentials import Access
    from storage.entry.model import Entry


class ViewLedger:
    """One ledger of a view. After `View.refresh` it reads the refreshed content."""

    __slots__ = ("_access", "_view", "id")

    def __init__(self, ledger_id: int, access: Access, view: View) -> None:
        check_id("ledger", ledger_id)
        self.id = ledger_id
        self._access = access
        self._view = view

    def __repr__(self) -> str:
        return f"<ViewLedger {self.id} of {self._view.path}>"

    # ── entries ──────────────────────────────────────────────────────────────────────────────────────

    def read(self, entry_id: int) -> Entry:
        """Return the entry, its digest verified.

        `NoSuchEntry` if there is none, `EntryUnreadable` if it is damaged.
        `AnswerUnknown` if there may have been one: entries were lost when the index was rebuilt.
        """
        check_id("entry", entry_id)
        reader = self._view.snapshot.reader
        # A missing entry needs no digest: report it as missing first.
        if not reader.has(self.id, entry_id):
            self._missing(entry_id)
        entry = reader.entry(self.id, entry_id, self._digester())
        if isinstance(entry, Unreadable):
            raise unreadable(self.id, entry_id, entry)
        if entry is MISSING:
            self._missing(entry_id)
        return entry

    def entries(self, first: int | None = None, last: int | None = None) -> Iterator[Entry]:
        """Return the entries from `first` to `last`, both included, or to the end; read ahead and verified.

        Without `first` they begin at `first_entry_id`; one that was truncated raises `EntryTruncated`.
        Lazy, in bounded memory. Without `last` they end where the ledger ended when the first one was read. A
        missing entry raises `NoSuchEntry` when it is reached.
        """
        return chain.from_iterable(found.entries() for found in self._batches(first, last))

    def payloads(self, first: int | None = None, last: int | None = None) -> Iterator[bytes]:
        """Return only the payloads, which is the fastest way to read many; otherwise like `entries`."""
        return chain.from_iterable(run for found in self._batches(first, last) for run in found.payloads)

    def _batches(self, first: int | None, last: int | None) -> Iterator[EntryBatch]:
        first = self.first_entry_id if first is None else first
        check_id("entry", first)
        end = self.last_entry_id
        if end is None and not self.exists:
            self._missing()
        if last is not None:
            check_id("entry", max(last, 0))
        elif end is None:
            return
        at, stop = first, end if last is None else last
        assert stop is not None, "a ledger without entries ends above"
        while at <= stop:
            for found in self._batches_of_snapshot(at, stop):
                at += found.length
                yield found

    def _batches_of_snapshot(self, first: int, last: int) -> Iterator[EntryBatch]:
        """Yield batches until a refresh replaces the snapshot; the caller reads the rest from the new one."""
        snapshot = self._view.snapshot
        scan = snapshot.range_reader.batches(self.id, first, last, self._digester())
        while snapshot is self._view.snapshot:
            try:
                found = next(scan, None)
            except NoSuchEntry as error:
                self._missing(error.entry_id)
            if found is None:
                return
            yield found

    def entry_ids(self) -> list[range]:
        """Return the ids of its entries, ascending, in ranges without a gap."""
        return self._view.snapshot.reader.entry_ids(self.id)

    # ── the ledger ───────────────────────────────────────────────────────────────────────────────────

    @property
    def exists(self) -> bool:
        """Whether the ledger exists: it has an entry, is fenced, or has an explicit last add confirmed."""
        return self._view.exists(self.id)

    @property
    def last_entry_id(self) -> int | None:
        """The id of the last entry, even if it was truncated; `None` if there never was one."""
        return self._view.last_id(self.id)

    @property
    def first_entry_id(self) -> int:
        """The first id that was not truncated: 0 if none was. There need not be an entry with it yet."""
        return self._view.metadata(self.id).first_entry_id

    @property
    def last_add_confirmed(self) -> int:
        """The id up to which no entry is missing or the writer has confirmed; -1 if there is none."""
        snapshot = self._view.snapshot
        facts = snapshot.metadata.of(self.id)
        end = snapshot.reader.end(self.id, snapshot.metadata.digester(self.id))
        tail = LedgerState(self.id, truncated_end(facts, end), facts)
        found = NO_ENTRY
        if self.last_entry_id is not None:
            found = snapshot.reader.last_add_confirmed(tail, facts.first_entry_id, self._digester())
        return max(found, confirmed_without_entries(facts))

    @property
    def explicit_lac(self) -> int:
        """The last add confirmed that was set explicitly; -1 while none was."""
        return confirmed_by(self._view.metadata(self.id))

    @property
    def is_fenced(self) -> bool:
        """Whether the ledger is closed to its writer. `AnswerUnknown` if that cannot be told."""
        fenced = self._view.metadata(self.id).fenced
        if not fenced and self._view.may_have_lost_entries(self.id):
            raise AnswerUnknown(self.id)
        return fenced

    @property
    def digest_type(self) -> DigestType | None:
        """The digest type of its entries; `None` if it is unknown."""
        return self._view.snapshot.metadata.digest_type(self.id)

    def _digester(self) -> Digester:
        wanted, known = self._access.digest_type, self.digest_type
        if known is not None and wanted not in (None, known):
            raise DigestDiffers(self.id, known.name)
        digest_type = known or wanted
        if digest_type is None:
            raise DigestUnknown(self.id)
        # With another key every digest would be wrong, and good entries would be reported as damaged.
        key = self._view.metadata(self.id).master_key
        if digest_type is DigestType.MAC and key not in (None, self._access.master_key):
            raise Unauthorized(self.id)
        return Digester(digest_type, self._access.mac_key)

    def _missing(self, entry_id: int | None = None) -> NoReturn:
        """Raise the error for a ledger or an entry that was not found."""
        if entry_id is not None and entry_id < self.first_entry_id:
            raise EntryTruncated(self.id, entry_id, self.first_entry_id)
        if self._view.may_have_lost_entries(self.id):
            raise AnswerUnknown(self.id, entry_id)
        if entry_id is None or not self.exists:
            raise NoSuchLedger(self.id)
        raise NoSuchEntry(self.id, entry_id)

"""A ledger of a store, as its users see it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NoReturn, cast

from storage.commit.pending import PendingEntries, confirmed_by, confirmed_without_entries
from storage.entry import format as entry_format
from storage.entry import record_format as record_codec
from storage.entry.digest import Digester
from storage.entry.model import ID_MAX, NO_ENTRY, DigestType, Entry
from storage.entry.read_result import MISSING, Missing, Unreadable
from storage.errors import (
    AnswerUnknown,
    DigestDiffers,
    DigestUnknown,
    EntryTruncated,
    LacBeyondEnd,
    NoSuchEntry,
    NoSuchLedger,
    Unauthorized,
)
from storage.follower import Follower
from storage.ledgers.state import EMPTY
from storage.read.points import unreadable
from storage.validation import OVERHEAD_MAX, check_id, check_integer, checked_payload, overhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from storage.engine import Engine
    from storage.entry.batch import EntryBatch
    from storage.entry.credentials import Access
    from storage.ledgers.state import LedgerState
    from storage.validation import Payload


_CRC32C_TYPE = DigestType.CRC32C  # looked up once, because an enum's member costs as much as a call
_CRC32C = Digester(_CRC32C_TYPE)


class Ledger:
    """One ledger of a store: append to it, read it, follow it. Cheap to make; threads may share it."""

    __slots__ = (
        "_access",
        "_commit",
        "_engine",
        "_is_plain",
        "_logged",
        "_notice_submit",
        "_row",
        "_slot",
        "_small",
        "_state",
        "_store",
        "_store_state",
        "_stored",
        "id",
    )

    def __init__(
        self,
        ledger_id: int,
        access: Access,
        engine: Engine,
        notice_submit: Callable[[], None],
        store: object,
    ) -> None:
        """`store` is kept so that it is not collected, and closed, while the program uses this ledger."""
        check_id("ledger", ledger_id)
        self.id = ledger_id
        self._access = access
        self._store = store
        self._notice_submit = notice_submit
        self._engine = engine
        self._commit = engine.committer.commit
        self._state: LedgerState | None = None
        """`None` until the first use. A store has one state for each ledger."""
        self._store_state = engine.store_state
        self._row = engine.metadata.find
        self._slot = engine.slot
        self._stored, self._logged = engine.reader.entry, engine.reader.logged
        self._is_plain = access.digest_type in (None, DigestType.CRC32C)
        """Whether its caller has asked for no other digest type than nearly every ledger has."""
        self._small = engine.config.entry_size_max - OVERHEAD_MAX
        """A payload up to here is never too large, however its entry is protected."""

    def __repr__(self) -> str:
        return f"<Ledger {self.id} of {self._engine.path}>"

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    def append(self, payload: Payload) -> int:
        """Append the payload; return the id of the new entry when a crash can no longer lose it."""
        if not self._store_state.is_open:
            self._store_state.check_writes()
        if not (type(payload) is bytes and len(payload) <= self._small):
            payload = self._checked(payload)
        work = PendingEntries(self._state or self._found_state(), self._access, (payload,))
        self._commit(work)
        return work.first_id

    def append_many(self, payloads: Iterable[Payload]) -> range:
        """Append the payloads; return their consecutive ids when a crash can no longer lose any of them.

        All share one sync. If their sizes add up to `group_size_max` or less, a crash before the answer
        leaves all of them or none. A crash or a full disk may leave only the first ones of a larger batch.
        """
        self._store_state.check_reads()
        checked = self._checked_all(list(payloads))
        if not checked:
            return range(0)
        if len(checked) >= record_codec.MANY:
            record_codec.many_at_once()  # loaded before other threads wait for this add
        work = PendingEntries(self._found_state(), self._access, checked)
        self._commit(work)
        return range(work.first_id, work.last_id + 1)

    def submit(self, payload: Payload) -> Future[int]:
        """Append the payload; return a future of its id, done when a crash can no longer lose the entry.

        Entries get their ids in the order of the calls. All adds of the next `group_wait_s` share one sync.
        """
        self._store_state.check_reads()
        payloads = (self._checked(payload),)
        future = self._engine.submit(PendingEntries(self._found_state(), self._access, payloads))
        self._notice_submit()
        return future

    def _checked(self, payload: Payload) -> bytes:
        if type(payload) is bytes and len(payload) <= self._small:
            return payload
        return checked_payload(payload, self._engine.config, self._overhead())

    def _checked_all(self, payloads: list[Payload]) -> Sequence[bytes]:
        # The usual case first, a third of the time: each is bytes, and the largest is not too large.
        if set(map(type, payloads)) == {bytes} and max(map(len, payloads)) <= self._small:
            return cast("list[bytes]", payloads)
        return [self._checked(payload) for payload in payloads]

    def _overhead(self) -> int:
        digest_type = self._access.digest_type or self._engine.metadata.digest_type(self.id)
        return overhead(digest_type or DigestType.CRC32C)

    # ── taking it over, and giving it up ─────────────────────────────────────────────────────────────

    def fence(self) -> int | None:
        """Close the ledger to appends for ever; return the id of its last entry, `None` if it has none.

        Returns when no crash can undo it. Everything appended before can be read by then. Later appends raise
        `LedgerFenced`, except those of `Store.bookie.recover`.
        """
        self._store_state.check_reads()
        self._engine.control.fence(self.id, self._access)
        return self.last_entry_id

    def set_explicit_lac(self, last_add_confirmed: int) -> None:
        """Say up to which entry the writer knows the ledger to be complete; return when that is durable.

        A number that is not larger than the one before changes nothing. `LacBeyondEnd` where it is larger
        than `last_entry_id`, because a last add confirmed never goes back and would promise readers entries
        that do not exist for ever. `Bookie.set_explicit_lac` does not check that.
        """
        self._store_state.check_reads()
        check_integer("last add confirmed", last_add_confirmed)
        if last_add_confirmed > NO_ENTRY:
            last_entry_id = self.last_entry_id
            if last_entry_id is None or last_add_confirmed > last_entry_id:
                raise LacBeyondEnd(self.id, last_add_confirmed, last_entry_id)
        packet = entry_format.encode_lac(self.id, last_add_confirmed, self._digester())
        self._engine.control.set_explicit_lac(self.id, self._access, packet)

    def delete(self) -> None:
        """Delete the ledger; return when no crash can bring it back. `NoSuchLedger` if there is none.

        Its id is then free: the next append with it creates another ledger.
        """
        self._store_state.check_reads()
        if not self._engine.control.delete(self.id, self._access):
            raise NoSuchLedger(self.id)

    def truncate(self, before: int) -> None:
        """Give up the entries before that one; return when no crash can bring them back. The ids go on.

        `before` may be any id up to the one after the last durable entry, which leaves no entry; a larger one
        is `InvalidEntry`. A truncation only goes forward: one that does not go beyond the last one has no
        effect. From now on reading an entry before it raises `EntryTruncated`, a kind of `NoSuchEntry`, and
        `first_entry_id` returns `before`. The last entry id, the last add confirmed and the length of the
        ledger stay as they were, and so does a fence, which does not prevent truncation. A replica that is
        added before it later is truncated too. Their space comes back when the entry logs are collected.
        `DiskFull` if there is no space: the entries are there, but a crash may truncate them. `NoSuchLedger`
        if there is none. If the ledger is deleted and made again, the new one begins at 0.
        """
        self._store_state.check_reads()
        check_id("entry", before)
        self._engine.truncate(self.id, before, self._access)

    @property
    def is_fenced(self) -> bool:
        """Whether the ledger is closed to its writer. `AnswerUnknown` if that cannot be told."""
        self._store_state.check_reads()
        if not (
            fenced := self._engine.metadata.of(self.id).fenced
        ) and self._engine.metadata.may_have_lost_entries(self.id):
            raise AnswerUnknown(self.id)
        return fenced

    @property
    def explicit_lac(self) -> int:
        """The last add confirmed that was set explicitly; -1 if none was."""
        self._store_state.check_reads()
        return confirmed_by(self._engine.metadata.of(self.id))

    @property
    def digest_type(self) -> DigestType | None:
        """The digest type of its entries; `None` if it is not known yet."""
        self._store_state.check_reads()
        return self._engine.metadata.digest_type(self.id)

    @property
    def exists(self) -> bool:
        """Whether the ledger exists: it has an entry, is fenced, or has an explicit last add confirmed."""
        with self._store_state.reading():
            return self._engine.exists(self.id)

    def _found_state(self) -> LedgerState:
        if self._state is None:
            self._state = self._engine.states.of(self.id)
        return self._state

    def _digester(self) -> Digester:
        """The digester of the ledger: it verifies entries that are read, and signs what is added."""
        digest_type, access = self._engine.metadata.digest_type(self.id), self._access
        if digest_type is DigestType.CRC32C and access.digest_type in (None, digest_type):
            return _CRC32C
        if access.digest_type not in (None, digest_type):
            digest_type = self._asked_for(access.digest_type)
        if digest_type is None:
            raise DigestUnknown(self.id)
        if digest_type is DigestType.MAC:
            self._check_key()
        return Digester(digest_type, access.mac_key)

    def _asked_for(self, asked: DigestType | None) -> DigestType | None:
        """The digest type that was asked for, unless the ledger is known to have another."""
        state = self._found_state()
        recorded = state.facts.digest_type if state.is_claimed else asked
        if recorded not in (None, asked):
            raise DigestDiffers(self.id, recorded.name)
        return asked

    def _check_key(self) -> None:
        # With another key every digest is wrong, and good entries would be called damaged.
        state = self._found_state()
        if state.is_claimed and state.facts.master_key not in (None, self._access.master_key):
            raise Unauthorized(self.id)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def read(self, entry_id: int) -> Entry:
        """Return the entry, digest verified. `NoSuchEntry` if none exists, `EntryUnreadable` if damaged."""
        # Nearly every read ends here; everything else is handled below.
        if self._is_plain and self._store_state.gone is None:
            tables = self._slot.tables
            entries = tables.active.find(self.id)
            if entries is not None and not entries.strays:
                last = entries.read_last
                if last is not None and last.entry_id == entry_id:
                    return last
            row = self._row(self.id)
            # A bool would be found as entry 0 or 1. Checked only here, so that the common case stays fast.
            is_id = entry_id is not True and entry_id is not False
            if is_id and (row is None or row.digest_type is _CRC32C_TYPE):
                try:
                    if entries is None and tables.frozen is None:
                        found = self._logged(self.id, entry_id)
                    else:
                        found = self._stored(self.id, entry_id, _CRC32C)
                except OSError:
                    self._store_state.check_reads()  # raises if the store was closed during the read
                    raise
                if type(found) is Entry:
                    return found
                self._refuse(entry_id, found)
        self._store_state.check_reads()
        check_id("entry", entry_id)
        with self._store_state.reading():
            found = self._find(entry_id)
        if not found:
            self._refuse(entry_id, found)
        return found

    def _refuse(self, entry_id: int, found: Entry | Missing | Unreadable) -> NoReturn:
        """Raise the error that tells why an entry could not be read."""
        state = self._state or self._engine.states.known(self.id)
        if (
            found is MISSING
            and state is not None
            and state.end.entry_id != NO_ENTRY
            and type(entry_id) is int
            and 0 <= entry_id <= ID_MAX
            and self._store_state.gone is None
            and self._engine.metadata.is_plain_and_whole(self.id)
        ):
            raise NoSuchEntry(self.id, entry_id)
        check_id("entry", entry_id)
        with self._store_state.reading():
            if isinstance(found, Unreadable):
                raise unreadable(self.id, entry_id, found)
            self._engine.raise_missing(self.id, entry_id)

    def _find(self, entry_id: int) -> Entry | Missing | Unreadable:
        try:
            digester = self._digester()
        except (DigestUnknown, DigestDiffers, Unauthorized):
            # A missing entry needs no digest: report it as missing first.
            if not self._engine.reader.has(self.id, entry_id):
                return MISSING
            raise
        return self._engine.reader.entry(self.id, entry_id, digester)

    def entry_ids(self) -> list[range]:
        """Return the ids of its entries, ascending, as ranges without gaps."""
        with self._store_state.reading():
            return self._engine.reader.entry_ids(self.id)

    def entries(self, first: int | None = None, last: int | None = None) -> Iterator[Entry]:
        """Return the entries from `first` to `last`, both included, or to the end; read ahead and verified.

        Without `first` they begin at `first_entry_id`. Lazy, in bounded memory. A missing entry raises
        `NoSuchEntry` when the iteration reaches it. A `first` that was truncated raises `EntryTruncated`, and
        so does a truncation that overtakes the iteration: a reader of a log never skips entries unnoticed.
        """
        return chain.from_iterable(found.entries() for found in self._batches(first, last))

    def payloads(self, first: int | None = None, last: int | None = None) -> Iterator[bytes]:
        """Return only the payloads, which is the fastest way to read many; otherwise like `entries`."""
        return chain.from_iterable(run for found in self._batches(first, last) for run in found.payloads)

    def _batches(self, first: int | None, last: int | None) -> Iterator[EntryBatch]:
        self._store_state.check_reads()
        if first is not None:
            check_id("entry", first)
        end = self.last_entry_id
        if end is None and not self.exists:
            self._engine.raise_missing(self.id)
        if last is not None:
            check_id("entry", max(last, 0))
        end = NO_ENTRY if end is None else end
        batches, stop, has_begun = self._engine.range_reader.batches, end if last is None else last, False
        while True:
            start = self.first_entry_id if first is None else first
            scan = batches(self.id, start, stop, self._digester())
            try:
                while (found := self._next(scan)) is not None:
                    has_begun = True
                    yield found
            except EntryTruncated:
                if has_begun or first is not None:
                    raise
                # It was truncated since the first id was looked up: begin at the present one.
            else:
                return

    def _next(self, scan: Iterator[EntryBatch]) -> EntryBatch | None:
        # Checked for each batch, because the store may have been closed since the last one.
        with self._store_state.reading():
            try:
                return next(scan, None)
            except NoSuchEntry as error:
                self._engine.raise_missing(self.id, error.entry_id)

    def follow(self, from_entry: int | None = None, *, idle_timeout_s: float | None = None) -> Follower:
        """Return an iterator over the entries from that id on, and over each new one as it becomes durable.

        Without an id it begins at the first entry that was not truncated. It skips no id: where one is
        missing, it waits, and where the next one was truncated, it raises `EntryTruncated`. It ends when
        `Follower.stop` or `Store.stop_followers` is called, when the ledger is deleted or the store
        closed, and when no entry has come for `idle_timeout_s`.
        """
        if from_entry is not None:
            check_id("entry", from_entry)
        return Follower(self, self._available, self._engine, from_entry, idle_timeout_s)

    def _available(self, first: int) -> Iterator[EntryBatch]:
        """Return the entries from that id on, up to the first that is missing."""
        end = self.last_entry_id
        try:
            scan = self._engine.range_reader.batches(
                self.id, first, NO_ENTRY if end is None else end, self._digester()
            )
            while (found := self._next(scan)) is not None:
                yield found
        except EntryTruncated:
            raise  # it will not come, so that it must not be waited for
        except (NoSuchEntry, NoSuchLedger):
            return

    # ── where it ends ────────────────────────────────────────────────────────────────────────────────

    @property
    def last_entry_id(self) -> int | None:
        """The id of the last durable entry, even if it was truncated; `None` if there never was one."""
        self._store_state.check_reads()
        state = self._engine.states.known(self.id)
        if state is None:
            with self._store_state.reading():
                return self._engine.last_id(self.id)
        end = state.end
        return None if end == EMPTY else end.entry_id

    @property
    def first_entry_id(self) -> int:
        """The first id that was not truncated: 0 if none was. There need not be an entry with it yet."""
        self._store_state.check_reads()
        return self._engine.metadata.first_entry_id(self.id)

    @property
    def last_add_confirmed(self) -> int:
        """The id up to which every entry is durable, or confirmed by its writer; -1 if there is none.

        It never decreases, not even when the store is opened again.
        """
        with self._store_state.reading():
            row = self._engine.metadata.of(self.id)
            state, digester = self._found_state(), self._digester()
            found = self._engine.reader.last_add_confirmed(state, row.first_entry_id, digester)
            return max(found, confirmed_without_entries(row))

    def wait_for_last_add_confirmed(self, beyond: int, timeout_s: float | None = None) -> int:
        """Wait until the last add confirmed is larger than `beyond`, and return it.

        Returns the present one when `timeout_s` is over, and at once where it will not grow any more: when
        the ledger is fenced or was deleted, the store closed or failed, or `Store.stop_followers` was called.
        """
        return self._engine.wait_for_lac(self.id, lambda: self.last_add_confirmed, beyond, timeout_s)

"""A ledger of a store, as its users see it."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, cast

from storage.codec import entry as entry_codec
from storage.codec import record as record_codec
from storage.codec.digest import Digester
from storage.entry import ID_MAX, NO_ENTRY, DigestType, Entry
from storage.errors import (
    AnswerUnknown,
    DigestDiffers,
    DigestUnknown,
    EntryUnreadable,
    ForkedStore,
    NoSuchEntry,
    NoSuchLedger,
    StoreClosed,
    Unauthorized,
)
from storage.presence import exists, missing, waited_for
from storage.request import OVERHEAD_MAX, check_id, checked_payload, overhead
from storage.tail import EMPTY
from storage.warden import confirmed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from storage.access import Access
    from storage.codec.passage import Passage
    from storage.parts import Parts
    from storage.request import Payload
    from storage.tail import Tail


_CRC32C_TYPE = DigestType.CRC32C  # looked up once: for an enum's member that costs as much as a call
_CRC32C = Digester(_CRC32C_TYPE)


class Ledger:
    """One ledger of a store: append to it, read it, follow it. Cheap to make, and shared like its store."""

    __slots__ = (
        "_access",
        "_adding",
        "_append_alone",
        "_end",
        "_is_plain",
        "_latch",
        "_logged",
        "_notice_submit",
        "_parts",
        "_plain",
        "_row",
        "_slot",
        "_small",
        "id",
    )

    def __init__(
        self, ledger_id: int, access: Access, parts: Parts, notice_submit: Callable[[], None]
    ) -> None:
        check_id("ledger", ledger_id)
        self.id = ledger_id
        self._access = access
        self._notice_submit = notice_submit
        self._parts = parts
        self._adding = parts.adding
        self._append_alone = parts.adding.alone.append
        self._end: Tail | None = None
        """Where it ends, as soon as anybody has asked: a store has one tail for each ledger."""
        self._latch = parts.latch
        self._row = parts.registry.find
        self._slot = parts.slot
        self._plain, self._logged = parts.reading.plain, parts.reading.logged
        self._is_plain = access.digest_type in (None, DigestType.CRC32C)
        """Whether its caller has asked for no other digest type than nearly every ledger has."""
        self._small = parts.config.entry_size_max - OVERHEAD_MAX
        """A payload up to here is never too large, however its entry is protected."""

    def __repr__(self) -> str:
        return f"<Ledger {self.id} of {self._parts.path}>"

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    def append(self, payload: Payload) -> int:
        """The id of the new entry, when a crash can no longer lose it."""
        if not self._latch.is_open:
            self._latch.check_writes()
        if not (type(payload) is bytes and len(payload) <= self._small):
            payload = self._checked(payload)
        tail, access, payloads = self._end or self._tail(), self._access, (payload,)
        entry_id = self._append_alone(tail, access, payloads)
        return self._adding.append(tail, access, payloads) if entry_id is None else entry_id

    def append_many(self, payloads: Iterable[Payload]) -> range:
        """The ids of the new entries, consecutive, when a crash can no longer lose any of them.

        One sync for all. If together they are no more than `group_size_max`, a crash before the answer
        leaves all of them or none; of more than that it, or a full disk, may leave the first ones.
        """
        self._latch.check_reads()
        checked = self._checked_all(list(payloads))
        if not checked:
            return range(0)
        if len(checked) >= record_codec.MANY:
            record_codec.many_at_once()  # loaded before anybody waits for this add
        tail, access = self._tail(), self._access
        first_id = self._append_alone(tail, access, checked)
        if first_id is None:
            first_id = self._adding.append(tail, access, checked)
        return range(first_id, first_id + len(checked))

    def submit(self, payload: Payload) -> Future[int]:
        """The id of the new entry as a future, done when a crash can no longer lose it.

        Entries get their ids in the order of the calls. The sync is shared with whatever else is added
        within `group_wait_s`.
        """
        self._latch.check_reads()
        future = self._adding.submit(self.id, self._access, self._checked(payload))
        self._notice_submit()
        return future

    def _checked(self, payload: Payload) -> bytes:
        if type(payload) is bytes and len(payload) <= self._small:
            return payload
        return checked_payload(payload, self._parts.config, self._overhead())

    def _checked_all(self, payloads: list[Payload]) -> Sequence[bytes]:
        # The usual case first, a third of the time: each is bytes, and the largest is not too large.
        if set(map(type, payloads)) == {bytes} and max(map(len, payloads)) <= self._small:
            return cast("list[bytes]", payloads)
        return [self._checked(payload) for payload in payloads]

    def _overhead(self) -> int:
        digest_type = self._access.digest_type or self._parts.registry.digest_type(self.id)
        return overhead(digest_type or DigestType.CRC32C)

    # ── taking it over, and giving it up ─────────────────────────────────────────────────────────────

    def fence(self) -> int | None:
        """Closes the ledger to its writer for ever; the id of the last entry then, `None` if it has none.

        Returns when no crash can open it again. What was added before can be read by then; adds that come
        later are refused with `LedgerFenced`, but for those of `Store.bookie.recover`.
        """
        self._latch.check_reads()
        self._parts.warden.fence(self.id, self._access)
        return self.last_entry_id

    def set_explicit_lac(self, last_add_confirmed: int) -> None:
        """Says up to where the writer knows the ledger to be complete; returns when that is durable.

        One that is not larger than what was said before changes nothing.
        """
        self._latch.check_reads()
        packet = entry_codec.encode_lac(self.id, last_add_confirmed, self._digester())
        self._parts.warden.confirm(self.id, self._access, packet)

    def delete(self) -> None:
        """Deletes the ledger; returns when no crash can bring it back. `NoSuchLedger` if there is none.

        Its id is free then: the next add makes another ledger.
        """
        self._latch.check_reads()
        if not self._parts.warden.delete(self.id, self._access):
            raise NoSuchLedger(self.id)

    @property
    def is_fenced(self) -> bool:
        """Whether the ledger is closed to its writer. `AnswerUnknown` if that cannot be told."""
        self._latch.check_reads()
        if not (fenced := self._parts.registry.of(self.id).fenced) and self._parts.registry.may_lack(self.id):
            raise AnswerUnknown(self.id)
        return fenced

    @property
    def explicit_lac(self) -> int:
        """What was set explicitly; -1 while nothing was."""
        self._latch.check_reads()
        return confirmed_by(self._parts.registry.of(self.id))

    @property
    def digest_type(self) -> DigestType | None:
        """How its entries are protected; `None` where nothing tells."""
        self._latch.check_reads()
        return self._parts.registry.digest_type(self.id)

    @property
    def exists(self) -> bool:
        """Whether there is one: it has an entry, is fenced, or has an explicit last add confirmed."""
        with self._latch.reading():
            return exists(self._parts, self.id)

    def _tail(self) -> Tail:
        if self._end is None:
            self._end = self._parts.tails.of(self.id)
        return self._end

    def _digester(self) -> Digester:
        """How to verify what is read, and to protect what is said."""
        digest_type, access = self._parts.registry.digest_type(self.id), self._access
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
        tail = self._tail()
        recorded = tail.facts.digest_type if tail.is_claimed else asked
        if recorded not in (None, asked):
            raise DigestDiffers(self.id, recorded.name)
        return asked

    def _check_key(self) -> None:
        # With another key every digest is wrong, and good entries would be called damaged.
        tail = self._tail()
        if tail.is_claimed and tail.facts.master_key not in (None, self._access.master_key):
            raise Unauthorized(self.id)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def read(self, entry_id: int) -> Entry:
        """The entry, its digest verified. `NoSuchEntry` if there is none, `EntryUnreadable` if damaged."""
        # Nearly every read ends here; what is out of the ordinary is found out below.
        if self._is_plain and self._latch.gone is None:
            tables = self._slot.tables
            entries = tables.active.find(self.id)
            if entries is not None and not entries.strays:
                last = entries.read_last
                if last is not None and last.entry_id == entry_id:
                    return last
            row = self._row(self.id)
            if row is None or row.digest_type is _CRC32C_TYPE:
                is_logged = entries is None and tables.frozen is None
                entry = (self._logged if is_logged else self._plain)(self.id, entry_id)
                if entry is not None:
                    return entry
        return self._read(entry_id)

    def _read(self, entry_id: int) -> Entry:
        self._latch.check_reads()
        check_id("entry", entry_id)
        try:
            entry = self._find(entry_id)
        except (EntryUnreadable, OSError):
            self._latch.check_reads()  # its files were closed while it read
            raise
        return entry if entry is not None else missing(self._parts, self.id, entry_id)

    def _find(self, entry_id: int) -> Entry | None:
        try:
            digester = self._digester()
        except (DigestUnknown, DigestDiffers, Unauthorized):
            # Of what is not there nobody has to know how it would be verified.
            if not self._parts.reading.has(self.id, entry_id):
                return None
            raise
        return self._parts.reading.entry(self.id, entry_id, digester)

    def entry_ids(self) -> list[range]:
        """The ids of its entries, ascending, in ranges without a gap."""
        with self._latch.reading():
            return self._parts.reading.entry_ids(self.id)

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[Entry]:
        """The entries from `first` to `last`, both included, or to the end; read ahead and verified.

        Lazy, in bounded memory. One that is missing raises `NoSuchEntry` when its turn comes.
        """
        return chain.from_iterable(found.entries() for found in self._passages(first, last))

    def payloads(self, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """The payloads alone: the fastest way to read many."""
        return chain.from_iterable(run for found in self._passages(first, last) for run in found.payloads)

    def _passages(self, first: int, last: int | None) -> Iterator[Passage]:
        self._latch.check_reads()
        check_id("entry", first)
        end = self.last_entry_id
        if end is None and not self.exists:
            missing(self._parts, self.id)
        if last is not None:
            check_id("entry", max(last, 0))
        end = NO_ENTRY if end is None else end
        scan = self._parts.scanning.passages(self.id, first, end if last is None else last, self._digester())
        while (found := self._next(scan)) is not None:
            yield found

    def _next(self, scan: Iterator[Passage]) -> Passage | None:
        # For each again: what it would come from may be closed by now.
        with self._latch.reading():
            try:
                return next(scan, None)
            except NoSuchEntry as error:
                missing(self._parts, self.id, error.entry_id)

    def follow(self, from_entry: int = 0, *, idle_timeout_s: float | None = None) -> Iterator[Entry]:
        """The entries from there on, and then each new one as it becomes durable.

        Waits where an id is missing: nothing is passed over. Ends when the store is closed, or when nothing
        has come for `idle_timeout_s`.
        """
        check_id("entry", from_entry)
        at = from_entry
        with suppress(StoreClosed, ForkedStore):
            while at <= ID_MAX:
                for found in self._available(at):
                    for entry in found.entries():
                        yield entry
                        at = entry.entry_id + 1
                if at <= ID_MAX and not self._wait_for(at, idle_timeout_s):
                    return

    def _available(self, first: int) -> Iterator[Passage]:
        end = self.last_entry_id
        # A missing one ends what is available; who follows waits there.
        with suppress(NoSuchEntry):
            scan = self._parts.scanning.passages(
                self.id, first, NO_ENTRY if end is None else end, self._digester()
            )
            while (found := self._next(scan)) is not None:
                yield found

    def _wait_for(self, entry_id: int, timeout: float | None) -> bool:
        has = self._parts.reading.has
        with self._latch.reading():
            came = self._parts.committer.news.wait_for(
                lambda: self._latch.is_closed or has(self.id, entry_id), timeout
            )
        return came and not self._latch.is_closed

    # ── where it ends ────────────────────────────────────────────────────────────────────────────────

    @property
    def last_entry_id(self) -> int | None:
        """The largest id of a durable entry; `None` while there is none."""
        self._latch.check_reads()
        tail = self._parts.tails.known(self.id)
        if tail is None:
            with self._latch.reading():
                return self._parts.reading.last_id(self.id)
        end = tail.end
        return None if end == EMPTY else end.entry_id

    @property
    def last_add_confirmed(self) -> int:
        """Up to here every entry is durable, or its writer has said so; -1 while there is none.

        Never goes back, not over a reopening either.
        """
        with self._latch.reading():
            found = self._parts.reading.last_add_confirmed(self._tail(), self._digester())
            return max(found, confirmed_by(self._parts.registry.of(self.id)))

    def wait_for_last_add_confirmed(self, beyond: int, timeout_s: float | None = None) -> int:
        """The last add confirmed when it has passed `beyond`, or in the end when that takes too long.

        Comes back at once where it cannot pass any more: the ledger is fenced, or the store closed or failed.
        """
        return waited_for(self._parts, self.id, lambda: self.last_add_confirmed, beyond, timeout_s)

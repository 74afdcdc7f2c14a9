"""The rows of a journal.

offset, size            of the record in the file, its length word included: offset + size is the next one
version                 of the journal's format
kind                    entry, ledger-key, fence, explicit-lac, unknown, padding, seal;
                        hole (damaged bytes with sound records after them), damage (in the header),
                        torn (damaged bytes up to the end, which an interrupted write leaves)
ledger, entry, lac, length, digest_type, digest, payload
ok                      true, false, or null if not verified
flaw, detail            a stable name of what is wrong; an explanation
sequence, durable_up_to, records        only for a seal
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from recovery.shell.listing.record import (
    OK,
    DigestLookahead,
    FileListing,
    ListingVerdict,
    blank_cells,
    entry_cells,
    entry_columns,
    reason,
)
from recovery.shell.output import Column, counted, number_column
from storage.disk import filenames
from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck, master_key
from storage.entry.digest_inference import EntryVerifier
from storage.entry.format import IDS
from storage.entry.read_result import Damaged, EndOfData, Flaw
from storage.journal import format as journal_format
from storage.journal.group_reader import GroupWatch
from storage.journal.later_writes import proof_after
from storage.journal.reader import JournalReader, StoredPadding, StoredRecord
from storage.journal.scan import scan
from storage.journal.seal import StoredSeal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from recovery.shell.options import PayloadFormat, RowFilter
    from recovery.shell.output import Row
    from recovery.shell.passwords import Keyring
    from storage.disk.files import ReadFile
    from storage.entry.read_result import Stop, Torn
    from storage.journal.scan import JournalScan
    from storage.journal.seal import Seal


def journal_columns(payload: PayloadFormat, file_size: int) -> list[Column]:
    digits = len(str(file_size))
    return [
        number_column("offset", digits),
        number_column("size", rank=1),
        number_column("version", rank=5),
        Column("kind", width=5),
        *entry_columns(payload, 6),
    ]


class JournalListing(FileListing):
    """Lists one journal."""

    def __init__(
        self,
        file: ReadFile,
        journal_id: int,
        row_filter: RowFilter,
        keyring: Keyring,
        reached: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(row_filter, keyring, reached)
        self.reader = JournalReader(file, journal_id)
        self.verifier = EntryVerifier(password_of=keyring.password_of)
        self._cells = JournalCells(self.reader.framing.version, self.verifier, keyring, row_filter.payload)
        # The walk ahead needs a reader of its own, otherwise it would move the read window of the listing.
        self._ahead = DigestLookahead(partial(_bodies, JournalReader(file, journal_id)), self._learn)
        self.is_ours = self._was_written_by_ledgerstore()
        self._groups = GroupWatch(self.reader)

    @property
    def is_unsealed(self) -> bool:
        """Whether ledgerstore wrote this journal and its last group has no seal."""
        return self.is_ours and self._groups.first_record is not None

    def _was_written_by_ledgerstore(self) -> bool:
        header = self.reader.header
        if isinstance(header, journal_format.JournalHeader):
            return header.salt is not None
        return isinstance(header, Damaged) and next(self.reader.seals_after(0), None) is not None

    def _learn(self, offset: int, body: memoryview) -> None:
        ledger_id, entry_id = IDS.unpack_from(body)
        if entry_id >= 0:
            self.verifier.survey.observe(body)
            self._keyring.saw_entry(body, self.verifier.survey)
        elif entry_id == journal_format.LEDGER_KEY:
            record = journal_format.decode_record(body, self.reader.framing.version)
            if isinstance(record, journal_format.LedgerKey):
                self._keyring.note_key(ledger_id, record.master_key, offset)

    def _all_rows(self) -> Iterator[Row]:
        header = self.reader.header
        if isinstance(header, journal_format.Void):
            self.stop = EndOfData(0)
            return
        if isinstance(header, Damaged) and self._filter.offsets.covers(0, self.reader.records_start):
            yield self._cells.damage("damage", 0, self.reader.records_start, header)
        self._ahead.restart(self.reader.records_start)
        self._ahead.reach(self.reader.records_start)
        at: int | None = self._start()
        while at is not None:
            self._ahead.restart(at)
            self._groups.begin(at)
            at = yield from self._rows_from(at)

    def _start(self) -> int:
        """Return where to begin: at the record that covers the first offset of the filter.

        In a journal of ledgerstore begin at its group, because the seal covers the whole group.
        """
        start, first = self.reader.records_start, self._filter.offsets.first
        if first <= start:
            return start
        if not self.is_ours:
            return _record_start(self.reader, first)
        found = next(self.reader.seals_after(first), None)
        if found is not None and found.seal.group_start <= first:
            return found.seal.group_start
        # The seal of the group is damaged or missing, so walk over the groups from the beginning.
        return _group_start(self.reader, first)

    def _rows_from(self, start: int) -> Generator[Row, None, int | None]:
        """Yield rows until framing is lost. Return the offset where it is found again, or `None`."""
        for item in self.reader.items(start):
            if self._filter.offsets.is_before(item.offset):
                return None
            self._reached(item.offset)
            match item:
                case StoredRecord():
                    self._ahead.reach(item.offset)
                    row = self._record(item)
                case StoredPadding():
                    row = self._padding(item)
                case _:
                    return (yield from self._rows_at_stop(item))
            self.last_item = item.offset
            if row is not None and self._filter.offsets.covers(item.offset, item.end):
                yield row
        raise AssertionError("items end with a stop")

    def _rows_at_stop(self, stop: Stop) -> Generator[Row, None, int | None]:
        if isinstance(stop, EndOfData):
            self.stop = stop
            opened = self._groups.first_record
            if self.is_ours and opened is not None and stop.offset in self._filter.offsets:
                yield self._cells.unsealed(stop.offset, opened)
            return None
        resumed = self._next_sound_offset(stop.offset)
        if resumed is None:
            self.stop = stop
            if self._filter.offsets.covers(stop.offset, self.reader.size):
                yield self._cells.damage("torn", stop.offset, self.reader.size, stop)
            return None
        self.counts.hole(resumed - stop.offset)
        if self._filter.offsets.covers(stop.offset, resumed):
            yield self._cells.damage("hole", stop.offset, resumed, stop)
        return resumed

    def _next_sound_offset(self, offset: int) -> int | None:
        if not self.is_ours:
            return proof_after(self.reader, self.verifier, offset)
        behind = (found.seal.group_start for found in self.reader.seals_after(offset))
        return next((start for start in behind if start > offset), None)

    def _record(self, item: StoredRecord) -> Row | None:
        self.counts.records += 1
        self._groups.record(item)
        row = self._cells.record(item) if self._matches(item) else None
        if row is not None:
            self.counts.shown += 1
            self.counts.count(row)
        return row

    def _matches(self, item: StoredRecord) -> bool:
        if not self._filter.offsets.covers(item.offset, item.end):
            return False
        match item.record:
            case Damaged():
                return True
            case journal_format.EntryRecord(ledger_id=ledger_id, entry_id=entry_id):
                return self._filter.matches(ledger_id, entry_id)
            case record:
                return self._filter.matches(record.ledger_id, None)

    def _padding(self, item: StoredPadding) -> Row | None:
        row = self._describe_padding(item)
        self.counts.count(row)
        return row if row["ok"] is False or self._filter.includes_fillers else None

    def _describe_padding(self, item: StoredPadding) -> Row:
        found = self._groups.padding(item) if self.is_ours else None
        flaw = found.flaw if isinstance(found, Damaged) else None
        if isinstance(item.seal, StoredSeal):
            return self._cells.seal(item, item.seal.seal, flaw)
        return self._cells.missing_seal(item) if flaw else self._cells.padding(item)


class JournalCells:
    """Makes the cells of journal rows. The verifier and the keyring know the digests of the ledgers."""

    def __init__(
        self, version: int, verifier: EntryVerifier, keyring: Keyring, payload: PayloadFormat
    ) -> None:
        self._version = version
        self._verifier = verifier
        self._keyring = keyring
        self._payload = payload

    def record(self, item: StoredRecord) -> Row:
        """Return the row of a record, with its digest checked."""
        match item.record:
            case journal_format.EntryRecord(ledger_id=ledger_id, data=data):
                check = self._verifier.check(data)
                known = self._verifier.digester(ledger_id)
                cells = entry_cells(data, known, check, self._payload)
                return self._row("entry", item.offset, item.end) | cells
            case Damaged() as damaged:
                return self._row("unknown", item.offset, item.end) | _flaw_cells(damaged.flaw, str(damaged))
            case record:
                cells = self._special(record) | {"ledger": record.ledger_id}
                return self._row("unknown", item.offset, item.end) | cells

    def _special(self, record: journal_format.Record) -> Row:
        match record:
            case journal_format.LedgerKey():
                return {"kind": "ledger-key", "ok": self._key_matches(record)}
            case journal_format.Fence():
                return {"kind": "fence"}
            case journal_format.ExplicitLac():
                return {"kind": "explicit-lac"} | self._explicit_lac(record)
        return {"detail": f"record kind {record.entry_id}"}

    def _key_matches(self, record: journal_format.LedgerKey) -> bool | None:
        """Return `True` if the given password gives this key, else `None`: a wrong password is no damage."""
        password = self._keyring.given(record.ledger_id)
        return True if password is not None and master_key(password) == record.master_key else None

    def _explicit_lac(self, record: journal_format.ExplicitLac) -> Row:
        size = entry_format.LAC_PACKET.size
        head, digest = record.packet[:size], record.packet[size:]
        if len(head) < size:
            return _flaw_cells(Flaw.INNER_LENGTH, Flaw.INNER_LENGTH.value)
        _, lac = entry_format.LAC_PACKET.unpack(head)
        known = self._verifier.digester(record.ledger_id)
        if known is None:
            return {"lac": lac}
        cells: Row = {"lac": lac, "digest_type": known.digest_type.name, "digest": digest.hex() or None}
        check = known.check(head, digest, b"")
        wrong = _flaw_cells(Flaw.DIGEST, Flaw.DIGEST.value) if check is DigestCheck.MISMATCH else {}
        return cells | {"ok": OK[check]} | wrong

    def padding(self, item: StoredPadding) -> Row:
        """Return the row of padding without a seal."""
        words = "the next group is replayed as a whole or not at all" if item.atomic_mark else None
        return self._row("padding", item.offset, item.end) | {"detail": words}

    def missing_seal(self, item: StoredPadding) -> Row:
        """Return the row of padding without a seal, in a journal whose padding must end in a seal."""
        wrong = _flaw_cells(Flaw.SEAL_MISSING, Flaw.SEAL_MISSING.value)
        return self._row("padding", item.offset, item.end) | wrong

    def seal(self, item: StoredPadding, seal: Seal, flaw: Flaw | None) -> Row:
        """Return the row of a seal that can be decoded. `flaw` says why it is not valid."""
        count = counted(seal.record_count, "record")
        words = f"seal {seal.sequence}, {count}, durable to {seal.durable_up_to}"
        cells: Row = {
            "ok": True,
            "detail": words,
            "sequence": seal.sequence,
            "durable_up_to": str(seal.durable_up_to),
            "records": seal.record_count,
        }
        wrong = _flaw_cells(flaw, f"{words}: {flaw.value}") if flaw else {}
        return self._row("seal", item.offset, item.end) | cells | wrong

    def unsealed(self, end: int, start: int) -> Row:
        """Return the row that reports a missing seal at `end`, for the group that begins at `start`."""
        words = f"the group that begins at {start} has no seal"
        return self._row("torn", end, end) | {"flaw": Flaw.SEAL_MISSING.name, "detail": words}

    def damage(self, kind: str, start: int, end: int, stop: Torn | Damaged) -> Row:
        """Return the row of a hole, of a torn tail or of a damaged header."""
        return self._row(kind, start, end) | {"flaw": stop.flaw.name, "detail": reason(stop)}

    def _row(self, kind: str, start: int, end: int) -> Row:
        place: Row = {"offset": start, "size": end - start, "version": self._version, "kind": kind}
        return place | blank_cells(self._payload)


def _flaw_cells(flaw: Flaw, words: str) -> Row:
    return {"ok": False, "flaw": flaw.name, "detail": words}


def _bodies(reader: JournalReader, start: int) -> Iterator[tuple[int, memoryview]]:
    """Yield offset and body of each record from `start` until framing is lost.

    A body is valid until the next one.
    """
    at = start
    while isinstance(frame := reader.frame_at(at), journal_format.JournalFrame):
        if frame.kind is journal_format.JournalFrameKind.RECORD:
            yield frame.offset, reader.body(frame)
        at = frame.end


def _group_start(reader: JournalReader, offset: int) -> int:
    """Return where the group that covers `offset` begins: after the last padding before it."""
    at = start = reader.records_start
    while isinstance(frame := reader.frame_at(at), journal_format.JournalFrame) and frame.end <= offset:
        at = frame.end
        if frame.kind is not journal_format.JournalFrameKind.RECORD:
            start = at
    return start


def _record_start(reader: JournalReader, offset: int) -> int:
    """Return where the record that covers `offset` begins, or where framing is lost before it."""
    at = reader.records_start
    while isinstance(frame := reader.frame_at(at), journal_format.JournalFrame) and frame.end <= offset:
        at = frame.end
    return at


def journal_id(path: Path, file: ReadFile) -> int:
    """Return the id of a journal from its name, or from its first seal if it was renamed."""
    name = filenames.parse(path.name)
    if name.kind in (filenames.FileKind.JOURNAL, filenames.FileKind.JOURNAL_DRAFT):
        return name.number or 0
    reader = JournalReader(file, 0)
    if isinstance(reader.header, journal_format.JournalHeader) and reader.header.salt is not None:
        for item in reader.items():
            if isinstance(item, StoredPadding) and isinstance(item.seal, StoredSeal):
                return item.seal.seal.journal_id
    return 0


def journal_verdict(listing: JournalListing) -> ListingVerdict:
    """Return the verdict of a listing that has ended.

    Damage with sound records after it is a finding. Damage at the end is a torn tail, and no finding.
    """
    counts, stop, header = listing.counts, listing.stop, listing.reader.header
    if isinstance(header, journal_format.Void):
        return ListingVerdict(is_finding=False, words=_void_words(listing.reader.size))
    wrong_header = isinstance(header, Damaged)
    words = f"{counts}, damaged header" if wrong_header else str(counts)
    if stop is None:
        return ListingVerdict(wrong_header or counts.bad > 0 or counts.holes > 0, f"{words}, listed in part")
    if listing.reader.has_lost_its_end:
        return ListingVerdict(
            is_finding=True, words=f"{words}, cut at {listing.reader.size}: {Flaw.FILE_CUT.value}"
        )
    if isinstance(stop, EndOfData) and not counts.bad and not listing.is_unsealed:
        finding = wrong_header or counts.holes > 0
        return ListingVerdict(finding, f"{words}, {'ends' if finding else 'ends cleanly'} at {stop.offset}")
    facts = scan(listing.reader, listing.verifier)
    if isinstance(facts.stop, Damaged) and facts.stop.flaw is Flaw.OTHER_HEADER:
        return ListingVerdict(is_finding=True, words=f"{words}: {Flaw.OTHER_HEADER.value}")
    if (
        facts.proof_offset is None
        and not isinstance(facts.stop, EndOfData)
        and _all_bad_in_tail(listing, facts)
    ):
        kept = f"; {counted(facts.kept.count, 'record')} of it verify" if facts.kept.count else ""
        return ListingVerdict(
            wrong_header, f"{words}, torn tail at {facts.stop.offset}: {reason(facts.stop)}{kept}"
        )
    if isinstance(stop, EndOfData):
        return ListingVerdict(is_finding=True, words=f"{words}, ends at {stop.offset}")
    return ListingVerdict(is_finding=True, words=f"{words}, torn at {stop.offset}: {reason(stop)}")


def _all_bad_in_tail(listing: JournalListing, facts: JournalScan) -> bool:
    first_bad = listing.counts.first_bad
    if first_bad is None:
        return True
    # ledgerstore writes a group with one write, so its whole last group may be torn. A bookie tears one
    # record.
    return first_bad >= facts.end if listing.is_ours else first_bad == listing.last_item


def _void_words(size: int) -> str:
    if size < journal_format.HEADER_SIZE_MAX:
        return f"shorter than a header ({counted(size, 'byte')}): it never held acknowledged entries"
    return "never written: no header, only zeros"

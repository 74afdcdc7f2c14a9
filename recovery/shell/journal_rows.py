"""The rows of a journal.

offset, size            of the record in the file, its length word included: offset + size is the next one
version                 of the journal's format
kind                    entry, ledger-key, fence, explicit-lac, unknown, padding, seal;
                        hole (bytes that make no sense, and something sound behind them), damage (in the
                        header), torn (nothing sound behind: what an interrupted write leaves)
ledger, entry, lac, length, digest_type, digest, payload
ok                      true, false, or null: not verified
flaw, detail            a stable name of what is wrong; words
sequence, durable_up_to, records        of a seal only
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from recovery.shell import entry_cells, journal_walk
from recovery.shell.columns import Column, numbers
from recovery.shell.journal_cells import JournalCells
from recovery.shell.lookahead import Lookahead
from recovery.shell.tally import Tally
from storage.codec import journal as codec
from storage.codec.entry import IDS
from storage.codec.seal import StoredSeal
from storage.codec.survey import EntryVerifier
from storage.journal_groups import GroupWatch
from storage.journal_proof import proof_behind
from storage.journal_reader import JournalReader, StoredPadding, StoredRecord
from storage.outcome import Damaged, EndOfData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from recovery.shell.columns import Row
    from recovery.shell.passwords import Keyring
    from recovery.shell.wanted import Payload, Wanted
    from storage.files import ReadFile
    from storage.outcome import Stop


def columns(payload: Payload, file_size: int) -> list[Column]:
    digits = len(str(file_size))
    return [
        numbers("offset", digits),
        numbers("size", rank=1),
        numbers("version", rank=5),
        Column("kind", width=5),
        *entry_cells.columns(payload, 6),
    ]


class JournalListing:
    """One journal, row by row; when the rows have ended, `tally`, `stop` and `last_item` say how."""

    def __init__(
        self,
        file: ReadFile,
        journal_id: int,
        wanted: Wanted,
        keyring: Keyring,
        reached: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.reader = JournalReader(file, journal_id)
        self.verifier = EntryVerifier(password_of=keyring.password_of)
        self.tally = Tally()
        self.stop: Stop | None = None
        """`None` when the listing ended before the file did."""
        self.last_item = 0
        """Where the last thing with sound framing begins."""
        self._cells = JournalCells(self.reader.framing.version, self.verifier, keyring, wanted.payload)
        self._wanted = wanted
        self._keyring = keyring
        self._reached = reached
        # A reader of its own: looking ahead must not move the window of the listing.
        self._ahead = Lookahead(partial(journal_walk.bodies, JournalReader(file, journal_id)), self._learn)
        self.is_ours = self._tell_ours()
        self._groups = GroupWatch(self.reader)

    @property
    def is_unsealed(self) -> bool:
        """Whether the last group of a journal of ours has no seal."""
        return self.is_ours and self._groups.first_record is not None

    def _tell_ours(self) -> bool:
        header = self.reader.header
        if isinstance(header, codec.Header):
            return header.salt is not None
        return isinstance(header, Damaged) and next(self.reader.seals_behind(0), None) is not None

    def _learn(self, offset: int, body: memoryview) -> None:
        ledger_id, entry_id = IDS.unpack_from(body)
        if entry_id >= 0:
            self.verifier.survey.observe(body)
            self._keyring.saw_entry(body, self.verifier.survey)
        elif entry_id == codec.LEDGER_KEY:
            record = codec.decode_record(body, self.reader.framing.version)
            if isinstance(record, codec.LedgerKey):
                self._keyring.saw_key(ledger_id, record.master_key, offset)

    def rows(self) -> Iterator[Row]:
        """What was asked for, and all damage, in the order of the file."""
        limit = self._wanted.limit
        if limit == 0:
            return
        for number, row in enumerate(self._all_rows(), 1):
            yield row
            if number == limit:
                self.stop = None
                return

    def _all_rows(self) -> Iterator[Row]:
        header = self.reader.header
        if isinstance(header, codec.Void):
            self.stop = EndOfData(0)
            return
        if isinstance(header, Damaged) and self._wanted.offsets.covers(0, self.reader.records_start):
            yield self._cells.damage("damage", 0, self.reader.records_start, header)
        self._ahead.restart(self.reader.records_start)
        self._ahead.reach(self.reader.records_start)
        at: int | None = self._start()
        while at is not None:
            self._ahead.restart(at)
            self._groups.begin(at)
            at = yield from self._stretch(at)

    def _start(self) -> int:
        """The record that covers the first wanted offset; in a journal of ours, its whole group."""
        start, first = self.reader.records_start, self._wanted.offsets.first
        if first <= start:
            return start
        found = next(self.reader.seals_behind(first), None) if self.is_ours else None
        if found is not None and found.seal.group_start <= first:
            return found.seal.group_start
        return journal_walk.place_of(self.reader, first)

    def _stretch(self, start: int) -> Generator[Row, None, int | None]:
        """The rows up to where framing is lost; then where it is found again, if anywhere."""
        for item in self.reader.items(start):
            if self._wanted.offsets.is_before(item.offset):
                return None
            self._reached(item.offset)
            match item:
                case StoredRecord():
                    self._ahead.reach(item.offset)
                    row = self._record(item)
                case StoredPadding():
                    row = self._padding(item)
                case _:
                    return (yield from self._ending(item))
            self.last_item = item.offset
            if row is not None and self._wanted.offsets.covers(item.offset, item.end):
                yield row
        raise AssertionError("items end with a stop")

    def _ending(self, stop: Stop) -> Generator[Row, None, int | None]:
        if isinstance(stop, EndOfData):
            self.stop = stop
            opened = self._groups.first_record
            if self.is_ours and opened is not None and stop.offset in self._wanted.offsets:
                yield self._cells.unsealed(stop.offset, opened)
            return None
        resumed = self._found_again(stop.offset)
        if resumed is None:
            self.stop = stop
            if self._wanted.offsets.covers(stop.offset, self.reader.size):
                yield self._cells.damage("torn", stop.offset, self.reader.size, stop)
            return None
        self.tally.hole(resumed - stop.offset)
        if self._wanted.offsets.covers(stop.offset, resumed):
            yield self._cells.damage("hole", stop.offset, resumed, stop)
        return resumed

    def _found_again(self, offset: int) -> int | None:
        if not self.is_ours:
            return proof_behind(self.reader, self.verifier, offset)
        behind = (found.seal.group_start for found in self.reader.seals_behind(offset))
        return next((start for start in behind if start > offset), None)

    def _record(self, item: StoredRecord) -> Row | None:
        self.tally.records += 1
        self._groups.record(item)
        row = self._cells.record(item) if self._is_wanted(item) else None
        if row is not None:
            self.tally.shown += 1
            self.tally.count(row)
        return row

    def _is_wanted(self, item: StoredRecord) -> bool:
        if not self._wanted.offsets.covers(item.offset, item.end):
            return False
        match item.record:
            case Damaged():
                return True
            case codec.EntryRecord(ledger_id=ledger_id, entry_id=entry_id):
                return self._wanted.takes(ledger_id, entry_id)
            case record:
                return self._wanted.takes(record.ledger_id, None)

    def _padding(self, item: StoredPadding) -> Row | None:
        row = self._describe_padding(item)
        self.tally.count(row)
        return row if row["ok"] is False or self._wanted.fillers else None

    def _describe_padding(self, item: StoredPadding) -> Row:
        found = self._groups.padding(item) if self.is_ours else None
        flaw = found.flaw if isinstance(found, Damaged) else None
        if isinstance(item.seal, StoredSeal):
            return self._cells.seal(item, item.seal.seal, flaw)
        return self._cells.missing_seal(item) if flaw else self._cells.padding(item)

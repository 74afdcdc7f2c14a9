"""Walk through a bookie's journal: verify each entry by its digest, a chunk at a time.

Records that nothing proves (master keys, fences, entries without a verifiable digest) are accepted if the
framing is intact. Where the framing is lost it is found again as an opening would, see
`storage.journal.later_writes`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.digests.mixed_types import BlockVerdict, verify_block
from recovery.audit.model.scan_results import FlawAt, FlawKind
from recovery.audit.scan import journal_chunks
from recovery.audit.scan.entry_log_walk import digest_word
from recovery.audit.scan.journal_framing import DamageExtent, JournalFraming
from storage.entry.digest import DigestCheck
from storage.entry.format import IDS
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, EndOfData, Flaw
from storage.journal import format as journal_format
from storage.journal.later_writes import length_overran, proof_after
from storage.journal.reader import StoredPadding, StoredRecord
from storage.journal.scan import Owner, learn_digest_types

if TYPE_CHECKING:
    from recovery.audit.model.runs import Fingerprints
    from recovery.audit.scan.journal_chunks import JournalChunk
    from recovery.audit.scan.journal_content import JournalContent
    from storage.disk.files import ReadFile
    from storage.entry.read_result import Stop
    from storage.journal.reader import JournalReader
    from storage.journal.scan import JournalScan


class DigestWalk:
    """One walk through a journal that was scanned from the mark on, or from its first record."""

    def __init__(
        self, reader: JournalReader, file: ReadFile, scan: JournalScan, content: JournalContent
    ) -> None:
        self.flaws: list[FlawAt] = []
        self.is_boundary: bool | None = None
        """Whether a record begins, or the data ends, where the scan began; `None` if the surroundings are
        damaged.
        """
        self._reader = reader
        self._file = file
        self._scan = scan
        self._mark = scan.start
        self._content = content
        self._framing = JournalFraming(reader, content.verifier, reader.size)
        self._is_lost = False
        self._unverified: set[int] = set()
        """Entries of the current chunk that nothing verifies."""
        self._proven = 0
        """Where the last entry begins that its digest proves."""
        if scan.start <= reader.records_start or scan.start >= reader.size or scan.end > scan.start:
            self.is_boundary = True

    def run(self) -> None:
        """Walk from the first record to the end of the data."""
        at: int | None = self._reader.records_start
        while at is not None and at < self._reader.size:
            if at == self._mark and not self._is_lost:
                self.is_boundary = True
            self._is_lost = False
            at = self._step(at, self._mark if at < self._mark else self._reader.size)

    def tail(self) -> int:
        """Return from where on nothing proves that the data was ever whole, or the end of the file."""
        place = max(self._mark, self._proven)
        first = next((flaw.offset for flaw in self.flaws if flaw.offset >= place), None)
        if first is None or proof_after(self._reader, self._content.verifier, first) is not None:
            return self._reader.size
        return first

    def _step(self, at: int, limit: int) -> int | None:
        data = self._file.read(at, min(journal_chunks.CHUNK_SIZE, limit - at))
        chunk = journal_chunks.split_chunk(data, at, self._reader.framing)
        return self._take_chunk(chunk) if chunk.end > at else self._handle_special(at, limit)

    def _handle_special(self, at: int, limit: int) -> int | None:
        """Handle a record larger than a chunk or crossing the mark, and bytes that are no record."""
        item = self._framing.item(at)
        match item:
            case StoredRecord() | StoredPadding() if self._hides_the_mark(item):
                return self._lost(Damaged(at, Flaw.INNER_LENGTH, "it extends beyond the mark"))
            case StoredRecord() | StoredPadding():
                if item.end > limit and self._is_sound(item):
                    self.is_boundary = False
                data = self._file.read(at, item.end - at)
                return self._take_chunk(journal_chunks.split_chunk(data, at, self._reader.framing))
            case _ if self._is_a_replayed_end(at):
                self.is_boundary = True
                return None
            case EndOfData():
                if at < self._mark < self._reader.size:
                    self.is_boundary = False
                return None
        return self._lost(item)

    def _hides_the_mark(self, item: StoredRecord | StoredPadding) -> bool:
        """Return whether the length of a record that crosses the mark is wrong, and not the mark.

        It is if nothing proves the record and something sound begins at the mark.
        """
        is_across = item.offset < self._mark < item.end
        if not is_across or self._scan.end <= self._mark or self._framing.proves(item.offset):
            return False
        # Without padding records any bytes soon have the framing of some record.
        return self._reader.framing.pads or self._framing.proves(self._mark)

    def _is_sound(self, item: StoredRecord | StoredPadding) -> bool:
        if isinstance(item, StoredPadding) or not isinstance(item.record, journal_format.EntryRecord):
            return True
        return self._framing.check(item.record.data) is not DigestCheck.MISMATCH

    def _is_a_replayed_end(self, at: int) -> bool:
        """Return whether a bookie's replay ended here, at a zero length word, and put the mark after that
        word.

        The bookie continued in its next journal, and nothing after this place counts.
        """
        word = self._reader.window.peek(at, LENGTH_WORD_SIZE)
        return self._mark == at + LENGTH_WORD_SIZE and self._reader.framing.pads and not any(word)

    def _lost(self, stop: Stop) -> int | None:
        after = self._next_place(stop.offset)
        self.flaws.append(self._framing.around_stop(stop, after))
        return self._resume(after)

    def _resume(self, at: int) -> int:
        """Continue where the framing was found again. The digest types of what follows have to be learned
        first.
        """
        self._is_lost = True
        learn_digest_types(self._reader, self._content.verifier, at)
        return at

    def _next_place(self, at: int) -> int:
        """Return the next place that was certainly written. The mark is one too, because replay
        begins there.
        """
        found = proof_after(self._reader, self._content.verifier, at)
        end = self._reader.size if found is None else self._framing.first_special(at + 1, found)
        return min(end, self._mark) if at < self._mark else end

    # ── a chunk with correct framing ─────────────────────────────────────────────────────────────────────

    def _take_chunk(self, chunk: JournalChunk) -> int:
        """Take what is sound. Return where the walk continues."""
        swollen = _filled_padding(chunk) if self._scan.owner is Owner.BOOKIE else None
        judged, digests = self._judge(chunk)
        doubtful = judged.doubtful + [index for some in judged.unverified.values() for index in some.tolist()]
        index_of = {int(chunk.numbers[index]): index for index in doubtful}
        bad, after, count = [], chunk.end, len(chunk.framed.begins)
        if swollen is not None:
            count = bisect_left(chunk.framed.begins, swollen - chunk.offset)
            after = self._resume(self._next_place(swollen + 1))
            self.flaws.append(FlawAt(FlawKind.HOLE, Flaw.NOT_ZERO, swollen, after, detail="padding"))
        for number in (one for one in sorted({*chunk.others, *index_of}) if one < count):
            index = index_of.get(number)
            around = self._special(chunk, number) if index is None else self._entry(chunk, index, digests)
            if around is None:
                continue
            self.flaws += around.flaws
            bad.append(number)
            if not around.is_framed:
                after, count = self._resume(around.resume_at), number
                break
        good = np.flatnonzero((chunk.numbers < count) & ~np.isin(chunk.numbers, bad))
        self._content.entries(chunk.entries, digests, good)
        self._content.records += len(bad)
        proven = np.setdiff1d(good, list(self._unverified), assume_unique=True)
        if len(proven):
            self._proven = int(chunk.entries.offsets[proven[-1]])
        return after

    def _judge(self, chunk: JournalChunk) -> tuple[BlockVerdict, Fingerprints]:
        self._unverified.clear()
        if not len(chunk.entries):
            return BlockVerdict([]), np.empty(0, dtype=np.uint64)
        return verify_block(chunk.entries.block, chunk.entries.ledgers, self._content.types)

    def _special(self, chunk: JournalChunk, number: int) -> DamageExtent | None:
        """Check a record that is not a plain entry."""
        offset, end = chunk.place(number)
        record = journal_format.decode_record(chunk.body(number), self._reader.framing.version)
        item = StoredRecord(offset, end, record)
        match record:
            case Damaged():
                return self._wrong(item, FlawKind.RECORD, record)
            case journal_format.UnknownRecord(entry_id=entry_id):
                # A bookie does not write such a record: it is an entry whose id is damaged.
                return self._wrong(
                    item, FlawKind.RECORD, Damaged(0, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
                )
            case journal_format.EntryRecord():
                return self._wrong(item, FlawKind.RECORD, Damaged(0, Flaw.ENTRY_SHORT))
        self._content.fact(offset, record)
        return None

    def _entry(self, chunk: JournalChunk, index: int, digests: Fingerprints) -> DamageExtent | None:
        """Check an entry that was not proven together with others."""
        verifier, body = self._content.verifier, bytes(chunk.entries.block.body(index))
        ledger_id, entry_id = IDS.unpack_from(body)
        offset = int(chunk.entries.offsets[index])
        item = StoredRecord(
            offset,
            offset + LENGTH_WORD_SIZE + len(body),
            journal_format.EntryRecord(ledger_id, entry_id, body),
        )
        check = verifier.check(body)
        self._content.types.saw_entry(ledger_id)
        if check is DigestCheck.MISMATCH:
            return self._wrong(item, FlawKind.DIGEST, Damaged(0, Flaw.DIGEST))
        known = verifier.digester(ledger_id)
        digests[index] = digest_word(body, None if known is None else known.digest_type)
        if check is DigestCheck.OK:
            return None
        if length_overran(self._reader, verifier, item):
            return self._wrong(item, FlawKind.DIGEST, Damaged(0, Flaw.DIGEST, "it contains other entries"))
        if verifier.is_doubtful(ledger_id):
            flaw = FlawAt(FlawKind.DOUBT, Flaw.DIGEST_UNKNOWN, item.offset, item.end, ledger_id, entry_id)
            return DamageExtent([flaw], item.end, is_framed=True)
        self._unverified.add(index)
        self._content.unverified[ledger_id] += 1
        return None

    def _wrong(self, item: StoredRecord, kind: FlawKind, damage: Damaged) -> DamageExtent:
        return self._framing.around_record(item, kind, damage, self._next_place)


def _filled_padding(chunk: JournalChunk) -> int | None:
    """Return where the first padding record begins that is not all zeros, as a bookie's always is.

    If the length of a padding has grown it has swallowed records, and no other check would notice.
    """
    for start, end in chunk.framed.paddings:
        if any(chunk.data[start + journal_format.PREFIX_SIZE : end]):
            return chunk.offset + start
    return None

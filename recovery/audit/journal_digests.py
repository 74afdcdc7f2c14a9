"""Through a journal that a bookie has written: each entry by its digest, a chunk at a time.

What nothing proves (keys, fences, entries without a digest that can be verified) is believed where the
framing holds. Where it is lost, it is found again as an opening would: see `storage.journal_proof`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit import journal_chunks
from recovery.audit.chunk_types import Judged, judge
from recovery.audit.journal_framing import Around, Framing
from recovery.audit.log_walk import digest_word
from recovery.verify.parts import FlawAt, FlawKind
from storage.codec import journal as codec
from storage.codec.digest import DigestCheck
from storage.codec.entry import IDS
from storage.journal_proof import has_swallowed, proof_behind
from storage.journal_reader import StoredPadding, StoredRecord
from storage.journal_scan import Owner, learn_digest_types
from storage.outcome import Damaged, EndOfData, Flaw
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from recovery.audit.journal_chunks import Chunk
    from recovery.audit.journal_taken import Taken
    from recovery.verify.runs import Fingerprints
    from storage.files import ReadFile
    from storage.journal_reader import JournalReader
    from storage.journal_scan import JournalScan
    from storage.outcome import Stop


class DigestWalk:
    """One walk through a journal that was scanned from the mark on, or from its first record."""

    def __init__(self, reader: JournalReader, file: ReadFile, scan: JournalScan, taken: Taken) -> None:
        self.flaws: list[FlawAt] = []
        self.is_boundary: bool | None = None
        """Whether a record begins, or the data ends, where the scan began; `None`: all around is damaged."""
        self._reader = reader
        self._file = file
        self._scan = scan
        self._mark = scan.start
        self._taken = taken
        self._framing = Framing(reader, taken.verifier, reader.size)
        self._is_lost = False
        self._unverified: set[int] = set()
        """Entries of the chunk that is passed which nothing verifies."""
        self._proven = 0
        """Where the last entry begins that its digest has proven."""
        if scan.start <= reader.records_start or scan.start >= reader.size or scan.end > scan.start:
            self.is_boundary = True

    def run(self) -> None:
        """Walks from the first record to the end of the data."""
        at: int | None = self._reader.records_start
        while at is not None and at < self._reader.size:
            if at == self._mark and not self._is_lost:
                self.is_boundary = True
            self._is_lost = False
            at = self._step(at, self._mark if at < self._mark else self._reader.size)

    def tail(self) -> int:
        """From where on nothing proves that it was ever whole; else the end of the file."""
        place = max(self._mark, self._proven)
        first = next((flaw.offset for flaw in self.flaws if flaw.offset >= place), None)
        if first is None or proof_behind(self._reader, self._taken.verifier, first) is not None:
            return self._reader.size
        return first

    def _step(self, at: int, limit: int) -> int | None:
        data = self._file.read(at, min(journal_chunks.CHUNK_SIZE, limit - at))
        chunk = journal_chunks.take_apart(data, at, self._reader.framing)
        return self._pass(chunk) if chunk.end > at else self._odd(at, limit)

    def _odd(self, at: int, limit: int) -> int | None:
        """What is larger than a chunk, goes on behind the mark, or is no record at all."""
        item = self._framing.item(at)
        match item:
            case StoredRecord() | StoredPadding() if self._hides_the_mark(item):
                return self._lost(Damaged(at, Flaw.INNER_LENGTH, "it goes on behind the mark"))
            case StoredRecord() | StoredPadding():
                if item.end > limit and self._is_sound(item):
                    self.is_boundary = False
                data = self._file.read(at, item.end - at)
                return self._pass(journal_chunks.take_apart(data, at, self._reader.framing))
            case _ if self._is_a_replayed_end(at):
                self.is_boundary = True
                return None
            case EndOfData():
                if at < self._mark < self._reader.size:
                    self.is_boundary = False
                return None
        return self._lost(item)

    def _hides_the_mark(self, item: StoredRecord | StoredPadding) -> bool:
        """Whether the length of what goes on behind the mark is wrong, and not the mark.

        Nothing proves it, and where the mark is something sound begins.
        """
        is_across = item.offset < self._mark < item.end
        if not is_across or self._scan.end <= self._mark or self._framing.proves(item.offset):
            return False
        # Where nothing is padded any bytes are soon framed as something.
        return self._reader.framing.pads or self._framing.proves(self._mark)

    def _is_sound(self, item: StoredRecord | StoredPadding) -> bool:
        if isinstance(item, StoredPadding) or not isinstance(item.record, codec.EntryRecord):
            return True
        return self._framing.check(item.record.data) is not DigestCheck.MISMATCH

    def _is_a_replayed_end(self, at: int) -> bool:
        """Whether a bookie's replay ended here, at a zero length, and marked the place behind those bytes.

        It went on in its next journal: nothing behind counts.
        """
        word = self._reader.window.peek(at, LENGTH_WORD_SIZE)
        return self._mark == at + LENGTH_WORD_SIZE and self._reader.framing.pads and not any(word)

    def _lost(self, stop: Stop) -> int | None:
        behind = self._next_place(stop.offset)
        self.flaws.append(self._framing.around_stop(stop, behind))
        return self._resume(behind)

    def _resume(self, at: int) -> int:
        """Goes on where the framing was found again: of what follows nothing has been learned yet."""
        self._is_lost = True
        learn_digest_types(self._reader, self._taken.verifier, at)
        return at

    def _next_place(self, at: int) -> int:
        """Where something stands that was certainly written: at the mark, too, since replay begins there."""
        found = proof_behind(self._reader, self._taken.verifier, at)
        end = self._reader.size if found is None else self._framing.first_special(at + 1, found)
        return min(end, self._mark) if at < self._mark else end

    # ── a chunk that is framed ───────────────────────────────────────────────────────────────────────

    def _pass(self, chunk: Chunk) -> int:
        """Takes what is sound of it; answers where the walk goes on."""
        swollen = _filled_padding(chunk) if self._scan.owner is Owner.BOOKIE else None
        judged, digests = self._judge(chunk)
        doubtful = judged.doubtful + [index for some in judged.unverified.values() for index in some.tolist()]
        index_of = {int(chunk.numbers[index]): index for index in doubtful}
        bad, behind, count = [], chunk.end, len(chunk.framed.begins)
        if swollen is not None:
            count = bisect_left(chunk.framed.begins, swollen - chunk.offset)
            behind = self._resume(self._next_place(swollen + 1))
            self.flaws.append(FlawAt(FlawKind.HOLE, Flaw.NOT_ZERO, swollen, behind, detail="padding"))
        for number in (one for one in sorted({*chunk.others, *index_of}) if one < count):
            index = index_of.get(number)
            around = self._special(chunk, number) if index is None else self._entry(chunk, index, digests)
            if around is None:
                continue
            self.flaws += around.flaws
            bad.append(number)
            if not around.is_framed:
                behind, count = self._resume(around.behind), number
                break
        good = np.flatnonzero((chunk.numbers < count) & ~np.isin(chunk.numbers, bad))
        self._taken.entries(chunk.entries, digests, good)
        self._taken.records += len(bad)
        proven = np.setdiff1d(good, list(self._unverified), assume_unique=True)
        if len(proven):
            self._proven = int(chunk.entries.offsets[proven[-1]])
        return behind

    def _judge(self, chunk: Chunk) -> tuple[Judged, Fingerprints]:
        self._unverified.clear()
        if not len(chunk.entries):
            return Judged([]), np.empty(0, dtype=np.uint64)
        return judge(chunk.entries.block, chunk.entries.ledgers, self._taken.types)

    def _special(self, chunk: Chunk, number: int) -> Around | None:
        """A record that is no plain entry."""
        offset, end = chunk.place(number)
        record = codec.decode_record(chunk.body(number), self._reader.framing.version)
        item = StoredRecord(offset, end, record)
        match record:
            case Damaged():
                return self._wrong(item, FlawKind.RECORD, record)
            case codec.UnknownRecord(entry_id=entry_id):
                # No bookie writes one: it is an entry whose id is damaged.
                return self._wrong(
                    item, FlawKind.RECORD, Damaged(0, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
                )
            case codec.EntryRecord():
                return self._wrong(item, FlawKind.RECORD, Damaged(0, Flaw.ENTRY_SHORT))
        self._taken.fact(offset, record)
        return None

    def _entry(self, chunk: Chunk, index: int, digests: Fingerprints) -> Around | None:
        """An entry that was not proven together with others."""
        verifier, body = self._taken.verifier, bytes(chunk.entries.block.body(index))
        ledger_id, entry_id = IDS.unpack_from(body)
        offset = int(chunk.entries.offsets[index])
        item = StoredRecord(
            offset, offset + LENGTH_WORD_SIZE + len(body), codec.EntryRecord(ledger_id, entry_id, body)
        )
        check = verifier.check(body)
        self._taken.types.has_looked_at(ledger_id)
        if check is DigestCheck.MISMATCH:
            return self._wrong(item, FlawKind.DIGEST, Damaged(0, Flaw.DIGEST))
        known = verifier.digester(ledger_id)
        digests[index] = digest_word(body, None if known is None else known.digest_type)
        if check is DigestCheck.OK:
            return None
        if has_swallowed(self._reader, verifier, item):
            return self._wrong(item, FlawKind.DIGEST, Damaged(0, Flaw.DIGEST, "other entries stand inside"))
        if verifier.doubts(ledger_id):
            flaw = FlawAt(FlawKind.DOUBT, Flaw.DIGEST_UNKNOWN, item.offset, item.end, ledger_id, entry_id)
            return Around([flaw], item.end, is_framed=True)
        self._unverified.add(index)
        self._taken.unverified[ledger_id] += 1
        return None

    def _wrong(self, item: StoredRecord, kind: FlawKind, damage: Damaged) -> Around:
        return self._framing.around_record(item, kind, damage, self._next_place)


def _filled_padding(chunk: Chunk) -> int | None:
    """Where the first padding record begins that is not all zeros, as a bookie's always is.

    One whose length has grown has swallowed records, and nobody else would notice.
    """
    for start, end in chunk.framed.paddings:
        if any(chunk.data[start + codec.PREFIX_SIZE : end]):
            return chunk.offset + start
    return None

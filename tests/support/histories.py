"""Random histories of journals on a simulated disk: the protocol's journal side, in the small.

It writes groups and syncs them, rolls, moves the mark, closes, crashes at any operation, and opens again by
the verdict over what is left, writing again what it found and cannot prove. What was acknowledged must be
there after every opening, and nothing that was never written.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from journals import START, OurJournal, entry_bytes, scan_all
from journals import reader as journal_reader

from recovery.chain import Required, Verdict, judge
from recovery.crashlab import RandomFate, SimulatedDisk, Stopped, Tearing
from recovery.decision import Decision
from storage import filenames
from storage.codec import journal as codec
from storage.codec.seal import GroupFlag
from storage.filenames import FileKind
from storage.journal_reader import StoredPadding, StoredRecord
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.files import Directory, WriteFile

Entries = dict[tuple[int, int], bytes]
AHEAD = 8 << 10
"""Zeros written in front of the groups."""


class Broken(AssertionError):
    """What the protocol promises does not hold."""


def replay(
    files: dict[int, bytes], mark: JournalPosition, required: list[Required]
) -> tuple[Verdict, Entries, Entries]:
    """The verdict, the entries that count by it, and those of them that nothing proves durable."""
    verdict = judge(mark, scan_all(files, mark), required)
    found: Entries = {}
    unproven: Entries = {}
    for position, record in [] if verdict.is_refused else list(_counting(verdict, files)):
        if isinstance(record, codec.EntryRecord):
            found[record.ledger_id, record.entry_id] = record.data
            if position > verdict.durable_up_to:
                unproven[record.ledger_id, record.entry_id] = record.data
    return verdict, found, unproven


def _counting(
    verdict: Verdict, files: dict[int, bytes]
) -> Iterator[tuple[JournalPosition, codec.Record | object]]:
    """The records that count, each with its end."""
    for one in verdict.standings:
        scan = one.scan
        ranges = []
        if one.decision in (Decision.USE, Decision.CUT):
            ranges.append((scan.start, one.end))
        if one.decision in (Decision.CUT, Decision.KEEP):
            ranges.append((scan.kept.start, scan.kept.end))
        for start, end in ranges:
            for item in journal_reader(files[scan.journal_id], scan.journal_id).items(start):
                if not isinstance(item, StoredRecord | StoredPadding) or item.end > end:
                    break
                if isinstance(item, StoredRecord):
                    yield JournalPosition(scan.journal_id, item.end), item.record


class History:
    """One seeded history."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.disk = SimulatedDisk(sector_size=4096)
        self.mark = START
        self.newest_named = 0
        self.acknowledged: Entries = {}
        self.written: Entries = {}
        self.crashes = 0
        self._journal: OurJournal | None = None
        self._file: WriteFile | None = None
        self._directory = self.disk.root()
        self._durable_up_to = START

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────

    def run(self, steps: int) -> None:
        """Plays so many steps, crashing at any operation of any of them."""
        self._boot()
        for _ in range(steps):
            if self.dice.random() < 0.3:
                stop = self.dice.choice([self.disk.stop_before, self.disk.stop_within])
                stop(len(self.disk.trace) + self.dice.randint(1, 6))
            try:
                self.dice.choice([self.add, self.add, self.add, self.roll, self.checkpoint, self.close])()
            except Stopped:
                self.crash()

    def add(self) -> None:
        """One group: one write, one sync, and only then the answer."""
        entries = {}
        for _ in range(self.dice.choice([1, 1, 2, 3, 12])):
            ids = self.dice.randrange(3), len(self.written)
            payload = self.dice.randbytes(self.dice.choice([1, 40, 900, 5000]))
            entries[ids] = self.written[ids] = entry_bytes(*ids, payload)
        if self._journal is None:
            self._begin([])
        flags = self.dice.choice([GroupFlag.NONE] * 9 + [GroupFlag.ATOMIC])
        self._group([codec.encode_record(data) for data in entries.values()], flags)
        self.acknowledged |= entries

    def roll(self) -> None:
        """A new journal; only one with a group in it may be followed by another."""
        if self._journal is not None and self._journal.sequence:
            self._begin([])

    def checkpoint(self) -> None:
        """Everything acknowledged is elsewhere now: the mark moves to the end, older journals may go."""
        if self._journal is None or not self._journal.sequence:
            return
        self.mark, self.acknowledged = self._durable_up_to, {}
        self.newest_named = self._journal.journal_id
        for journal_id in self._journal_ids():
            if journal_id < self.mark.journal_id and self.dice.random() < 0.5:
                self._directory.remove(filenames.journal(journal_id))

    def close(self) -> None:
        """A clean close vouches for the last group; then the directory is opened again."""
        if self._journal is not None and self._journal.sequence:
            self._group([])
        self.disk.kill()
        self._boot()

    def crash(self) -> None:
        """A kill or a power cut, and then again one inside the opening, until it comes through."""
        self.crashes += 1
        if self.dice.random() < 0.4:
            self.disk.kill()
        else:
            self.disk.power_cut(RandomFate(self.dice.getrandbits(32), self.dice.choice(list(Tearing))))
        if self.dice.random() < 0.3:
            self.disk.stop_before(len(self.disk.trace) + self.dice.randint(1, 12))
        try:
            self._boot()
        except Stopped:
            self.crash()

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────

    def _boot(self) -> None:
        self._directory = self.disk.root()
        self._journal = self._file = None
        # A name read now may still be taken away by a power cut.
        self._directory.sync()
        verdict, found, unproven = replay(self.files(), self.mark, self.required())
        if verdict.is_refused:
            raise Broken(f"a good store is refused: {verdict}")
        self.check(found)
        self._durable_up_to = verdict.durable_up_to
        for name in self._directory.names():
            if filenames.parse(name).kind is FileKind.JOURNAL_DRAFT:
                self._directory.remove(name)
        if unproven:
            self._begin([codec.encode_record(data) for data in unproven.values()])
        # What was seen once must stay.
        self.acknowledged = found

    def check(self, found: Entries) -> None:
        """Every acknowledged entry, exact; nothing that was never written."""
        lost = [ids for ids, data in self.acknowledged.items() if found.get(ids) != data]
        if lost:
            raise Broken(f"acknowledged entries are lost: {lost}")
        if any(self.written.get(ids) != data for ids, data in found.items()):
            raise Broken("an entry that nobody wrote")

    def files(self) -> dict[int, bytes]:
        """The journals as they can be read now."""
        files = {}
        for journal_id in self._journal_ids():
            with self.disk.root().open(filenames.journal(journal_id)) as file:
                files[journal_id] = file.read(0, file.size())
        return files

    def required(self) -> list[Required]:
        named = Required(self.newest_named, "the mark's trailer")
        return [named] if self.newest_named else []

    def _journal_ids(self) -> list[int]:
        names = map(filenames.parse, self.disk.root().names())
        return sorted(name.number or 0 for name in names if name.kind is FileKind.JOURNAL)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, carried: list[bytes]) -> None:
        """A new journal: a draft, synced, renamed, its name synced; by then it holds what is carried over."""
        journal_id = max([self.mark.journal_id, *self._journal_ids()]) + 1
        self._journal = OurJournal(journal_id, salt=self.dice.getrandbits(64), size=0)
        name = filenames.journal(journal_id)
        self._file = _create(self._directory, filenames.draft(name))
        self._file.write(0, [bytes(self._journal.data)])
        self._file.zero_fill(self._journal.end, self.dice.randrange(4) * AHEAD)
        self._file.sync()
        if carried:
            self._group(carried)
            self._group([])  # vouches for what it carries, before anybody can see it
        self._directory.rename(filenames.draft(name), name)
        self._directory.sync()
        # Announced in the mark, which is replaced whole.
        self.newest_named = journal_id

    def _group(self, records: list[bytes], flags: GroupFlag = GroupFlag.NONE) -> None:
        assert self._journal is not None
        assert self._file is not None
        start = self._journal.end
        self._journal.group(*records, durable_up_to=self._durable_up_to, flags=flags)
        self._file.write(start, [bytes(self._journal.data[start:])])
        self._file.sync()
        self._durable_up_to = self._journal.position


def _create(directory: Directory, name: str) -> WriteFile:
    if name in directory.names():
        directory.remove(name)
    return directory.create(name)


def rot(history: History) -> str:
    """Damages one place of the final disk, and says what became of it."""
    dice = history.dice
    files = history.files()
    if dice.random() < 0.2:
        return _lose_the_newest(history, files)
    before, _, _ = replay(files, history.mark, history.required())
    journal_id = dice.choice(sorted(files))
    data = bytearray(files[journal_id])
    offset = dice.randrange(len(data.rstrip(b"\0")) or 1)
    size = dice.choice([1, 512, 4096])
    start = offset - offset % size
    damaged = dice.choice([bytes(size), dice.randbytes(size), bytes([data[offset] ^ 1 << dice.randrange(8)])])
    data[start : start + size] = damaged[: len(data[start : start + size])].ljust(
        len(data[start : start + size]), b"\0"
    )
    verdict, found, _ = replay(files | {journal_id: bytes(data)}, history.mark, history.required())
    vouched = JournalPosition(journal_id, start) < before.durable_up_to
    if verdict.is_refused:
        return "refused"
    if any(history.written.get(ids) != one for ids, one in found.items()):
        raise Broken("rot has made an entry that nobody wrote")
    lost = [ids for ids, one in history.acknowledged.items() if found.get(ids) != one]
    if lost and vouched:
        raise Broken(f"rot at {journal_id:x}.txn@{start} is served in silence: {lost}")
    return "lost without a trace that it was there" if lost else "served"


def _lose_the_newest(history: History, files: dict[int, bytes]) -> str:
    newest = max(files)
    others = {journal_id: data for journal_id, data in files.items() if journal_id != newest}
    left = history.dice.choice([others, files | {newest: b""}, files | {newest: bytes(len(files[newest]))}])
    verdict, found, _ = replay(left, history.mark, history.required())
    lost = [ids for ids, one in history.acknowledged.items() if found.get(ids) != one]
    if lost and not verdict.is_refused:
        raise Broken(f"{newest:x}.txn is gone, and nobody says so: {lost}")
    return "refused" if verdict.is_refused else "served"

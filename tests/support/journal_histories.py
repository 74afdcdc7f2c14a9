"""Random histories of journals on a simulated disk: the journal part of the protocol without a store.

A history writes and syncs groups, rolls, moves the mark, closes, and crashes at any operation. It opens the
journals again by the verdict over the remaining files, and writes again what is not proven durable. After
every opening all acknowledged entries must be there, and no entry that was never written."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from journal_builder import START, OurJournal, entry_bytes, scan_all
from journal_builder import reader as journal_reader

from recovery.crashlab import RandomFate, SimulatedDisk, Stopped, Tearing
from recovery.replay.chain import ChainVerdict, RequiredJournal, judge
from recovery.replay.decision import Decision
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.entry.position import JournalPosition
from storage.journal import format as journal_format
from storage.journal.reader import StoredPadding, StoredRecord
from storage.journal.seal import GroupFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.disk.files import Directory, WriteFile

Entries = dict[tuple[int, int], bytes]
AHEAD = 8 << 10
"""The step in which journals are filled with zeros ahead of the groups."""


class ProtocolBroken(AssertionError):
    """A promise of the protocol does not hold."""


def replay(
    files: dict[int, bytes], mark: JournalPosition, required: list[RequiredJournal]
) -> tuple[ChainVerdict, Entries, Entries]:
    """Return the verdict, the entries that it accepts, and those of them that are not proven durable."""
    verdict = judge(mark, scan_all(files, mark), required)
    found: Entries = {}
    unproven: Entries = {}
    for position, record in [] if verdict.is_refused else list(_counting(verdict, files)):
        if isinstance(record, journal_format.EntryRecord):
            found[record.ledger_id, record.entry_id] = record.data
            if position > verdict.durable_up_to:
                unproven[record.ledger_id, record.entry_id] = record.data
    return verdict, found, unproven


def _counting(
    verdict: ChainVerdict, files: dict[int, bytes]
) -> Iterator[tuple[JournalPosition, journal_format.Record | object]]:
    """Yield the accepted records, each with its end."""
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


class JournalHistory:
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
        """Run this number of steps, with crashes at random operations."""
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
        """Add one group: one write, one sync, then the acknowledgement."""
        entries = {}
        for _ in range(self.dice.choice([1, 1, 2, 3, 12])):
            ids = self.dice.randrange(3), len(self.written)
            payload = self.dice.randbytes(self.dice.choice([1, 40, 900, 5000]))
            entries[ids] = self.written[ids] = entry_bytes(*ids, payload)
        if self._journal is None:
            self._begin([])
        flags = self.dice.choice([GroupFlag.NONE] * 9 + [GroupFlag.ATOMIC])
        self._group([journal_format.encode_record(data) for data in entries.values()], flags)
        self.acknowledged |= entries

    def roll(self) -> None:
        """Begin a new journal if the current one has a group."""
        if self._journal is not None and self._journal.sequence:
            self._begin([])

    def checkpoint(self) -> None:
        """Move the mark to the end and remove older journals, as if all acknowledged entries were in entry
        logs."""
        if self._journal is None or not self._journal.sequence:
            return
        self.mark, self.acknowledged = self._durable_up_to, {}
        self.newest_named = self._journal.journal_id
        for journal_id in self._journal_ids():
            if journal_id < self.mark.journal_id and self.dice.random() < 0.5:
                self._directory.remove(filenames.journal(journal_id))

    def close(self) -> None:
        """Close cleanly, which proves the last group durable, and open again."""
        if self._journal is not None and self._journal.sequence:
            self._group([])
        self.disk.kill()
        self._boot()

    def crash(self) -> None:
        """Kill or cut the power, then also during openings, until an opening succeeds."""
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
            raise ProtocolBroken(f"a good store is refused: {verdict}")
        self.check(found)
        self._durable_up_to = verdict.durable_up_to
        for name in self._directory.names():
            if filenames.parse(name).kind is FileKind.JOURNAL_DRAFT:
                self._directory.remove(name)
        if unproven:
            self._begin([journal_format.encode_record(data) for data in unproven.values()])
        # Entries that an opening has shown must stay.
        self.acknowledged = found

    def check(self, found: Entries) -> None:
        """Check that every acknowledged entry is there, and nothing that was never written."""
        lost = [ids for ids, data in self.acknowledged.items() if found.get(ids) != data]
        if lost:
            raise ProtocolBroken(f"acknowledged entries are lost: {lost}")
        if any(self.written.get(ids) != data for ids, data in found.items()):
            raise ProtocolBroken("an entry that was never written")

    def files(self) -> dict[int, bytes]:
        """Return the content of all journals."""
        files = {}
        for journal_id in self._journal_ids():
            with self.disk.root().open(filenames.journal(journal_id)) as file:
                files[journal_id] = file.read(0, file.size())
        return files

    def required(self) -> list[RequiredJournal]:
        named = RequiredJournal(self.newest_named, "the mark's trailer")
        return [named] if self.newest_named else []

    def _journal_ids(self) -> list[int]:
        names = map(filenames.parse, self.disk.root().names())
        return sorted(name.number or 0 for name in names if name.kind is FileKind.JOURNAL)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, carried: list[bytes]) -> None:
        """Begin a new journal as a synced draft that is renamed. It contains the carried-over entries from
        the start."""
        journal_id = max([self.mark.journal_id, *self._journal_ids()]) + 1
        self._journal = OurJournal(journal_id, salt=self.dice.getrandbits(64), size=0)
        name = filenames.journal(journal_id)
        self._file = _create(self._directory, filenames.draft(name))
        self._file.write(0, [bytes(self._journal.data)])
        self._file.zero_fill(self._journal.end, self.dice.randrange(4) * AHEAD)
        self._file.sync()
        if carried:
            self._group(carried)
            self._group([])  # proves the carried-over group durable before the journal has its name
        self._directory.rename(filenames.draft(name), name)
        self._directory.sync()
        # The mark names the new journal. It is replaced by a rename.
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


def rot(history: JournalHistory) -> str:
    """Damage one place of the final disk, and return what the next opening did."""
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
        raise ProtocolBroken("rot has made an entry that was never written")
    lost = [ids for ids, one in history.acknowledged.items() if found.get(ids) != one]
    if lost and vouched:
        raise ProtocolBroken(f"rot at {journal_id:x}.txn@{start} is served in silence: {lost}")
    return "lost without a trace that it was there" if lost else "served"


def _lose_the_newest(history: JournalHistory, files: dict[int, bytes]) -> str:
    newest = max(files)
    others = {journal_id: data for journal_id, data in files.items() if journal_id != newest}
    left = history.dice.choice([others, files | {newest: b""}, files | {newest: bytes(len(files[newest]))}])
    verdict, found, _ = replay(left, history.mark, history.required())
    lost = [ids for ids, one in history.acknowledged.items() if found.get(ids) != one]
    if lost and not verdict.is_refused:
        raise ProtocolBroken(f"{newest:x}.txn is gone, and this is not reported: {lost}")
    return "refused" if verdict.is_refused else "served"

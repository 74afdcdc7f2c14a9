"""Directories on a simulated disk with our logs, a bookie's logs, journals and marks."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from entry_log_builder import Log
from file_index import FileIndexPlace
from journal_builder import entry_bytes

from recovery.bookkeeper.import_directory import ImportedDirectory, import_directory
from recovery.crashlab import SimulatedDisk
from recovery.directory.layout import Layout
from recovery.rebuild.rebuild import RebuiltIndex, rebuild
from storage.checkpoint import mark_format as mark_codec
from storage.checkpoint.mark import mark_of
from storage.disk import cookie_format, filenames
from storage.entry import record_chunk
from storage.entry.format import IDS
from storage.entry.position import JournalPosition, LogPosition
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage
from storage.entrylog.lineage_format import Lineage
from storage.entrylog.log_set import EntryLogs
from storage.index.state import IndexState
from storage.ledgers.metadata_log import MetadataLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.port import Index

STORE_ID = bytes(range(16))
MARK = JournalPosition(9, 4096)


class SimulatedDirectories:
    """One directory with journals and ledgers. Everything in it is durable."""

    def __init__(
        self, disk: SimulatedDisk | None = None, last_log: int | None = None, sector_size: int = 512
    ) -> None:
        self.disk = SimulatedDisk(sector_size=sector_size) if disk is None else disk
        if disk is None:
            for outer in (filenames.JOURNAL_DIRECTORY, filenames.LEDGER_DIRECTORY):
                self.disk.root().directory(outer).make()
                self.disk.root().directory(outer).directory(filenames.CURRENT).make()
                self.disk.root().directory(outer).sync()
            self.disk.root().sync()
        self.state = IndexState()
        self._last_log = last_log
        self._logs: EntryLogs | None = None

    @property
    def layout(self) -> Layout:
        return Layout(self.disk.root())

    @property
    def ledgers(self) -> Directory:
        return self.layout.ledgers

    @property
    def place(self) -> FileIndexPlace:
        return FileIndexPlace(self.ledgers)

    # ── what a bookie leaves ─────────────────────────────────────────────────────────────────────────

    def put(self, directory: Directory, name: str, data: bytes) -> None:
        """Write a file durably."""
        if name in directory.names():
            directory.remove(name)
        with directory.create(name) as file:
            file.write(0, [data])
            file.sync()
        directory.sync()

    def put_log(self, log_id: int, log: Log | bytes) -> None:
        self.put(self.ledgers, filenames.entry_log(log_id), log.file() if isinstance(log, Log) else log)

    def put_journal(self, journal_id: int, data: bytes) -> None:
        self.put(self.layout.journal, filenames.journal(journal_id), data)

    def put_cookies(self) -> None:
        """Write the cookies of a store with this id."""
        stamped = cookie_format.encode(
            cookie_format.Cookie("here:1", ("journal",), ("ledgers",), STORE_ID.hex())
        )
        for directory in (self.layout.journal, self.ledgers):
            self.put(directory, filenames.COOKIE, stamped)

    def put_mark(self, data: bytes | None = None) -> None:
        """Write a bookie's mark, or the given bytes."""
        self.put(
            self.ledgers,
            filenames.LAST_MARK,
            mark_codec.encode(mark_codec.Mark(MARK)) if data is None else data,
        )

    def log(self, log_id: int) -> bytes:
        with self.ledgers.open(filenames.entry_log(log_id)) as file:
            return file.read(0, file.size())

    def flip(self, log_id: int, offset: int) -> None:
        data = bytearray(self.log(log_id))
        data[offset] ^= 0x10
        self.put_log(log_id, bytes(data))

    # ── what we leave ────────────────────────────────────────────────────────────────────────────────

    def new_run(self) -> None:
        """End the process and begin another, which writes to new logs."""
        if self._logs is not None:
            self._logs.abandon()
        self._logs = None

    def checkpoint(self, *entries: bytes) -> LogPosition:
        """Write the entries as a checkpoint does, and return the durable ends of the logs."""
        self.write(*entries)
        assert self._logs is not None
        ends = {**self.state.log_ends, **self._logs.ends}
        self.state = IndexState(
            self.state.generation + 1, MARK, self._logs.last_log, ends, gone=self.state.gone
        )
        assert self.state.log_end is not None
        return self.state.log_end

    def write(self, *entries: bytes) -> None:
        """Write the entries as a checkpoint does that is interrupted before its end."""
        if self._logs is None:
            last_log = self._last_log if self.state.last_log is None else self.state.last_log
            self._logs = EntryLogs(self.ledgers, STORE_ID, 1 << 30, last_log)
        self._logs.begin(self.state.generation + 1, self.state.log_end)
        for ledger_id, some in groupby(entries, lambda data: int(IDS.unpack_from(data)[0])):
            records = [entrylog_format.encode_record(data) for data in some]
            self._logs.append([*record_chunk.of_records(ledger_id, range(len(records)), records)])
        self._logs.sync()
        self._logs.sync_names()

    def put_lineage(
        self, *kept: LogPosition, gone: tuple[int, ...] = (), generation: int | None = None
    ) -> None:
        """Write a lineage; by default of the present generation, with all logs."""
        known = kept or tuple(LogPosition(one, end) for one, end in self.state.log_ends.items())
        written = self.state.generation if generation is None else generation
        lineage.store(self.ledgers, Lineage(written, known, gone), STORE_ID)

    def commit_removal(self, *log_ids: int) -> None:
        """Write the lineage without these logs, and leave them out of the state. Their files stay."""
        kept = {one: end for one, end in self.state.log_ends.items() if one not in log_ids}
        gone = tuple(sorted({*self.state.gone, *log_ids}))
        self.put_lineage(*(LogPosition(*one) for one in kept.items()), gone=gone)
        self.state = replace(self.state, generation=self.state.generation + 1, log_ends=kept, gone=gone)

    def remove_logs(self, *log_ids: int) -> None:
        """Remove these logs as a collection does."""
        self.commit_removal(*log_ids)
        for log_id in log_ids:
            self.ledgers.remove(filenames.entry_log(log_id))
        self.ledgers.sync()

    @property
    def mark(self) -> mark_codec.Mark:
        return mark_of(self.state, 0)

    def put_rows(self, *rows: LedgerRecord) -> int:
        """Write the ledgers' metadata, and return the sequence of the group."""
        kept = MetadataLog(self.ledgers, {}, 0)
        kept.append(rows)
        kept.close()
        return kept.sequence

    def put_index(
        self, *rows: LedgerRecord, state: IndexState | None = None, ledgers: Iterable[int] = ()
    ) -> None:
        """Write an index with these ledgers."""
        draft = self.place.draft()
        with draft.change() as change:
            for ledger_id in ledgers:
                change.put(ledger_id, [0], [4100])
            change.put_rows(rows)
            change.commit(self.state if state is None else state)
        draft.publish().close()

    # ── what is made of it ───────────────────────────────────────────────────────────────────────────

    def rebuilt(self, *rows: LedgerRecord) -> RebuiltIndex:
        return rebuild(self.place, self.ledgers, self.mark, STORE_ID, {row.ledger_id: row for row in rows}, 0)

    def imported(self) -> ImportedDirectory:
        imported = import_directory(self.layout, self.place, STORE_ID)
        imported.rows.close()
        return imported

    def placed(self, index: Index) -> dict[tuple[int, int], bytes]:
        """Return the bytes at each place of the index, by ledger and entry id."""
        return {
            (ledger_id, entry_id): self._at(location)
            for ledger_id in index.ledgers()
            for entry_id, location in index.locations(ledger_id, 0, 1 << 20)
        }

    def _at(self, location: int) -> bytes:
        offset = location & 0xFFFFFFFF
        data = self.log(location >> 32)
        size = int.from_bytes(data[offset - 4 : offset], "big")
        return data[offset : offset + size]


def entries(ledger_id: int, ids: Iterable[int], payload: bytes = b"") -> list[bytes]:
    return [entry_bytes(ledger_id, entry_id, payload) for entry_id in ids]


def ids(placed: Iterable[tuple[int, int]], ledger_id: int) -> list[int]:
    """Return the entry ids of a ledger that have a place."""
    return sorted(entry_id for found, entry_id in placed if found == ledger_id)

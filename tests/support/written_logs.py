"""Directories on a simulated disk with logs of ours, a bookie's logs, journals and marks in them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from entrylogs import Log
from file_index import FileIndexPlace
from journals import entry_bytes

from recovery.adoption import Adopted, adopt
from recovery.crashlab import SimulatedDisk
from recovery.founding import Layout
from recovery.rebuild import Rebuilt, rebuild
from storage import filenames
from storage.codec import cookie as cookie_codec
from storage.codec import entrylog as codec
from storage.codec import mark as mark_codec
from storage.codec import piece
from storage.codec.entry import IDS
from storage.entry_logs import EntryLogs
from storage.index_state import IndexState
from storage.lastmark import mark_of
from storage.ledger_rows import LedgerRows
from storage.position import JournalPosition, LogPosition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.files import Directory
    from storage.index import Index
    from storage.row import LedgerRow

STORE_ID = bytes(range(16))
MARK = JournalPosition(9, 4096)


class Ground:
    """One directory that has journals and ledgers in it, everything durable."""

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
        """The file as somebody has left it, durably."""
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
        """The directories as a store of this id stamps them."""
        stamped = cookie_codec.encode(
            cookie_codec.Cookie("here:1", ("journal",), ("ledgers",), STORE_ID.hex())
        )
        for directory in (self.layout.journal, self.ledgers):
            self.put(directory, filenames.COOKIE, stamped)

    def put_mark(self, data: bytes | None = None) -> None:
        """A bookie's mark, unless other bytes are given."""
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
        """The process ends, and another begins: it writes to logs of its own."""
        if self._logs is not None:
            self._logs.abandon()
        self._logs = None

    def checkpoint(self, *entries: bytes) -> LogPosition:
        """Writes the entries as a checkpoint does; answers where the durable content ends then."""
        self.write(*entries)
        assert self._logs is not None
        ends = {**self.state.log_ends, **self._logs.ends}
        self.state = IndexState(self.state.generation + 1, MARK, self._logs.last_log, ends)
        assert self.state.log_end is not None
        return self.state.log_end

    def write(self, *entries: bytes) -> None:
        """Writes the entries as a checkpoint does that is then interrupted."""
        if self._logs is None:
            last_log = self._last_log if self.state.last_log is None else self.state.last_log
            self._logs = EntryLogs(self.ledgers, STORE_ID, 1 << 30, last_log)
        self._logs.begin(self.state)
        for ledger_id, some in groupby(entries, lambda data: int(IDS.unpack_from(data)[0])):
            records = [codec.encode_record(data) for data in some]
            self._logs.append([*piece.of_records(ledger_id, range(len(records)), records)])
        self._logs.sync()
        self._logs.sync_names()

    @property
    def mark(self) -> mark_codec.Mark:
        return mark_of(self.state, 0)

    def put_rows(self, *rows: LedgerRow) -> int:
        """The rows as we have written them down; answers with their group."""
        kept = LedgerRows(self.ledgers, {}, 0)
        kept.append(rows)
        kept.close()
        return kept.sequence

    def put_index(
        self, *rows: LedgerRow, state: IndexState | None = None, ledgers: Iterable[int] = ()
    ) -> None:
        """An index that knows these ledgers."""
        draft = self.place.draft()
        with draft.change() as change:
            for ledger_id in ledgers:
                change.put(ledger_id, [0], [4100])
            change.put_rows(rows)
            change.commit(self.state if state is None else state)
        draft.publish().close()

    # ── what is made of it ───────────────────────────────────────────────────────────────────────────

    def rebuilt(self, *rows: LedgerRow) -> Rebuilt:
        return rebuild(self.place, self.ledgers, self.mark, STORE_ID, {row.ledger_id: row for row in rows}, 0)

    def adopted(self) -> Adopted:
        adopted = adopt(self.layout, self.place)
        adopted.rows.close()
        return adopted

    def placed(self, index: Index) -> dict[tuple[int, int], bytes]:
        """What stands at each place, by ledger and entry."""
        return {
            (ledger_id, entry_id): self._at(location)
            for ledger_id in index.ledgers()
            for entry_id, location in index.places(ledger_id, 0, 1 << 20)
        }

    def _at(self, location: int) -> bytes:
        offset = location & 0xFFFFFFFF
        data = self.log(location >> 32)
        size = int.from_bytes(data[offset - 4 : offset], "big")
        return data[offset : offset + size]


def entries(ledger_id: int, ids: Iterable[int], payload: bytes = b"") -> list[bytes]:
    return [entry_bytes(ledger_id, entry_id, payload) for entry_id in ids]


def ids(placed: Iterable[tuple[int, int]], ledger_id: int) -> list[int]:
    """The entries of a ledger that have a place."""
    return sorted(entry_id for found, entry_id in placed if found == ledger_id)

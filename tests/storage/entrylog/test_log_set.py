"""The logs of a running store: their ids, and the logs that count after an attempt is given up."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from journal_builder import entry_record

from recovery.crashlab import SimulatedDisk
from recovery.rebuild.entry_log_chain import read_header
from storage.disk.posix import PosixDirectory, PosixWriteFile
from storage.entry import record_chunk
from storage.entry.position import LOG_ID_MAX, EntryLocation
from storage.entrylog.format import BLOCK_SIZE, LogHeader, Origin
from storage.entrylog.log_set import EntryLogs, age_of, log_ids

if TYPE_CHECKING:
    from storage.entry.record_chunk import RecordChunk

STORE_ID = bytes(range(16))


def chunks(ledger_id: int, count: int = 1) -> list[RecordChunk]:
    records = [entry_record(ledger_id, entry_id) for entry_id in range(count)]
    return [*record_chunk.of_records(ledger_id, range(count), records)]


def written(logs: EntryLogs, ledger_id: int) -> int:
    """Return the log that takes an attempt of a checkpoint."""
    logs.begin(1, None)
    logs.append(chunks(ledger_id))
    logs.sync()
    assert logs.newest_log is not None
    return logs.newest_log


def test_the_id_of_a_removed_log_is_not_given_again() -> None:
    logs = EntryLogs(SimulatedDisk().root(), STORE_ID, 1 << 20, None)
    first = written(logs, 7)
    logs.discard()

    assert written(logs, 7) == first + 1


def test_the_id_of_the_log_that_was_written_last_before_an_opening_is_not_given_again() -> None:
    directory = SimulatedDisk().root()

    assert written(EntryLogs(directory, STORE_ID, 1 << 20, 4), 7) == 5
    assert log_ids(directory) == [5]


def test_the_first_of_chunks_that_do_not_fit_together_goes_into_the_log_in_use() -> None:
    logs = EntryLogs(SimulatedDisk().root(), STORE_ID, 3 * BLOCK_SIZE, None)
    logs.begin(1, None)
    (before,) = logs.append(chunks(7, 20))
    small, large = chunks(8), [*record_chunk.of_records(9, range(1), [bytes(2 * BLOCK_SIZE)])]

    first, second = logs.append([*small, *large])

    logs_of = [EntryLocation.unpack(one[0]).log_id for one in (before, first, second)]
    assert logs_of == [0, 0, 1]


def test_chunks_that_fit_together_into_an_empty_log_still_fill_the_log_in_use() -> None:
    logs = EntryLogs(SimulatedDisk().root(), STORE_ID, 3 * BLOCK_SIZE, None)
    logs.begin(1, None)
    logs.append(chunks(7, 20))
    small, large = chunks(8), [*record_chunk.of_records(9, range(1), [bytes(2 * BLOCK_SIZE - 200)])]
    assert small[0].size + large[0].size <= 2 * BLOCK_SIZE

    first, second = logs.append([*small, *large])

    assert [EntryLocation.unpack(one[0]).log_id for one in (first, second)] == [0, 1]


def test_a_log_says_which_checkpoint_has_begun_it() -> None:
    directory = SimulatedDisk().root()
    logs = EntryLogs(directory, STORE_ID, 1 << 20, None)
    logs.begin(4, None)
    logs.append(chunks(7))

    header = read_header(directory, 0)

    assert isinstance(header, LogHeader)
    assert header.origin == Origin(STORE_ID, 4, None)


def test_bytes_are_counted_as_unsynced_until_the_sync() -> None:
    logs = EntryLogs(SimulatedDisk().root(), STORE_ID, 1 << 20, None)
    assert logs.unsynced == 0
    logs.begin(1, None)
    some = chunks(7, 3)
    logs.append(some)
    assert logs.unsynced == sum(one.size for one in some)

    logs.sync()

    assert logs.unsynced == 0


# ── logs on real files ───────────────────────────────────────────────────────────────────────────────────


class LogDirectory(PosixDirectory):
    """A directory of logs that counts its syncs, and may refuse the next one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.syncs = 0
        self.refuses = False

    def sync(self) -> None:
        self.syncs += 1
        if self.refuses:
            self.refuses = False
            raise OSError(errno.EIO, "bad")
        super().sync()


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_a_checkpoint_that_is_given_up_removes_the_logs_that_it_has_begun(
    tmp_path: Path,
) -> None:
    logs, before = EntryLogs(PosixDirectory(tmp_path), STORE_ID, 2 * BLOCK_SIZE, None), open_files()
    kept = written(logs, 7)
    logs.begin(2, None)
    for _ in range(3):
        logs.append([*record_chunk.of_records(9, range(1), [bytes(BLOCK_SIZE)])])
    assert log_ids(PosixDirectory(tmp_path)) == [kept, kept + 1, kept + 2, kept + 3]
    assert open_files() == before + 1
    logs.discard()
    assert log_ids(PosixDirectory(tmp_path)) == [kept]
    assert open_files() == before
    assert logs.unsynced == 0
    assert written(logs, 7) == kept + 4


def test_a_log_that_is_given_up_is_closed_and_stays(tmp_path: Path) -> None:
    logs, before = EntryLogs(PosixDirectory(tmp_path), STORE_ID, 1 << 20, None), open_files()
    first = written(logs, 7)
    logs.abandon()
    logs.abandon()
    assert open_files() == before
    assert written(logs, 7) == first + 1
    logs.seal()
    logs.seal()
    assert open_files() == before
    assert log_ids(PosixDirectory(tmp_path)) == [first, first + 1]


def test_a_log_whose_ledgers_map_cannot_be_written_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "bad")

    logs, before = EntryLogs(PosixDirectory(tmp_path), STORE_ID, 1 << 20, None), open_files()
    written(logs, 7)
    monkeypatch.setattr(PosixWriteFile, "write", fail)
    logs.seal()
    assert (logs.in_use, open_files()) == (None, before)


def test_names_are_synced_once_after_each_new_log_and_again_after_an_error(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    logs = EntryLogs(directory, STORE_ID, 1 << 20, None)
    logs.sync_names()
    assert directory.syncs == 0
    written(logs, 7)
    before, directory.refuses = directory.syncs, True
    with pytest.raises(OSError, match="bad"):
        logs.sync_names()
    for _ in range(2):
        logs.sync_names()
    assert directory.syncs == before + 2
    written(logs, 7)
    logs.sync_names()
    assert directory.syncs == before + 2


def test_a_log_that_was_begun_after_the_newest_known_one_sorts_after_it() -> None:
    for last in (7, 0, LOG_ID_MAX - 1):
        order = [(last + step) % LOG_ID_MAX for step in (-3, -1, 0, 1, 2)]
        assert sorted(sorted(order), key=age_of(last)) == order

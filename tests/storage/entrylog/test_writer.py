"""Entry logs that are written are read back, and no crash or error makes them say anything false."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from entry_log_builder import entries
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import entry_bytes, entry_record
from memory_files import MemoryFile
from sampling import every, many
from store_internals import file_of

from recovery.crashlab import (
    Exactly,
    FailedSync,
    Fault,
    LoseAll,
    RandomFate,
    Refused,
    ShortWrite,
    SimulatedDisk,
    Stopped,
    Verb,
    When,
)
from recovery.crashlab.model.pending import SectorRuined
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory
from storage.entry import record_chunk
from storage.entry.digest import DigestCheck
from storage.entry.digest_inference import EntryVerifier
from storage.entry.position import LOG_ID_MAX, EntryLocation
from storage.entry.read_result import Damaged, EndOfData
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.format import Origin
from storage.entrylog.reader import EntryLogReader, LogEntry, LogMap, NotSealed
from storage.entrylog.scan import LogFiller, MapSource
from storage.entrylog.writer import SIZE_MAX, EntryLogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from recovery.crashlab import Fate
    from storage.disk.files import Directory

ORIGIN = Origin(bytes(range(16)), 7, None)
LOG = 0x1F4
NAME = "1f4.log"

Places = dict[tuple[int, int], int]


@pytest.fixture(params=["posix", "simulated"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    """An empty directory."""
    return SimulatedDisk().root() if request.param == "simulated" else PosixDirectory(tmp_path)


def records(ledger_id: int, first: int, count: int, size: int = 30) -> list[bytes]:
    return [
        entry_record(ledger_id, one, bytes([65 + one % 26]) * size) for one in range(first, first + count)
    ]


def reader(directory: Directory, log_id: int = LOG) -> EntryLogReader:
    with directory.open(filenames.entry_log(log_id)) as file:
        content = file.read(0, file.size())
    opened = EntryLogReader(MemoryFile(content), log_id, EntryVerifier())
    entrylog_scan.learn_digest_types(opened)
    return opened


def scanned(directory: Directory, log_id: int = LOG) -> list[entrylog_scan.LogItem]:
    return list(entrylog_scan.items(reader(directory, log_id)))


def proven(directory: Directory) -> list[tuple[int, int]]:
    """Return the ledger and entry of each entry that a scan finds and whose digest matches."""
    found = (item for item in scanned(directory) if isinstance(item, LogEntry))
    return [item.ids for item in found if item.check is DigestCheck.OK]


def sizes_by_scan(directory: Directory) -> dict[int, int]:
    """Return the bytes per ledger, counted from the entries that a scan finds."""
    counted: Counter[int] = Counter()
    for item in scanned(directory):
        if isinstance(item, LogEntry):
            counted[item.ids[0]] += item.end - item.position.offset
    return dict(counted)


def content(directory: Directory, name: str) -> bytes:
    with directory.open(name) as file:
        return file.read(0, file.size())


# ── a new log ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_log_is_a_header_that_names_its_store_and_a_filler(directory: Directory) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    assert (writer.log_id, writer.end, writer.unsynced) == (LOG, 4096, 0)
    assert directory.names() == [NAME]
    assert reader(directory).header == entrylog_format.LogHeader(origin=ORIGIN)
    assert scanned(directory) == [LogFiller(1024, 4096), EndOfData(4096)]
    assert len(content(directory, NAME)) == 4096


def test_a_log_that_is_there_is_never_replaced(directory: Directory) -> None:
    with directory.create(NAME) as file:
        file.write(0, [b"entries of somebody"])
    with pytest.raises(FileExistsError):
        EntryLogWriter.create(directory, LOG, ORIGIN)
    assert directory.names() == [NAME]
    assert content(directory, NAME) == b"entries of somebody"


def test_a_draft_left_behind_is_replaced(directory: Directory) -> None:
    with directory.create(filenames.draft(NAME)) as file:
        file.write(0, [b"x" * 9000])
    EntryLogWriter.create(directory, LOG, ORIGIN)
    assert scanned(directory) == [LogFiller(1024, 4096), EndOfData(4096)]


@pytest.mark.parametrize("verb", [Verb.CREATE, Verb.WRITE, Verb.SYNC, Verb.RENAME])
def test_a_log_that_could_not_be_made_has_no_name_and_can_be_made_later(verb: Verb) -> None:
    disk = SimulatedDisk()
    disk.plant(Refused(When(verb=verb)))
    with pytest.raises(OSError, match=NAME):
        EntryLogWriter.create(disk.root(), LOG, ORIGIN)
    assert NAME not in disk.root().names()
    writer = EntryLogWriter.create(disk.root(), LOG, ORIGIN)
    append(writer, 1, records(1, 0, 1))
    assert entries(scanned(disk.root())) == [(1, 0)]


def test_a_log_that_could_not_be_made_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(PosixDirectory, "rename", lambda *_: (tmp_path / "nothing").stat())
    monkeypatch.setattr("storage.disk.posix.PosixWriteFile.close", lambda file: closed.append(file.name))
    with pytest.raises(FileNotFoundError):
        EntryLogWriter.create(PosixDirectory(tmp_path), LOG, ORIGIN)
    assert closed == [str(tmp_path / f"{NAME}.draft")]


def append(writer: EntryLogWriter, ledger_id: int, records: Sequence[bytes]) -> list[int]:
    """Write the records of one ledger; return their packed locations."""
    chunks = [*record_chunk.of_records(ledger_id, range(len(records)), records)]
    return [location for locations in writer.write(chunks) for location in locations]


# ── what is written is read back ─────────────────────────────────────────────────────────────────────────


def test_records_are_found_at_their_locations_and_by_a_scan(directory: Directory) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    placed: Places = {}
    for ledger_id, first, count in [(1, 0, 3), (2, 7, 1), (1, 3, 2)]:
        locations = append(writer, ledger_id, records(ledger_id, first, count))
        placed |= {(ledger_id, first + index): location for index, location in enumerate(locations)}
    writer.sync()

    opened = reader(directory)
    for ids, location in placed.items():
        frame = opened.frame_at(EntryLocation.unpack(location).position.offset)
        assert isinstance(frame, entrylog_format.LogFrame), ids
        assert opened.entry(frame).ids == ids
        assert [entrylog_format.encode_record(opened.entry(frame).data)] == records(*ids, 1)
    assert entries(scanned(directory)) == [(1, 0), (1, 1), (1, 2), (2, 7), (1, 3), (1, 4)]


def test_no_records_write_nothing(directory: Directory) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    assert append(writer, 1, []) == []
    assert (writer.end, writer.unsynced) == (4096, 0)
    writer.seal()
    assert reader(directory).ledgers_map() == NotSealed()


@pytest.mark.parametrize(
    "sizes",
    [
        [10] * 20_000,
        [2500] * 300,
        [3 << 20, 5, 3 << 20],
        [1] * 3000 + [1 << 20] + [1] * 3000,
        [2007, 2008, 2009],
    ],
    ids=["small", "large", "huge", "mixed", "about the limit"],
)
def test_records_of_any_size_follow_each_other(directory: Directory, sizes: list[int]) -> None:
    given = [entry_record(3, one, bytes([one % 251 + 1]) * size) for one, size in enumerate(sizes)]
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    append(writer, 9, records(9, 0, 1))
    begin = writer.end
    locations = append(writer, 3, given)

    assert writer.end - begin == sum(map(len, given))
    assert content(directory, NAME)[begin:] == b"".join(given)
    starts = [begin + sum(map(len, given[:index])) for index in (0, 1, len(given) - 1)]
    assert [locations[index] for index in (0, 1, -1)] == [LOG << 32 | start + 4 for start in starts]


@pytest.mark.parametrize("log_id", [0, 1, LOG_ID_MAX])
def test_locations_name_their_log(directory: Directory, log_id: int) -> None:
    writer = EntryLogWriter.create(directory, log_id, ORIGIN)
    [location] = append(writer, 1, records(1, 0, 1))
    assert EntryLocation.unpack(location) == EntryLocation(log_id, 4100)
    frame = reader(directory, log_id).frame_at(4096)
    assert isinstance(frame, entrylog_format.LogFrame)


RUNS = st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(1, 3000))


@given(st.lists(st.one_of(RUNS, st.just("sync"), st.just("begin")), max_size=12))
def test_whatever_is_appended_is_read_back_and_sealed(steps: list[tuple[int, int, int] | str]) -> None:
    directory = SimulatedDisk().root()
    placed: Places = {}
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    for number, step in enumerate(steps):
        match step:
            case "sync":
                writer.sync()
            case "begin":
                assert writer.begin() % 4096 == 0
            case (int(ledger_id), int(count), int(size)):
                locations = append(writer, ledger_id, records(ledger_id, number * 10, count, size))
                placed |= {(ledger_id, number * 10 + index): place for index, place in enumerate(locations)}
    writer.seal()

    found = scanned(directory)
    assert entries(found) == list(placed)
    assert [item.position.location.pack() for item in found if isinstance(item, LogEntry)] == list(
        placed.values()
    )
    assert found[-1] == EndOfData(writer.end)
    assert not any(isinstance(item, entrylog_scan.Hole) for item in found)
    metadata = entrylog_scan.metadata(reader(directory))
    assert metadata.sizes == sizes_by_scan(directory)
    assert metadata.source is (MapSource.MAP if placed else MapSource.SCAN)


# ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_begins_at_a_block_after_a_filler(directory: Directory) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    assert writer.begin() == 4096
    append(writer, 1, records(1, 0, 2))
    end = writer.end
    assert writer.begin() == writer.end == 8192
    append(writer, 1, records(1, 2, 1))
    assert LogFiller(end, 8192) in scanned(directory)
    assert entries(scanned(directory)) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("missing", [0, 1, 19, 20, 21, 4095])
def test_a_filler_fits_wherever_the_last_record_ends(directory: Directory, missing: int) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    empty = len(entry_record(1, 0, b"x")) - 1
    append(writer, 1, [entry_record(1, 0, b"x" * (8192 - missing - empty))])
    assert writer.end == 12288 - missing
    # A filler needs twenty bytes for itself.
    assert writer.begin() == (12288 if missing in (0, 20, 21, 4095) else 16384)
    append(writer, 1, records(1, 1, 1))
    assert entries(scanned(directory)) == [(1, 0), (1, 1)]


def test_a_sync_fills_its_last_block_and_counts_from_there(directory: Directory) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    append(writer, 1, records(1, 0, 2))
    size = sum(map(len, records(1, 0, 2)))
    assert writer.unsynced == size
    append(writer, 2, records(2, 0, 1))
    assert writer.unsynced == size + len(records(2, 0, 1)[0])
    writer.sync()
    assert (writer.unsynced, writer.end) == (0, 8192)
    assert writer.begin() == 8192
    assert writer.unsynced == 0


def test_no_record_lies_after_the_largest_31_bit_offset(tmp_path: Path) -> None:
    writer = EntryLogWriter.create(PosixDirectory(tmp_path), LOG, ORIGIN)
    last = records(1, 0, 1)
    writer.end = SIZE_MAX - len(last[0]) + 1
    with pytest.raises(AssertionError, match="rolls"):
        append(writer, 1, last)
    assert (tmp_path / NAME).stat().st_size == 4096
    writer.end -= 1
    [location] = append(writer, 1, last)
    assert EntryLocation.unpack(location) == EntryLocation(LOG, SIZE_MAX - len(last[0]) + 4)
    assert (tmp_path / NAME).stat().st_size == SIZE_MAX == 0x7FFFFFFF


# ── sealed ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_map_of_a_sealed_log_says_what_a_scan_finds(directory: Directory) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    for ledger_id, first, count in [(1, 0, 3), (2, 7, 1), (1, 3, 2)]:
        append(writer, ledger_id, records(ledger_id, first, count, 1500))
    writer.sync()
    append(writer, 5, records(5, 0, 1))
    assert reader(directory).ledgers_map() == NotSealed()
    end = writer.end
    writer.seal()

    opened = reader(directory)
    assert isinstance(opened.header, entrylog_format.LogHeader)
    assert opened.header == entrylog_format.LogHeader(1, end, 3, ORIGIN, opened.header.map_checksum)
    assert opened.proven_map() == opened.ledgers_map()
    assert opened.ledgers_map() == sizes_by_scan(directory)
    assert sizes_by_scan(directory)[1] == sum(map(len, records(1, 0, 5, 1500)))
    assert (writer.end, writer.unsynced) == (len(content(directory, NAME)), 0)


@pytest.mark.slow
def test_a_map_of_many_ledgers_comes_in_batches(directory: Directory) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    for ledger_id in range(10_001):
        append(writer, ledger_id, [entry_record(ledger_id, 0)])
    writer.seal()
    opened = reader(directory)
    batches = [item for item in entrylog_scan.items(opened) if isinstance(item, LogMap)]
    assert len(batches) == 2
    assert opened.ledgers_map() == {ledger_id: len(entry_record(ledger_id, 0)) for ledger_id in range(10_001)}


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────


def two_checkpoints(disk: SimulatedDisk, committed: list[tuple[int, int]]) -> None:
    """Write a log with two checkpoints and seal it. An entry is committed when its sync has returned."""
    directory = disk.root()
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    directory.sync()
    for first in (0, 3):
        writer.begin()
        for ledger_id in (1, 2):
            append(writer, ledger_id, records(ledger_id, first, 3, 700))
        writer.sync()
        committed += [(ledger_id, one) for ledger_id in (1, 2) for one in range(first, first + 3)]
    writer.seal()
    committed.append(SEALED)


SEALED = (-1, -1)
Moment = tuple[str, SimulatedDisk, list[tuple[int, int]]]


def moments(sector_size: int) -> Iterator[Moment]:
    """Return the disk at each operation, within each write, and at the end, and what was committed then."""
    disk, committed = SimulatedDisk(sector_size=sector_size), list[tuple[int, int]]()
    found: list[Moment] = []
    disk.watch(lambda operation: found.append((str(operation), disk.copy(), committed.copy())))
    two_checkpoints(disk, committed)
    yield from found
    yield "at the end", disk, committed
    for operation in disk.trace:
        half, committed = SimulatedDisk(sector_size=sector_size), []
        half.stop_within(operation.number)
        with pytest.raises(Stopped):
            two_checkpoints(half, committed)
        yield f"within {operation}", half, committed


def is_sound(directory: Directory, committed: Sequence[tuple[int, int]]) -> bool:
    """Return whether the log names its store, holds what was committed, and is sealed truly or not at all."""
    if NAME not in directory.names():
        return not committed
    opened = reader(directory)
    sizes = opened.ledgers_map()
    return (
        isinstance(opened.header, entrylog_format.LogHeader)
        and opened.header.origin == ORIGIN
        and set(committed) <= {*proven(directory), SEALED}
        and (sizes == sizes_by_scan(directory) or (sizes == NotSealed() and SEALED not in committed))
    )


@pytest.mark.sampled
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_a_crash_leaves_a_log_of_ours_with_all_that_was_synced_or_none(sector_size: int) -> None:
    seen = set()
    for what, disk, committed in every(5, moments(sector_size)):
        killed = disk.copy()
        killed.kill()
        assert is_sound(killed.root(), committed), what
        fates: list[Fate] = [*disk.fates(exhaustive_up_to=4), *map(RandomFate, range(many(20, 1)))]
        for fate in fates:
            after = disk.copy()
            after.power_cut(fate)
            assert is_sound(after.root(), committed), (what, fate)
            seen.add(tuple(after.root().names()))
    assert seen == {(), (NAME,), (filenames.draft(NAME),)}


def test_a_torn_sector_never_holds_committed_entries() -> None:
    for what, disk, committed in moments(sector_size=4096):
        ruined = frozenset((sector, SectorRuined(1)) for sector in disk.pending().sectors)
        disk.power_cut(Exactly("every sector in flight is ruined", ruined))
        if committed:
            assert set(committed) <= {*proven(disk.root()), SEALED}, what


def test_a_name_is_durable_only_after_the_sync_of_its_directory() -> None:
    disk = SimulatedDisk()
    EntryLogWriter.create(disk.root(), LOG, ORIGIN)
    named = disk.copy()
    named.root().sync()
    for machine in (disk, named):
        machine.power_cut(LoseAll())
    assert NAME not in disk.root().names()
    assert scanned(named.root()) == [LogFiller(1024, 4096), EndOfData(4096)]


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────

CALLS: dict[str, Callable[[EntryLogWriter], object]] = {
    "begin": lambda writer: writer.begin(),
    "append": lambda writer: append(writer, 1, records(1, 5, 1)),
    "append nothing": lambda writer: append(writer, 1, []),
    "sync": lambda writer: writer.sync(),
    "seal": lambda writer: writer.seal(),
}

FAILURES: dict[str, tuple[str, Fault]] = {
    "a filler": ("begin", Refused(When(verb=Verb.WRITE))),
    "an append": ("append", Refused(When(verb=Verb.WRITE))),
    "half an append": ("append", ShortWrite(When(verb=Verb.WRITE))),
    "a sync's filler": ("sync", Refused(When(verb=Verb.WRITE))),
    "a sync": ("sync", FailedSync(When(verb=Verb.SYNC))),
    "the map": ("seal", ShortWrite(When(verb=Verb.WRITE))),
    "the map's sync": ("seal", FailedSync(When(verb=Verb.SYNC))),
    "the header's fields": ("seal", Refused(When(verb=Verb.WRITE, nth=2))),
    "the header's sync": ("seal", FailedSync(When(verb=Verb.SYNC, nth=2))),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_after_an_error_nothing_more_is_written_and_no_sync_answers(failure: str) -> None:
    call, fault = FAILURES[failure]
    disk = SimulatedDisk()
    writer = EntryLogWriter.create(disk.root(), LOG, ORIGIN)
    append(writer, 1, records(1, 0, 3))
    disk.plant(fault)
    with pytest.raises(OSError, match=NAME):
        CALLS[call](writer)
    disk.mend()
    image, operations = disk.image(), len(disk.trace)
    for later in CALLS.values():
        with pytest.raises(AssertionError, match="spoiled"):
            later(writer)
    writer.close()
    assert (disk.image(), len(disk.trace)) == (image, operations)


def test_the_system_too_refuses_a_spoiled_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = EntryLogWriter.create(PosixDirectory(tmp_path), LOG, ORIGIN)
    file = file_of(writer)
    with monkeypatch.context() as failing:
        failing.setattr("storage.disk.posix._sync_data", lambda *_: (tmp_path / "nothing").stat())
        with pytest.raises(FileNotFoundError):
            writer.sync()
    with pytest.raises(OSError, match="file descriptor"):
        file.sync()


@pytest.mark.parametrize("ending", ["seal", "close"])
def test_nothing_is_written_after_the_log_was_closed(directory: Directory, ending: str) -> None:
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    append(writer, 1, records(1, 0, 3))
    getattr(writer, ending)()
    before = content(directory, NAME)
    for later in CALLS.values():
        with pytest.raises(AssertionError, match="given up"):
            later(writer)
    writer.close()
    assert content(directory, NAME) == before


def test_a_log_given_up_keeps_what_was_synced() -> None:
    disk = SimulatedDisk()
    writer = EntryLogWriter.create(disk.root(), LOG, ORIGIN)
    disk.root().sync()
    append(writer, 1, records(1, 0, 1))
    writer.sync()
    append(writer, 1, records(1, 1, 1))
    writer.close()
    assert entries(scanned(disk.root())) == [(1, 0), (1, 1)]
    disk.power_cut(LoseAll())
    assert entries(scanned(disk.root())) == [(1, 0)]


def test_bookkeeper_s_scan_reads_the_log() -> None:
    """Walk as BookKeeper's scan does: length, ledger; negative ledgers are skipped by their length."""
    directory = SimulatedDisk().root()
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    for first in (0, 3):
        append(writer, 1, records(1, first, 3))
        writer.sync()
    writer.seal()
    data, at, found = content(directory, NAME), 1024, []
    while at < len(data):
        size, ledger_id = (
            int.from_bytes(data[at : at + 4]),
            int.from_bytes(data[at + 4 : at + 12], signed=True),
        )
        if ledger_id >= 0:
            found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    assert found == [entry_bytes(1, one, bytes([65 + one]) * 30) for one in range(6)]
    names = map(filenames.parse, directory.names())
    assert [(name.kind, name.number) for name in names] == [(FileKind.ENTRY_LOG, LOG)]
    assert not isinstance(reader(directory).ledgers_map(), Damaged)


def test_no_map_with_a_flipped_bit_is_proven(tmp_path: Path) -> None:
    directory = PosixDirectory(tmp_path)
    writer = EntryLogWriter.create(directory, LOG, ORIGIN)
    append(writer, 1, records(1, 0, 2))
    append(writer, 2, records(2, 0, 1))
    start = writer.end
    writer.seal()
    data, sound = content(directory, NAME), reader(directory).proven_map()
    assert isinstance(sound, dict)

    for at in (*range(8, 20), *range(72, 76), *range(start, len(data))):
        flipped = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        found = EntryLogReader(MemoryFile(flipped), LOG, EntryVerifier()).proven_map()
        assert not isinstance(found, dict), at

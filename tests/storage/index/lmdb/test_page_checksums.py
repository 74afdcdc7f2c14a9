"""The checksums of LMDB's pages: every state after a crash is accepted, and every damage is found."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from crc32c import crc32c
from journal_builder import flip
from lmdb_images import PAGE, SwitchingFile, head_of, images, live_pages, number_of
from memory_files import MemoryFile
from sampling import every, many

from recovery.crashlab import (
    FailedSync,
    LoseAll,
    Pages,
    RandomFate,
    Refused,
    ShortWrite,
    SimulatedDisk,
    Stopped,
    Tearing,
    Verb,
    When,
)
from storage.disk.posix import PosixDirectory
from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb import checksum_format, page_checksums, page_walk
from storage.index.lmdb.page_checksums import PageChecksums
from storage.index.lmdb.page_snapshot import PageSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from recovery.crashlab import Fate, Fault
    from storage.disk.files import Directory

SUMS = "sums"
DRAFT = "sums.draft"
IMAGES = images(7, 14)
ROOM = 4096


def holding(data: bytes) -> Directory:
    """Return a directory with this file of checksums."""
    directory = SimulatedDisk().root()
    with directory.create(SUMS) as file:
        file.write(0, [data])
    return directory


def content(directory: Directory) -> bytes:
    with directory.open(SUMS) as file:
        return file.read(0, file.size())


def verified(directory: Directory, image: bytes) -> PageChecksums | Damaged:
    data = MemoryFile(image)
    return page_checksums.verify(directory, data, head_of(data))


def accepted_checksums(directory: Directory, image: bytes) -> PageChecksums:
    found = verified(directory, image)
    assert isinstance(found, PageChecksums), found
    return found


def damage(directory: Directory, image: bytes) -> Damaged:
    found = verified(directory, image)
    assert isinstance(found, Damaged), found
    assert found.offset % PAGE == 0, "the offset is that of a page, and 0 for the file of checksums"
    return found


def known_pages(sums: PageChecksums) -> dict[int, int]:
    record = sums._snapshot.record()
    return dict(zip(record.pages, record.sums, strict=True))


def new_checksums(directory: Directory, data: SwitchingFile) -> PageChecksums:
    """Begin a file of checksums like a draft of an index."""
    pages = page_checksums.snapshot_all_pages(data)
    assert isinstance(pages, PageSnapshot), pages
    sums = PageChecksums(directory, data, pages)
    sums.rewrite()
    return sums


def commit(sums: PageChecksums, data: SwitchingFile, image: bytes) -> None:
    sums.prepare(ROOM)
    data.become(image)
    sums.record_commit()


def file_after(directory: Directory, last: int) -> bytes:
    """Return the file after so many commits."""
    data = SwitchingFile(IMAGES[0])
    sums = new_checksums(directory, data)
    for image in IMAGES[1 : last + 1]:
        commit(sums, data, image)
    sums.close()
    return content(directory)


@pytest.fixture(scope="module")
def sums_of() -> list[bytes]:
    """The file after each commit."""
    return [file_after(SimulatedDisk().root(), last) for last in range(6)]


# ── recording ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(4))
def test_after_each_commit_exactly_the_pages_are_recorded_that_a_walk_over_all_finds(seed: int) -> None:
    disk, history = SimulatedDisk(), images(seed, 10)
    data = SwitchingFile(history[0])
    sums = new_checksums(disk.root(), data)
    assert known_pages(sums) == live_pages(data)
    for image in history[1:]:
        commit(sums, data, image)
        assert known_pages(sums) == live_pages(data)
        again = accepted_checksums(disk.root(), image)
        assert (known_pages(again), again.is_ahead) == (live_pages(data), False)


def test_a_commit_without_effect_is_not_recorded() -> None:
    disk, data = SimulatedDisk(), SwitchingFile(IMAGES[0])
    sums = new_checksums(disk.root(), data)
    sums.prepare(ROOM)
    before = len(disk.trace)
    sums.record_commit()
    assert len(disk.trace) == before


def test_a_commit_costs_one_write_and_one_sync_in_room_reserved_before() -> None:
    disk, data = SimulatedDisk(), SwitchingFile(IMAGES[0])
    sums = new_checksums(disk.root(), data)
    sums.prepare(ROOM)
    before, size = len(disk.trace), len(content(disk.root()))
    data.become(IMAGES[1])
    sums.record_commit()
    assert [one.verb for one in disk.trace[before:]] == [Verb.WRITE, Verb.SYNC]
    assert len(content(disk.root())) == size


def test_an_opened_index_rewrites_the_file_before_its_first_commit() -> None:
    disk = SimulatedDisk()
    file_after(disk.root(), 3)
    data = SwitchingFile(IMAGES[3])
    sums = page_checksums.verify(disk.root(), data, head_of(data))
    assert isinstance(sums, PageChecksums)
    before = len(disk.trace)
    sums.prepare(ROOM)
    verbs = [one.verb for one in disk.trace[before:]]
    assert verbs[:5] == [Verb.CREATE, Verb.WRITE, Verb.SYNC, Verb.RENAME, Verb.SYNC_DIRECTORY]
    data.become(IMAGES[4])
    sums.record_commit()
    assert known_pages(accepted_checksums(disk.root(), IMAGES[4])) == live_pages(data)


def test_a_file_is_rewritten_when_more_than_half_of_it_is_out_of_date() -> None:
    disk, data = SimulatedDisk(), SwitchingFile(IMAGES[0])
    sums = new_checksums(disk.root(), data)
    written = []
    for _ in range(40):
        for image in IMAGES[:2]:  # alternately, so that pages are added and released in each transaction
            sums._snapshot = known(image)
            data.become(image)
            sums.prepare(ROOM)
        data.become(IMAGES[1])
        sums._snapshot = known(IMAGES[0])
        sums.record_commit()
        written.append(sums._end)
    assert max(written) <= (64 << 10) + 2 * ROOM
    assert written[-1] < max(written)


def known(image: bytes) -> PageSnapshot:
    pages = page_checksums.snapshot_all_pages(MemoryFile(image))
    assert isinstance(pages, PageSnapshot), pages
    return pages


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def test_any_page_that_is_not_what_it_was_is_damage(sums_of: list[bytes]) -> None:
    image, dice = IMAGES[5], Random(1)
    directory = holding(sums_of[5])
    for page in live_pages(MemoryFile(image)):
        found = damage(directory, flip(image, page * PAGE + dice.randrange(PAGE), dice.randrange(8)))
        assert (found.offset, found.flaw) == (page * PAGE, Flaw.CHECKSUM)


def test_every_bit_of_the_last_meta_page_is_verified(sums_of: list[bytes]) -> None:
    directory, at = holding(sums_of[5]), number_of(IMAGES[5]) % 2 * PAGE
    for bit in range(152 * 8):
        data = MemoryFile(flip(IMAGES[5], at + bit // 8, bit % 8))
        head = page_checksums.read_current_meta(data)
        if not isinstance(head, Damaged):
            assert isinstance(page_checksums.verify(directory, data, head), Damaged), bit


def test_the_older_meta_page_is_never_taken_for_the_newer_one(sums_of: list[bytes]) -> None:
    directory, at = holding(sums_of[5]), (number_of(IMAGES[5]) + 1) % 2 * PAGE
    for bit in range(152 * 8):
        data = MemoryFile(flip(IMAGES[5], at + bit // 8, bit % 8))
        head = page_checksums.read_current_meta(data)
        if isinstance(head, Damaged):
            continue
        found = page_checksums.verify(directory, data, head)
        assert isinstance(found, Damaged) or found._snapshot.number == number_of(IMAGES[5])


def test_unreachable_pages_may_hold_any_bytes(sums_of: list[bytes]) -> None:
    live = live_pages(MemoryFile(IMAGES[5]))
    free = [page for page in range(2, len(IMAGES[5]) // PAGE) if page not in live]
    image = bytearray(IMAGES[5])
    for page in free:
        image[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE
    assert free
    accepted_checksums(holding(sums_of[5]), bytes(image))


@pytest.mark.parametrize("behind", [0, 1, 2, 3])
def test_a_file_of_lmdb_s_that_is_older_than_its_checksums_is_damaged(
    sums_of: list[bytes], behind: int
) -> None:
    found = damage(holding(sums_of[4]), IMAGES[behind])
    assert " after " in found.detail or "another file" in found.detail  # because that file is larger


def test_lmdb_one_transaction_ahead_is_a_crash_and_two_ahead_is_damage(sums_of: list[bytes]) -> None:
    found = accepted_checksums(holding(sums_of[3]), IMAGES[4])
    assert found.is_ahead
    assert known_pages(found) == live_pages(MemoryFile(IMAGES[4]))
    for ahead in (5, 6):
        assert damage(holding(sums_of[3]), IMAGES[ahead]).flaw is Flaw.OTHER_PLACE


def test_if_lmdb_is_one_transaction_ahead_all_earlier_pages_are_verified(sums_of: list[bytes]) -> None:
    directory = holding(sums_of[3])
    for page in known(IMAGES[3]).record().pages:
        assert damage(directory, flip(IMAGES[4], page * PAGE + 2000, 1)).flaw is Flaw.CHECKSUM


@pytest.mark.sampled
def test_if_lmdb_is_one_transaction_ahead_each_page_is_in_use_or_free_and_not_both() -> None:
    """After a flipped bit in a page without a checksum, an accepted file leads to the same pages."""
    noticed, dice = 0, Random(5)
    for number in range(4, 9):
        directory = SimulatedDisk().root()
        file_after(directory, number)
        image = IMAGES[number + 1]
        right = live_pages(MemoryFile(image))
        fresh = right.keys() - live_pages(MemoryFile(IMAGES[number])).keys()
        for page in fresh:
            for bit in dice.sample(
                range(64 * 8), many(30, 3)
            ):  # its head, and the offsets of its first nodes
                data = MemoryFile(flip(image, page * PAGE + bit // 8, bit % 8))
                found = page_checksums.verify(directory, data, head_of(data))
                if isinstance(found, Damaged):
                    noticed += 1
                else:
                    assert known_pages(found).keys() == right.keys(), (page, bit)
    assert noticed > many(300, 20)


def test_a_page_of_an_earlier_transaction_cannot_be_written_again(sums_of: list[bytes]) -> None:
    """The pages of an old meta page whose number was damaged to that of the next transaction."""
    number = number_of(IMAGES[5])
    other = (number + 1) % 2 * PAGE
    image = bytearray(IMAGES[5])
    struct.pack_into("<Q", image, other + 144, number + 1)
    found = damage(holding(sums_of[5]), bytes(image))
    assert found.flaw is Flaw.OTHER_PLACE
    assert "earlier" in found.detail


@pytest.mark.parametrize("page", [0, 1, 10_000])
def test_a_page_that_lmdb_lists_as_free_lies_in_the_file_and_is_no_meta_page(
    sums_of: list[bytes], page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_pages = page_walk.free_pages

    def with_another(*arguments: Any) -> list[int] | Damaged:
        found = free_pages(*arguments)
        return found if isinstance(found, Damaged) else [*found, page]

    monkeypatch.setattr(page_walk, "free_pages", with_another)
    found = damage(holding(sums_of[3]), IMAGES[4])
    assert (found.offset, found.flaw) == (0, Flaw.BAD_FIELD)
    assert f"page {page} is free and in use" in found.detail


# ── a damaged file of checksums ──────────────────────────────────────────────────────────────────────────


def test_without_checksums_no_index_is_accepted() -> None:
    assert damage(SimulatedDisk().root(), IMAGES[0]).flaw is Flaw.FILE_SHORT
    for empty in (b"", bytes(5000)):
        assert damage(holding(empty), IMAGES[0]).flaw is Flaw.FILE_SHORT


def test_a_verification_leaves_no_file_open(sums_of: list[bytes], tmp_path: Path) -> None:
    directory = PosixDirectory(tmp_path)
    (tmp_path / SUMS).write_bytes(sums_of[3])
    before = len([*Path("/proc/self/fd").iterdir()])
    accepted_checksums(directory, IMAGES[3])
    damage(directory, IMAGES[6])
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_file_that_was_cut_is_never_taken_for_a_whole_one(sums_of: list[bytes]) -> None:
    """Cut in its last record, the file has the transaction before, as after a crash; cut earlier it is
    damaged."""
    whole = sums_of[4].rstrip(b"\0")
    last = ends(sums_of[4])[-2]
    for size in range(0, len(whole), 97):
        found = verified(holding(whole[:size]), IMAGES[4])
        if size <= last:
            assert isinstance(found, Damaged) or size > ends(sums_of[4])[-3], size
        else:
            assert isinstance(found, PageChecksums), size
            assert found.is_ahead
            assert known_pages(found) == live_pages(MemoryFile(IMAGES[4]))


def ends(data: bytes) -> list[int]:
    """Return the end of each record."""
    found, at = [], 0
    while isinstance(
        head := checksum_format.decode_head(data[at:], at, len(data) - at), checksum_format.RecordHead
    ):
        at = head.end
        found.append(at)
    return found


@pytest.mark.sampled
def test_a_flipped_bit_is_noticed_anywhere(sums_of: list[bytes]) -> None:
    """In the last record it looks like a crash, and the transaction is audited; otherwise it is damage."""
    whole, dice = sums_of[4], Random(3)
    places = ends(whole)
    for at in [*range(48), *(dice.randrange(places[-1]) for _ in range(many(1000, 130)))]:
        changed = flip(whole, at, dice.randrange(8))
        found = verified(holding(changed), IMAGES[4])
        if isinstance(found, PageChecksums):
            assert known_pages(found) == live_pages(MemoryFile(IMAGES[4]))
            assert found.is_ahead == (at >= places[-2] and found.is_ahead)
        else:
            assert at < places[-2]


def test_a_record_that_contradicts_those_before_it_is_damage_and_not_torn(sums_of: list[bytes]) -> None:
    end = ends(sums_of[2])[-1]
    snapshot = page_checksums.load(holding(sums_of[2]), PAGE, 1 << 20)
    assert isinstance(snapshot, PageSnapshot)
    number, page = snapshot.number, snapshot.record().pages[0]
    one = checksum_format.numbers
    for record in (
        checksum_format.ChecksumRecord(number, PAGE, 0),
        checksum_format.ChecksumRecord(number + 2, PAGE, 0),
        checksum_format.ChecksumRecord(number + 1, 2 * PAGE, 0),
        checksum_format.ChecksumRecord(number + 1, PAGE, 0, one(page), one(1)),
        checksum_format.ChecksumRecord(number + 1, PAGE, 0, gone=one(1)),
        checksum_format.ChecksumRecord(number + 1, PAGE, 0, one(1 << 21), one(1)),
    ):
        found = page_checksums.load(
            holding(sums_of[2][:end] + checksum_format.encode(record, end)), PAGE, 1 << 20
        )
        assert isinstance(found, Damaged)
        assert found.flaw is Flaw.BAD_FIELD


@pytest.mark.parametrize("record", [0, 2])
def test_a_file_of_a_later_version_is_not_changed(sums_of: list[bytes], record: int) -> None:
    start, end = [0, *ends(sums_of[2])][record : record + 2]
    data = bytearray(sums_of[2])
    struct.pack_into(">I", data, start + 4, checksum_format.VERSION + 1)
    head = checksum_format.decode_head(data[start:], start, len(data) - start)
    assert isinstance(head, checksum_format.RecordHead)
    body = bytes(data[start + checksum_format.HEAD_SIZE : start + checksum_format.HEAD_SIZE + head.body_size])
    struct.pack_into(">I", data, start + 44, crc32c(body, crc32c(bytes(data[start : start + 44]))))
    assert end > start
    assert damage(holding(bytes(data)), IMAGES[2]).flaw is Flaw.FUTURE_VERSION


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


FAULTS: dict[str, Fault] = {
    "refused": Refused(When(name=DRAFT, verb=Verb.WRITE)),
    "short": ShortWrite(When(name=DRAFT, verb=Verb.WRITE)),
    "not synced": FailedSync(When(name=DRAFT), pages=Pages.KEPT),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_checksums_that_could_not_be_recorded_are_written_before_the_next_commit(fault: Fault) -> None:
    disk, data = SimulatedDisk(), SwitchingFile(IMAGES[0])
    sums = new_checksums(disk.root(), data)
    commit(sums, data, IMAGES[1])
    sums.prepare(ROOM)
    disk.plant(fault)
    data.become(IMAGES[2])
    with pytest.raises(OSError, match=DRAFT):
        sums.record_commit()
    assert sums.is_ahead
    before = len(disk.trace)
    sums.prepare(ROOM)
    assert disk.trace[before].verb is Verb.CREATE
    data.become(IMAGES[3])
    sums.record_commit()
    disk.power_cut(LoseAll())
    assert known_pages(accepted_checksums(disk.root(), IMAGES[3])) == live_pages(data)


def test_a_failure_before_a_commit_changes_nothing() -> None:
    disk, data = SimulatedDisk(), SwitchingFile(IMAGES[0])
    sums = new_checksums(disk.root(), data)
    disk.plant(Refused(When(name=DRAFT, verb=Verb.ZERO_FILL)))
    with pytest.raises(OSError, match=DRAFT):
        sums.prepare(1 << 20)
    commit(sums, data, IMAGES[1])
    assert known_pages(accepted_checksums(disk.root(), IMAGES[1])) == live_pages(data)


def test_no_checksums_are_recorded_for_a_commit_that_lmdb_reported_as_failed() -> None:
    """LMDB may have written its meta page nevertheless, and a power cut may take that back."""
    disk, data = SimulatedDisk(), SwitchingFile(IMAGES[0])
    sums = new_checksums(disk.root(), data)
    sums.prepare(ROOM)
    data.become(IMAGES[1])
    before = len(disk.trace)
    with pytest.raises(OSError, match=r"transaction [0-9]+ after"):
        sums.prepare(ROOM)
    assert len(disk.trace) == before
    for left in IMAGES[:2]:
        accepted_checksums(disk.root(), left)


@pytest.mark.parametrize("place", [0, 16, 3000])
def test_pages_damaged_during_a_commit_are_an_error(sums_of: list[bytes], place: int) -> None:
    directory, gone = holding(sums_of[0]), live_pages(MemoryFile(IMAGES[0])).keys()
    page = min(gone - live_pages(MemoryFile(IMAGES[1])).keys())
    data = SwitchingFile(IMAGES[0])
    sums = page_checksums.verify(directory, data, head_of(data))
    assert isinstance(sums, PageChecksums)
    sums.prepare(ROOM)
    data.become(flip(IMAGES[1], page * PAGE + place, 3))
    with pytest.raises(OSError, match=str(page)):
        sums.record_commit()


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Moment:
    what: str
    disk: SimulatedDisk
    image: int


def work(disk: SimulatedDisk, at: list[int], sittings: Iterable[int] = (3, 0, 2)) -> None:
    """Open and commit several times. `at` is the image that LMDB has made durable."""
    data = SwitchingFile(IMAGES[at[-1]])
    for commits in sittings:
        try:
            sums = opened(disk.root(), data)
            for _ in range(commits):
                sums.prepare(ROOM)
                at.append(at[-1] + 1)
                data.become(IMAGES[at[-1]])
                sums.record_commit()
        except OSError:
            disk.mend()


def opened(directory: Directory, data: SwitchingFile) -> PageChecksums:
    """Commit like the index."""
    sums = page_checksums.verify(directory, data, head_of(data))
    assert isinstance(sums, PageChecksums), sums
    if sums.is_ahead:
        sums.rewrite()
    return sums


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    new_checksums(disk.root(), SwitchingFile(IMAGES[0]))
    return disk


def moments(*faults: Fault) -> list[Moment]:
    """Yield the disk before each operation, and at the end."""
    disk, at, found = new_disk(), [0], list[Moment]()
    disk.watch(lambda operation: found.append(Moment(str(operation), disk.copy(), at[-1])))
    for fault in faults:
        disk.plant(fault)
    work(disk, at)
    return [*found, Moment("at the end", disk, at[-1])]


def moments_within() -> Iterator[Moment]:
    """Yield the disk in the middle of each operation."""
    first = len(new_disk().trace)
    for number in range(first + 1, first + len(moments())):
        disk, at = new_disk(), [0]
        disk.stop_within(number)
        with pytest.raises(Stopped):
            work(disk, at)
        yield Moment(f"within {number}", disk, at[-1])


def survives(moment: Moment, fates: Iterable[Fate]) -> None:
    """No state after a crash is reported damaged, also after further commits."""
    ways: list[Callable[[SimulatedDisk], object]] = [SimulatedDisk.kill]
    ways += [lambda disk, fate=fate: disk.power_cut(fate) for fate in fates]  # type: ignore[misc]
    for crash in ways:
        after = moment.disk.copy()
        crash(after)
        at = [moment.image]
        for sittings in ((0,), (1,)):
            work(after, at, sittings)
            after.power_cut(LoseAll())
            found = accepted_checksums(after.root(), IMAGES[at[-1]])
            assert known_pages(found) == live_pages(MemoryFile(IMAGES[at[-1]])), moment.what
        assert at[-1] == moment.image + 1, moment.what


@pytest.mark.sampled
def test_no_state_after_a_crash_is_reported_damaged() -> None:
    for moment in every(24, [*moments(), *moments_within()]):
        survives(moment, moment.disk.fates(exhaustive_up_to=4))


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("tearing", Tearing)
def test_nothing_is_reported_damaged_however_sectors_tear(tearing: Tearing) -> None:
    for moment in moments():
        survives(moment, [RandomFate(seed, tearing) for seed in range(6)])


def faults_of(number: int, verb: Verb) -> Iterator[Fault]:
    when = When(number=number)
    yield Refused(when)
    if verb is Verb.WRITE:
        yield ShortWrite(when)
    if verb in (Verb.SYNC, Verb.SYNC_DIRECTORY):
        yield from (FailedSync(when, seed=1, pages=pages) for pages in Pages)


@pytest.mark.sampled
def test_nothing_is_reported_damaged_when_any_call_fails() -> None:
    disk = new_disk()
    first = len(disk.trace)
    work(disk, [0])
    for operation in every(24, disk.trace[first:]):
        for fault in faults_of(operation.number, operation.verb):
            struck = moments(fault)
            for moment in struck[operation.number - first :]:
                survives(moment, [LoseAll(), RandomFate(operation.number)])

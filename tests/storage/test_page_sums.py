"""The checksums of LMDB's pages: whatever a crash leaves is believed, and nothing that rot does."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from journals import flip
from lmdb_images import PAGE, Switching, head_of, images, live_pages, number_of
from memory import MemoryFile

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
from storage import page_sums
from storage.codec import page_sums as codec
from storage.outcome import Damaged, Flaw
from storage.page_snapshot import Snapshot
from storage.page_sums import PageSums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from recovery.crashlab import Fate, Fault
    from storage.files import Directory

SUMS = "sums"
DRAFT = "sums.draft"
IMAGES = images(7, 14)
ROOM = 4096


def holding(data: bytes) -> Directory:
    """A directory with such a file."""
    directory = SimulatedDisk().root()
    with directory.create(SUMS) as file:
        file.write(0, [data])
    return directory


def content(directory: Directory) -> bytes:
    with directory.open(SUMS) as file:
        return file.read(0, file.size())


def looked_at(directory: Directory, image: bytes) -> PageSums | Damaged:
    data = MemoryFile(image)
    return page_sums.verified(directory, data, head_of(data))


def believed(directory: Directory, image: bytes) -> PageSums:
    found = looked_at(directory, image)
    assert isinstance(found, PageSums), found
    return found


def damage(directory: Directory, image: bytes) -> Damaged:
    found = looked_at(directory, image)
    assert isinstance(found, Damaged), found
    return found


def known_pages(sums: PageSums) -> dict[int, int]:
    record = sums._snapshot.record()
    return dict(zip(record.pages, record.sums, strict=True))


def begun(directory: Directory, data: Switching) -> PageSums:
    """As the draft of an index begins it."""
    pages = page_sums.all_pages(data)
    assert isinstance(pages, Snapshot), pages
    sums = PageSums(directory, data, pages)
    sums.rewrite()
    return sums


def commit(sums: PageSums, data: Switching, image: bytes) -> None:
    sums.prepare(ROOM)
    data.become(image)
    sums.note()


def grown(directory: Directory, last: int) -> bytes:
    """The file after so many commits of one run."""
    data = Switching(IMAGES[0])
    sums = begun(directory, data)
    for image in IMAGES[1 : last + 1]:
        commit(sums, data, image)
    sums.close()
    return content(directory)


@pytest.fixture(scope="module")
def sums_of() -> list[bytes]:
    """The file after each commit."""
    return [grown(SimulatedDisk().root(), last) for last in range(6)]


# ── what is recorded ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(4))
def test_after_each_commit_exactly_the_pages_are_recorded_that_a_walk_over_all_finds(seed: int) -> None:
    disk, history = SimulatedDisk(), images(seed, 10)
    data = Switching(history[0])
    sums = begun(disk.root(), data)
    assert known_pages(sums) == live_pages(data)
    for image in history[1:]:
        commit(sums, data, image)
        assert known_pages(sums) == live_pages(data)
        again = believed(disk.root(), image)
        assert (known_pages(again), again.is_ahead) == (live_pages(data), False)


def test_a_commit_without_effect_is_not_recorded() -> None:
    disk, data = SimulatedDisk(), Switching(IMAGES[0])
    sums = begun(disk.root(), data)
    sums.prepare(ROOM)
    before = len(disk.trace)
    sums.note()
    assert len(disk.trace) == before


def test_a_commit_costs_one_write_and_one_sync_in_room_that_was_there_before_it() -> None:
    disk, data = SimulatedDisk(), Switching(IMAGES[0])
    sums = begun(disk.root(), data)
    sums.prepare(ROOM)
    before, size = len(disk.trace), len(content(disk.root()))
    data.become(IMAGES[1])
    sums.note()
    assert [one.verb for one in disk.trace[before:]] == [Verb.WRITE, Verb.SYNC]
    assert len(content(disk.root())) == size


def test_a_run_writes_a_file_of_its_own_before_its_first_commit() -> None:
    disk = SimulatedDisk()
    grown(disk.root(), 3)
    data = Switching(IMAGES[3])
    sums = page_sums.verified(disk.root(), data, head_of(data))
    assert isinstance(sums, PageSums)
    before = len(disk.trace)
    sums.prepare(ROOM)
    verbs = [one.verb for one in disk.trace[before:]]
    assert verbs[:5] == [Verb.CREATE, Verb.WRITE, Verb.SYNC, Verb.RENAME, Verb.SYNC_DIRECTORY]
    data.become(IMAGES[4])
    sums.note()
    assert known_pages(believed(disk.root(), IMAGES[4])) == live_pages(data)


def test_a_file_is_written_anew_when_less_than_half_of_it_counts() -> None:
    disk, data = SimulatedDisk(), Switching(IMAGES[0])
    sums = begun(disk.root(), data)
    written = []
    for _ in range(40):
        for image in IMAGES[:2]:  # back and forth: another number, and pages that come and go
            sums._snapshot = known(image)
            data.become(image)
            sums.prepare(ROOM)
        data.become(IMAGES[1])
        sums._snapshot = known(IMAGES[0])
        sums.note()
        written.append(sums._end)
    assert max(written) <= (64 << 10) + 2 * ROOM
    assert written[-1] < max(written)


def known(image: bytes) -> Snapshot:
    pages = page_sums.all_pages(MemoryFile(image))
    assert isinstance(pages, Snapshot), pages
    return pages


# ── rot ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_any_page_that_is_not_what_it_was_is_damage(sums_of: list[bytes]) -> None:
    image, dice = IMAGES[5], Random(1)
    directory = holding(sums_of[5])
    for page in live_pages(MemoryFile(image)):
        found = damage(directory, flip(image, page * PAGE + dice.randrange(PAGE), dice.randrange(8)))
        assert (found.offset, found.flaw) == (page * PAGE, Flaw.CHECKSUM)


def test_every_bit_of_the_meta_that_counts_is_looked_at(sums_of: list[bytes]) -> None:
    directory, at = holding(sums_of[5]), number_of(IMAGES[5]) % 2 * PAGE
    for bit in range(152 * 8):
        data = MemoryFile(flip(IMAGES[5], at + bit // 8, bit % 8))
        head = page_sums.read_head(data)
        if not isinstance(head, Damaged):
            assert isinstance(page_sums.verified(directory, data, head), Damaged), bit


def test_the_meta_that_does_not_count_is_never_taken_for_the_later_one(sums_of: list[bytes]) -> None:
    directory, at = holding(sums_of[5]), (number_of(IMAGES[5]) + 1) % 2 * PAGE
    for bit in range(152 * 8):
        data = MemoryFile(flip(IMAGES[5], at + bit // 8, bit % 8))
        head = page_sums.read_head(data)
        if isinstance(head, Damaged):
            continue
        found = page_sums.verified(directory, data, head)
        assert isinstance(found, Damaged) or found._snapshot.number == number_of(IMAGES[5])


def test_pages_that_nothing_leads_to_may_hold_anything(sums_of: list[bytes]) -> None:
    live = live_pages(MemoryFile(IMAGES[5]))
    free = [page for page in range(2, len(IMAGES[5]) // PAGE) if page not in live]
    image = bytearray(IMAGES[5])
    for page in free:
        image[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE
    assert free
    believed(holding(sums_of[5]), bytes(image))


@pytest.mark.parametrize("behind", [0, 1, 2, 3])
def test_a_file_of_lmdb_s_that_is_older_than_its_checksums_is_damaged(
    sums_of: list[bytes], behind: int
) -> None:
    found = damage(holding(sums_of[4]), IMAGES[behind])
    assert "behind" in found.detail or "of another file" in found.detail  # which is larger than this one


def test_one_transaction_ahead_is_a_crash_and_two_are_damage(sums_of: list[bytes]) -> None:
    found = believed(holding(sums_of[3]), IMAGES[4])
    assert found.is_ahead
    assert known_pages(found) == live_pages(MemoryFile(IMAGES[4]))
    for ahead in (5, 6):
        assert damage(holding(sums_of[3]), IMAGES[ahead]).flaw is Flaw.OTHER_PLACE


def test_one_transaction_ahead_every_page_of_the_one_before_is_verified(sums_of: list[bytes]) -> None:
    directory = holding(sums_of[3])
    for page in known(IMAGES[3]).record().pages:
        assert damage(directory, flip(IMAGES[4], page * PAGE + 2000, 1)).flaw is Flaw.CHECKSUM


def test_one_transaction_ahead_no_page_is_lost_and_none_in_two_places() -> None:
    """A flipped bit where nothing has a checksum yet: what is believed leads to the very same pages."""
    noticed, dice = 0, Random(5)
    for number in range(4, 9):
        directory = SimulatedDisk().root()
        grown(directory, number)
        image = IMAGES[number + 1]
        right = live_pages(MemoryFile(image))
        fresh = right.keys() - live_pages(MemoryFile(IMAGES[number])).keys()
        for page in fresh:
            for bit in dice.sample(range(64 * 8), 30):  # its head, and the offsets of its first nodes
                data = MemoryFile(flip(image, page * PAGE + bit // 8, bit % 8))
                found = page_sums.verified(directory, data, head_of(data))
                if isinstance(found, Damaged):
                    noticed += 1
                else:
                    assert known_pages(found).keys() == right.keys(), (page, bit)
    assert noticed > 300


def test_a_page_of_an_earlier_transaction_is_no_news(sums_of: list[bytes]) -> None:
    """As an old meta leads to, whose number has rotted to that of the next transaction."""
    number = number_of(IMAGES[5])
    other = (number + 1) % 2 * PAGE
    image = bytearray(IMAGES[5])
    struct.pack_into("<Q", image, other + 144, number + 1)
    found = damage(holding(sums_of[5]), bytes(image))
    assert found.flaw is Flaw.OTHER_PLACE
    assert "earlier" in found.detail


# ── a damaged file of checksums ──────────────────────────────────────────────────────────────────────────


def test_without_checksums_nothing_is_believed() -> None:
    assert damage(SimulatedDisk().root(), IMAGES[0]).flaw is Flaw.FILE_SHORT
    for empty in (b"", bytes(5000)):
        assert damage(holding(empty), IMAGES[0]).flaw is Flaw.FILE_SHORT


def test_a_file_that_was_cut_is_never_taken_for_a_whole_one(sums_of: list[bytes]) -> None:
    """Cut in its last record, the transaction before counts, as behind a crash; cut earlier it is damaged."""
    whole = sums_of[4].rstrip(b"\0")
    last = ends(sums_of[4])[-2]
    for size in range(0, len(whole), 97):
        found = looked_at(holding(whole[:size]), IMAGES[4])
        if size <= last:
            assert isinstance(found, Damaged) or size > ends(sums_of[4])[-3], size
        else:
            assert isinstance(found, PageSums), size
            assert found.is_ahead
            assert known_pages(found) == live_pages(MemoryFile(IMAGES[4]))


def ends(data: bytes) -> list[int]:
    """Where each record ends."""
    found, at = [], 0
    while isinstance(head := codec.decode_head(data[at:], at, len(data) - at), codec.Head):
        at = head.end
        found.append(at)
    return found


def test_a_flipped_bit_is_noticed_wherever_it_is(sums_of: list[bytes]) -> None:
    """In the last record it is as a crash leaves it, and the transaction is looked through; or Damaged."""
    whole, dice = sums_of[4], Random(3)
    places = ends(whole)
    for at in [*range(48), *(dice.randrange(places[-1]) for _ in range(1000))]:
        changed = flip(whole, at, dice.randrange(8))
        found = looked_at(holding(changed), IMAGES[4])
        if isinstance(found, PageSums):
            assert known_pages(found) == live_pages(MemoryFile(IMAGES[4]))
            assert found.is_ahead == (at >= places[-2] and found.is_ahead)
        else:
            assert at < places[-2]


def test_a_record_that_contradicts_those_before_it_is_no_torn_one(sums_of: list[bytes]) -> None:
    end = ends(sums_of[2])[-1]
    snapshot = page_sums.load(holding(sums_of[2]), PAGE, 1 << 20)
    assert isinstance(snapshot, Snapshot)
    number, page = snapshot.number, snapshot.record().pages[0]
    one = codec.numbers
    for record in (
        codec.Record(number, PAGE, 0),
        codec.Record(number + 2, PAGE, 0),
        codec.Record(number + 1, 2 * PAGE, 0),
        codec.Record(number + 1, PAGE, 0, one(page), one(1)),
        codec.Record(number + 1, PAGE, 0, gone=one(1)),
        codec.Record(number + 1, PAGE, 0, one(1 << 21), one(1)),
    ):
        found = page_sums.load(holding(sums_of[2][:end] + codec.encode(record, end)), PAGE, 1 << 20)
        assert isinstance(found, Damaged)
        assert found.flaw is Flaw.BAD_FIELD


@pytest.mark.parametrize("record", [0, 2])
def test_what_a_later_version_wrote_is_left_alone(sums_of: list[bytes], record: int) -> None:
    start, end = [0, *ends(sums_of[2])][record : record + 2]
    data = bytearray(sums_of[2])
    struct.pack_into(">I", data, start + 4, codec.VERSION + 1)
    head = codec.decode_head(data[start:], start, len(data) - start)
    assert isinstance(head, codec.Head)
    body = bytes(data[start + codec.HEAD_SIZE : start + codec.HEAD_SIZE + head.body_size])
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
def test_what_could_not_be_recorded_is_made_up_for_before_the_next_commit(fault: Fault) -> None:
    disk, data = SimulatedDisk(), Switching(IMAGES[0])
    sums = begun(disk.root(), data)
    commit(sums, data, IMAGES[1])
    sums.prepare(ROOM)
    disk.plant(fault)
    data.become(IMAGES[2])
    with pytest.raises(OSError, match=DRAFT):
        sums.note()
    assert sums.is_ahead
    before = len(disk.trace)
    sums.prepare(ROOM)
    assert disk.trace[before].verb is Verb.CREATE
    data.become(IMAGES[3])
    sums.note()
    disk.power_cut(LoseAll())
    assert known_pages(believed(disk.root(), IMAGES[3])) == live_pages(data)


def test_what_fails_before_a_commit_leaves_it_undone() -> None:
    disk, data = SimulatedDisk(), Switching(IMAGES[0])
    sums = begun(disk.root(), data)
    disk.plant(Refused(When(name=DRAFT, verb=Verb.ZERO_FILL)))
    with pytest.raises(OSError, match=DRAFT):
        sums.prepare(1 << 20)
    commit(sums, data, IMAGES[1])
    assert known_pages(believed(disk.root(), IMAGES[1])) == live_pages(data)


def test_nothing_is_recorded_of_a_commit_that_lmdb_has_called_failed() -> None:
    """LMDB may have written its meta page all the same, and a power cut may take that back."""
    disk, data = SimulatedDisk(), Switching(IMAGES[0])
    sums = begun(disk.root(), data)
    sums.prepare(ROOM)
    data.become(IMAGES[1])
    before = len(disk.trace)
    with pytest.raises(OSError, match="behind"):
        sums.prepare(ROOM)
    assert len(disk.trace) == before
    for left in IMAGES[:2]:
        believed(disk.root(), left)


def test_pages_that_rot_under_a_commit_are_an_error(sums_of: list[bytes]) -> None:
    directory, gone = holding(sums_of[0]), live_pages(MemoryFile(IMAGES[0])).keys()
    page = min(gone - live_pages(MemoryFile(IMAGES[1])).keys())
    data = Switching(IMAGES[0])
    sums = page_sums.verified(directory, data, head_of(data))
    assert isinstance(sums, PageSums)
    sums.prepare(ROOM)
    data.become(flip(IMAGES[1], page * PAGE + 3000, 3))
    with pytest.raises(OSError, match="checksum"):
        sums.note()


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Moment:
    what: str
    disk: SimulatedDisk
    image: int


def work(disk: SimulatedDisk, at: list[int], sittings: Iterable[int] = (3, 0, 2)) -> None:
    """Some runs of so many commits. `at` tells which image LMDB has made durable."""
    data = Switching(IMAGES[at[-1]])
    for commits in sittings:
        try:
            sums = opened(disk.root(), data)
            for _ in range(commits):
                sums.prepare(ROOM)
                at.append(at[-1] + 1)
                data.become(IMAGES[at[-1]])
                sums.note()
        except OSError:
            disk.mend()


def opened(directory: Directory, data: Switching) -> PageSums:
    """As the index does it."""
    sums = page_sums.verified(directory, data, head_of(data))
    assert isinstance(sums, PageSums), sums
    if sums.is_ahead:
        sums.rewrite()
    return sums


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    begun(disk.root(), Switching(IMAGES[0]))
    return disk


def moments(*faults: Fault) -> list[Moment]:
    """The disk before each operation, and at the end."""
    disk, at, found = new_disk(), [0], list[Moment]()
    disk.watch(lambda operation: found.append(Moment(str(operation), disk.copy(), at[-1])))
    for fault in faults:
        disk.plant(fault)
    work(disk, at)
    return [*found, Moment("at the end", disk, at[-1])]


def moments_within() -> Iterator[Moment]:
    """The disk in the middle of each operation."""
    first = len(new_disk().trace)
    for number in range(first + 1, first + len(moments())):
        disk, at = new_disk(), [0]
        disk.stop_within(number)
        with pytest.raises(Stopped):
            work(disk, at)
        yield Moment(f"within {number}", disk, at[-1])


def survives(moment: Moment, fates: Iterable[Fate]) -> None:
    """Nothing that a crash leaves is called damaged, also when work has gone on behind it."""
    ways: list[Callable[[SimulatedDisk], object]] = [SimulatedDisk.kill]
    ways += [lambda disk, fate=fate: disk.power_cut(fate) for fate in fates]  # type: ignore[misc]
    for crash in ways:
        after = moment.disk.copy()
        crash(after)
        at = [moment.image]
        for sittings in ((0,), (1,)):
            work(after, at, sittings)
            after.power_cut(LoseAll())
            found = believed(after.root(), IMAGES[at[-1]])
            assert known_pages(found) == live_pages(MemoryFile(IMAGES[at[-1]])), moment.what
        assert at[-1] == moment.image + 1, moment.what


def test_nothing_that_a_crash_leaves_is_called_damaged() -> None:
    for moment in [*moments(), *moments_within()]:
        survives(moment, moment.disk.fates(exhaustive_up_to=4))


@pytest.mark.parametrize("tearing", Tearing)
def test_nothing_is_called_damaged_however_sectors_tear(tearing: Tearing) -> None:
    for moment in moments():
        survives(moment, [RandomFate(seed, tearing) for seed in range(6)])


def faults_of(number: int, verb: Verb) -> Iterator[Fault]:
    when = When(number=number)
    yield Refused(when)
    if verb is Verb.WRITE:
        yield ShortWrite(when)
    if verb in (Verb.SYNC, Verb.SYNC_DIRECTORY):
        yield from (FailedSync(when, seed=1, pages=pages) for pages in Pages)


def test_nothing_is_called_damaged_when_any_call_fails() -> None:
    disk = new_disk()
    first = len(disk.trace)
    work(disk, [0])
    for operation in disk.trace[first:]:
        for fault in faults_of(operation.number, operation.verb):
            struck = moments(fault)
            for moment in struck[operation.number - first :]:
                survives(moment, [LoseAll(), RandomFate(operation.number)])

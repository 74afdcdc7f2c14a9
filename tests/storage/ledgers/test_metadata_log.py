"""The log of ledger metadata: answered rows survive any crash, and damage is distinguished from a torn
tail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgpack
import pytest
from crc32c import crc32c
from journal_builder import flip
from sampling import every
from store_internals import rows_head

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
from storage.entry import ledger_record_format
from storage.entry.ledger_record import LedgerRecord
from storage.entry.ledger_record_table import LedgerRecordTable
from storage.errors import CorruptionError, NewerFormat
from storage.ledgers import metadata_log_format
from storage.ledgers.metadata_log import LoadedMetadataLog, MetadataLog, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from recovery.crashlab import Fate, Fault
    from storage.disk.files import Directory

NAME = "ledgers.rows"
DRAFT = "ledgers.rows.draft"


@pytest.fixture(params=["posix", "simulated"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    """An empty directory."""
    return SimulatedDisk().root() if request.param == "simulated" else PosixDirectory(tmp_path)


def row(ledger_id: int, change: int, size: int = 20) -> LedgerRecord:
    return LedgerRecord(ledger_id, change, master_key=bytes([change % 251]) * size)


def content(directory: Directory, name: str = NAME) -> bytes:
    with directory.open(name) as file:
        return file.read(0, file.size())


def holding(data: bytes, name: str = NAME) -> Directory:
    """A directory with one file."""
    directory = SimulatedDisk().root()
    with directory.create(name) as file:
        file.write(0, [data])
    return directory


def group(rows: Iterable[LedgerRecord], sequence: int, start: int, synced_end: int | None = None) -> bytes:
    """Encode an appended group, or one with the given synced end."""
    encoded = [ledger_record_format.encode(row) for row in rows]
    return metadata_log_format.encode_group(
        encoded, sequence, start, start if synced_end is None else synced_end
    )


def grown(directory: Directory, *batches: Sequence[LedgerRecord]) -> MetadataLog:
    rows = MetadataLog(directory, {}, 0)
    for batch in batches:
        rows.append(batch)
    return rows


# ── appending and loading ────────────────────────────────────────────────────────────────────────────────


def test_a_missing_file_has_no_rows(directory: Directory) -> None:
    assert load(directory, 0) == LoadedMetadataLog(LedgerRecordTable(), 0, 0, None, 0)


def test_appended_rows_are_loaded(directory: Directory) -> None:
    rows = grown(directory, [row(1, 1), row(2, 2)], [row(3, 3)], [row(1, 4)])
    expected = {1: row(1, 4), 2: row(2, 2), 3: row(3, 3)}
    assert rows.rows == expected
    assert rows.sequence == 3
    assert load(directory, 3) == LoadedMetadataLog(LedgerRecordTable(expected), 3, 3, None, 4)
    assert load(directory, 0) == LoadedMetadataLog(LedgerRecordTable(expected), 3, 2, None, 4)
    assert directory.names() == [NAME]


def test_the_row_with_the_larger_change_counts_in_any_order(directory: Directory) -> None:
    rows = grown(directory, [row(1, 9), row(1, 8)], [row(1, 7), row(2, 5), row(2, 6)])
    assert rows.rows == load(directory, 0).rows == {1: row(1, 9), 2: row(2, 6)}
    older_behind = group([row(1, 9)], 1, 0) + group([row(1, 8)], 2, 4096)
    assert load(holding(older_behind), 0).rows == {1: row(1, 9)}


def test_no_records_write_nothing(directory: Directory) -> None:
    grown(directory, [])
    assert directory.names() == []


def test_an_append_is_one_write_and_one_sync() -> None:
    disk = SimulatedDisk()
    rows = grown(disk.root(), [row(1, 1)])
    before = len(disk.trace)
    rows.append([row(2, 2), row(3, 3)])
    assert [(one.verb, one.path) for one in disk.trace[before:]] == [
        (Verb.WRITE, f"/{DRAFT}"),  # a handle is called by the name under which it was opened
        (Verb.SYNC, f"/{DRAFT}"),
    ]


def test_each_opening_begins_with_a_new_file_and_continues_the_sequence(directory: Directory) -> None:
    grown(directory, [row(1, 1)], [row(2, 2)], [row(3, 3)]).close()
    loaded = load(directory, 3)
    again = MetadataLog(directory, loaded.rows, loaded.sequence)
    again.append([row(4, 4)])
    assert again.sequence == 4
    assert len(content(directory)) == 4096
    assert load(directory, 4).rows == again.rows == {one: row(one, one) for one in (1, 2, 3, 4)}


def test_a_file_without_rows_has_an_empty_group_that_continues_the_sequence(directory: Directory) -> None:
    rows = MetadataLog(directory, {}, 6)
    rows.rewrite()
    assert load(directory, 7) == LoadedMetadataLog(LedgerRecordTable(), 7, 7, None, 0)


def test_a_rewritten_file_is_appended_to(directory: Directory) -> None:
    rows = grown(directory, [row(1, 1)])
    rows.rewrite()
    rows.append([row(2, 2)])
    assert rows.sequence == load(directory, 0).sequence == 3
    assert load(directory, 0).rows == {1: row(1, 1), 2: row(2, 2)}


@pytest.mark.slow
def test_many_rows_make_several_groups_which_each_declare_the_whole_file_durable(
    directory: Directory,
) -> None:
    given = [row(one, one, 1 << 20) for one in range(1, 70)]
    rows = grown(directory, given)
    loaded = load(directory, 0)
    assert loaded.rows == {one.ledger_id: one for one in given}
    assert (loaded.sequence, rows.sequence) == (3, 3)

    data = content(directory)
    head = metadata_log_format.decode_group_head(data[:44], 0, len(data))
    assert isinstance(head, metadata_log_format.GroupHead)
    assert (head.count, head.synced_end) == (31, len(data))
    with pytest.raises(CorruptionError, match="was durable"):
        load(holding(data[: head.end]), 0)


@pytest.mark.slow
def test_an_append_of_more_than_one_group_rewrites_the_file(directory: Directory) -> None:
    rows = grown(directory, [row(1, 1)])
    rows.append([row(one, one, 1 << 20) for one in range(2, 40)])
    assert load(directory, rows.sequence).rows == rows.rows
    assert len(rows.rows) == 39


def test_a_draft_left_behind_is_replaced(directory: Directory) -> None:
    with directory.create(DRAFT) as file:
        file.write(0, [b"x" * 9000])
    grown(directory, [row(1, 1)])
    assert directory.names() == [NAME]
    assert len(content(directory)) == 4096


# ── the file does not grow for ever ──────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_ten_thousand_appends_of_one_ledger_keep_the_file_small() -> None:
    disk = SimulatedDisk(sector_size=4096)
    rows = grown(disk.root(), *([row(1, change)] for change in range(1, 10_001)))
    writes = [one for one in disk.trace if one.verb is Verb.WRITE]
    assert max(one.offset + one.size for one in writes) == 64 << 10
    assert sum(one.size for one in writes) == 10_000 * 4096
    assert load(disk.root(), rows.sequence).rows == {1: row(1, 10_000)}


def test_a_file_is_rewritten_if_more_than_half_of_it_would_be_out_of_date() -> None:
    disk = SimulatedDisk(sector_size=4096)
    ledgers = [row(one, 1000 + one, 1000) for one in range(300)]
    rows = grown(disk.root(), ledgers)
    live = len(content(disk.root()))
    sizes = []
    for change in range(2000, 2200):
        rows.append([row(change % 300, change, 1000)])
        sizes.append(len(content(disk.root())))
    assert max(sizes) == 2 * live
    assert sizes.count(live) == 2
    assert load(disk.root(), rows.sequence).rows == rows.rows


def test_a_file_that_is_mostly_up_to_date_is_not_rewritten() -> None:
    disk = SimulatedDisk(sector_size=4096)
    grown(disk.root(), *([row(one, one, 3000)] for one in range(1, 201)))
    assert [one.verb for one in disk.trace].count(Verb.RENAME) == 1
    assert len(content(disk.root())) == 200 * 4096


# ── torn tails and damage ────────────────────────────────────────────────────────────────────────────────

FIRST, SECOND, THIRD = (group([row(one, one)], one, (one - 1) * 4096) for one in (1, 2, 3))
LARGE = group([row(3, 3, 2000)], 3, 8192)
REWRITTEN = group([row(1, 1)], 7, 0, 8192) + group([row(2, 2)], 8, 4096, 8192)
APPENDED = REWRITTEN + group([row(3, 3)], 9, 8192) + group([row(4, 4)], 10, 12288)
USED = len(FIRST.rstrip(b"\0"))
PLACES = [start + within for start in range(0, 16384, 4096) for within in (*range(USED + 2), 512, 2048, 4095)]
"""Return the offset of every byte of the four groups, and of some padding."""


def with_flipped_bit(data: bytes) -> bytes:
    return flip(data, 50, 3)


def signed(body: bytes, version: int = metadata_log_format.VERSION, synced_end: int = 0) -> bytes:
    """Encode the third group with other fields and a right checksum."""
    head = rows_head(metadata_log_format.MAGIC, version, 3, 8192, synced_end, len(body), 1)
    return (head + crc32c(body, crc32c(head)).to_bytes(4, "big") + body).ljust(4096, b"\0")


def item(encoded: bytes) -> bytes:
    return len(encoded).to_bytes(4, "big") + encoded


BODY = item(ledger_record_format.encode(row(3, 3)))
NEWER_ROW = msgpack.packb([3])
NEWER_BODY = item(NEWER_ROW + crc32c(NEWER_ROW).to_bytes(4, "big"))

TORN_TAILS = {
    "ruined": with_flipped_bit(THIRD),
    "magic": flip(THIRD, 0, 0),
    "of another place": SECOND,
    "cut in its head": THIRD[:30],
    "cut in its body": THIRD[:60],
    "its first sector lost": bytes(512) + LARGE[512:],
    "its last sector lost": LARGE[:2048] + bytes(2048),
    "several blocks, all ruined": with_flipped_bit(THIRD) + b"x" * 8192,
}


@pytest.mark.parametrize("tail", TORN_TAILS.values(), ids=list(TORN_TAILS))
def test_an_unproven_tail_is_cut_and_reported(tail: bytes) -> None:
    loaded = load(holding(FIRST + SECOND + tail), 2)
    assert loaded == LoadedMetadataLog(LedgerRecordTable({1: row(1, 1), 2: row(2, 2)}), 2, 2, 8192, 2)


@pytest.mark.parametrize("zeros", [0, 1, 4096, 1 << 20])
def test_zeros_after_the_last_group_are_no_torn_tail(zeros: int) -> None:
    assert load(holding(FIRST + SECOND + bytes(zeros)), 2).torn is None


REFUSED = {
    "no file as long as was known": (FIRST + SECOND, 3, 8192, "group 3 was durable"),
    "a last group that was known": (FIRST + SECOND + with_flipped_bit(THIRD), 3, 8192, "group 3 was durable"),
    "a good group behind": (FIRST + with_flipped_bit(SECOND) + THIRD, 0, 4096, "the group at 8192 was begun"),
    "a good group far behind": (
        FIRST + with_flipped_bit(SECOND) + bytes(4096) + group([], 9, 12288),
        0,
        4096,
        "the group at 12288 was begun",
    ),
    "zeros in front of a good group": (FIRST + bytes(4096) + THIRD, 0, 4096, "no group"),
    "a newer group behind": (FIRST + with_flipped_bit(SECOND) + signed(BODY, version=2), 0, 4096, "at 8192"),
    "the first group": (with_flipped_bit(FIRST), 0, 0, "before it had its name"),
    "no byte": (b"", 0, 0, "before it had its name"),
    "only zeros": (bytes(4096), 0, 0, "before it had its name"),
    "a rewritten file cut short": (REWRITTEN[:4096], 0, 4096, "everything before 8192 was durable"),
    "a rewritten file damaged": (
        REWRITTEN[:4096] + with_flipped_bit(REWRITTEN[4096:]),
        0,
        4096,
        "before 8192",
    ),
    "a group left out": (FIRST + group([], 3, 4096), 0, 4096, "out of sequence"),
    "a group told twice": (FIRST + group([], 1, 4096), 0, 4096, "out of sequence"),
    "a group 0": (group([], 0, 0), 0, 0, "out of sequence"),
    "a synced end below 0": (FIRST + SECOND + signed(BODY, synced_end=-1), 0, 8192, "not cut short"),
    "a version below 1": (FIRST + SECOND + signed(BODY, version=0), 0, 8192, "not cut short"),
    "rows that do not fill it": (FIRST + SECOND + signed(BODY + b"x"), 0, 8192, "not cut short"),
    "a row that is damaged": (FIRST + SECOND + signed(flip(BODY, 9, 0)), 0, 8236, "not cut short"),
}


@pytest.mark.parametrize(("data", "known", "offset", "why"), REFUSED.values(), ids=list(REFUSED))
def test_damage_is_refused(data: bytes, known: int, offset: int, why: str) -> None:
    with pytest.raises(CorruptionError, match=why) as refused:
        load(holding(data), known)
    error = refused.value
    assert (error.file, error.offset, error.finding) == (NAME, offset, "LGR-002")


def test_a_missing_file_that_was_durable_is_refused(directory: Directory) -> None:
    with pytest.raises(CorruptionError, match="missing") as refused:
        load(directory, 1)
    assert (refused.value.file, refused.value.finding) == (NAME, "LGR-002")


@pytest.mark.parametrize(
    "third",
    [signed(BODY, version=2), signed(b"of another form", version=2), signed(NEWER_BODY)],
    ids=["group", "group of another form", "row"],
)
def test_a_file_of_a_newer_version_is_refused_with_newer_format(third: bytes) -> None:
    with pytest.raises(NewerFormat, match=NAME):
        load(holding(FIRST + SECOND + third), 0)


def test_a_version_under_a_wrong_checksum_is_a_torn_tail() -> None:
    assert load(holding(FIRST + SECOND + flip(THIRD, 7, 1)), 2).torn == 8192


@pytest.mark.parametrize("known", [0, 8, 9, 10])
def test_a_flipped_bit_is_refused_if_its_group_was_proven_durable(known: int) -> None:
    rows = {one: row(one, one) for one in (1, 2, 3, 4)}
    for offset in PLACES:
        number, within = divmod(offset, 4096)
        directory = holding(flip(APPENDED, offset, offset % 8))
        if within >= USED:
            assert load(directory, known).rows == rows, offset
        elif number == 3 and known < 10:
            loaded = load(directory, known)
            assert (loaded.sequence, loaded.torn) == (9, 12288), offset
            assert loaded.rows == {one: rows[one] for one in (1, 2, 3)}, offset
        else:
            with pytest.raises(CorruptionError):
                load(directory, known)


@pytest.mark.parametrize("known", [0, 8, 9, 10])
def test_a_file_cut_anywhere_is_refused_if_the_rest_was_proven_durable(known: int) -> None:
    for size in (*PLACES, len(APPENDED)):
        directory = holding(APPENDED[:size])
        whole, within = divmod(size, 4096)
        sound = whole + (within >= USED)
        if 6 + sound < max(known, 8):
            with pytest.raises(CorruptionError):
                load(directory, known)
        else:
            loaded = load(directory, known)
            assert loaded.rows == {one: row(one, one) for one in range(1, sound + 1)}, size
            assert loaded.torn == (whole * 4096 if 0 < within < USED else None), size


def test_an_appended_group_proves_all_groups_before_it_and_a_rewritten_one_only_its_file() -> None:
    assert load(holding(REWRITTEN), 0).proven_sequence == 0
    assert load(holding(REWRITTEN), 8).proven_sequence == 8
    assert load(holding(APPENDED[:12288]), 0).proven_sequence == 8
    assert load(holding(APPENDED), 0).proven_sequence == 9
    assert load(holding(APPENDED), 10).proven_sequence == 10


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────


class StoppedWriting(Exception):
    """The sync of the directory has failed, so the client writes no more in this process."""


@dataclass(frozen=True)
class Promises:
    """The promises to a client: batches by their number, and the group that a mark may name."""

    handed: int = 0
    answered: frozenset[int] = frozenset()
    known: int = 0


@dataclass
class Client:
    """Appends batches of three rows, one of which always belongs to the same ledger."""

    size: int = 300
    promises: Promises = field(default_factory=Promises)

    def batch(self, number: int) -> list[LedgerRecord]:
        return [row(ledger_id, number, self.size) for ledger_id in (1, 100 + 2 * number, 101 + 2 * number)]

    def open(self, directory: Directory) -> MetadataLog:
        """Continue with the existing file; no group is named before it is proven durable."""
        loaded = load(directory, self.promises.known)
        rows = MetadataLog(directory, loaded.rows, loaded.sequence)
        if loaded.sequence > loaded.proven_sequence:
            self._insist(rows, rows.rewrite)
        self._promise(rows, self.seen(loaded.rows))
        return rows

    def run_session(self, directory: Directory, steps: str) -> None:
        """Do the work: `a` appends the next batch, `r` rewrites the file."""
        rows = self.open(directory)
        for step in steps:
            if step == "a":
                self._append(rows)
            else:
                self._insist(rows, rows.rewrite)
                self._promise(rows, frozenset())
        rows.close()

    def _append(self, rows: MetadataLog) -> None:
        number = self.promises.handed + 1
        self.promises = replace(self.promises, handed=number)
        self._insist(rows, lambda: rows.append(self.batch(number)))
        self._promise(rows, frozenset({number}))

    def _insist(self, rows: MetadataLog, act: Callable[[], None]) -> None:
        before = (dict(rows.rows), rows.sequence)
        try:
            act()
        except OSError:
            assert (dict(rows.rows), rows.sequence) == before
            if rows.is_name_unknown:
                raise StoppedWriting from None
            act()

    def _promise(self, rows: MetadataLog, answered: frozenset[int]) -> None:
        assert self.seen(rows.rows) >= answered
        self.promises = replace(
            self.promises, answered=self.promises.answered | answered, known=rows.sequence
        )

    def seen(self, rows: Mapping[int, LedgerRecord]) -> frozenset[int]:
        """Return the batches in the file, after checking that none is incomplete and nothing else is
        there."""
        numbers = range(1, self.promises.handed + 1)
        found = frozenset(number for number in numbers if 100 + 2 * number in rows)
        expected = {one.ledger_id: one for number in sorted(found) for one in self.batch(number)}
        assert rows == expected
        return found

    def check(self, disk: SimulatedDisk) -> None:
        loaded = load(disk.root(), self.promises.known)
        assert self.promises.answered <= self.seen(loaded.rows)


SESSIONS = ("aara", "aa", "", "a")


def work(disk: SimulatedDisk, client: Client) -> None:
    """Open and write several times. Each session ends as by a kill, which makes nothing durable."""
    for steps in SESSIONS:
        try:
            client.run_session(disk.root(), steps)
        except StoppedWriting:
            disk.mend()


@dataclass(frozen=True)
class Moment:
    what: str
    disk: SimulatedDisk
    promises: Promises


def moments(sector_size: int, row_size: int, *faults: Fault) -> list[Moment]:
    """Yield the disk before each operation of the work, and at its end."""
    disk, client, found = SimulatedDisk(sector_size=sector_size), Client(row_size), list[Moment]()
    disk.watch(lambda operation: found.append(Moment(str(operation), disk.copy(), client.promises)))
    for fault in faults:
        disk.plant(fault)
    work(disk, client)
    return [*found, Moment("at the end", disk, client.promises)]


def moments_within(sector_size: int, row_size: int) -> Iterator[Moment]:
    """Yield the disk in the middle of each operation."""
    for number in range(1, len(moments(sector_size, row_size))):
        disk, client = SimulatedDisk(sector_size=sector_size), Client(row_size)
        disk.stop_within(number)
        with pytest.raises(Stopped):
            work(disk, client)
        yield Moment(f"within {number}", disk, client.promises)


def assert_continues(disk: SimulatedDisk, client: Client) -> None:
    """Open and cut the power, and append and cut the power: no row that was answered or used is missing."""
    for steps in ("", "a"):
        client.run_session(disk.root(), steps)
        disk.power_cut(LoseAll())
        client.check(disk)


def survives(moment: Moment, row_size: int, fates: Iterable[Fate]) -> None:
    for fate in fates:
        after = moment.disk.copy()
        after.power_cut(fate)
        client = Client(row_size, moment.promises)
        client.check(after)
        assert_continues(after, client)
    killed = moment.disk.copy()
    killed.kill()
    client = Client(row_size, moment.promises)
    client.check(killed)
    assert_continues(killed, client)


@pytest.mark.sampled(one_of=2)
@pytest.mark.parametrize(("sector_size", "row_size"), [(512, 300), (4096, 3000)])
def test_answered_rows_survive_any_crash(sector_size: int, row_size: int) -> None:
    for moment in every(27, [*moments(sector_size, row_size), *moments_within(sector_size, row_size)]):
        survives(moment, row_size, moment.disk.fates(exhaustive_up_to=6))


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("tearing", Tearing)
def test_answered_rows_survive_torn_sectors(tearing: Tearing) -> None:
    for moment in moments(4096, 3000):
        survives(moment, 3000, [RandomFate(seed, tearing) for seed in range(12)])


def faults_of(number: int, verb: Verb) -> Iterator[Fault]:
    when = When(number=number)
    yield Refused(when)
    if verb is Verb.WRITE:
        yield ShortWrite(when)
    if verb in (Verb.SYNC, Verb.SYNC_DIRECTORY):
        yield from (FailedSync(when, seed=seed, pages=pages) for seed in range(3) for pages in Pages)


@pytest.mark.sampled
def test_answered_rows_survive_any_failing_call_that_is_repeated() -> None:
    disk = SimulatedDisk()
    work(disk, Client())
    for operation in every(57, disk.trace):
        for fault in faults_of(operation.number, operation.verb):
            struck = moments(512, 300, fault)
            for moment in struck[operation.number :]:
                survives(moment, 300, [LoseAll(), RandomFate(operation.number)])


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", [Refused(When(name=DRAFT)), FailedSync(When(name=DRAFT), pages=Pages.KEPT)])
def test_a_failed_append_leaves_the_rows_as_they_were_and_the_next_writes_a_new_file(fault: Fault) -> None:
    disk = SimulatedDisk()
    rows = grown(disk.root(), [row(1, 1)])
    disk.plant(fault)
    with pytest.raises(OSError, match=DRAFT):
        rows.append([row(2, 2)])
    assert (dict(rows.rows), rows.sequence, rows.is_name_unknown) == ({1: row(1, 1)}, 1, False)

    before = len(disk.trace)
    rows.append([row(3, 3)])
    assert disk.trace[before].verb is Verb.CREATE
    disk.power_cut(LoseAll())
    assert load(disk.root(), rows.sequence).rows == {1: row(1, 1), 3: row(3, 3)}


def test_no_two_groups_have_the_same_sequence() -> None:
    disk = SimulatedDisk()
    rows = grown(disk.root(), [row(1, 1)])
    disk.plant(FailedSync(When(verb=Verb.SYNC), pages=Pages.KEPT))
    with pytest.raises(OSError, match=DRAFT):
        rows.append([row(2, 2)])
    failed = load(disk.root(), 0)
    rows.append([row(3, 3)])
    assert failed.sequence == 2
    assert rows.sequence == load(disk.root(), 0).sequence == 3


def test_a_failed_sync_of_the_directory_is_distinguished_from_other_errors() -> None:
    disk = SimulatedDisk()
    rows = grown(disk.root(), [row(1, 1)])
    disk.plant(Refused(When(verb=Verb.SYNC_DIRECTORY)))
    with pytest.raises(OSError, match="'/'"):
        rows.rewrite()
    assert rows.is_name_unknown
    with pytest.raises(AssertionError, match="stops writing"):
        rows.append([row(2, 2)])


@pytest.mark.parametrize("pages", Pages)
def test_a_file_whose_name_is_not_durable_proves_nothing(pages: Pages) -> None:
    disk = SimulatedDisk()
    rows = grown(disk.root(), [row(1, 1)])
    disk.plant(FailedSync(When(verb=Verb.SYNC_DIRECTORY), seed=1, pages=pages))
    with pytest.raises(OSError, match="'/'"):
        rows.rewrite()
    disk.kill()
    disk.root().sync()  # as an opening does; the sync succeeds and makes nothing durable
    found = load(disk.root(), 1)
    disk.power_cut(LoseAll())
    assert (found.sequence, found.proven_sequence) == (2, 1)
    assert load(disk.root(), found.proven_sequence).sequence == 1


def test_a_file_that_could_not_be_named_is_not_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(PosixDirectory, "rename", lambda *_: (tmp_path / "nothing").stat())
    monkeypatch.setattr("storage.disk.posix.PosixWriteFile.close", lambda file: closed.append(file.name))
    with pytest.raises(FileNotFoundError):
        grown(PosixDirectory(tmp_path), [row(1, 1)])
    assert closed == [str(tmp_path / DRAFT)]


def test_a_replaced_file_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    rows = grown(PosixDirectory(tmp_path), [row(1, 1)])
    monkeypatch.setattr("storage.disk.posix.PosixWriteFile.close", lambda file: closed.append(file.name))
    rows.rewrite()
    assert closed == [str(tmp_path / DRAFT)]
    rows.close()
    rows.close()
    assert closed == [str(tmp_path / DRAFT)] * 2

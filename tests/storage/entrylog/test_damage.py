"""Damage in entry logs: sound records are still read, the rest is a hole with its exact extent."""

from __future__ import annotations

import random
import struct
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from entry_log_builder import Log, direct_log, entries, holes, items, reader
from journal_builder import BookieJournal, OurJournal, change, entry_bytes, entry_record, flip, zero
from memory_files import CountingFile, GrowingFile, MemoryFile
from random_damage import log_of
from sampling import every, many

from storage.entry.digest import DigestCheck, digester
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry
from storage.entrylog.scan import Hole, LogFiller
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader, StoredRecord
from storage.journal.scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.entry.digest import Buffer

MEMORY_MAX = 64 << 20


ALL_IDS = [(number % 3, number // 3) for number in range(12)]


def test_an_undamaged_log_has_no_holes() -> None:
    for digest in DigestType:
        found = items(log_of(digest).seal().file())
        assert entries(found) == ALL_IDS
        assert holes(found) == []
        assert isinstance(found[-1], EndOfData)


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("victim", range(12))
@pytest.mark.parametrize(
    "part", [4, 12, 20, 28, 36, -1], ids=["ledger", "entry", "lac", "length", "digest", "payload"]
)
def test_damage_inside_an_entry_costs_that_entry_only(victim: int, part: int) -> None:
    log = log_of()
    end = [*log.places, len(log.data)][victim + 1]
    offset = end - 1 if part == -1 else log.places[victim] + part + 3
    found = items(flip(log.seal().file(), offset, 2))
    good = [item.ids for item in found if isinstance(item, LogEntry) and item.check is DigestCheck.OK]
    assert good == ALL_IDS[:victim] + ALL_IDS[victim + 1 :]
    doubtful = [item for item in found if isinstance(item, LogEntry) and item.check is not DigestCheck.OK]
    assert [item.position.offset for item in doubtful] == [log.places[victim]]
    assert holes(found) == []


@pytest.mark.sampled(one_of=6)
@pytest.mark.parametrize("victim", range(12))
@pytest.mark.parametrize("size", [0, 1, -1, -5, 2**31 - 1, 20, 5000, 90])
@pytest.mark.parametrize("sealed", ["sealed", "open"])
def test_a_damaged_size_costs_four_bytes(victim: int, size: int, sealed: str) -> None:
    log = log_of()
    place = log.places[victim]
    if sealed == "sealed":
        log.seal()
    found = items(change(log.file(), place, struct.pack(">i", size)))
    assert entries(found) == ALL_IDS
    assert holes(found) == [(place, place + 4)]


def test_every_flipped_bit_of_a_size_costs_four_bytes() -> None:
    log = log_of().seal()
    for place in log.places:
        for bit in range(32):
            found = items(flip(log.file(), place + bit // 8, bit % 8))
            assert entries(found) == ALL_IDS, (place, bit)
            assert holes(found) == [(place, place + 4)], (place, bit)


def test_a_first_size_that_swallows_the_whole_log_costs_four_bytes() -> None:
    log = log_of()
    place = log.places[0]
    found = items(change(log.file(), place, struct.pack(">i", len(log.data) - place - 4)))
    assert entries(found) == ALL_IDS
    assert holes(found) == [(place, place + 4)]


@pytest.mark.parametrize("victim", range(1, 11))
def test_a_zeroed_range_is_one_hole_up_to_the_next_sound_record(victim: int) -> None:
    log = log_of().seal()
    start, end = log.places[victim], log.places[victim + 1]
    found = items(zero(log.file(), start, end))
    assert holes(found) == [(start, end)]
    assert entries(found) == ALL_IDS[:victim] + ALL_IDS[victim + 1 :]


def test_a_destroyed_range_over_several_records_is_one_exact_hole() -> None:
    log = log_of().seal()
    start, end = log.places[3] + 2, log.places[6] + 20
    found = items(change(log.file(), start, random.Random(5).randbytes(end - start)))
    assert entries(found) == ALL_IDS[:3] + ALL_IDS[7:]
    assert holes(found) == [(log.places[3], log.places[7])]


@pytest.mark.parametrize("digest", [DigestType.CRC32, DigestType.MAC, DigestType.DUMMY])
def test_other_digests_are_found_again_too(digest: DigestType) -> None:
    log = log_of(digest).seal()
    start, end = log.places[4], log.places[5]
    found = items(
        change(log.file(), start, b"\xff" * (end - start)), EntryVerifier(password_of=lambda _: b"password")
    )
    assert entries(found) == ALL_IDS[:4] + ALL_IDS[5:]
    assert holes(found) == [(start, end)]


@pytest.mark.sampled
def test_every_prefix_of_a_log_keeps_its_whole_records() -> None:
    log = log_of()
    ends = [*log.places[1:], len(log.data)]
    for size in every(3, range(len(log.data) + 1)):
        found = items(log.file()[:size])
        assert entries(found) == ALL_IDS[: sum(end <= size for end in ends)], size
        whole = max([1024, *(end for end in ends if end <= size)])
        assert isinstance(found[-1], Torn if any(log.data[whole:size]) else EndOfData), size


def test_a_payload_that_contains_a_log_is_one_entry() -> None:
    inner = log_of().file()[1024:]
    log = Log().add(entry_bytes(7, 0, inner), entry_bytes(7, 1))
    assert entries(items(log.file())) == [(7, 0), (7, 1)]
    found = items(change(log.file(), log.places[0], struct.pack(">i", 77)))
    assert entries(found)[-1] == (7, 1)
    assert isinstance(found[0], Hole)


def test_damage_in_the_map_is_reported_and_the_log_is_scanned_instead() -> None:
    log = log_of().seal()
    header = entrylog_format.decode_header(log.file())
    assert isinstance(header, entrylog_format.LogHeader)
    damaged = reader(change(log.file(), header.map_offset + 20, struct.pack(">i", 9)))
    assert isinstance(damaged.ledgers_map(), Damaged)
    assert entrylog_scan.metadata(damaged).sizes == log.sizes


def test_an_unknown_digest_type_breaks_no_entry_whose_framing_holds() -> None:
    """Return a payload of whole records, which do not count while the entry around them is framed."""
    inner = journal_format.encode_record(entry_bytes(1, 0, b"forged"))
    backup = entry_bytes(9, 4, b"backup:" + inner + b"....", DigestType.MAC)
    log = Log().add(entry_bytes(1, 0), entry_bytes(3, 0, digest=DigestType.CRC32), backup, entry_bytes(1, 1))
    assert entries(items(log.file())) == [(1, 0), (3, 0), (9, 4), (1, 1)]
    assert holes(items(log.file())) == []


@pytest.mark.parametrize("bit", range(32))
def test_a_damaged_size_of_a_filler_loses_no_entry(bit: int) -> None:
    log = Log().add(entry_bytes(1, 0))
    place = len(log.data)
    log.data += entrylog_format.encode_filler(place)
    log.add(*(entry_bytes(1, number, b"x" * 100) for number in range(1, 20)))
    found = items(flip(log.file(), place + bit // 8, bit % 8))
    assert entries(found) == [(1, number) for number in range(20)]


@pytest.mark.parametrize("size", [0, -1, 5, 77, 2**31 - 1])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_damaged_size_before_a_direct_writer_s_padding_costs_four_bytes(size: int, victim: int) -> None:
    places = [item.position.offset for item in items(direct_log()) if isinstance(item, LogEntry)]
    found = items(change(direct_log(), places[victim], struct.pack(">i", size)))
    assert entries(found) == [(1, 0), (1, 1), (1, 2)]
    assert holes(found) == [(places[victim], places[victim] + 4)]


def test_a_damaged_size_before_zeros_costs_four_bytes() -> None:
    log = log_of()
    found = items(change(log.file() + bytes(5000), log.places[-1], struct.pack(">i", 2**31 - 1)))
    assert entries(found) == ALL_IDS
    assert holes(found) == [(log.places[-1], log.places[-1] + 4)]


@pytest.mark.parametrize("kept", [0.4, 0.99])
def test_a_sealed_log_that_ends_before_its_map_is_damaged_and_never_torn(kept: float) -> None:
    whole = log_of().seal().file()
    cut = reader(whole[: 1024 + int((len(whole) - 1024) * kept)])
    *_, stop = entrylog_scan.items(cut)
    assert isinstance(stop, Damaged)
    assert stop.flaw is Flaw.FILE_SHORT
    assert isinstance(cut.ledgers_map(), Damaged)


def test_a_map_with_more_bytes_than_stand_before_it_is_not_believed() -> None:
    log = log_of()
    log.sizes[0] += 1 << 20
    assert isinstance(reader(log.seal().file()).ledgers_map(), Damaged)


def entries_of(ledger_id: int, numbers: Iterable[int], digest: DigestType = DigestType.CRC32C) -> list[bytes]:
    return [entry_bytes(ledger_id, number, digest=digest) for number in numbers]


def destroyed(log: Log, *victims: int) -> bytes:
    """Return the log with nothing but ones in the place of these records."""
    data = log.file()
    for victim in victims:
        start, end = [*log.places, len(data)][victim : victim + 2]
        data = change(data, start, b"\xff" * (end - start))
    return data


def test_reading_may_begin_at_any_record_and_never_inside_the_header() -> None:
    log = log_of()
    opened = reader(log.file())
    entrylog_scan.learn_digest_types(opened)
    assert entries(list(entrylog_scan.items(opened, log.places[5]))) == ALL_IDS[5:]
    whole = list(entrylog_scan.items(opened, 0))
    assert (entries(whole), holes(whole)) == (ALL_IDS, [])


def test_a_scan_returns_how_it_ended_with_its_counts() -> None:
    log = log_of()
    assert entrylog_scan.metadata(reader(log.file())).stop == EndOfData(len(log.data))
    broken = change(log.file(), log.places[-1], b"\xff" * 20)
    stop = Damaged(log.places[-1], Flaw.LENGTH_NEGATIVE)
    assert entrylog_scan.metadata(reader(broken[: log.places[-1] + 20])).stop == stop


def test_a_rescued_entry_is_proved_by_its_digest() -> None:
    log = log_of()
    found = items(change(log.file(), log.places[4], struct.pack(">i", -1)))
    assert [item.check for item in found if isinstance(item, LogEntry)] == [DigestCheck.OK] * 12


@pytest.mark.parametrize(("size", "rescued"), [(999, True), (1000, True), (1001, False)])
def test_no_entry_above_the_limit_is_rescued(
    size: int, rescued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log().add(entry_bytes(1, 0), entry_bytes(1, 1, b"x" * (size - 36)), entry_bytes(1, 2))
    assert log.places[2] - log.places[1] == 4 + size
    damaged = change(log.file(), log.places[1], struct.pack(">i", -1))
    monkeypatch.setattr(entrylog_scan, "RECORD_SIZE_MAX", 1000)
    assert ((1, 1) in entries(items(damaged))) is rescued


@pytest.mark.parametrize(
    "following",
    [
        entrylog_format.encode_record(entry_bytes(1, 3)),
        entrylog_format.encode_ledgers_map({1: 30})[0],
        entrylog_format.encode_record(struct.pack(">qq", -1, -3) + bytes(500)),
        bytes([0xF0] * 4096),
        bytes(5000),
        b"",
    ],
    ids=["entry", "map", "filler", "direct padding", "zeros", "end"],
)
def test_a_large_entry_after_a_hole_is_found_whatever_follows_it(following: bytes) -> None:
    log = Log().add(*entries_of(1, range(2)), entry_bytes(1, 2, b"x" * 9000))
    if following[:1] == b"\xf0":
        following = following[len(log.data) % 4096 :]
    found = items(destroyed(log, 1) + following)
    assert entries(found)[:2] == [(1, 0), (1, 2)]
    assert holes(found) == [(log.places[1], log.places[2])]


def test_a_small_entry_between_two_holes_is_found() -> None:
    log = Log().add(entry_bytes(1, 0, b"x" * 9000), *entries_of(1, range(1, 5)))
    found = items(destroyed(log, 1, 3))
    assert entries(found) == [(1, 0), (1, 2), (1, 4)]
    assert holes(found) == [(log.places[1], log.places[2]), (log.places[3], log.places[4])]


@pytest.mark.parametrize("content", [bytes(500), b""], ids=["long", "short"])
def test_a_hole_ends_where_a_filler_begins(content: bytes) -> None:
    log = Log().add(*entries_of(1, range(2)))
    filler = entrylog_format.encode_record(struct.pack(">qq", -1, -3) + content)
    end = len(log.data)
    found = items(destroyed(log, 1) + filler + entrylog_format.encode_record(entry_bytes(1, 2)))
    assert found[1:3] == [
        Hole(log.places[1], end, Flaw.LENGTH_NEGATIVE),
        LogFiller(end, end + len(filler)),
    ]


def test_a_hole_does_not_end_at_a_map_that_contradicts_itself() -> None:
    log = Log().add(*entries_of(1, range(2)))
    contradiction = entrylog_format.encode_record(struct.pack(">qqi", -1, -2, 7) + bytes(16))
    found = items(destroyed(log, 1) + contradiction + entrylog_format.encode_record(entry_bytes(1, 2)))
    assert holes(found) == [(log.places[1], len(log.data) + len(contradiction))]
    assert entries(found) == [(1, 0), (1, 2)]


def test_a_hole_does_not_end_at_an_entry_whose_digest_is_wrong() -> None:
    log = log_of()
    damaged = flip(destroyed(log, 4), log.places[6] - 1)
    assert holes(items(damaged)) == [(log.places[4], log.places[6])]


DUMMIES = [entrylog_format.encode_record(data) for data in entries_of(9, range(2, 6), DigestType.DUMMY)]


@pytest.mark.parametrize(
    ("following", "believed"),
    [
        ([*DUMMIES[:1]], True),
        ([*DUMMIES[:1], bytes(100)], True),
        ([*DUMMIES[:1], bytes(100), b"\xff"], False),
        ([*DUMMIES[:1], b"\xff" * 100], False),
        ([*DUMMIES[:2], b"\xff" * 100], False),
        ([*DUMMIES[:4], b"\xff" * 100], True),
        ([*DUMMIES[:1], entrylog_format.encode_ledgers_map({1: 30})[0]], True),
        ([*DUMMIES[:1], entrylog_format.encode_record(entry_bytes(1, 3)), b"\xff" * 100], False),
        ([*DUMMIES[:1], b"\xf0" * 8192], True),
    ],
    ids=[
        "end",
        "zeros",
        "zeros in front of junk",
        "one and junk",
        "two and junk",
        "four and junk",
        "map",
        "another ledger's",
        "direct padding",
    ],
)
def test_an_entry_without_a_digest_after_a_hole_is_believed_if_the_framing_holds(
    following: list[bytes], believed: bool
) -> None:
    log = Log().add(*entries_of(9, range(2), DigestType.DUMMY))
    data = destroyed(log, 1) + b"".join(following)
    if following[-1][:1] == b"\xf0":
        data = data[: -(len(data) % 4096)]
    found = items(data)
    assert ((9, 2) in entries(found)) is believed
    assert not believed or holes(found)[0] == (log.places[1], len(log.data))


def wrong(data: bytes) -> bytes:
    """Return the record of an entry whose last byte is wrong."""
    return entrylog_format.encode_record(flip(data, len(data) - 1))


INNER = entrylog_format.encode_record(entry_bytes(1, 7))
OUTER = entry_bytes(1, 1, b"backup:" + INNER + b"....")
WRONG = [wrong(data) for data in entries_of(1, range(2, 20))]
FRAMED = {
    "end": b"",
    "zeros": bytes(5000),
    "sound entry": entrylog_format.encode_record(entry_bytes(1, 2)) + b"\xff" * 100,
    "sixteen wrong digests": b"".join(WRONG[:16]) + b"\xff" * 100,
    "map": entrylog_format.encode_ledgers_map({1: 30})[0],
    "filler": entrylog_format.encode_record(struct.pack(">qq", -1, -3) + bytes(50)),
    "direct padding": bytes([0xF0] * 4096),
}
NOT_FRAMED = {
    "junk": b"\xff" * 100,
    "zeros in front of junk": bytes(5000) + b"\xff",
    "fifteen wrong digests": b"".join(WRONG[:15]) + b"\xff" * 100,
    "contradicting map": entrylog_format.encode_record(struct.pack(">qqi", -1, -2, 7) + bytes(16)),
    "filler with content": entrylog_format.encode_record(struct.pack(">qq", -1, -3) + b"content"),
}


@pytest.mark.parametrize("following", [*FRAMED, *NOT_FRAMED])
def test_a_record_inside_a_damaged_entry_counts_only_if_the_framing_after_it_is_broken(
    following: str,
) -> None:
    log = Log().add(entry_bytes(1, 0))
    place = len(log.data)
    log.data += wrong(OUTER)
    end, behind = len(log.data), (FRAMED | NOT_FRAMED)[following]
    if following == "direct padding":
        behind = behind[end % 4096 :]
    _, found, *_ = items(log.file() + behind)
    inner = end - 4 - len(INNER)
    if following in FRAMED:
        assert isinstance(found, LogEntry)
        assert (found.end, found.check) == (end, DigestCheck.MISMATCH)
    else:
        assert found == Hole(place, inner, Flaw.DIGEST)


def test_an_entry_without_a_digest_keeps_its_place_whatever_it_contains_and_whatever_follows() -> None:
    dummies = [entry_bytes(9, 0, digest=DigestType.DUMMY), entry_bytes(9, 1, INNER, DigestType.DUMMY)]
    log = Log().add(entry_bytes(5, 0), *dummies)
    assert entries(items(log.file() + b"\xff" * 100)) == [(5, 0), (9, 0), (9, 1)]


def test_a_damaged_entry_before_a_hole_keeps_its_place() -> None:
    log = log_of()
    found = items(flip(destroyed(log, 5), log.places[5] - 1))
    assert [item.ids for item in found if isinstance(item, LogEntry)] == ALL_IDS[:5] + ALL_IDS[6:]
    assert holes(found) == [(log.places[5], log.places[6])]


def test_a_damaged_entry_before_entries_without_digests_keeps_its_place() -> None:
    log = Log().add(entry_bytes(1, 0), *entries_of(9, range(4), DigestType.DUMMY))
    found = items(flip(log.file(), log.places[1] - 1) + b"\xff" * 100)
    assert entries(found) == [(1, 0), (9, 0), (9, 1), (9, 2), (9, 3)]


def test_entries_of_another_digest_than_declared_are_passed_once_each() -> None:
    log = Log().add(*entries_of(1, range(2)))
    opened = reader(log.file() + b"\xff" * 100, verifier=EntryVerifier({1: digester(DigestType.CRC32)}))
    assert entries(list(islice(entrylog_scan.items(opened), 20))) == [(1, 0), (1, 1)]


def test_a_filler_that_covers_records_is_reported() -> None:
    log = Log().add(entry_bytes(1, 0))
    place = len(log.data)
    records = b"".join(map(entrylog_format.encode_record, entries_of(1, range(1, 3))))
    found = items(
        log.file() + entrylog_format.encode_record(struct.pack(">qq", -1, -3) + bytes(50) + records)
    )
    assert found[1] == Hole(place, place + 4 + 16 + 50, Flaw.NOT_ZERO)
    assert entries(found) == [(1, 0), (1, 1), (1, 2)]


HARD_PAYLOADS = {
    "ones": b"\x01" * 300_000,
    "two-byte text": "damage in the middle of a long text. ".encode("utf-16-le") * 4000,
    "counters": b"".join(struct.pack(">q", number) for number in range(37_500)),
    "small numbers": b"".join(struct.pack(">i", number % 1000) for number in range(75_000)),
}


class Weighing(EntryVerifier):
    """Counts the bytes that it had to prove."""

    weight = 0

    def proves(self, data: Buffer) -> bool:
        self.weight += len(data)
        return super().proves(data)


@pytest.mark.sampled
@pytest.mark.parametrize("payload", HARD_PAYLOADS.values(), ids=HARD_PAYLOADS)
def test_a_payload_full_of_places_that_could_be_records_is_searched_in_linear_reading(payload: bytes) -> None:
    log = Log().add(
        entry_bytes(1, 0),
        entry_bytes(1, 1, payload),
        *(entry_bytes(1, n, b"x" * 9000) for n in range(2, many(300, 60))),
    )
    damaged = CountingFile(change(log.file(), log.places[1], struct.pack(">i", 2**24 - 7)))
    verifier = Weighing()
    opened = EntryLogReader(damaged, 0, verifier)
    assert entries(list(entrylog_scan.items(opened))) == [(1, number) for number in range(many(300, 60))]
    assert damaged.count < 64 * len(log.data)
    assert verifier.weight < 64 * len(log.data)
    journal = BookieJournal(1, size=1 << 21).flush(entry_record(1, 0)).flush(entry_record(1, 1, payload))
    torn = CountingFile(flip(journal.file(), journal.ends[0] + 50))
    facts = scan(JournalReader(torn, 1), EntryVerifier())
    assert (facts.end, facts.proof_offset) == (journal.ends[0], None)
    assert torn.count < 64 * journal.size


@pytest.mark.parametrize("reads", range(1, 8))
def test_data_that_a_live_writer_adds_while_we_read_is_no_damage(reads: int) -> None:
    before = OurJournal(1, size=3 << 20).group(entry_record(1, 0))
    after = OurJournal(1, size=3 << 20).group(entry_record(1, 0))
    for number in range(1, 400):
        after.group(entry_record(1, number))
    facts = scan(JournalReader(GrowingFile(before.file(), after.file(), reads), 1), EntryVerifier())
    assert facts.is_sound
    assert facts.record_count >= 1


@pytest.mark.sampled
@pytest.mark.parametrize("password", [b"password", b"wrong"])
def test_reading_a_log_stays_linear_even_if_no_digest_matches(password: bytes) -> None:
    count = many(5000, 1000)
    log = Log().add(*(entry_bytes(1, number, b"x" * 900, DigestType.MAC) for number in range(count)))
    file = CountingFile(log.file())
    opened = EntryLogReader(file, 0, EntryVerifier({1: digester(DigestType.MAC, password)}))
    assert sum(isinstance(item, LogEntry) for item in entrylog_scan.items(opened)) == count
    assert file.count < 2 * len(log.data)


class TornRead(MemoryFile):
    """A file that a live writer has written to during one read: its beginning is as before."""

    def __init__(self, before: bytes, after: bytes, cut: int) -> None:
        super().__init__(before)
        self._after, self._cut, self._reads = after, cut, 0

    def read(self, offset: int, size: int) -> bytes:
        self._reads += 1
        if self._reads == 2:
            self._data = self._data[: self._cut] + self._after[self._cut :]
        elif self._reads > 2:
            self._data = self._after
        return super().read(offset, size)


def test_data_that_a_live_writer_adds_during_one_read_is_no_damage() -> None:
    before = OurJournal(1, size=3 << 20).group(entry_record(1, 0))
    after = OurJournal(1, size=3 << 20).group(entry_record(1, 0))
    for number in range(1, 400):
        after.group(entry_record(1, number))
    file = TornRead(before.file(), after.file(), cut=before.end + 4096)
    found = [item for item in JournalReader(file, 1).items() if isinstance(item, StoredRecord)]
    assert len(found) == 400


def test_reading_a_journal_stays_linear() -> None:
    journal = BookieJournal(1, size=3 << 20)
    journal.flush(*(entry_record(1, number, b"x" * 900) for number in range(2500)))
    file = CountingFile(journal.file())
    assert sum(isinstance(item, StoredRecord) for item in JournalReader(file, 1).items()) == 2500
    assert file.count < 2 * journal.size


def test_a_size_that_looks_like_a_direct_writer_s_padding_costs_four_bytes() -> None:
    log = log_of()
    found = items(change(log.file(), log.places[2], b"\xf0" * 4))
    assert entries(found) == ALL_IDS
    assert holes(found) == [(log.places[2], log.places[2] + 4)]


def test_a_large_good_entry_between_two_destroyed_ones_is_found() -> None:
    log = Log().add(*(entry_bytes(1, number, b"x" * 9000) for number in range(5)))
    data = log.file()
    for victim in (1, 3):
        start, end = log.places[victim], log.places[victim + 1]
        data = change(data, start, b"\xff" * (end - start))
    found = items(data)
    assert entries(found) == [(1, 0), (1, 2), (1, 4)]

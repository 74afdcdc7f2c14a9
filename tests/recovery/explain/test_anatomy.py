"""Fields are adjacent, cover every byte, and refuse none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.explain import annotate
from storage.checkpoint import mark_format
from storage.disk import cookie_format
from storage.entry import ledger_record_format
from storage.entry.ledger_record import LedgerRecord
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition, LogPosition
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage_format
from storage.entrylog.lineage_format import Lineage
from storage.journal import format as journal_format
from storage.journal import seal
from storage.ledgers import metadata_log_format

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.explain.fields import Field

    Dissect = Callable[[bytes], list[Field]]

OFFSET = 4096

LINEAGE = Lineage(9, (LogPosition(2, 5000), LogPosition(4, 0)), (3,))
TRAILER = mark_format.Trailer(3, 9, LogPosition(2, 5000), 6)
SEAL = seal.Seal(5, 77, 3, OFFSET, JournalPosition(5, 512), 0)
GROUP = metadata_log_format.encode_group(
    [ledger_record_format.encode(LedgerRecord(5, 1)), ledger_record_format.encode(LedgerRecord(6, 1))],
    0,
    OFFSET,
    0,
)

EVERYTHING: dict[str, tuple[Dissect, int, bytes]] = {
    "journal header": (
        annotate.journal_header,
        0,
        journal_format.encode_header(journal_format.JournalHeader(6, 42)),
    ),
    "bookie's header": (
        annotate.journal_header,
        0,
        journal_format.encode_header(journal_format.JournalHeader(6)),
    ),
    "short header": (
        annotate.journal_header,
        0,
        journal_format.encode_header(journal_format.JournalHeader(4)),
    ),
    "ledger key": (
        lambda data: annotate.journal_record(data, OFFSET, None),
        OFFSET,
        journal_format.encode_ledger_key(1, b"k" * 20),
    ),
    "fence": (
        lambda data: annotate.journal_record(data, OFFSET, None),
        OFFSET,
        journal_format.encode_fence(1),
    ),
    "entry": (
        lambda data: annotate.journal_record(data, OFFSET, DigestType.CRC32C),
        OFFSET,
        fixtures.golden("journal-logical.bin")[1024:1532],
    ),
    "padding": (
        lambda data: annotate.journal_padding(data, OFFSET),
        OFFSET,
        journal_format.encode_padding(700, 512),
    ),
    "seal": (
        lambda data: annotate.journal_padding(data, OFFSET),
        OFFSET,
        seal.encode_group([], sum(map(len, [])), SEAL, 512),
    ),
    "atomic mark": (lambda data: annotate.journal_padding(data, OFFSET), OFFSET, seal.encode_atomic_mark()),
    "log header": (
        annotate.log_header,
        0,
        entrylog_format.encode_header(entrylog_format.Origin(b"0123456789abcdef", 2, LogPosition(7, 8192))),
    ),
    "map": (
        lambda data: annotate.log_record(data, OFFSET, None),
        OFFSET,
        entrylog_format.encode_ledgers_map({1: 100, 2: 200})[0],
    ),
    "filler": (
        lambda data: annotate.log_record(data, OFFSET, None),
        OFFSET,
        entrylog_format.encode_filler(5000),
    ),
    "direct padding": (lambda data: annotate.log_record(data, OFFSET, None), OFFSET, b"\xf0" * 96),
    "mark": (annotate.mark_file, 0, mark_format.encode(mark_format.Mark(JournalPosition(9, 512), TRAILER))),
    "bookie's mark": (annotate.mark_file, 0, mark_format.encode(mark_format.Mark(JournalPosition(9, 512)))),
    "lineage": (annotate.lineage_file, 0, lineage_format.encode(LINEAGE, b"0123456789abcdef")),
    "cookie": (annotate.cookie_file, 0, cookie_format.encode(cookie_format.Cookie("h:1", ("/j",), ("/l",)))),
    "rows": (lambda data: annotate.rows_group(data, OFFSET), OFFSET, GROUP),
}
ALL = pytest.mark.parametrize(("dissect", "offset", "data"), EVERYTHING.values(), ids=EVERYTHING.keys())


def assert_covers(fields: list[Field], offset: int, size: int) -> None:
    for field in fields:
        assert field.offset == offset
        assert field.size > 0
        offset += field.size
    assert offset == fields[0].offset + size if fields else size == 0


@ALL
def test_fields_cover_every_byte(dissect: Dissect, offset: int, data: bytes) -> None:
    assert_covers(dissect(data), offset, len(data))


@ALL
def test_bytes_cut_off_anywhere_are_named_as_far_as_they_go(
    dissect: Dissect, offset: int, data: bytes
) -> None:
    for size in range(min(len(data), 200)):
        assert_covers(dissect(data[:size]), offset, size)


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("dissect", [dissect for dissect, _, _ in EVERYTHING.values()], ids=EVERYTHING.keys())
@given(data=st.binary(max_size=300))
def test_undecodable_bytes_are_never_refused(dissect: Dissect, data: bytes) -> None:
    fields = dissect(data)
    assert_covers(fields, fields[0].offset if fields else 0, len(data))


def values(name: str) -> dict[str, object]:
    dissect, _, data = EVERYTHING[name]
    return {field.name: field.value for field in dissect(data)}


def test_a_seal_s_fields_have_their_values() -> None:
    found = values("seal")
    assert (found["journal"], found["sequence"], found["group start"], found["durable offset"]) == (
        5,
        3,
        OFFSET,
        512,
    )


def test_a_mark_s_fields_have_their_values() -> None:
    found = values("mark")
    assert (found["journal"], found["offset"], found["newest log"], found["rows sequence"]) == (9, 512, 2, 6)


def test_a_lineage_names_each_log_with_its_end() -> None:
    dissect, _, data = EVERYTHING["lineage"]
    found = [(field.name, field.value) for field in dissect(data)]
    assert found[3:11] == [
        ("generation", 9),
        ("kept", 2),
        ("gone", 1),
        ("log", 2),
        ("its end", 5000),
        ("log", 4),
        ("its end", 0),
        ("gone", 3),
    ]
    assert "2.log" in next(field.meaning for field in dissect(data) if field.name == "its end")


def test_a_log_header_s_fields_have_their_values() -> None:
    found = values("log header")
    assert (found["generation"], found["previous log"], found["its end"]) == (2, 7, 8192)


def test_a_key_is_shown_and_a_payload_only_counted() -> None:
    assert values("ledger key")["master key"] == (b"k" * 20).hex()
    assert values("entry")["payload"] == "468 bytes"


def test_an_unknown_digest_leaves_digest_and_payload_together() -> None:
    data = EVERYTHING["entry"][2]
    assert annotate.journal_record(data, 0, None)[-1].name == "digest and payload"
    assert "digest" not in [field.name for field in annotate.journal_record(data, 0, DigestType.DUMMY)]


def test_a_number_that_is_cut_off_says_how_much_of_it_is_there() -> None:
    field = annotate.mark_file(bytes(11))[-1]
    assert (field.size, field.value, field.meaning) == (3, "3 of 8 bytes", "cut off")


def test_fill_that_is_not_zero_is_noticed() -> None:
    header = bytearray(journal_format.encode_header(journal_format.JournalHeader(6)))
    header[300] = 1
    assert annotate.journal_header(bytes(header))[-1].meaning == "not all zero"

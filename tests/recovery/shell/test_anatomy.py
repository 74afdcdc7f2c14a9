"""Fields lie side by side, cover every byte given, and never refuse one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery import anatomy
from storage.codec import cookie, entrylog, journal, mark, row, rows, seal
from storage.entry import DigestType
from storage.position import JournalPosition, LogPosition
from storage.row import LedgerRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.fields import Field

    Dissect = Callable[[bytes], list[Field]]

OFFSET = 4096

TRAILER = mark.Trailer(3, 9, LogPosition(2, 5000), 6)
SEAL = seal.Seal(5, 77, 3, OFFSET, JournalPosition(5, 512), 0)
GROUP = rows.encode_group([row.encode(LedgerRow(5, 1)), row.encode(LedgerRow(6, 1))], 0, OFFSET, 0)

EVERYTHING: dict[str, tuple[Dissect, int, bytes]] = {
    "journal header": (anatomy.journal_header, 0, journal.encode_header(journal.Header(6, 42))),
    "bookie's header": (anatomy.journal_header, 0, journal.encode_header(journal.Header(6))),
    "short header": (anatomy.journal_header, 0, journal.encode_header(journal.Header(4))),
    "ledger key": (
        lambda data: anatomy.journal_record(data, OFFSET, None),
        OFFSET,
        journal.encode_ledger_key(1, b"k" * 20),
    ),
    "fence": (lambda data: anatomy.journal_record(data, OFFSET, None), OFFSET, journal.encode_fence(1)),
    "entry": (
        lambda data: anatomy.journal_record(data, OFFSET, DigestType.CRC32C),
        OFFSET,
        fixtures.golden("journal-logical.bin")[1024:1532],
    ),
    "padding": (
        lambda data: anatomy.journal_padding(data, OFFSET),
        OFFSET,
        journal.encode_padding(700, 512),
    ),
    "seal": (
        lambda data: anatomy.journal_padding(data, OFFSET),
        OFFSET,
        b"".join(seal.encode_group([], SEAL, 512)),
    ),
    "atomic mark": (lambda data: anatomy.journal_padding(data, OFFSET), OFFSET, seal.encode_atomic_mark()),
    "log header": (
        anatomy.log_header,
        0,
        entrylog.encode_header(entrylog.Origin(b"0123456789abcdef", 2, LogPosition(7, 8192))),
    ),
    "map": (
        lambda data: anatomy.log_record(data, OFFSET, None),
        OFFSET,
        entrylog.encode_ledgers_map({1: 100, 2: 200})[0],
    ),
    "filler": (lambda data: anatomy.log_record(data, OFFSET, None), OFFSET, entrylog.encode_filler(5000)),
    "direct padding": (lambda data: anatomy.log_record(data, OFFSET, None), OFFSET, b"\xf0" * 96),
    "mark": (anatomy.mark_file, 0, mark.encode(mark.Mark(JournalPosition(9, 512), TRAILER))),
    "bookie's mark": (anatomy.mark_file, 0, mark.encode(mark.Mark(JournalPosition(9, 512)))),
    "cookie": (anatomy.cookie_file, 0, cookie.encode(cookie.Cookie("h:1", ("/j",), ("/l",)))),
    "rows": (lambda data: anatomy.rows_group(data, OFFSET), OFFSET, GROUP),
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


@pytest.mark.parametrize("dissect", [dissect for dissect, _, _ in EVERYTHING.values()], ids=EVERYTHING.keys())
@given(data=st.binary(max_size=300))
def test_nonsense_is_never_refused(dissect: Dissect, data: bytes) -> None:
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


def test_a_log_header_s_fields_have_their_values() -> None:
    found = values("log header")
    assert (found["generation"], found["previous log"], found["its end"]) == (2, 7, 8192)


def test_a_key_is_shown_and_a_payload_only_counted() -> None:
    assert values("ledger key")["master key"] == (b"k" * 20).hex()
    assert values("entry")["payload"] == "468 bytes"


def test_an_unknown_digest_leaves_digest_and_payload_together() -> None:
    data = EVERYTHING["entry"][2]
    assert anatomy.journal_record(data, 0, None)[-1].name == "digest and payload"
    assert "digest" not in [field.name for field in anatomy.journal_record(data, 0, DigestType.DUMMY)]


def test_a_number_that_is_cut_off_says_how_much_of_it_is_there() -> None:
    field = anatomy.mark_file(bytes(11))[-1]
    assert (field.size, field.value, field.meaning) == (3, "3 of 8 bytes", "cut off")


def test_filling_that_is_not_zero_is_noticed() -> None:
    header = bytearray(journal.encode_header(journal.Header(6)))
    header[300] = 1
    assert anatomy.journal_header(bytes(header))[-1].meaning == "not all zero"

"""The VERSION file."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.disk import cookie_format
from storage.disk.cookie_format import Cookie
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.errors import InvalidFormat

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t,"), min_size=1, max_size=20)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
COOKIE = Cookie("127.0.0.1:3181", ("/data/journal",), ("/data/ledgers",), "inst-1")
TEXT = rb"""5
bookieHost: "127.0.0.1:3181"
journalDir: "/data/journal"
ledgerDirs: "1\t/data/ledgers"
instanceId: "inst-1"
"""


STORE_IDS = st.none() | st.binary(min_size=16, max_size=16).map(bytes.hex)


@given(
    st.builds(
        Cookie, NAMES, PATHS, PATHS, st.none() | NAMES, st.none() | PATHS, st.sampled_from([4, 5]), STORE_IDS
    )
)
def test_a_cookie_reads_back(cookie: Cookie) -> None:
    assert cookie_format.decode(cookie_format.encode(cookie)) == cookie


def test_a_cookie_is_written_as_a_bookie_writes_it() -> None:
    assert cookie_format.encode(COOKIE) == TEXT
    assert cookie_format.decode(TEXT) == COOKIE


def test_a_store_id_is_in_a_comment_after_what_a_bookie_reads() -> None:
    stamped = replace(COOKIE, store_id="00112233445566778899aabbccddeeff")
    assert cookie_format.encode(stamped) == TEXT + b"# ledgerstore 00112233445566778899aabbccddeeff\n"


@pytest.mark.parametrize(
    "line", [b"# ledgerstore 0011\n", b"# ledgerstorf " + b"0" * 32 + b"\n", b"# other\n"]
)
def test_a_damaged_store_id_is_damage_and_not_another_store(line: bytes) -> None:
    assert cookie_format.decode(TEXT + line) == Damaged(len(TEXT), Flaw.BAD_TEXT, "a line that is no field")


def test_version_3_has_plain_lines() -> None:
    assert cookie_format.decode(b"3\nhost:1\n/j\n2\t/a\t/b\n") == Cookie(
        "host:1", ("/j",), ("/a", "/b"), layout_version=3
    )


def test_letters_beyond_ascii_are_escaped_byte_by_byte() -> None:
    cookie = Cookie("h", ("/data/jörnal",), ("/data/\udcff",), "ü")
    encoded = cookie_format.encode(cookie)
    assert encoded.isascii()
    assert rb"/data/j\303\266rnal" in encoded
    assert cookie_format.decode(encoded) == cookie


def test_a_path_that_could_not_be_read_back_is_refused() -> None:
    with pytest.raises(InvalidFormat):
        cookie_format.encode(Cookie("h", ("/a,b",), ("/l",)))
    with pytest.raises(InvalidFormat):
        cookie_format.encode(Cookie("h", ("/a",), ("/l\tm",)))


def test_escapes_of_protobuf_s_text_format_are_understood() -> None:
    text = TEXT.replace(b"inst-1", rb"a\"b\\c\x41\102\n")
    answer = cookie_format.decode(text)
    assert isinstance(answer, Cookie)
    assert answer.instance_id == 'a"b\\cAB\n'


@pytest.mark.parametrize(
    ("data", "flaw"),
    [
        (b"6\n", Flaw.FUTURE_VERSION),
        (b"99999999999999\n", Flaw.FUTURE_VERSION),
        (b"2\n", Flaw.BAD_VERSION),
        (b"x\n", Flaw.BAD_TEXT),
        (b"\n", Flaw.BAD_TEXT),
        (b"5\nnonsense\n", Flaw.BAD_TEXT),
        (b"5\n\xff\n", Flaw.BAD_TEXT),
        (b'5\nbookieHost: "a"\n', Flaw.BAD_TEXT),
        (TEXT.replace(b"1\\t", b"2\\t"), Flaw.BAD_TEXT),
    ],
)
def test_bytes_that_are_no_cookie_are_damaged_or_torn(data: bytes, flaw: Flaw) -> None:
    answer = cookie_format.decode(data)
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw


@pytest.mark.parametrize("data", [b"", b"5", b'5\nbookieHost: "a"', b"3\nhost\n/j"])
def test_a_cookie_cut_short_is_torn(data: bytes) -> None:
    assert isinstance(cookie_format.decode(data), Torn)

"""The syntax of a bookie's configuration file: Java's properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.bookkeeper_conf import Property, parse
from storage.errors import InvalidConfig


def pairs(text: str) -> list[tuple[str, str]]:
    return [(key, value) for _, key, value in parse(text)]


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("key=value", ("key", "value")),
        ("key:value", ("key", "value")),
        ("key value", ("key", "value")),
        ("key \t\f= \t\fvalue", ("key", "value")),
        ("  key = value", ("key", "value")),
        ("key = value  ", ("key", "value  ")),
        ("key==value", ("key", "=value")),
        ("key = = value", ("key", "= value")),
        ("key : = value", ("key", "= value")),
        ("key=a=b:c d", ("key", "a=b:c d")),
        ("key", ("key", "")),
        ("key=", ("key", "")),
        ("=value", ("", "value")),
        (r"a\ b\=c\:d=value", ("a b=c:d", "value")),
        (r"key = a\tb\nc\rd\fe", ("key", "a\tb\nc\rd\fe")),
        (r"key = \\u0041\\", ("key", r"\u0041" + "\\")),
        (r"key = \u00e9\u0041\z\#", ("key", "éAz#")),
        ("key = a # b ! c", ("key", "a # b ! c")),
        ("key = a\\\n   b", ("key", "ab")),
        ("key = a\\\n \t b \\\n\fc", ("key", "ab c")),
        ("ke\\\n  y = a", ("key", "a")),
        ("key = a\\\n# b", ("key", "a# b")),
        ("key = a\\\n", ("key", "a")),
        ("key = a\\", ("key", "a")),
        ("key = a\\\\\\\nb", ("key", "a\\b")),
        ("\\\nkey = a", ("key", "a")),
        ("key = a\x0bb\x85\u2028c", ("key", "a\x0bb\x85\u2028c")),
    ],
)
def test_parsing_one_pair(text: str, pair: tuple[str, str]) -> None:
    assert pairs(text) == [pair]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# key=value", "!key=value", " \t\f# key", "  ", "\\", "\\\n\n"]
)
def test_comments_and_empty_lines_have_no_pairs(text: str) -> None:
    assert pairs(text) == []


def test_a_comment_is_not_continued() -> None:
    assert pairs("# a comment \\\nkey=value") == [("key", "value")]


def test_two_backslashes_continue_nothing() -> None:
    assert pairs("a = 1\\\\\nb = 2") == [("a", "1\\"), ("b", "2")]


@pytest.mark.parametrize("newline", ["\n", "\r", "\r\n"])
def test_pairs_come_in_order_with_the_number_of_their_first_line(newline: str) -> None:
    text = newline.join(["# head", "a = 1", "", "b = 2\\", "  3", "a = 4"])
    assert parse(text) == [Property(2, "a", "1"), Property(4, "b", "23"), Property(6, "a", "4")]


@pytest.mark.parametrize("text", [r"a = \u12", r"a = \u12g4", r"\u = 1", r"a = \u"])
def test_a_broken_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"line 2: .*four hexadecimal digits"):
        parse("# head\n" + text)


@given(st.text(st.sampled_from("ab\\ \t\f=:#!u0\r\n")))
def test_any_text_is_parsed_or_refused_as_invalid(text: str) -> None:
    try:
        found = parse(text)
    except InvalidConfig:
        return
    assert [item.line for item in found] == sorted({item.line for item in found})


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in text)


@given(
    st.lists(
        st.tuples(st.text(st.characters(max_codepoint=0xD7FF)), st.text(st.characters(max_codepoint=0xD7FF)))
    )
)
def test_escaped_text_reads_back(written: list[tuple[str, str]]) -> None:
    assert pairs("\n".join(f"{escaped(key)}={escaped(value)}" for key, value in written)) == written

"""Protobuf's text form: what BookKeeper writes and reads, unknown fields, and text that is no message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_examples import INNER, OUTER, messages

from storage.cluster.wire import text
from storage.cluster.wire.protobuf import Malformed, ProtobufMessage

UNKNOWN = [b"later: 5", b'newer: "a\\"b" "c"', b"deep {\n  a: 1\n  b {\n    c: X\n  }\n}"]
unknown = st.lists(st.sampled_from(UNKNOWN), max_size=2).map(b"\n".join)
outer = messages(unknown)


@given(outer)
@settings(max_examples=40)
def test_every_message_survives_with_its_unknown_fields(message: ProtobufMessage) -> None:
    encoded = text.encode(OUTER, message)
    found = text.decode(OUTER, encoded)
    assert isinstance(found, ProtobufMessage)
    assert found == message
    assert text.encode(OUTER, found) == encoded


def test_text_is_escaped_as_bookkeeper_does() -> None:
    # Printed by BookKeeper 4.18.0 for this text.
    message = ProtobufMessage({"name": "a'b\"\\\n\t\r\u00e9\u0001\u007fz"})
    assert text.encode(INNER, message) == rb'name: "a\'b\"\\\n\t\r\303\251\001\177z"' + b"\n"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("name: 'x'", "x"),
        ('name: "a" "b"', "ab"),
        ('name:"q" foo: 3', "q"),
        ('name: "x" # a comment', "x"),
        ('name: "\\x41\\101\\u0041\\U00000041\\q"', "AAAAq"),
        ('foo { a: 1 b { c: 2 } } name: "k"', "k"),
        ('foo < a: 1 > name: "k";', "k"),
    ],
)
def test_every_form_that_bookkeeper_reads_is_read(written: str, name: str) -> None:
    found = text.decode(INNER, written.encode())
    assert isinstance(found, ProtobufMessage)
    assert found.text("name") == name


def test_unknown_fields_of_nested_messages_keep_their_lines() -> None:
    written = b'inner {\n  name: "x"\n  later {\n    a: 1\n  }\n}\n'
    message = text.decode(OUTER, written)
    assert isinstance(message, ProtobufMessage)
    assert message.message("inner") == ProtobufMessage({"name": "x"}, b"later {\n  a: 1\n}")
    assert text.encode(OUTER, message) == written


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("", "Inner: name is missing"),
        ("name", "where a mark should be"),
        ("name { }", "no colon after name"),
        ("name: 5", "where a text should be"),
        ('name: "x', "unexpected text after byte 5"),
        ('name: "x" name: "y"', "name twice"),
        ('name: "x" count: z', "count is 'z'"),
        ('name: "x" count: 9223372036854775808', "count is"),
        ('name: "x" other:', "no value at byte"),
        ('name: "x" other {', "where a name should be"),
        ('name: "x" }', "where a name should be"),
        ('name: "\\U00110000"', "no character has the number"),
    ],
)
def test_text_that_is_no_message_is_refused(written: str, words: str) -> None:
    found = text.decode(INNER, written.encode())
    assert isinstance(found, Malformed)
    assert words in found.reason


def test_messages_inside_of_each_other_have_a_limit() -> None:
    found = text.decode(INNER, b'name: "x" ' + b"a { " * 40 + b"} " * 40)
    assert isinstance(found, Malformed)
    assert "more than 32" in found.reason


@given(outer, st.data())
@settings(max_examples=40)
def test_no_cut_or_changed_byte_does_more_than_be_refused(
    message: ProtobufMessage, data: st.DataObject
) -> None:
    encoded = bytearray(text.encode(OUTER, message))
    if encoded:
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    found = text.decode(OUTER, bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))
    assert isinstance(found, ProtobufMessage | Malformed)

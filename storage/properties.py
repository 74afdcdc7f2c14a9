"""Java's properties text, taken apart: the form of a bookie's configuration file.

    # a comment, as is a line that begins with !
    key = value
    key: value         either sign, or only blanks, between the two
    key value, \\
        continued      without the blanks in front
    one\\ key = \\u00e9  blanks and signs in a key are escaped, and any letter can be
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANKS = " \t\f"
_NEWLINE = re.compile(r"\r\n|\r|\n")  # fewer than str.splitlines knows: a form feed is a blank here
_PAIR = re.compile(r"(?P<key>(?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One key and its value; `line` is the first line it stands on, from 1."""

    line: int
    key: str
    value: str


def parse(text: str) -> list[Property]:
    """The pairs in the order they stand in, repeated keys included; `InvalidConfig` for a broken `\\u`."""
    return [_pair(number, line) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with what continues them, without comments and empty ones; and where each begins."""
    lines = enumerate(_NEWLINE.split(text), start=1)
    for number, line in lines:
        whole = line.lstrip(_BLANKS)
        if not whole or whole[0] in "#!":
            continue
        while _goes_on(whole):
            # Where nothing follows, the backslash is dropped all the same.
            _, following = next(lines, (0, ""))
            whole = whole[:-1] + following.lstrip(_BLANKS)
        if whole:
            yield number, whole


def _goes_on(line: str) -> bool:
    """Whether a backslash at its end escapes the end, and not another backslash."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _pair(line: int, text: str) -> Property:
    match = _PAIR.fullmatch(text)
    assert match is not None, "each part may be empty, and no backslash is left without what it escapes"
    return Property(line, _unescape(line, match["key"]), _unescape(line, match["value"]))


def _unescape(line: int, text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise InvalidConfig(f"line {line}", r"\u needs four hexadecimal digits")
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _NAMED.get(escaped, escaped)

    return _ESCAPE.sub(character, text)

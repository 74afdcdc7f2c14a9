"""How each contender looks: the same colour, shape and line wherever it is drawn.

The colours (`page.css`) were searched for so that any two can be told apart by people who do not see red, or
green, or blue. Nobody has to: each has a shape of its own as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.page.markup import Markup, tag

_CIRCLE = "M-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0z"
_SQUARE = "M-3.7 -3.7h7.4v7.4h-7.4z"
_UP = "M0 -4.9l4.8 8.4h-9.6z"
_DOWN = "M0 4.9l4.8 -8.4h-9.6z"
_DIAMOND = "M0 -5.2l4.6 5.2l-4.6 5.2l-4.6 -5.2z"
_RIGHT = "M4.9 0l-8.4 4.8v-9.6z"
_PLUS = "M-1.5 -4.7h3v3.2h3.2v3h-3.2v3.2h-3v-3.2h-3.2v-3h3.2z"
_CROSS = (
    "M-4.4 -2.5l1.9 -1.9l2.5 2.5l2.5 -2.5l1.9 1.9l-2.5 2.5"
    "l2.5 2.5l-1.9 1.9l-2.5 -2.5l-2.5 2.5l-1.9 -1.9l2.5 -2.5z"
)


@dataclass(frozen=True, slots=True)
class Look:
    """A colour, as a class of the style sheet, and a shape; hollow where it is a variant of another."""

    hue: str
    shape: str
    is_hollow: bool = False

    @property
    def classes(self) -> str:
        return f"hue-{self.hue}{' hollow' if self.is_hollow else ''}"


_LOOKS = {
    "ours": Look("ours", _CIRCLE),
    "ours, asynchronous": Look("awaited", _DIAMOND),
    "raw": Look("raw", _PLUS),
    "raw, futex": Look("futex", _CROSS),
    "plyvel": Look("plyvel", _UP),
    "rocksdict": Look("rocksdict", _SQUARE),
    "sqlite3": Look("sqlite3", _DOWN),
    "lmdb": Look("lmdb", _RIGHT),
}
_OTHER = Look("other", _CIRCLE)


def look(contender: str) -> Look:
    """Of a contender that has no look of its own, that of whose name its own begins with, but hollow."""
    if contender in _LOOKS:
        return _LOOKS[contender]
    family = [name for name in _LOOKS if contender.startswith(name)]
    if not family:
        return _OTHER
    found = _LOOKS[max(family, key=len)]
    return Look(found.hue, found.shape, is_hollow=True)


def marker(contender: str, x: str, y: str, title: str = "") -> Markup:
    """Its shape, with the middle there."""
    one = look(contender)
    inner = tag("path", tag("title", title) if title else None, d=one.shape)
    return tag("svg", inner, class_=f"mark {one.classes}", x=x, y=y, overflow="visible")


def swatch(contender: str) -> Markup:
    """Its shape within a line of text."""
    return tag("svg", marker(contender, "7", "7"), class_="swatch", width=14, height=14, aria_hidden="true")

"""Numbers, sizes and names as text that is easy to read."""

from __future__ import annotations

import unicodedata

_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_UNITS = [(unit, 1 << 10 * power) for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)]


def visible(text: str) -> str:
    """Return the text with escapes for invisible characters, because names must not control a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in "\n\t" else _seen(one) for one in text)


def line(text: str) -> str:
    """Return the text on one line."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _seen(character: str) -> str:
    # Python keeps bytes of names that are not UTF-8 as lone surrogates, which no encoder accepts.
    if unicodedata.category(character) not in _UNSEEN:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def grouped(number: int) -> str:
    """Return 1,234,567."""
    return f"{number:,}"


def rate(number: float) -> str:
    """Return 212, or 7.5, because the digit after the point matters for small numbers only."""
    return f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """Return 3 violations, or 1 violation."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    return noun[:-1] + "ies" if noun.endswith("y") else noun + "s"


def duration(seconds: float) -> str:
    """Return 2.5 s, 12.5 min, or 8.0 h."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def size(count: int) -> str:
    """Return 17 bytes, 4.0 KiB, 1.5 MiB, or 61.2 GiB."""
    if count < 1024:
        return counted(count, "byte")
    unit, step = next((one for one in _UNITS if count < one[1] << 10), _UNITS[-1])
    return f"{count / step:,.1f} {unit}"


def shortened(text: str, size_max: int) -> str:
    """Return the text without its middle, because numbered files differ at their ends."""
    if len(text) <= size_max:
        return text
    tail = (size_max - 1) * 2 // 3
    return f"{text[: size_max - 1 - tail]}…{text[-tail:]}"

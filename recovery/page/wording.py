"""Numbers, sizes and names in words that a person reads at a glance."""

from __future__ import annotations

import unicodedata

_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_UNITS = [(unit, 1 << 10 * power) for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)]


def visible(text: str) -> str:
    """The text, every character of it seen: a file's name must not steer a terminal or turn a line around."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in "\n\t" else _seen(one) for one in text)


def line(text: str) -> str:
    """The text on one line, whatever it holds."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _seen(character: str) -> str:
    # Lone surrogates are how Python keeps the bytes of a name that is no UTF-8; no encoder takes them.
    if unicodedata.category(character) not in _UNSEEN:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def grouped(number: int) -> str:
    """1,234,567."""
    return f"{number:,}"


def rate(number: float) -> str:
    """212, and 7.5 where the digit behind the point says something."""
    return f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """3 violations, 1 violation."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    return noun[:-1] + "ies" if noun.endswith("y") else noun + "s"


def duration(seconds: float) -> str:
    """2.5 s, 12.5 min, 8.0 h."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def size(count: int) -> str:
    """17 bytes, 4.0 KiB, 1.5 MiB, 61.2 GiB."""
    if count < 1024:
        return counted(count, "byte")
    unit, step = next((one for one in _UNITS if count < one[1] << 10), _UNITS[-1])
    return f"{count / step:,.1f} {unit}"


def shortened(text: str, size_max: int) -> str:
    """The text without its middle: numbered files differ at their ends."""
    if len(text) <= size_max:
        return text
    tail = (size_max - 1) * 2 // 3
    return f"{text[: size_max - 1 - tail]}…{text[-tail:]}"

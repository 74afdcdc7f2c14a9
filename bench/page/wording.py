"""Numbers as a person reads them at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from result import Bar

_MIB = 1 << 20
_MILLI = 1e-3
_WHOLE = 99.5
_TINY = 1e-3
_SMALL_RATIO = 0.095
_COMPACT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Words:
    """What a figure is called, and in which unit it is shown."""

    name: str
    unit: str
    factor: float = 1.0
    """From the unit in which it is kept to the one in which it is shown."""


_WORDS: Mapping[str, Words] = MappingProxyType(
    {
        "rate": Words("throughput", "/s"),
        "p50": Words("p50", "ms", _MILLI),
        "p99": Words("p99", "ms", _MILLI),
        "p999": Words("p99.9", "ms", _MILLI),
        "p999_by_p50": Words("p99.9 ÷ p50", "×"),
        "us": Words("a call", "µs"),
        "us_per_add": Words("an add", "µs"),
        "us_acknowledged": Words("an add until acknowledged", "µs"),
        "us_per_read": Words("a random read", "µs"),
        "open_ms": Words("opening", "ms"),
        "ms": Words("opening", "ms"),
        "mb_per_s": Words("replay", "MB/s"),
        "in_journals": Words("in journals", "MiB", 1 / _MIB),
        "replayed": Words("replayed", "MiB", 1 / _MIB),
        "peak_memory": Words("memory at most", "MiB", 1 / _MIB),
        "grown": Words("more memory", "MiB"),
        "written_by_added": Words("written ÷ added", "B/B"),
        "on_disk_by_added": Words("to the disk ÷ added", "B/B"),
    }
)


def words(figure: str, units: Mapping[str, str]) -> Words:
    """The words of a figure; of one that is not known here its own name, and the unit of a bar about it."""
    return _WORDS.get(figure) or Words(figure.replace("_", " "), units.get(figure, ""))


def number(value: float) -> str:
    """12,345 and 123; below that three digits: 12.0, 0.300."""
    if abs(value) >= _WHOLE or not isfinite(value) or not value:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if abs(value) >= _TINY else f"{value:.3g}"


def round_number(value: float) -> str:
    """20,000 and 0.5: of a value that is round, as those of an axis are."""
    return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:.3g}"


def ratio(value: float) -> str:
    """0.0085, 0.77, 12.3, 1,234."""
    if 0 < value < _SMALL_RATIO:
        return f"{value:.2g}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < _WHOLE else number(value)


def measured(value: float, unit: str) -> str:
    """8,042/s, 5.48 ms."""
    return _with_unit(number(value), unit)


def _with_unit(said: str, unit: str) -> str:
    return f"{said}{'' if unit.startswith('/') or not unit else ' '}{unit}"


def duration(microseconds: float) -> str:
    """20 µs, 1.5 ms, 2 s."""
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= factor:
            return f"{round_number(microseconds / factor)} {unit}"
    return f"{round_number(microseconds)} µs"


def compact(value: float) -> str:
    """64, 100k, 10M."""
    for factor, letter in _COMPACT:
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return round_number(value)


def share(part: float) -> str:
    """A place in percent of a width."""
    return f"{100 * part:.2f}%"


def change(ratio_of_last: float) -> str:
    """+4 %, −12 %, and three times as much in words."""
    if ratio_of_last >= 2:
        return f"{ratio(ratio_of_last)} times as much"
    percent = round(100 * (ratio_of_last - 1))
    return f"{'+' if percent > 0 else '−' if percent < 0 else '±'}{abs(percent)} %"


def floor(bar: Bar) -> str:
    """≥ 0.85, ≤ 50 ms; nothing where there is none."""
    return "" if bar.floor is None else f"{bar.judged.sense.value} {limit(bar.floor, bar)}"


def limit(value: float, bar: Bar) -> str:
    """A floor or an aim, in the unit of what is judged."""
    return f"{value:g}" if bar.against else _with_unit(round_number(value), bar.figure.unit)


def judged(value: float, bar: Bar) -> str:
    """What is held against them."""
    return ratio(value) if bar.against else measured(value, bar.figure.unit)

"""A bookie's configuration file: its syntax, and which of its keys set something in a store.

The syntax is that of Java's properties:

    # a comment, as is a line that begins with !
    key = value
    key: value         "=" or ":" or only blanks between the two
    key value, \\
        continued      without the leading blanks
    one\\ key = \\u00e9  blanks and signs in a key are escaped, and any letter can be

Most of a bookie's keys have no effect in a store; docs/bookkeeper.md gives the reasons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import InvalidConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

ENTRY_OVERHEAD_MAX = 500
"""A bookie's largest entry is smaller by so many bytes than its largest network frame."""

_BLANKS = " \t\f"
_NEWLINE = re.compile(r"\r\n|\r|\n")  # not str.splitlines, because a form feed is a blank here
_PAIR = re.compile(r"(?P<key>(?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A key with its value; `line` is the number of its first line, from 1."""

    line: int
    key: str
    value: str


def parse(text: str) -> list[Property]:
    """Return the pairs in their order, repeated keys included; `InvalidConfig` for a broken `\\u`."""
    return [_pair(number, line) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of its first line and the text of each logical line; skip comments and empty lines."""
    lines = enumerate(_NEWLINE.split(text), start=1)
    for number, line in lines:
        whole = line.lstrip(_BLANKS)
        if not whole or whole[0] in "#!":
            continue
        while _is_continued(whole):
            # The backslash is dropped even if no line follows.
            _, following = next(lines, (0, ""))
            whole = whole[:-1] + following.lstrip(_BLANKS)
        if whole:
            yield number, whole


def _is_continued(line: str) -> bool:
    """Return whether the line ends in a backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _pair(line: int, text: str) -> Property:
    match = _PAIR.fullmatch(text)
    assert match is not None, "each part may be empty, and no line ends in a single backslash"
    return Property(line, _unescape(line, match["key"]), _unescape(line, match["value"]))


def _unescape(line: int, text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise InvalidConfig(f"line {line}", r"\u needs four hexadecimal digits")
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _NAMED.get(escaped, escaped)

    return _ESCAPE.sub(character, text)


# ── the meaning of the keys ──────────────────────────────────────────────────────────────────────────────

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_FRACTION = re.compile(r"[+-]?(?:[0-9]{1,19}\.?|[0-9]{0,19}\.[0-9]{1,19})")
_FLAGS = {"true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0}


def whole_number(text: str) -> int:
    """Return the number; `ValueError` for anything else."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _fraction(text: str) -> float:
    if not _FRACTION.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def flag(text: str) -> int:
    """Return 1 for a word that means true, and 0 for one that means false; `ValueError` for others."""
    if text.lower() not in _FLAGS:
        raise ValueError(f"{text!r} is neither true nor false")
    return _FLAGS[text.lower()]


class _Meaning(NamedTuple):
    """The effect of a key on a store.

    `setting` is the setting of `StoreConfig`; `convert` makes it from the key's text and unit, or `None` if
    the value sets nothing. `switched_by` is a key that must be true, otherwise a bookie ignores this one.
    `turns_off` is a setting that is 0 if the value of the key is not positive.
    """

    setting: str | None
    convert: Callable[[str], float | None]
    switched_by: str | None = None
    turns_off: str | None = None


def _mebibytes(text: str) -> int:
    return whole_number(text) << 20


def _half_mebibytes(text: str) -> int:
    return whole_number(text) << 19


def _milliseconds(text: str) -> float:
    return whole_number(text) / 1000


def _positive(text: str) -> int | None:
    number = whole_number(text)
    return number if number > 0 else None


def _share(text: str) -> float:
    """Read a threshold of a compaction; for a bookie, a negative one turns the compaction off."""
    return max(0.0, _fraction(text))


_MEANINGS = {
    "journalMaxBackups": _Meaning("journal_max_backups", whole_number),
    "journalPreAllocSizeMB": _Meaning("journal_size", _mebibytes),
    "journalAlignmentSize": _Meaning("journal_alignment", whole_number),
    # For a bookie, a negative number means "no wait".
    "journalMaxGroupWaitMSec": _Meaning("group_wait_s", lambda text: max(0.0, _milliseconds(text))),
    "journalBufferedWritesThreshold": _Meaning("group_size_max", whole_number),
    "logSizeLimit": _Meaning("entry_log_size_max", whole_number),
    # A bookie's key sets the whole cache, which is two tables.
    "dbStorage_writeCacheMaxSizeMb": _Meaning("memtable_size_max", _half_mebibytes),
    "dbStorage_maxThrottleTimeMs": _Meaning("throttle_timeout_s", _milliseconds),
    "flushInterval": _Meaning("checkpoint_interval_s", _milliseconds),
    "nettyMaxFrameSizeBytes": _Meaning(
        "entry_size_max", lambda text: whole_number(text) - ENTRY_OVERHEAD_MAX
    ),
    "gcWaitTime": _Meaning("collection_interval_s", _milliseconds),
    "minorCompactionThreshold": _Meaning("compaction_minor", _share),
    # Every collection of a store compacts the logs below the minor threshold.
    "minorCompactionInterval": _Meaning(None, _positive, turns_off="compaction_minor"),
    "majorCompactionThreshold": _Meaning("compaction_major", _share),
    "majorCompactionInterval": _Meaning("compaction_interval_s", _positive, turns_off="compaction_major"),
    "compactionRateByBytes": _Meaning("compaction_rate", whole_number, switched_by="isThrottleByBytes"),
    "isThrottleByBytes": _Meaning(None, flag),
    "diskUsageThreshold": _Meaning("space_usage_max", _fraction),
    "diskUsageLwmThreshold": _Meaning("space_usage_resume", _fraction),
    "diskUsageWarnThreshold": _Meaning("space_usage_warn", _fraction),
}

_SIMILARITY = 0.94
"""Keys that are more alike than this differ by a spelling mistake. Two keys of a bookie are less alike."""


@dataclass(frozen=True, slots=True)
class BookkeeperConf:
    """The settings in a bookie's configuration file, and the keys that set nothing."""

    settings: Mapping[str, float] = field(default_factory=dict)
    """The arguments of `StoreConfig`."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """The line and the key that each setting comes from, for error messages."""
    misspelt: Mapping[str, str] = field(default_factory=dict)
    """Keys that are probably misspelt, each with the similar key that has an effect."""
    without_effect: tuple[str, ...] = ()
    """All other keys that set nothing, in their order."""
    properties: Mapping[str, Property] = field(default_factory=dict, compare=False)
    """All keys, each with the first of its values, which is the one that a bookie uses."""

    def remarks(self) -> list[str]:
        """Return what the author of the file should know about the keys that set nothing."""
        guesses = ", ".join(f"{key} ({known}?)" for key, known in self.misspelt.items())
        misspelt = [f"unknown: {guesses}"] if guesses else []
        return misspelt + ([f"no effect: {', '.join(self.without_effect)}"] if self.without_effect else [])


def load(path: str | os.PathLike[str], other_keys: Collection[str] = ()) -> BookkeeperConf:
    """Return the settings in the file. `InvalidConfig` names the file, the line and the key.

    `other_keys` have an effect on something else than the store.
    """
    # Java's encoding of such files. It accepts any byte, also in a comment that is UTF-8.
    text = Path(path).read_text(encoding="latin-1")
    if "\0" in text:
        raise InvalidConfig(str(path), "this is a binary file, and not a text with keys and values")
    try:
        return interpret(parse(text), other_keys)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}, {error.name}", error.reason) from error


def interpret(found: Iterable[Property], other_keys: Collection[str] = ()) -> BookkeeperConf:
    """Return the settings that these properties make."""
    by_key: dict[str, Property] = {}
    for item in found:
        by_key.setdefault(item.key, item)  # a bookie uses the first of two equal keys
    # The configuration file of a distribution shows a key without setting it as `key =`.
    values = {key: _value(item) for key, item in by_key.items() if key in _MEANINGS and item.value.strip()}
    switched_off = {key for key in values if (by := _MEANINGS[key].switched_by) and not values.get(by)}
    # A key that turns a compaction off decides, whatever its threshold is.
    given = {key: _MEANINGS[key].setting for key, value in values.items() if value is not None}
    given |= {key: _MEANINGS[key].turns_off for key, value in values.items() if value is None}
    settings: dict[str, float] = {}
    origins: dict[str, str] = {}
    for key, name in given.items():
        if name is not None and key not in switched_off:
            settings[name] = 0 if (value := values[key]) is None else value
            origins[name] = f"line {by_key[key].line}, {key}"
    known_keys = {*_MEANINGS, *other_keys}
    others = [key for key in by_key if key not in known_keys or key in switched_off]
    unknown = [key for key in others if key not in switched_off]
    misspelt = {key: known for key in unknown if (known := _similar_key(key, known_keys)) is not None}
    without_effect = tuple(key for key in others if key not in misspelt)
    return BookkeeperConf(settings, origins, misspelt, without_effect, by_key)


def _similar_key(key: str, known_keys: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # imported here, because few programs read such a file

    known = {one.lower(): one for one in known_keys}
    similar = get_close_matches(key.lower(), known, 1, _SIMILARITY)
    return known[similar[0]] if similar else None


def _value(item: Property) -> float | None:
    try:
        return _MEANINGS[item.key].convert(item.value.strip())
    except ValueError as error:
        raise InvalidConfig(f"line {item.line}, {item.key}", str(error)) from error

"""The VERSION file, which names the owner of a directory.

    5                                          layout version; below 3 the files are laid out otherwise
    bookieHost: "127.0.0.1:3181"               from version 4 on: protobuf's text format
    journalDir: "/data/journal"                several joined by commas
    ledgerDirs: "1\\t/data/ledgers"             a count and as many paths, joined by tabs
    instanceId: "…"
    indexDirs: "…"                             only when they are not the ledger directories
    # ledgerstore 0123456789abcdef…            ours: the store id, if the instance id no longer has it

A bookie ignores our line, because for protobuf a line that begins with # is a comment. Version 3 has four
plain lines: 3, host, journal directory, ledger directories.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.entry.read_result import Damaged, Flaw, Torn
from storage.errors import InvalidFormat

VERSION = 5
_PLAIN_VERSION = 3
_PLAIN_LINES = 4
SIZE_MAX = 1 << 20
"""A reader takes no more into memory. No cookie is nearly as large."""

_FIELD = re.compile(r'(\w+):\s*"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_NAMED_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_WRITTEN_ESCAPES = {ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n", ord("\t"): r"\t", ord("\r"): r"\r"}
_STORE_ID = re.compile(r"# ledgerstore ([0-9a-f]{32})")
_KNOWN = ("bookieHost", "journalDir", "ledgerDirs", "instanceId", "indexDirs")


@dataclass(frozen=True, slots=True)
class Cookie:
    """The owner of a directory.

    Paths are as they were when the cookie was written; a copy or a restored directory has others.
    """

    bookie_host: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    instance_id: str | None = None
    index_directories: tuple[str, ...] | None = None
    layout_version: int = VERSION
    store_id: str | None = None
    """The store id in the headers of the entry logs, in hexadecimal. `None` if it follows from the instance
    id."""


def encode(cookie: Cookie) -> bytes:
    """Encode the whole file, as a bookie writes it.

    A separator inside a path is refused, because it could not be read back.
    """
    if any("," in path for path in cookie.journal_directories):
        raise InvalidFormat("a journal directory's path has a comma in it")
    if any("\t" in path for path in (*cookie.ledger_directories, *(cookie.index_directories or ()))):
        raise InvalidFormat("a directory's path has a tab in it")
    fields = {
        "bookieHost": cookie.bookie_host,
        "journalDir": ",".join(cookie.journal_directories),
        "ledgerDirs": _join(cookie.ledger_directories),
        "instanceId": cookie.instance_id,
        "indexDirs": None if cookie.index_directories is None else _join(cookie.index_directories),
    }
    lines = [f'{name}: "{_escape(value)}"' for name, value in fields.items() if value is not None]
    lines += [] if cookie.store_id is None else [f"# ledgerstore {cookie.store_id}"]
    return "\n".join([str(cookie.layout_version), *lines, ""]).encode()


def decode(data: bytes) -> Cookie | Torn | Damaged:
    """Decode the whole file."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return Damaged(error.start, Flaw.BAD_TEXT, "not UTF-8")
    first, newline, rest = text.partition("\n")
    if not newline:
        return Torn(0, Flaw.FILE_SHORT)
    if not first.isascii() or not first.isdigit():
        return Damaged(0, Flaw.BAD_TEXT, "no layout version in the first line")
    version = int(first) if len(first) < 10 else VERSION + 1
    if version > VERSION:
        return Damaged(0, Flaw.FUTURE_VERSION, f"layout {first[:20]}")
    if version < _PLAIN_VERSION:
        return Damaged(0, Flaw.BAD_VERSION, f"layout {version} is older than this format")
    return _decode_plain(rest) if version == _PLAIN_VERSION else _decode_fields(rest, version, len(first) + 1)


def _decode_plain(text: str) -> Cookie | Torn | Damaged:
    lines = text.split("\n")
    if len(lines) < _PLAIN_LINES:  # three lines, and the text after the last newline
        return Torn(0, Flaw.FILE_SHORT)
    ledger_directories = _split(lines[2])
    if ledger_directories is None:
        return Damaged(0, Flaw.BAD_TEXT, "ledger directories")
    return Cookie(lines[0], tuple(lines[1].split(",")), ledger_directories, layout_version=_PLAIN_VERSION)


def _decode_fields(text: str, version: int, offset: int) -> Cookie | Torn | Damaged:
    fields: dict[str, str] = {}
    store_id = None
    for line in text.split("\n"):
        match = _FIELD.fullmatch(line.strip())
        if match:
            fields[match.group(1)] = _unescape(match.group(2))
        elif comment := _STORE_ID.fullmatch(line.strip()):
            store_id = comment.group(1)
        elif line.strip():
            return Damaged(offset, Flaw.BAD_TEXT, "a line that is no field")
        offset += len(line.encode()) + 1
    missing = [name for name in _KNOWN[:3] if name not in fields]
    if missing:
        return Torn(0, Flaw.FILE_SHORT) if not text.endswith("\n") else _no_field(missing[0])
    ledgers = _split(fields["ledgerDirs"])
    indexes = _split(fields["indexDirs"]) if "indexDirs" in fields else ()
    if ledgers is None or indexes is None:
        return Damaged(0, Flaw.BAD_TEXT, "the count of directories disagrees with their list")
    journals = tuple(fields["journalDir"].split(","))
    instance_id = fields.get("instanceId")
    return Cookie(fields["bookieHost"], journals, ledgers, instance_id, indexes or None, version, store_id)


def _no_field(name: str) -> Damaged:
    return Damaged(0, Flaw.BAD_TEXT, f"no {name}")


def _join(directories: tuple[str, ...]) -> str:
    return "\t".join([str(len(directories)), *directories])


def _split(joined: str) -> tuple[str, ...] | None:
    count, *directories = joined.split("\t")
    return tuple(directories) if count == str(len(directories)) else None


def _escape(value: str) -> str:
    """Escape as protobuf does: each byte that is not printable ASCII in octal."""
    return "".join(map(_escape_byte, value.encode(errors="surrogateescape")))


def _escape_byte(byte: int) -> str:
    if byte in _WRITTEN_ESCAPES:
        return _WRITTEN_ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescape_one, text.encode()).decode(errors="surrogateescape")


def _unescape_one(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, character = match.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    return _NAMED_ESCAPES.get(character, character)

"""Small journals, entry logs and stores for tests of the command line, made with our own formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from recovery.shell.main import cli
from storage.checkpoint import mark_format
from storage.disk import cookie_format
from storage.entry import format as entry_format
from storage.entry.digest import digester, master_key
from storage.entry.model import DigestType, Entry
from storage.entry.position import JournalPosition, LogPosition
from storage.entrylog import format as entrylog_format
from storage.journal import format as journal_format
from storage.journal import seal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from click.testing import Result

JOURNAL_ID = 0x1A1ED5A57FA
SALT = 0x5EED
PAYLOAD = 40


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def rows(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(*arguments, "--json").stdout)
    return found


def verdict(result: Result) -> str:
    return result.stderr.splitlines()[-1]


def payload(ledger_id: int, entry_id: int) -> bytes:
    return f"ledger {ledger_id} entry {entry_id}".encode().ljust(PAYLOAD, b".")


def entry(
    ledger_id: int, entry_id: int, digest_type: DigestType = DigestType.CRC32C, password: bytes = b""
) -> bytes:
    length = PAYLOAD * (entry_id + 1)
    words = Entry(ledger_id, entry_id, entry_id - 1, length, payload(ledger_id, entry_id))
    return entry_format.encode(words, digester(digest_type, password))


def ledger(ledger_id: int, count: int, digest_type: DigestType = DigestType.CRC32C) -> list[bytes]:
    return [entry(ledger_id, entry_id, digest_type) for entry_id in range(count)]


def records(entries: Iterable[bytes]) -> list[bytes]:
    return [journal_format.encode_record(data) for data in entries]


def mac_records(ledger_id: int, count: int, password: bytes) -> list[bytes]:
    """Return the records of a ledger with MAC digests; its key comes first, as a bookie logs it."""
    entries = (entry(ledger_id, entry_id, DigestType.MAC, password) for entry_id in range(count))
    return [journal_format.encode_ledger_key(ledger_id, master_key(password)), *records(entries)]


def our_journal(groups: Sequence[Sequence[bytes]], sequences: Iterable[int] = range(1, 1 << 30)) -> bytes:
    """Make a journal of ours with sealed groups."""
    journal_id = JOURNAL_ID
    data = journal_format.encode_header(journal_format.JournalHeader(6, SALT))
    for sequence, group in zip(sequences, groups, strict=False):
        durable = JournalPosition(journal_id, len(data))
        words = seal.Seal(journal_id, SALT, sequence, len(data), durable, len(group))
        data += seal.encode_group(group, sum(map(len, group)), words, 512)
    return data


def bookie_journal(batches: Sequence[Sequence[bytes]], version: int = 6) -> bytes:
    """Make a bookie's journal. Each batch is padded if the version pads."""
    header = journal_format.JournalHeader(version)
    data = journal_format.encode_header(header)
    for batch in batches:
        data += b"".join(batch)
        if header.pads:
            data += journal_format.encode_padding(len(data), 512)
    return data


def entry_log(entries: Iterable[bytes], sizes: Mapping[int, int] | None = None) -> bytes:
    """Make an entry log. If sizes are given it is sealed with a ledgers map."""
    data = entrylog_format.encode_header(
        entrylog_format.Origin(b"store-id-16bytes", 3, LogPosition(0x1F, 4711))
    )
    data += b"".join(entrylog_format.encode_record(data) for data in entries)
    if sizes is None:
        return data
    sealed = data + b"".join(entrylog_format.encode_ledgers_map(sizes))
    stamp = entrylog_format.encode_map_fields(len(data), len(sizes))
    return (
        sealed[: entrylog_format.MAP_FIELDS_OFFSET]
        + stamp
        + sealed[entrylog_format.MAP_FIELDS_OFFSET + len(stamp) :]
    )


def sealed_log(entries: Sequence[bytes]) -> bytes:
    """Make an entry log with its right ledgers map."""
    sizes: dict[int, int] = {}
    for data in entries:
        ledger_id, _ = entry_format.IDS.unpack_from(data)
        sizes[ledger_id] = sizes.get(ledger_id, 0) + 4 + len(data)
    return entry_log(entries, sizes)


def flipped(data: bytes, offset: int, bits: int = 1) -> bytes:
    return data[:offset] + bytes([data[offset] ^ bits]) + data[offset + 1 :]


def store(root: Path) -> Path:
    """Make a store with one journal, two entry logs and a mark with our trailer."""
    journals, ledgers = root / "journal" / "current", root / "ledgers" / "current"
    for directory in (journals, ledgers):
        directory.mkdir(parents=True)
        stamp = cookie_format.Cookie("here:3181", (str(root / "journal"),), (str(root / "ledgers"),))
        (directory / "VERSION").write_bytes(cookie_format.encode(stamp))
    data = our_journal([records(ledger(7, 3)), records(ledger(8, 2))])
    (journals / f"{JOURNAL_ID:x}.txn").write_bytes(data)
    (ledgers / "0.log").write_bytes(sealed_log([*ledger(1, 3), *ledger(2, 2)]))
    (ledgers / "1.log").write_bytes(b"")
    trailer = mark_format.Trailer(5, JOURNAL_ID, LogPosition(0, 1500), 4)
    position = mark_format.Mark(JournalPosition(JOURNAL_ID, 512), trailer)
    (ledgers / "lastMark").write_bytes(mark_format.encode(position))
    return root

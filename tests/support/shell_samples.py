"""Small journals, entry logs and stores for the tests of the command, made with our own codecs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from recovery.shell.main import cli
from storage.codec import cookie, entrylog, journal, mark, seal
from storage.codec import entry as entry_codec
from storage.codec.digest import digester, master_key
from storage.entry import DigestType, Entry
from storage.position import JournalPosition, LogPosition

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
    return entry_codec.encode(words, digester(digest_type, password))


def ledger(ledger_id: int, count: int, digest_type: DigestType = DigestType.CRC32C) -> list[bytes]:
    return [entry(ledger_id, entry_id, digest_type) for entry_id in range(count)]


def records(entries: Iterable[bytes]) -> list[bytes]:
    return [journal.encode_record(data) for data in entries]


def mac_records(ledger_id: int, count: int, password: bytes) -> list[bytes]:
    """A ledger with MAC digests, its key in front as a bookie logs it."""
    entries = (entry(ledger_id, entry_id, DigestType.MAC, password) for entry_id in range(count))
    return [journal.encode_ledger_key(ledger_id, master_key(password)), *records(entries)]


def our_journal(groups: Sequence[Sequence[bytes]], sequences: Iterable[int] = range(1, 1 << 30)) -> bytes:
    """A journal of ours: each group sealed."""
    journal_id = JOURNAL_ID
    data = journal.encode_header(journal.Header(6, SALT))
    for sequence, group in zip(sequences, groups, strict=False):
        durable = JournalPosition(journal_id, len(data))
        words = seal.Seal(journal_id, SALT, sequence, len(data), durable, len(group))
        data += b"".join(seal.encode_group(group, words, 512))
    return data


def bookie_journal(batches: Sequence[Sequence[bytes]], version: int = 6) -> bytes:
    """A bookie's journal: each batch padded where the version pads."""
    header = journal.Header(version)
    data = journal.encode_header(header)
    for batch in batches:
        data += b"".join(batch)
        if header.pads:
            data += journal.encode_padding(len(data), 512)
    return data


def entry_log(entries: Iterable[bytes], sizes: Mapping[int, int] | None = None) -> bytes:
    """An entry log; with sizes, sealed by a ledgers map."""
    data = entrylog.encode_header(entrylog.Origin(b"store-id-16bytes", 3, LogPosition(0x1F, 4711)))
    data += b"".join(entrylog.encode_record(data) for data in entries)
    if sizes is None:
        return data
    sealed = data + b"".join(entrylog.encode_ledgers_map(sizes))
    stamp = entrylog.encode_map_fields(len(data), len(sizes))
    return sealed[: entrylog.MAP_FIELDS_OFFSET] + stamp + sealed[entrylog.MAP_FIELDS_OFFSET + len(stamp) :]


def sealed_log(entries: Sequence[bytes]) -> bytes:
    """An entry log with the ledgers map that belongs to it."""
    sizes: dict[int, int] = {}
    for data in entries:
        ledger_id, _ = entry_codec.IDS.unpack_from(data)
        sizes[ledger_id] = sizes.get(ledger_id, 0) + 4 + len(data)
    return entry_log(entries, sizes)


def flipped(data: bytes, offset: int, bits: int = 1) -> bytes:
    return data[:offset] + bytes([data[offset] ^ bits]) + data[offset + 1 :]


def store(root: Path) -> Path:
    """A store with one journal, two entry logs and a mark with our trailer."""
    journals, ledgers = root / "journal" / "current", root / "ledgers" / "current"
    for directory in (journals, ledgers):
        directory.mkdir(parents=True)
        stamp = cookie.Cookie("here:3181", (str(root / "journal"),), (str(root / "ledgers"),))
        (directory / "VERSION").write_bytes(cookie.encode(stamp))
    data = our_journal([records(ledger(7, 3)), records(ledger(8, 2))])
    (journals / f"{JOURNAL_ID:x}.txn").write_bytes(data)
    (ledgers / "0.log").write_bytes(sealed_log([*ledger(1, 3), *ledger(2, 2)]))
    (ledgers / "1.log").write_bytes(b"")
    trailer = mark.Trailer(5, JOURNAL_ID, LogPosition(0, 1500), 4)
    position = mark.Mark(JournalPosition(JOURNAL_ID, 512), trailer)
    (ledgers / "lastMark").write_bytes(mark.encode(position))
    return root

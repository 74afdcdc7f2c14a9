"""Reading directories of real bookies: the same listing as by BookKeeper's own readers, and every
acknowledged entry with its exact bytes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import fixtures
import pytest

from storage.checkpoint import mark as last_mark
from storage.checkpoint import mark_format
from storage.disk import filenames
from storage.disk.cookie import load as load_cookie
from storage.disk.cookie_format import Cookie
from storage.disk.posix import PosixDirectory, open_file
from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck, master_key
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition
from storage.entry.read_result import EndOfData
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog.scan import Hole
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader, StoredRecord
from storage.journal.scan import Owner, scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL_SETS = pytest.mark.parametrize("name", fixtures.SETS)


def number(path: Path) -> int:
    found = filenames.parse(path.name).number
    assert found is not None
    return found


def verifier(name: str) -> EntryVerifier:
    return EntryVerifier(password_of=fixtures.passwords(name).get)


def describe_entry(data: bytes, digest_type: DigestType) -> dict[str, Any]:
    """Format an entry like the dumps, which cannot separate digest and payload without the digest type."""
    head = entry_format.decode_head(data)
    assert isinstance(head, entry_format.Head)
    start = 32 + digest_type.width
    described: dict[str, Any] = {
        "ledger": head.ledger_id,
        "entry": head.entry_id,
        "lac": head.last_add_confirmed,
        "length": head.length,
        "len": len(data),
    }
    if digest_type is DigestType.DUMMY:
        return described | {
            "digest_type": None,
            "sha256_after_header": hashlib.sha256(data[32:]).hexdigest(),
        }
    return described | {
        "digest_type": digest_type.name,
        "digest": data[32:start].hex(),
        "payload_len": len(data) - start,
        "sha256": hashlib.sha256(data[start:]).hexdigest(),
    }


def journal_lines(path: Path, check: EntryVerifier) -> Iterator[dict[str, Any]]:
    with open_file(path) as file:
        reader = JournalReader(file, number(path))
        scan(reader, check)  # learns the digest types
        assert isinstance(reader.header, journal_format.JournalHeader)
        common = {"kind": "journal", "file": path.name, "version": reader.header.version}
        records = 0
        for item in reader.items():
            if isinstance(item, StoredRecord):
                records += 1
                yield common | {"offset": item.offset} | describe_record(item, check)
        assert isinstance(item, EndOfData)
        yield {
            "kind": "journal_end",
            "file": path.name,
            "end_position": item.offset + 4,  # the position of the real reader after the zero length
            "file_size": reader.size,
            "records": records,
        }


def describe_record(item: StoredRecord, check: EntryVerifier) -> dict[str, Any]:
    size = item.end - item.offset - 4
    match item.record:
        case journal_format.EntryRecord(ledger_id=ledger_id, data=data):
            known = check.digester(ledger_id)
            assert known is not None
            return {"type": "entry"} | describe_entry(data, known.digest_type)
        case journal_format.LedgerKey(ledger_id=ledger_id, master_key=key):
            special = {"type": "master_key", "entry": journal_format.LEDGER_KEY, "data": key.hex()}
        case journal_format.Fence(ledger_id=ledger_id):
            special = {"type": "fence", "entry": journal_format.FENCE}
        case journal_format.ExplicitLac(ledger_id=ledger_id, packet=packet):
            known = check.digester(ledger_id)
            assert known is not None
            lac = entry_format.decode_lac(packet, known)
            special = {"type": "explicit_lac", "entry": journal_format.EXPLICIT_LAC, "data": packet.hex()}
            special |= {"lac": lac}
        case other:
            raise AssertionError(other)
    return special | {"ledger": ledger_id, "len": size}


@ALL_SETS
def test_journals_list_what_the_real_reader_lists(name: str) -> None:
    ours = [line for path in fixtures.journals(name) for line in journal_lines(path, verifier(name))]
    assert ours == fixtures.dump(name, "journal.journal")


@ALL_SETS
def test_entry_logs_list_what_the_real_reader_lists(name: str) -> None:
    ours = [line for path in fixtures.entry_logs(name) for line in log_lines(path, verifier(name))]
    theirs = fixtures.dump(name, "entrylog.ledgers")
    assert ours == [plain_header(line) if line["kind"] == "entrylog" else line for line in theirs]


def log_lines(path: Path, check: EntryVerifier) -> Iterator[dict[str, Any]]:
    with open_file(path) as file:
        reader = EntryLogReader(file, number(path), check)
        entrylog_scan.learn_digest_types(reader)
        sizes = reader.ledgers_map()
        yield {
            "kind": "entrylog",
            "file": path.name,
            "file_size": reader.size,
            "ledgers_map": {str(ledger): size for ledger, size in sizes.items()}
            if isinstance(sizes, dict)
            else None,
        } | header_line(reader.header)
        records = 0
        for item in entrylog_scan.items(reader):
            if isinstance(item, LogEntry):
                records += 1
                known = check.digester(item.ids[0])
                assert known is not None
                assert item.check is not DigestCheck.MISMATCH
                place = {"kind": "entry", "file": path.name, "offset": item.position.offset}
                yield place | describe_entry(item.data, known.digest_type)
            assert not isinstance(item, Hole)
        assert isinstance(item, EndOfData)
        yield {"kind": "entrylog_end", "file": path.name, "records": records}


def header_line(header: object) -> dict[str, Any]:
    match header:
        case entrylog_format.LogHeader():
            return {
                "magic": "BKLO",
                "version": header.version,
                "ledgers_map_offset": header.map_offset,
                "ledgers_count": header.ledger_count,
            }
        case entrylog_format.EmptyLog():
            return {"magic": "\0\0\0\0", "version": 0, "ledgers_map_offset": 0, "ledgers_count": 0}
    raise AssertionError(header)


def plain_header(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "ledgers_map_error"}


@ALL_SETS
def test_every_acknowledged_entry_is_found_with_its_exact_bytes(name: str) -> None:
    found = {(data[0:8], data[8:16]): data for data in entries_anywhere(name)}
    checked = 0
    for ledger in fixtures.manifest(name)["ledgers"]:
        if ledger["deleted"]:
            continue
        for acknowledged in ledger["entries"]:
            ids = ledger["ledger"].to_bytes(8, "big"), acknowledged["entry"].to_bytes(8, "big")
            described = describe_entry(found[ids], DigestType[acknowledged["digest_type"]])
            if acknowledged["digest_type"] == "DUMMY":
                assert described["sha256_after_header"] == acknowledged["sha256"]
            else:
                assert described["sha256"] == acknowledged["sha256"]
                assert described["digest"] == acknowledged["digest"]
            assert (described["lac"], described["length"]) == (acknowledged["lac"], acknowledged["length"])
            checked += 1
    wanted = sum(
        len(ledger["entries"]) for ledger in fixtures.manifest(name)["ledgers"] if not ledger["deleted"]
    )
    assert checked == wanted > 0


def entries_anywhere(name: str) -> Iterator[bytes]:
    for path in fixtures.entry_logs(name):
        with open_file(path) as file:
            reader = EntryLogReader(file, number(path), verifier(name))
            yield from (item.data for item in entrylog_scan.items(reader) if isinstance(item, LogEntry))
    for path in fixtures.journals(name):
        with open_file(path) as file:
            for item in JournalReader(file, number(path)).items():
                if isinstance(item, StoredRecord) and isinstance(item.record, journal_format.EntryRecord):
                    yield item.record.data


@ALL_SETS
def test_a_sound_journal_of_a_bookie_scans_as_sound(name: str) -> None:
    for path in fixtures.journals(name):
        with open_file(path) as file:
            facts = scan(JournalReader(file, number(path)), verifier(name))
        assert (facts.owner, facts.is_sound, facts.proof_offset) == (Owner.BOOKIE, True, None)


@ALL_SETS
def test_every_entry_is_read_back_by_its_location(name: str) -> None:
    for path in fixtures.entry_logs(name):
        with open_file(path) as file:
            reader = EntryLogReader(file, number(path), verifier(name))
            for item in list(entrylog_scan.items(reader)):
                if isinstance(item, LogEntry):
                    assert reader.read(item.position.location, item.ids) == item


@ALL_SETS
def test_a_sealed_log_s_map_equals_the_result_of_a_scan(name: str) -> None:
    for path in fixtures.entry_logs(name):
        with open_file(path) as file:
            reader = EntryLogReader(file, number(path), verifier(name))
            metadata = entrylog_scan.metadata(reader)
            counted: dict[int, int] = {}
            for item in entrylog_scan.items(reader):
                if isinstance(item, LogEntry):
                    counted[item.ids[0]] = counted.get(item.ids[0], 0) + item.end - item.position.offset
                elif isinstance(item, LogMap):
                    assert metadata.source is entrylog_scan.MapSource.MAP
            assert metadata.sizes == counted


@ALL_SETS
def test_last_marks_and_cookies_match_the_manifest(name: str) -> None:
    ledgers = PosixDirectory(fixtures.bookie(name) / "bookie/ledgers/current")
    mark = last_mark.load(ledgers)
    expected = fixtures.manifest(name)["last_mark"]["bookie/ledgers/current/lastMark"]
    assert mark == mark_format.Mark(JournalPosition(expected["journal_id"], expected["offset"]))
    cookie = load_cookie(ledgers)
    assert isinstance(cookie, Cookie)
    assert cookie == load_cookie(PosixDirectory(fixtures.bookie(name) / "bookie/journal/current"))
    assert (cookie.bookie_host, cookie.instance_id) == ("127.0.0.1:3181", "bk-real")
    assert cookie.ledger_directories == (f"/data/{name}/bookie/ledgers",)


def test_all_four_digest_types_are_recognised() -> None:
    check = EntryVerifier()
    for path in fixtures.journals("08_digests"):
        with open_file(path) as file:
            scan(JournalReader(file, number(path)), check)
    recognised = {ledger["ledger"]: check.survey.digest_type(ledger["ledger"]) for ledger in digests()}
    assert recognised == {ledger["ledger"]: DigestType[ledger["digest_type"]] for ledger in digests()}
    assert set(recognised.values()) == set(DigestType)


def digests() -> list[dict[str, Any]]:
    ledgers: list[dict[str, Any]] = fixtures.manifest("08_digests")["ledgers"]
    return ledgers


def test_master_keys_come_from_passwords() -> None:
    for name in fixtures.SETS:
        for ledger in fixtures.manifest(name)["ledgers"]:
            assert master_key(ledger["password"].encode()).hex() == ledger["master_key"]

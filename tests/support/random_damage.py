"""Damage files at random, and read each with every reader."""

from __future__ import annotations

import random
import struct
from resource import RUSAGE_SELF, getrusage

from entry_log_builder import Log, items
from entry_log_builder import reader as log_reader
from journal_builder import BookieJournal, OurJournal, entry_record, scan_bytes
from memory_files import MemoryFile

from storage.entry import format as entry_format
from storage.entry.digest import digester
from storage.entry.model import DigestType, Entry
from storage.entry.read_result import Damaged, EndOfData, Torn
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import LogEntry
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader


def our_journal() -> OurJournal:
    journal = OurJournal(1, alignment=512, size=4096)
    journal.group(journal_format.encode_ledger_key(1, b"k" * 20), entry_record(1, 0))
    return journal.group(entry_record(1, 1), journal_format.encode_fence(1)).group(entry_record(2, 0))


def bookie_journal() -> BookieJournal:
    journal = BookieJournal(1, 6, size=4096)
    journal.flush(journal_format.encode_ledger_key(1, b"k" * 20), entry_record(1, 0))
    return journal.flush(entry_record(1, 1), journal_format.encode_fence(1)).flush(entry_record(2, 0))


DICE = random.Random(11)
PAYLOADS = [DICE.randbytes(DICE.randrange(0, 400)) for _ in range(12)]


def log_of(digest: DigestType = DigestType.CRC32C) -> Log:
    """Twelve entries of three ledgers."""
    log, lengths = Log(), [0, 0, 0]
    for number, payload in enumerate(PAYLOADS):
        ledger = number % 3
        lengths[ledger] += len(payload)
        entry = Entry(ledger, number // 3, number // 3 - 1, lengths[ledger], payload)
        log.add(entry_format.encode(entry, digester(digest, b"password")))
    return log


def mutated(data: bytes, dice: random.Random) -> bytes:
    """One to four changes: flips, zeros, garbage, wild lengths, moved blocks, a cut."""
    changed = bytearray(data)
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(changed))
        match dice.randrange(7):
            case 0:
                changed[at] ^= 1 << dice.randrange(8)
            case 1:
                end = min(at + dice.choice([4, 64, 512]), len(changed))
                changed[at:end] = bytes(end - at)
            case 2:
                size = dice.randrange(1, 200)
                changed[at : at + size] = dice.randbytes(len(changed[at : at + size]))
            case 3:
                word = struct.pack(
                    ">i", dice.choice([-1, -5, -0x100, 0, 1, 15, 16, 2**31 - 1, -(2**31), 1 << 24])
                )
                changed[at : at + 4] = word[: len(changed[at : at + 4])]
            case 4:
                source = dice.randrange(len(changed))
                block = bytes(changed[source : source + 512])
                changed[at : at + len(block)] = block[: len(changed[at : at + len(block)])]
            case 5:
                del changed[max(1, at) :]
            case 6:
                word = struct.pack(">q", dice.choice([-1, -2, -3, -0x1000, -0x2000, -0x8000, 2**63 - 1]))
                changed[at : at + 8] = word[: len(changed[at : at + 8])]
    return bytes(changed)


def read_everything(data: bytes) -> None:
    """Read one file with every reader, as a journal and as an entry log."""
    opened = JournalReader(MemoryFile(data), 1)
    *_, stop = opened.items()
    assert isinstance(stop, EndOfData | Torn | Damaged)
    facts = scan_bytes(data, 1)
    assert 0 <= facts.end <= len(data)
    assert facts.kept.start <= facts.kept.end <= len(data)
    walked = 1024
    for item in items(data):
        if isinstance(item, EndOfData | Torn | Damaged):
            break
        start = item.position.offset if isinstance(item, LogEntry) else item.offset
        assert start == walked or (isinstance(item, LogEntry) and start == walked - 4)
        walked = item.end
    entrylog_scan.metadata(log_reader(data))


def originals() -> list[bytes]:
    return [
        our_journal().file(),
        bookie_journal().file(),
        bytes(our_journal().data),
        log_of().seal().file(),
        log_of(DigestType.MAC).file(),
        log_of(DigestType.DUMMY).seal().file(),
    ]


def campaign(count: int, seed: int) -> int:
    """Read this number of mutated files, and return how many different ones there were."""
    dice = random.Random(seed)
    files = originals()
    seen = set()
    for number in range(count):
        data = mutated(files[number % len(files)], dice)
        seen.add(hash(data))
        read_everything(data)
    return len(seen)


def campaign_apart(seed: int) -> tuple[int, int]:
    """Run eleven thousand mutations in a new process. Return how many differ, and how far its memory grew."""
    before = getrusage(RUSAGE_SELF).ru_maxrss
    distinct = campaign(11_000, seed)
    return distinct, (getrusage(RUSAGE_SELF).ru_maxrss - before) << 10

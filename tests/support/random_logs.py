"""Seeded random entry logs: mixed digest types, ids out of order, padding, and logs inside payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entry_log_builder import Log

from storage.entry import format as entry_format
from storage.entry.digest import digester
from storage.entry.model import DigestType, Entry
from storage.entrylog import format as entrylog_format

if TYPE_CHECKING:
    from random import Random

KINDS = list(DigestType)
PASSWORD = b"password"


def record(
    ledger_id: int, entry_id: int, payload: bytes, kind: DigestType = DigestType.CRC32C, **odd: int
) -> bytes:
    """Encode an entry. By default its length field is that of a ledger in which all payloads have this
    size."""
    confirmed = odd.get("confirmed", entry_id - 1)
    length = odd.get("length", len(payload) * (entry_id + 1))
    entry = Entry(ledger_id, entry_id, confirmed, length, payload)
    return entry_format.encode(entry, digester(kind, PASSWORD))


class OddLog:
    """One log; `kinds` are the types of its ledgers, by id."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._log = Log()
        count = dice.choice([1, 2, 5, 20])
        self.kinds = [dice.choice(KINDS) if dice.random() < 0.3 else DigestType.CRC32C for _ in range(count)]
        self._next = [0] * count
        self._lengths = [0] * count
        self._size = dice.choice([0, 1, 40, 100, 300])
        self._is_regular = dice.random() < 0.5
        for _ in range(dice.choice([3, 30, 150])):
            self._add_entry()
            self._add_other()
        if dice.random() < 0.5:
            self._log.seal()
        if dice.random() < 0.2:
            self._log.data += bytes(dice.randrange(5000))

    @property
    def data(self) -> bytes:
        return self._log.file()

    def _add_entry(self) -> None:
        dice, ledger_id = self._dice, self._dice.randrange(len(self.kinds))
        payload = self._payload()
        self._lengths[ledger_id] += len(payload)
        entry_id = self._next[ledger_id]
        confirmed = entry_id - 1 if dice.random() < 0.97 else entry_id + dice.randrange(3)
        odd = {"confirmed": confirmed, "length": self._lengths[ledger_id]}
        self._log.add(record(ledger_id, entry_id, payload, self.kinds[ledger_id], **odd))
        step = 1 if dice.random() < 0.95 else dice.randrange(6)
        self._next[ledger_id] += step

    def _payload(self) -> bytes:
        dice = self._dice
        if dice.random() < 0.05 and len(self._log.data) > 2000:
            return bytes(
                self._log.data[
                    entrylog_format.HEADER_SIZE : entrylog_format.HEADER_SIZE + dice.randrange(2000)
                ]
            )
        is_regular = self._is_regular and dice.random() < 0.95
        return dice.randbytes(self._size if is_regular else dice.randrange(600))

    def _add_other(self) -> None:
        match self._dice.randrange(60):
            case 0 | 1:
                self._log.data += entrylog_format.encode_filler(len(self._log.data))
            case 2:
                self._log.data += bytes(
                    [entrylog_format.DIRECT_FILL] * (-len(self._log.data) % entrylog_format.BLOCK_SIZE)
                )

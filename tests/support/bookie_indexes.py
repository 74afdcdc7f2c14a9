"""A bookie's directory with its index in RocksDB, made from the rows that BookKeeper's own reader listed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import fixtures
from rocksdict import Options, Rdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SETS = [name for name in fixtures.SETS if name != "06a_sorted_clean"]
"""The sets of bookies that keep their index in RocksDB."""

Row = tuple[bytes, bytes]


def rows(name: str, database: str) -> list[Row]:
    return [
        (bytes.fromhex(row["key"]), bytes.fromhex(row["value"]))
        for row in fixtures.dump(name, "index.ledgers")
        if row["kind"] == "kv" and row["db"] == database
    ]


def make(directory: Path, some: Iterable[Row]) -> None:
    """Make a directory of RocksDB: part of the rows in a table, the others in its log."""
    database: Any = Rdict(str(directory), Options(raw_mode=True))
    for number, (key, value) in enumerate(some):
        database[key] = value
        if number == 5:
            database.flush()
    database.close()
    (directory / "rocksdict-config.json").unlink(missing_ok=True)  # no bookie has it


def bookie_with_index(name: str, target: Path) -> Path:
    """Copy the bookie of a set, and add its index."""
    shutil.copytree(fixtures.bookie(name) / "bookie", target)
    for database in ("locations", "ledgers"):
        make(target / "ledgers/current" / database, rows(name, database))
    return target


def row(ledger_id: int, entry_id: int, log_id: int, offset: int) -> Row:
    key = ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")
    return key, (log_id << 32 | offset).to_bytes(8, "big")

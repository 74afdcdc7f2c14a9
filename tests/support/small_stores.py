"""A store with several logs and a journal on a real disk, for tests that read files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal_builder import entry_bytes

from recovery.opening.open_store import open_store
from storage.config import StoreConfig
from storage.entry.digest import master_key

if TYPE_CHECKING:
    from pathlib import Path

LEDGERS = (7, 8, 9)
ENTRIES = 2100
"""The number of entries in each ledger."""

_ROUNDS = 3
_A_ROUND = ENTRIES // _ROUNDS


def make(path: Path) -> Path:
    """Make a closed store with three logs, one journal and an index."""
    with open_store(path, StoreConfig(entry_log_size_max=128 << 10)) as store:
        for first in range(0, ENTRIES, _A_ROUND):
            for ledger_id in LEDGERS:
                store.ledger(ledger_id).append_many([payload(first + more) for more in range(_A_ROUND)])
            store.checkpoint()
    return path


def payload(entry_id: int) -> bytes:
    return b"entry %d" % entry_id


def add_behind_a_gap(path: Path) -> None:
    """Add an entry to ledger 8 whose id does not follow the last one."""
    entry = entry_bytes(8, ENTRIES + 10)
    with open_store(path) as store:
        store.bookie.add(entry, master_key(b""))

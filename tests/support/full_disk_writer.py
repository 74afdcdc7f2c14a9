"""A program that writes to a store until it is killed, also on a full disk. It prints a line for each answer.

    python -m full_disk_writer DIRECTORY

Three threads add entries all the time. A line on its input begins the other work: `work` or `close`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from recovery import open_store
from storage.config import StoreConfig
from storage.errors import DiskFull, StoreError

if TYPE_CHECKING:
    from storage.store import Store

CONFIG = StoreConfig(
    memtable_size_max=2 << 20,
    entry_size_max=64 << 10,
    group_size_max=256 << 10,
    journal_size=2 << 20,
    journal_max_backups=3,
    entry_log_size_max=512 << 10,
    index_size_max=1 << 30,
    space_reserve=24 << 20,
    space_min_free=0,
)
"""Small tables and journals, so that the disk is soon found full. Adds go on up to the last byte."""

WRITERS = (1, 2, 3)
FENCED, CONFIRMED, DELETED = 4, 5, 6
SIZE = 2000
_PAUSE_S = 0.01


def payload(ledger_id: int, entry_id: int) -> bytes:
    return (b"%d/%d " % (ledger_id, entry_id)).ljust(SIZE, b".")


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def _add(store: Store, ledger_id: int, stopped: Event) -> None:
    ledger, is_full = store.ledger(ledger_id), False
    while not stopped.is_set():
        last = ledger.last_entry_id
        number = 0 if last is None else last + 1
        try:
            with suppress(DiskFull):
                _say("added", ledger_id, ledger.append(payload(ledger_id, number)))
                continue
            if not is_full:
                is_full = True
                _say("full", ledger_id)
            stopped.wait(_PAUSE_S)
        except StoreError as error:
            if not stopped.is_set():
                _say("failed", ledger_id, repr(error))
            return


def _read(store: Store) -> None:
    for ledger_id in (*WRITERS, CONFIRMED):
        count = sum(
            entry.payload == payload(ledger_id, entry.entry_id) for entry in store.ledger(ledger_id).entries()
        )
        _say("read", ledger_id, count)


def work(store: Store) -> None:
    """Do once everything that must go on with a full disk."""
    _read(store)
    store.ledger(FENCED).fence()
    _say("fenced", FENCED)
    store.ledger(CONFIRMED).set_explicit_lac(0)
    _say("confirmed", CONFIRMED)
    store.ledger(DELETED).delete()
    _say("deleted", DELETED)


def main(path: str) -> None:
    store, stopped = open_store(path, CONFIG), Event()
    for ledger_id in (FENCED, CONFIRMED, DELETED):
        _say("added", ledger_id, store.ledger(ledger_id).append(payload(ledger_id, 0)))
    # So many that some logs have no other entry, and are removed by a collection after the delete.
    last = store.ledger(DELETED).append_many([payload(DELETED, number) for number in range(1, 1000)])[-1]
    _say("added", DELETED, last)
    store.checkpoint()
    while store.stats().reserve_bytes < (CONFIG.space_reserve or 0):
        stopped.wait(_PAUSE_S)
    _say("ready")
    threads = [Thread(target=_add, args=(store, one, stopped), daemon=True) for one in WRITERS]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        if line.strip() == "work":
            work(store)
            # A collection may have begun by itself already, because space is low.
            store.collect()
            _say("collected", store.stats().collection.logs_removed)
            _say("worked")
        elif line.strip() == "close":
            stopped.set()
            for thread in threads:
                thread.join()
            store.close()
            _say("closed")
            return


if __name__ == "__main__":
    main(sys.argv[1])

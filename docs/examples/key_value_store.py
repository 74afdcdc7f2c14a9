"""A key-value store in memory that survives crashes: a ledger is its write-ahead log.

    python docs/examples/key_value_store.py DIRECTORY      set some keys again and again, with snapshots

Each change is one entry of the log, durable before `set` or `delete` returns. A snapshot appends all present
keys to the same log and then truncates the log before the first of them, so that an opening reads the last
snapshot and what came after it. A crash in between does no harm: the old entries are still there, and the
keys of an unfinished snapshot only repeat what they say.

Truncated entries take space until their entry logs are collected. The store does that by itself from time to
time; `snapshot` asks for it, because it knows that most of the log has just died.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import ledgerstore

LOG = 1
"""The ledger that is the log. The store may have other ledgers besides it."""

BATCH = 1000


class KeyValueStore:
    """Texts by key, in memory and in a log. Threads may share it."""

    def __init__(self, store: ledgerstore.Store) -> None:
        self._store = store
        self._log = store.ledger(LOG)
        self._lock = threading.Lock()
        self._values: dict[str, str] = {}
        if self._log.exists:
            for payload in self._log.payloads():
                self._apply(*json.loads(payload))

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> list[tuple[str, str]]:
        """Return all keys with their values."""
        with self._lock:
            return list(self._values.items())

    def set(self, key: str, value: str) -> None:
        """Set a key; no crash can undo it when this returns."""
        with self._lock:
            self._log.append(encode(key, value))
            self._apply(key, value)

    def delete(self, key: str) -> None:
        """Remove a key, if it is there; no crash can undo it when this returns."""
        with self._lock:
            self._log.append(encode(key, None))
            self._apply(key, None)

    def snapshot(self) -> None:
        """Write all keys to the log, give up everything before them, and give the space back."""
        with self._lock:
            items = [encode(key, value) for key, value in self._values.items()]
            last = self._log.last_entry_id
            first = 0 if last is None else last + 1
            # In several calls, because it need not be atomic: the log before it is still complete.
            for start in range(0, len(items), BATCH):
                self._log.append_many(items[start : start + BATCH])
            if first:
                self._log.truncate(first)
        self._store.checkpoint()
        self._store.collect()

    def _apply(self, key: str, value: str | None) -> None:
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value


def encode(key: str, value: str | None) -> bytes:
    """Return a change as an entry of the log; the value `None` removes the key."""
    return json.dumps([key, value]).encode()


def main(directory: str) -> None:
    with ledgerstore.open(directory) as store:
        values = KeyValueStore(store)
        print(f"{len(values)} keys are there, in entries from {store.ledger(LOG).first_entry_id} on")
        for lap in range(5):
            for number in range(200):
                values.set(f"key {number}", f"value {lap}")
            values.delete(f"key {lap}")
            values.snapshot()
        print(f"{len(values)} keys are there, in entries from {store.ledger(LOG).first_entry_id} on")
    logs = sum(path.stat().st_size for path in Path(directory).rglob("*.log"))
    print(f"the entry logs take {logs} bytes")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [directory]:
            main(directory)
        case _:
            sys.exit(__doc__)

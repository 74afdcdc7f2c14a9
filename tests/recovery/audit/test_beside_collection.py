"""An audit, a view and their readers beside another process that collects all the time: no finding."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.view.open_view import open_view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITER = """
import sys, threading
from recovery.opening.open_store import open_store
from storage.config import StoreConfig

CONFIG = StoreConfig(
    memtable_size_max=128 << 10, entry_size_max=4 << 10, group_size_max=16 << 10, journal_size=64 << 10,
    entry_log_size_max=64 << 10, journal_max_backups=0, checkpoint_interval_s=None,
    collection_interval_s=None, compaction_minor=0.99, compaction_major=0.99, compaction_rate=None,
)
KEPT = range(1, 4)
is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
with open_store(sys.argv[1], CONFIG) as store:
    for ledger_id in KEPT:
        texts = [b"%d of %d" % (one, ledger_id) for one in range(60)]
        store.ledger(ledger_id).append_many([text + b"." * 500 for text in texts])
    store.checkpoint()
    print("begun", flush=True)
    removed = number = 0
    while number == 0 or not is_over.is_set():
        number += 1
        short = 100 + number
        # Ledger 50 is deleted and made again all the time, and its tombstones are purged.
        for ledger_id in (50, short):
            store.ledger(ledger_id).append_many([b"short" + b"." * 1000] * 30)
        for ledger_id in KEPT:
            store.ledger(ledger_id).append(b"more of %d" % ledger_id)
        store.checkpoint()
        store.ledger(50).delete()
        store.ledger(short).delete()
        store.ledger(50).append_many([b"again" + b"." * 300] * 3)
        store.checkpoint()
        removed += len(store.collect().removed)
        print(removed, flush=True)
"""


class Collecting:
    """Another process that writes, deletes and collects until it is stopped."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "begun"
        self._removed = 0
        self._counts = threading.Thread(target=self._count, daemon=True)
        self._counts.start()

    def _count(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._removed = int(line)

    def has_removed(self, logs: int) -> bool:
        """Tell whether it has removed that many logs, and fail if it has ended."""
        assert self._process.poll() is None
        return self._removed >= logs

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._counts.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def stop(self) -> int:
        """Stop it. Return how many logs it has removed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait() == 0
        self._counts.join()
        return self._removed


@contextmanager
def collecting(root: Path) -> Iterator[Collecting]:
    one = Collecting(root)
    try:
        yield one
    finally:
        one.kill()


def audit(root: Path) -> None:
    report = run_audit(AuditRequest((str(root),)))
    assert [one for one in report.findings if one.is_wrong] == []


def read(root: Path) -> None:
    """Read every entry of the ledgers that are kept, twice, so that it may have moved in between."""
    with open_view(root) as view:
        assert view.findings == ()
        for _ in range(2):
            for ledger_id in (1, 2, 3):
                payloads = [entry.payload for entry in view.ledger(ledger_id).entries()]
                expected = [b"%d of %d" % (one, ledger_id) + b"." * 500 for one in range(60)]
                assert payloads[:60] == expected
                assert set(payloads[60:]) <= {b"more of %d" % ledger_id}
        view.refresh()
        assert view.findings == ()


@pytest.mark.slow
def test_audits_and_views_all_along_beside_a_collection_find_nothing(tmp_path: Path) -> None:
    with collecting(tmp_path / "store") as store:
        rounds = 0
        # A slow machine removes few logs in forty rounds. So the rounds go on until enough were removed.
        while rounds < 40 or not store.has_removed(11):
            assert rounds < 1000
            audit(store.root)
            for _ in range(5):
                read(store.root)
            rounds += 1
        assert store.stop() > 10
    audit(tmp_path / "store")

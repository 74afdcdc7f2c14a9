"""SQLite with `synchronous = NORMAL`: commits are acknowledged before a sync.

    ledgerstore crash run docs/examples/crashlab/sqlite_normal.py:lab
    python docs/examples/crashlab/sqlite_normal.py

The file is never damaged, and a kill loses nothing. A power cut loses every commit since the last
checkpoint, as SQLite's manual says. The laboratory shows it with the fewest lost bytes that cause it.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING

from recovery.crashlab import CrashLab, Ctx

if TYPE_CHECKING:
    from pathlib import Path


def connected(root: Path) -> sqlite3.Connection:
    db = sqlite3.connect(root / "cups.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE IF NOT EXISTS cups (name TEXT PRIMARY KEY, tea TEXT)")
    return db


def workload(root: Path, ctx: Ctx) -> None:
    db = connected(root)
    for number in range(4):
        with ctx.doing("add", f"cup {number}", "mint"):
            db.execute("INSERT INTO cups VALUES (?, 'mint')", (f"cup {number}",))
        if number == 1:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # everything up to here is durable


def recover(root: Path) -> dict[str, str]:
    db = connected(root)
    try:
        return dict(db.execute("SELECT name, tea FROM cups"))
    finally:
        db.close()


lab = CrashLab(workload, recover, ignore=["*-shm"], name="SQLite, synchronous = NORMAL")

if __name__ == "__main__":
    report = lab.run(layers=sys.argv[1:] or ["model", "kill"])
    for violation in report.violations:
        print(violation.cause)
    sys.exit(1 if report.violations else 0)

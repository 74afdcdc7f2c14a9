"""SQLite for programs in which every commit counts: a write-ahead log that each commit syncs.

    ledgerstore crash run docs/examples/crashlab/sqlite_full.py:lab
    python docs/examples/crashlab/sqlite_full.py

No kill and no power cut loses a commit, and none during a recovery. Two layers find something, and run only
if they are named (`python … errors rot`):

errors  SQLite ignores the result of the sync of its directory. If this sync fails and the power fails, the
        files have lost their names.
rot     pages have no checksums, so some damage is read as data; and a damaged frame of the log is taken for
        the end of the log.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING

from recovery.crashlab import CrashLab, Ctx
from recovery.crashlab.judge.oracles import ContinueAfterRecovery, FsckClean, Idempotent

if TYPE_CHECKING:
    from pathlib import Path

CLEAN = ("model", "kill", "nested", "cut")


def connected(root: Path) -> sqlite3.Connection:
    db = sqlite3.connect(root / "cups.db", isolation_level=None)
    [mode] = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":  # SQLite reports this in its answer only, and continues with less
        raise OSError(f"the journal's mode is {mode}")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE IF NOT EXISTS cups (name TEXT PRIMARY KEY, tea BLOB)")
    return db


def put(db: sqlite3.Connection, name: str, tea: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO cups VALUES (?, ?)", (name, tea))


def workload(root: Path, ctx: Ctx) -> None:
    db = connected(root)
    for number in range(6):
        tea = f"tea {number} ".encode() * 90
        with ctx.doing("add", f"cup {number}", tea):
            put(db, f"cup {number}", tea)
    with ctx.doing("add_all", "tray", ((("left",), b"mint"), (("right",), b"sage"))):
        db.execute("BEGIN")
        put(db, "left", b"mint")
        put(db, "right", b"sage")
        db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with ctx.doing("delete", "cup 0"):
        db.execute("DELETE FROM cups WHERE name = 'cup 0'")
    with ctx.doing("add", "cup 1", b"another"):
        put(db, "cup 1", b"another")
    db.close()


def recover(root: Path) -> dict[str, bytes]:
    db = connected(root)
    try:
        return dict(db.execute("SELECT name, tea FROM cups"))
    finally:
        db.close()


def go_on(root: Path, ctx: Ctx) -> None:
    db = connected(root)
    with ctx.doing("add", "later", b"tea"):
        put(db, "later", b"tea")
    db.close()


def verify(root: Path) -> list[str]:
    db = sqlite3.connect(root / "cups.db")
    try:
        found = [line for (line,) in db.execute("PRAGMA integrity_check")]
    finally:
        db.close()
    return [line for line in found if line != "ok"]


lab = CrashLab(
    workload,
    recover,
    [Idempotent(), ContinueAfterRecovery(go_on), FsckClean(verify)],
    ignore=["*-shm"],  # shared memory of processes, which is recreated after a crash
    kinds={"*-wal": "wal"},
    name="SQLite, synchronous = FULL",
)

if __name__ == "__main__":
    report = lab.run(layers=sys.argv[1:] or CLEAN)
    for violation in report.violations:
        print(violation.cause)
    sys.exit(1 if report.violations else 0)

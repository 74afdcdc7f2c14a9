"""A queue of files, written as in many programs: a draft, a sync, a rename. One line is missing.

    ledgerstore crash run docs/examples/crashlab/file_queue.py:lab
    python docs/examples/crashlab/file_queue.py

The rename is durable only after a sync of its directory, which is missing. `mended` syncs it, and the
laboratory finds nothing there.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from recovery.crashlab import CrashLab, Ctx

if TYPE_CHECKING:
    from pathlib import Path


def push(root: Path, name: str, message: bytes) -> None:
    draft = root / f"{name}.tmp"
    with draft.open("wb") as file:
        file.write(message)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(root / name)


def push_and_sync(root: Path, name: str, message: bytes) -> None:
    push(root, name, message)
    directory = os.open(root, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def naive(root: Path, ctx: Ctx) -> None:
    for number in range(3):
        with ctx.doing("add", f"message-{number}", b"hello"):
            push(root, f"message-{number}", b"hello")


def with_the_line(root: Path, ctx: Ctx) -> None:
    for number in range(3):
        with ctx.doing("add", f"message-{number}", b"hello"):
            push_and_sync(root, f"message-{number}", b"hello")


def recover(root: Path) -> dict[str, bytes]:
    for draft in root.glob("*.tmp"):
        draft.unlink()
    return {path.name: path.read_bytes() for path in root.iterdir()}


lab = CrashLab(naive, recover, name="a queue of files")
mended = CrashLab(with_the_line, recover, name="a queue of files, its directory synced")

if __name__ == "__main__":
    report = lab.run(layers=sys.argv[1:] or ["model", "kill", "errors", "nested"])
    for violation in report.violations:
        print(f"{violation.cause} · even on {violation.profile or 'any system'}")
    sys.exit(1 if report.violations else 0)

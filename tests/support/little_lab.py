"""The little store on real files, correct and with mistakes, as programs for the laboratory."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import little_indexed_store
import little_store_bugs
from little_store import LittleStore, LittleStoreFailed

from recovery.crashlab import CrashLab
from recovery.crashlab.judge.oracles import DEFAULT, ContinueAfterRecovery, Idempotent
from storage.disk.posix import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.crashlab.judge.outcome import Key
    from recovery.crashlab.record.history import Ctx

STREAM = "records"

STORES: dict[str, type[LittleStore]] = {
    store.__name__: store
    for store in vars(little_store_bugs).values()
    if isinstance(store, type) and issubclass(store, LittleStore)
}
"""The correct store, and one class for each mistake."""


def sittings(root: Path, ctx: Ctx, store: str) -> None:
    """Run two sessions with checkpoints between appends. An error ends a session, as it should."""
    for sitting in range(2):
        try:
            with STORES[store](PosixDirectory(root)) as opened:
                for number, size in enumerate((700, 40, 9)):
                    _append(opened, ctx, b"%d.%d." % (sitting, number) + bytes([65 + number]) * size)
                    if number == 1:
                        opened.checkpoint()
        except (OSError, LittleStoreFailed):
            continue


def _append(store: LittleStore, ctx: Ctx, record: bytes) -> None:
    token = ctx.invoke("add", STREAM, _name(record), record)
    try:
        store.append(record)
    except (OSError, LittleStoreFailed):
        return  # not acknowledged; the client goes on with its next record
    ctx.ack(token)


def _name(record: bytes) -> str:
    return b".".join(record.split(b".")[:2]).decode(errors="replace")


def recover(root: Path, store: str) -> dict[Key, bytes]:
    """Return every record by the number with which it begins."""
    with STORES[store](PosixDirectory(root)) as opened:
        return {(STREAM, _name(record)): record for record in opened.records}


def go_on(root: Path, ctx: Ctx, store: str) -> None:
    """Append two records after the existing ones."""
    with STORES[store](PosixDirectory(root)) as opened:
        for number in range(2):
            record = b"later.%d." % number + b"x" * 50
            with ctx.doing("add", STREAM, _name(record), record):
                opened.append(record)


def remember_interruptions(root: Path) -> dict[str, bool]:
    """A wrong recovery: its result depends on whether an earlier recovery was interrupted."""
    began, directory = root / "began", os.open(root, os.O_RDONLY)
    if began.exists():
        (root / "interrupted").touch()
    began.touch()
    os.fsync(directory)
    began.unlink()
    os.fsync(directory)
    os.close(directory)
    return {"interrupted": (root / "interrupted").exists()}


def touch(root: Path, ctx: Ctx) -> None:
    """Write two files, the second after the first is durable."""
    directory = os.open(root, os.O_RDONLY)
    for name in "ab":
        (root / name).touch()
        os.fsync(directory)
    os.close(directory)


def little_lab(store: str = "LittleStore", profile: str = "posix-strict", seed: int = 1) -> CrashLab:
    """Make a laboratory for that store."""
    return CrashLab(
        {"sittings": partial(sittings, store=store)},
        partial(recover, store=store),
        (*DEFAULT, Idempotent(every=2), ContinueAfterRecovery(partial(go_on, store=store), every=2)),
        profile=profile,
        seed=seed,
        ignore=("lock",),
        name=store,
    )


def indexed_lab(store: str = "IndexedStore", seed: int = 1) -> CrashLab:
    """Make a laboratory for the store with an index."""
    little = little_indexed_store
    return CrashLab(
        {"one sitting": partial(little.one_sitting, store=store)},
        partial(little.recover, store=store),
        (*DEFAULT, Idempotent(every=1), ContinueAfterRecovery(partial(little.go_on, store=store), every=1)),
        seed=seed,
        ignore=("lock",),
        name=store,
    )

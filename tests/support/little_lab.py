"""The little store and its mistakes on real files, as programs for the laboratory."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import little_indexed_store
import little_mistakes
from little_store import LittleStore, StoreFailed

from recovery.crashlab import CrashLab
from recovery.crashlab.oracles import DEFAULT, ContinueAfterRecovery, Idempotent
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.crashlab.history import Ctx
    from recovery.crashlab.shown import Key

STREAM = "records"

STORES: dict[str, type[LittleStore]] = {
    store.__name__: store
    for store in vars(little_mistakes).values()
    if isinstance(store, type) and issubclass(store, LittleStore)
}
"""The correct one, and each mistake."""


def sittings(root: Path, ctx: Ctx, store: str) -> None:
    """Two sittings, with checkpoints between appends; an error ends a sitting, as it should."""
    for sitting in range(2):
        try:
            with STORES[store](PosixDirectory(root)) as opened:
                for number, size in enumerate((700, 40, 9)):
                    _append(opened, ctx, b"%d.%d." % (sitting, number) + bytes([65 + number]) * size)
                    if number == 1:
                        opened.checkpoint()
        except (OSError, StoreFailed):
            continue


def _append(store: LittleStore, ctx: Ctx, record: bytes) -> None:
    token = ctx.invoke("add", STREAM, _name(record), record)
    try:
        store.append(record)
    except (OSError, StoreFailed):
        return  # not acknowledged; the client goes on with its next record
    ctx.ack(token)


def _name(record: bytes) -> str:
    return b".".join(record.split(b".")[:2]).decode(errors="replace")


def recover(root: Path, store: str) -> dict[Key, bytes]:
    """Every record by its number, which it begins with."""
    with STORES[store](PosixDirectory(root)) as opened:
        return {(STREAM, _name(record)): record for record in opened.records}


def go_on(root: Path, ctx: Ctx, store: str) -> None:
    """Two records behind whatever is there."""
    with STORES[store](PosixDirectory(root)) as opened:
        for number in range(2):
            record = b"later.%d." % number + b"x" * 50
            with ctx.doing("add", STREAM, _name(record), record):
                opened.append(record)


def remember_interruptions(root: Path) -> dict[str, bool]:
    """A recovery that shows for ever whether one before it was interrupted."""
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
    """Two files, durable one after the other."""
    directory = os.open(root, os.O_RDONLY)
    for name in "ab":
        (root / name).touch()
        os.fsync(directory)
    os.close(directory)


def little_lab(store: str = "LittleStore", profile: str = "posix-strict", seed: int = 1) -> CrashLab:
    """The laboratory around that store."""
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
    """The same around the one with an index."""
    little = little_indexed_store
    return CrashLab(
        {"one sitting": partial(little.one_sitting, store=store)},
        partial(little.recover, store=store),
        (*DEFAULT, Idempotent(every=1), ContinueAfterRecovery(partial(little.go_on, store=store), every=1)),
        seed=seed,
        ignore=("lock",),
        name=store,
    )

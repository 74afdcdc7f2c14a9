"""Undamaged stores of many shapes, ours and real bookies'. Each is made once in a test run."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import fixtures

from recovery import open_store
from recovery.audit.self_test import stores as samples
from recovery.audit.self_test.content import content_of
from recovery.audit.self_test.stores import copy_running
from recovery.crashlab.record.history import Ctx
from recovery.proving.store_under_test import STORE
from recovery.proving.workloads import WORKLOADS
from storage.config import StoreConfig
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.audit.self_test.content import StoreContent

    Build = Callable[[Path], None]

# Removed when the interpreter ends.
_BUILT = TemporaryDirectory(prefix="audited-stores-")

_LARGE = StoreConfig(
    memtable_size_max=32 << 20,
    journal_size=16 << 20,
    checkpoint_interval_s=None,
    idle_seal_s=None,
    index_size_max=8 << 20,
)


def _large(root: Path) -> None:
    """A log larger than one read chunk, with entries that cross the ends of chunks."""
    dice = Random(5)
    with open_store(root, _LARGE) as store:
        for number in range(28):
            store.ledger(1).append(dice.randbytes(dice.randrange(1, 900_000)))
            store.ledger(2 + number % 3).append_many([dice.randbytes(dice.randrange(300)) for _ in range(40)])
            store.ledger(9, DigestType.CRC32).append(dice.randbytes(dice.randrange(60_000)))


def _aligned(root: Path) -> None:
    """Records that fill a block exactly, so that a block that is moved to another place still frames and
    verifies."""
    dice = Random(6)
    with open_store(root, samples.CONFIG) as store:
        for _ in range(3):
            for ledger_id in (1, 2):
                store.ledger(ledger_id).append_many([dice.randbytes(512 - 40) for _ in range(64)])
            store.checkpoint()


def _unprotected(root: Path) -> None:
    """A store in which no ledger has a digest."""
    dice = Random(7)
    with open_store(root, samples.CONFIG) as store:
        for ledger_id in (1, 2, 3):
            store.ledger(ledger_id, DigestType.DUMMY).append(b"first")
        for _ in range(2):
            for ledger_id in (1, 2, 3, 1, 2):
                store.ledger(ledger_id).append_many([dice.randbytes(dice.randrange(900)) for _ in range(9)])
            store.checkpoint()


def _tiny(root: Path) -> None:
    """A store with two entries."""
    with open_store(root, samples.CONFIG) as store:
        store.ledger(1).append_many([b"", b"x"])


def _unsynced(root: Path) -> None:
    """A store that was killed before its first checkpoint, so that everything is in the journal."""
    running = root.with_name(f"{root.name}-running")
    dice = Random(8)
    with open_store(running, samples.CONFIG) as store:
        for number in range(30):
            store.ledger(number % 4).append_many([dice.randbytes(dice.randrange(400)) for _ in range(3)])
        copy_running(running, root)


def _killed_twice(root: Path) -> None:
    """A store that was killed, opened and killed again, so that it has a chain of journals."""
    first, running = (root.with_name(f"{root.name}-{name}") for name in ("first", "running"))
    samples.build_killed(first, 3, running)
    with open_store(first, samples.CONFIG) as store:
        for number in range(12):
            store.ledger(number % 3 + 1).append(b"behind the first kill %d" % number)
        copy_running(first, root)


def _killed(root: Path) -> None:
    samples.build_killed(root, 2, root.with_name(f"{root.name}-running"))


def _workload(name: str) -> Build:
    def build(root: Path) -> None:
        lab = root.with_name(f"{root.name}-lab")
        lab.mkdir()
        with Path(os.devnull).open("wb") as nobody:
            WORKLOADS[name](lab, Ctx(nobody.fileno()))
        (lab / STORE).rename(root)

    return build


OURS: dict[str, Build] = {
    "closed": lambda root: samples.build(root, 1),
    "killed": _killed,
    "killed twice": _killed_twice,
    "large": _large,
    "aligned": _aligned,
    "unprotected": _unprotected,
    "tiny": _tiny,
    "unsynced": _unsynced,
    **{f"lab: {name}": _workload(name) for name in WORKLOADS},
}

BOOKIES = tuple(fixtures.SETS)

NAMES = (*OURS, *BOOKIES)


@cache
def store(name: str) -> Path:
    """Return the store's directory. Do not change it, because copies share its files."""
    if name in BOOKIES:
        return fixtures.bookie(name) / "bookie"
    root = Path(_BUILT.name) / name.replace(": ", "-").replace(" ", "-")
    OURS[name](root)
    return root


def passwords(name: str) -> dict[int, bytes]:
    """Return the passwords that a reader needs to verify MAC digests."""
    return fixtures.passwords(name) if name in BOOKIES else dict(samples.PASSWORDS)


@cache
def content(name: str) -> StoreContent:
    """Return the store's true content for a reader that has the passwords."""
    return content_of(store(name), passwords(name))


@cache
def blind_content(name: str) -> StoreContent:
    """Return the store's true content for a reader without passwords."""
    return content_of(store(name))

"""Small stores with all features, in which faults are planted if no store is given."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from recovery.audit.faults.running_copy import copy_running
from recovery.opening.open_store import open_store
from storage.config import StoreConfig
from storage.entry.model import DigestType, Entry

if TYPE_CHECKING:
    from pathlib import Path

    from storage.store import Store

PASSWORD = b"secret"
PASSWORDS = {12: PASSWORD}
"""The passwords that a reader needs: for the one ledger with MAC digests."""

CONFIG = StoreConfig(
    memtable_size_max=256 << 10,
    entry_size_max=64 << 10,
    group_size_max=64 << 10,
    journal_size=160 << 10,
    entry_log_size_max=48 << 10,
    index_size_max=8 << 20,
    checkpoint_interval_s=None,
    idle_seal_s=None,
)
"""Many small files, and no background work."""

_PLAIN = (1, 2, 3, 4, 5)
_DOOMED, _AGAIN, _PLACED, _TRUNCATED = 30, 31, 40, 41


def build(root: Path, seed: int) -> None:
    """Build a store that was closed in order, with retained journals and several logs."""
    dice = _dice(seed)
    with open_store(root, CONFIG) as store:
        begin(store, dice)
        go_on(store, dice)
    with open_store(root, CONFIG) as store:
        finish(store, dice)


def build_killed(root: Path, seed: int, scratch: Path) -> None:
    """Build the same store as a kill leaves it: with entries that are in journals only, and a last group that
    nothing vouches for.
    """
    dice = _dice(seed)
    with open_store(scratch, CONFIG) as store:
        begin(store, dice)
        go_on(store, dice)
        _append(store, dice, 12)
        store.ledger(3).append(b"the last group")
        # No add is under way, so that the files are what a kill would leave.
        copy_running(scratch, root)


def _dice(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - repeatable on purpose


def begin(store: Store, dice: Random) -> None:
    """Write ledgers of every digest type, in several checkpoints."""
    store.ledger(10, DigestType.CRC32, PASSWORD).append(b"protected as bookies did first")
    store.ledger(11, DigestType.DUMMY, PASSWORD).append(b"not protected at all")
    store.ledger(12, DigestType.MAC, PASSWORD).append(b"protected against a forger")
    for _ in range(3):
        _append(store, dice, 14)
        store.checkpoint()


def go_on(store: Store, dice: Random) -> None:
    """Write deletes, a ledger that is made again, a truncation, gaps, copies that replace others, fences, and
    explicit LACs.
    """
    for ledger_id in (_DOOMED, _AGAIN):
        store.ledger(ledger_id).append_many([dice.randbytes(300) for _ in range(4)])
    for entry_id in (0, 3, 4, 9, 70, 3, 1 << 33):
        payload = b"%d, placed " % entry_id + dice.randbytes(dice.randrange(200))
        store.add(Entry(_PLACED, entry_id, -1, 1000 + entry_id, payload))
    store.ledger(_TRUNCATED).append_many([dice.randbytes(80) for _ in range(5)])
    store.checkpoint()
    store.add(Entry(_PLACED, 4, 3, 5000, b"once more " + dice.randbytes(90)))
    store.ledger(_DOOMED).delete()
    store.ledger(_AGAIN).delete()
    store.ledger(_AGAIN).append_many([dice.randbytes(200) for _ in range(3)])
    store.ledger(_TRUNCATED).truncate(3)
    store.ledger(5).fence()
    store.ledger(1).set_explicit_lac(2)
    store.checkpoint()


def finish(store: Store, dice: Random) -> None:
    """Write in a second run: another journal, and logs of its own."""
    _append(store, dice, 10)
    store.ledger(2).set_explicit_lac(1)
    store.checkpoint()
    _append(store, dice, 6)


def _append(store: Store, dice: Random, rounds: int) -> None:
    for _ in range(rounds):
        plain = dice.choice(_PLAIN[:4])
        store.ledger(plain).append_many(_payloads(dice, dice.randrange(1, 6)))
        for ledger_id in (10, 11, 12):
            if dice.random() < 0.7:
                store.ledger(ledger_id, password=PASSWORD).append_many(_payloads(dice, dice.randrange(1, 3)))
    if not store.ledger(5).is_fenced:
        store.ledger(5).append(dice.randbytes(30))


def _payloads(dice: Random, count: int) -> list[bytes]:
    """Return payloads of many sizes: empty, some bytes, and more than a block."""
    return [dice.randbytes(_size(dice)) for _ in range(count)]


def _size(dice: Random) -> int:
    return dice.choice([0, 1, dice.randrange(300), dice.randrange(1500), dice.randrange(4000, 9000)])

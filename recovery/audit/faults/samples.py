"""Small stores with something of everything: what faults are planted in where no store is given."""

from __future__ import annotations

import shutil
from random import Random
from typing import TYPE_CHECKING

from recovery.opening import open_store
from storage.config import StoreConfig
from storage.entry import DigestType, Entry

if TYPE_CHECKING:
    from pathlib import Path

    from storage.store import Store

PASSWORD = b"secret"
PASSWORDS = {12: PASSWORD}
"""Those that a reader needs: of the one ledger whose digests are MACs."""

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
"""Small files, and many of them; nothing happens by itself."""

_PLAIN = (1, 2, 3, 4, 5)
_DOOMED, _AGAIN, _PLACED = 30, 31, 40


def build(root: Path, seed: int) -> None:
    """A store that was closed in order, with retained journals and several logs."""
    dice = _dice(seed)
    with open_store(root, CONFIG) as store:
        begin(store, dice)
        go_on(store, dice)
    with open_store(root, CONFIG) as store:
        finish(store, dice)


def build_killed(root: Path, seed: int, scratch: Path) -> None:
    """The same as a kill leaves it: entries in the journals that no log has, and the last group unvouched."""
    dice = _dice(seed)
    with open_store(scratch, CONFIG) as store:
        begin(store, dice)
        go_on(store, dice)
        _append(store, dice, 12)
        store.ledger(3).append(b"the last group")
        # Nothing is under way: what the files are now is what they would be after a kill.
        shutil.copytree(scratch, root)


def _dice(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - repeatable on purpose


def begin(store: Store, dice: Random) -> None:
    """Ledgers of every digest type, in several checkpoints."""
    store.ledger(10, DigestType.CRC32, PASSWORD).append(b"protected as bookies did first")
    store.ledger(11, DigestType.DUMMY, PASSWORD).append(b"not protected at all")
    store.ledger(12, DigestType.MAC, PASSWORD).append(b"protected against a forger")
    for _ in range(3):
        _append(store, dice, 14)
        store.checkpoint()


def go_on(store: Store, dice: Random) -> None:
    """Deletes, a ledger made anew, gaps, copies that replace others, fences, and what is confirmed."""
    for ledger_id in (_DOOMED, _AGAIN):
        store.ledger(ledger_id).append_many([dice.randbytes(300) for _ in range(4)])
    for entry_id in (0, 3, 4, 9, 70, 3, 1 << 33):
        payload = b"%d, placed " % entry_id + dice.randbytes(dice.randrange(200))
        store.add(Entry(_PLACED, entry_id, -1, 1000 + entry_id, payload))
    store.checkpoint()
    store.add(Entry(_PLACED, 4, 3, 5000, b"once more " + dice.randbytes(90)))
    store.ledger(_DOOMED).delete()
    store.ledger(_AGAIN).delete()
    store.ledger(_AGAIN).append_many([dice.randbytes(200) for _ in range(3)])
    store.ledger(5).fence()
    store.ledger(1).set_explicit_lac(2)
    store.checkpoint()


def finish(store: Store, dice: Random) -> None:
    """A second run: another journal, and logs of its own."""
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
    """Of every size: none, some, and more than a block."""
    return [dice.randbytes(_size(dice)) for _ in range(count)]


def _size(dice: Random) -> int:
    return dice.choice([0, 1, dice.randrange(300), dice.randrange(1500), dice.randrange(4000, 9000)])

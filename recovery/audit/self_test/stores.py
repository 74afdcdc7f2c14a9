"""Small stores to damage: one with all features, several with equal content, and one killed at each step."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.self_test.expectations import Expected, PlantedDamage
from recovery.directory.layout import Layout
from recovery.opening.assembly import Platform
from recovery.opening.open_store import Opening, open_store
from recovery.proving.watched_directory import WatchedDirectory
from storage.config import StoreConfig
from storage.entry.model import DigestType, Entry
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def seeded(seed: int | str) -> Random:
    """Return a random generator that repeats its choices."""
    return Random(seed)  # noqa: S311 - repeatable on purpose


# ── one store with all features ───────────────────────────────────────────────────────────────────────────


def build(root: Path, seed: int) -> None:
    """Build a store that was closed in order, with retained journals and several logs."""
    dice = seeded(seed)
    with open_store(root, CONFIG) as store:
        _write_ledgers(store, dice)
        _write_changes(store, dice)
    with open_store(root, CONFIG) as store:
        # In a second run: another journal, and logs of its own.
        _append(store, dice, 10)
        store.ledger(2).set_explicit_lac(1)
        store.checkpoint()
        _append(store, dice, 6)


def build_killed(root: Path, seed: int, scratch: Path) -> None:
    """Build the same store as a kill leaves it: with entries that are in journals only, and a last group that
    nothing vouches for.
    """
    dice = seeded(seed)
    with open_store(scratch, CONFIG) as store:
        _write_ledgers(store, dice)
        _write_changes(store, dice)
        _append(store, dice, 12)
        store.ledger(3).append(b"the last group")
        # No add is under way, so that the files are what a kill would leave.
        copy_running(scratch, root)


def _write_ledgers(store: Store, dice: Random) -> None:
    """Write ledgers of every digest type, in several checkpoints."""
    store.ledger(10, DigestType.CRC32, PASSWORD).append(b"protected as bookies did first")
    store.ledger(11, DigestType.DUMMY, PASSWORD).append(b"not protected at all")
    store.ledger(12, DigestType.MAC, PASSWORD).append(b"protected against a forger")
    for _ in range(3):
        _append(store, dice, 14)
        store.checkpoint()


def _write_changes(store: Store, dice: Random) -> None:
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
    sizes = (0, 1, dice.randrange(300), dice.randrange(1500), dice.randrange(4000, 9000))
    return [dice.randbytes(dice.choice(sizes)) for _ in range(count)]


def copy_running(source: Path, target: Path) -> None:
    """Copy the directory of a store to which no thread adds now.

    A worker may prepare the next journal meanwhile: it renames a draft and announces it in the mark. So the
    copy is repeated until nothing has changed from its beginning to its end.
    """
    while True:
        before = _file_states(source)
        with suppress(shutil.Error, FileNotFoundError):  # the worker has renamed a draft
            shutil.copytree(source, target)
            if _file_states(source) == before:
                return
        shutil.rmtree(target)


def _file_states(source: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time of the last change of every file."""
    found = {}
    for path in source.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


# ── kill points ───────────────────────────────────────────────────────────────────────────────────────────


class KillPoint(NamedTuple):
    """The files that a kill before a step leaves."""

    root: Path
    step: str


def killed_at_steps(scratch: Path, seed: int, every: int) -> list[KillPoint]:
    """Return what a kill leaves before every so many changes of a file or a directory.

    What was written before a change is in the file system when it begins, as it is after a kill.
    """
    points: list[KillPoint] = []
    platform, steps = Platform(ThreadWorker), 0
    lock = platform.new_lock()

    def watch(name: str) -> None:
        nonlocal steps
        with lock:
            steps += 1
            if steps % every == 0 and (root / "ledgers/current/lastMark").exists():
                points.append(KillPoint(scratch / f"killed-{steps}", f"before a change of {name}"))
                copy_running(root, points[-1].root)

    scratch.mkdir(exist_ok=True)
    root, dice = scratch / "writing", seeded(seed)
    directory = WatchedDirectory(root, watch)
    directory.make()
    layout = Layout(directory)
    ledgers = LmdbIndexDirectory(layout.ledgers, root / "ledgers/current", CONFIG.index_size_max)
    with Opening(layout, ledgers, CONFIG, platform).run() as store:
        _write_ledgers(store, dice)
        _write_changes(store, dice)
    with Opening(layout, ledgers, CONFIG, platform).run() as store:
        _append(store, dice, 6)
        store.ledger(2).delete()
        store.checkpoint()
    return points


# ── stores with equal content ─────────────────────────────────────────────────────────────────────────────

STORES = ("a", "b", "c", "d")
ENSEMBLES = "ensembles.json"
REPLICA_FAULTS = (
    "replicas: an entry missing from one",
    "replicas: other bytes in one",
    "replicas: the last entries missing from one",
)
_DROPPED, _DIFFERS, _STALE = REPLICA_FAULTS
_LAST = 39
_STALE_MAX = 9
_SIZE_MAX = 200


class SharedLedger(NamedTuple):
    """A ledger that stores share: entry e is on the stores at e, e + 1, … of its ensemble."""

    ledger_id: int
    ensemble: tuple[str, ...]
    write_quorum: int

    def stores_of(self, entry_id: int) -> tuple[str, ...]:
        size = len(self.ensemble)
        return tuple(self.ensemble[(entry_id + number) % size] for number in range(self.write_quorum))


LEDGERS = (
    SharedLedger(1, ("a", "b", "c"), 2),
    SharedLedger(2, ("b", "c", "d"), 3),
    SharedLedger(3, ("d", "a"), 2),
)


def build_replicas(root: Path) -> None:
    """Build the stores, and the ensembles in `root / ENSEMBLES`, without a fault."""
    _build_replicas(root, "", "", 0, range(0), seeded(0))


def build_damaged_replicas(name: str, seed: int, root: Path) -> PlantedDamage:
    """Build the stores with that fault in one of them.

    A store that never got an entry, or got other bytes for it, is as sound in itself as the others.
    """
    dice = seeded(seed)
    ledger = dice.choice(LEDGERS)
    if name == _STALE:
        entries = range(_LAST - dice.randrange(_STALE_MAX), _LAST + 1)
        store = dice.choice(ledger.ensemble)
    else:
        first = dice.randrange(_LAST + 1)
        entries = range(first, first + 1)
        store = dice.choice(ledger.stores_of(first))
    _build_replicas(root, name, store, ledger.ledger_id, entries, dice)
    # Nothing shows which of two different copies is right.
    kind, named = ("RPL-002", None) if name == _DIFFERS else ("RPL-001", store)
    wanted = tuple(
        (Expected(kinds=frozenset({kind}), store=named, ledger_id=ledger.ledger_id, entry_id=one),)
        for one in entries
        if store in ledger.stores_of(one)
    )
    return PlantedDamage(name=name, file="", place=f"store {store}, ledger {ledger.ledger_id}", wanted=wanted)


def _build_replicas(
    root: Path, fault: str, wrong: str, wrong_ledger: int, entries: range, dice: Random
) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name in STORES:
        with open_store(root / name, CONFIG) as store:
            for entry in _shared_entries(name):
                if (name, entry.ledger_id) == (wrong, wrong_ledger) and entry.entry_id in entries:
                    if fault == _DIFFERS:
                        other = dice.randbytes(len(entry.payload) - 1) + bytes([entry.payload[-1] ^ 1])
                        store.add(replace(entry, payload=other))
                else:
                    store.add(entry)
    ledgers = {
        str(ledger.ledger_id): {
            "write_quorum": ledger.write_quorum,
            "ack_quorum": ledger.write_quorum,
            "last_entry": _LAST,
            "segments": [{"first_entry": 0, "stores": list(ledger.ensemble)}],
        }
        for ledger in LEDGERS
    }
    (root / ENSEMBLES).write_text(json.dumps({"stores": {one: one for one in STORES}, "ledgers": ledgers}))


def _shared_entries(name: str) -> Iterator[Entry]:
    for ledger in LEDGERS:
        dice = seeded(ledger.ledger_id)
        length = 0
        for entry_id in range(_LAST + 1):
            payload = dice.randbytes(dice.randrange(1, _SIZE_MAX))
            length += len(payload)
            if name in ledger.stores_of(entry_id):
                yield Entry(ledger.ledger_id, entry_id, entry_id - 1, length, payload)

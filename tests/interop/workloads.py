"""Seeded workloads on real stores of ours; a child process plays them, so that it can be killed.

    python workloads.py DIRECTORY SEED        plays it, and tells every event as a line

What was asked for is told before it is done, what was answered behind it: a kill between the two leaves both
possible.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from shown import Access

from recovery import open_store
from storage import StoreConfig
from storage.entry import DigestType, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Set
    from pathlib import Path

    from storage.ledger import Ledger
    from storage.store import Store

    Event = dict[str, Any]

STEPS = 40
REPLICA = 9
"""The ledger whose entries come with ids of their own, some of them twice."""
_KIB = 1 << 10
_SIZES = (0, 1, 30, 30, 200, 1000, 5000)


def config_of(seed: int) -> StoreConfig:
    """Small throughout, so that a short workload rolls, freezes and checkpoints."""
    dice = Random(f"config {seed}")
    return StoreConfig(
        memtable_size_max=dice.choice([8, 32, 512]) * _KIB,
        entry_size_max=8 * _KIB,
        group_size_max=dice.choice([2, 8, 16]) * _KIB,
        journal_size=dice.choice([48, 96, 512]) * _KIB,
        journal_alignment=dice.choice([4096, 4096, 512]),
        # Many: then a bookie can be started on the journals alone.
        journal_max_backups=dice.choice([0, 1000, 1000]),
        entry_log_size_max=dice.choice([12, 64, 1024]) * _KIB,
        index_size_max=64 << 20,
        checkpoint_interval_s=None,
        idle_seal_s=None,
    )


def keeps_all_journals(seed: int) -> bool:
    return config_of(seed).journal_max_backups > STEPS


def accesses_of(seed: int) -> dict[int, Access]:
    """The workload's ledgers."""
    return {ledger_id: Access(DigestType.CRC32C, b"") for ledger_id in (1, 2, 5, 1 << 40, REPLICA)}


# ── what its caller knows ─────────────────────────────────────────────────────────────────────────────────


@dataclass
class Known:
    """What events say: what must be there, what may be, and nothing else."""

    answered: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By ledger and entry id, the payload."""
    asked: set[tuple[int, bytes]] = field(default_factory=set)
    """Ledgers and payloads that were handed over, answered or not."""
    rewritten: set[int] = field(default_factory=set)
    """Ledgers in which an id may have had another entry before."""

    def hear(self, event: Event) -> None:
        match event:
            case {"asked": [int(ledger_id), *payloads]}:
                self.asked |= {(ledger_id, bytes.fromhex(payload)) for payload in payloads}
            case {"answered": [int(ledger_id), *entries]}:
                for entry_id, payload in entries:
                    self.answered[ledger_id, entry_id] = bytes.fromhex(payload)
            case {"rewriting": int(ledger_id)}:
                self.rewritten.add(ledger_id)
            case _:
                raise AssertionError(event)

    def violations(self, payloads: Mapping[tuple[int, int], bytes], lost: Set[tuple[int, int]]) -> Iterator[str]:
        """What is wrong with the payloads that a recovery shows, when these entries may be lost."""
        for (ledger_id, entry_id), payload in self.answered.items():
            found = payloads.get((ledger_id, entry_id))
            # Of an id that was written again a later payload may be there, though nobody was answered for it.
            if found != payload and (ledger_id, entry_id) not in lost and ledger_id not in self.rewritten:
                yield f"entry {entry_id} of ledger {ledger_id} was answered, and our recovery shows {found!r:.60}"
        for (ledger_id, entry_id), payload in payloads.items():
            if (ledger_id, payload) not in self.asked:
                yield f"entry {entry_id} of ledger {ledger_id} is {payload!r:.60}, which nobody has written"


# ── playing ───────────────────────────────────────────────────────────────────────────────────────────────


class Workload:
    """One seed's program."""

    def __init__(self, directory: Path | str, seed: int, tell: Callable[[Event], None]) -> None:
        self._directory = directory
        self._config = config_of(seed)
        self._accesses = accesses_of(seed)
        self._tell = tell
        self._dice = Random(f"workload {seed}")
        self._written = 0
        self._replica_end = 0
        self._store = self._open()

    def play(self) -> None:
        """All steps; the store stays open."""
        steps = (
            (self._append, 30),
            (self._append_many, 20),
            (self._submit, 10),
            (self._place, 12),
            (self._checkpoint, 5),
            (self._reopen, 3),
        )
        choices, weights = zip(*steps, strict=True)
        for _ in range(STEPS):
            (step,) = self._dice.choices(choices, weights)
            step()

    def close(self) -> None:
        self._store.close()

    def _open(self) -> Store:
        return open_store(self._directory, self._config)

    def _payload(self) -> bytes:
        self._written += 1
        return self._written.to_bytes(4, "big") + self._dice.randbytes(self._dice.choice(_SIZES))

    def _ledger(self) -> Ledger:
        return self._store.ledger(self._dice.choice([one for one in self._accesses if one != REPLICA]))

    def _ask(self, ledger_id: int, payloads: list[bytes]) -> None:
        self._tell({"asked": [ledger_id, *(payload.hex() for payload in payloads)]})

    def _answer(self, ledger_id: int, entry_ids: list[int], payloads: list[bytes]) -> None:
        told = [[one, payload.hex()] for one, payload in zip(entry_ids, payloads, strict=True)]
        self._tell({"answered": [ledger_id, *told]})

    def _append(self) -> None:
        ledger, payload = self._ledger(), self._payload()
        self._ask(ledger.id, [payload])
        self._answer(ledger.id, [ledger.append(payload)], [payload])

    def _append_many(self) -> None:
        ledger, payloads = self._ledger(), [self._payload() for _ in range(self._dice.randint(2, 8))]
        self._ask(ledger.id, payloads)
        self._answer(ledger.id, [*ledger.append_many(payloads)], payloads)

    def _submit(self) -> None:
        ledger, payloads = self._ledger(), [self._payload() for _ in range(self._dice.randint(1, 5))]
        self._ask(ledger.id, payloads)
        futures = [ledger.submit(payload) for payload in payloads]
        self._answer(ledger.id, [future.result() for future in futures], payloads)

    def _place(self) -> None:
        """As a replica gets it: with gaps, and now and then an id again."""
        entry_id = max(0, self._replica_end + self._dice.choice([0, 0, 0, 2, -1, -3]))
        if entry_id < self._replica_end:
            self._tell({"rewriting": REPLICA})
        payload = self._payload()
        self._ask(REPLICA, [payload])
        self._store.add(Entry(REPLICA, entry_id, entry_id - 1, 10_000 + entry_id, payload))
        self._answer(REPLICA, [entry_id], [payload])
        self._replica_end = max(self._replica_end, entry_id + 1)

    def _checkpoint(self) -> None:
        self._store.checkpoint()

    def _reopen(self) -> None:
        self._store.close()
        self._store = self._open()


def play(directory: Path, seed: int) -> Known:
    """Plays the workload, and closes the store."""
    known = Known()
    workload = Workload(directory, seed, known.hear)
    workload.play()
    workload.close()
    return known


def kill(directory: Path, seed: int) -> Known:
    """Plays it in another process, which dies of SIGKILL somewhere in the middle."""
    known, at = Known(), Random(f"kill {seed}").randint(STEPS // 2, 2 * STEPS - 5)
    child = subprocess.Popen(
        [sys.executable, __file__, directory, str(seed)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            known.hear(json.loads(line))
            if number == at:
                child.kill()
        # What it told before it died is in the pipe still, and read above: killed, it says no more.
    return known


def _main(directory: str, seed: str) -> None:
    def tell(event: Event) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    Workload(directory, int(seed), tell).play()
    os._exit(0)  # a store that nobody closes is a kill too


if __name__ == "__main__":
    _main(*sys.argv[1:])

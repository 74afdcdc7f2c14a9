"""Several stores that should hold the same entries, and one of them that does not.

The stores are built with the fault: a store that never got an entry, or got other bytes for it, is as sound
in itself as the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import Expectation, Planted, kinds
from recovery.audit.faults.samples import CONFIG
from recovery.opening.open_store import open_store
from storage.entry.model import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORES = ("a", "b", "c", "d")
ENSEMBLES = "ensembles.json"
FAULTS = (Fault.REPLICA_DROPPED, Fault.REPLICA_DIFFERS, Fault.REPLICA_STALE)
_LAST = 39
_STALE_MAX = 9
_SIZE_MAX = 200


@dataclass(frozen=True, slots=True)
class SharedLedger:
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


@dataclass(frozen=True, slots=True)
class _ReplicaFault:
    """The entries of one store that are not as in the others."""

    fault: Fault | None
    store: str = ""
    ledger_id: int = 0
    first: int = 0
    last: int = 0

    def holds(self, store: str, ledger_id: int, entry_id: int) -> bool:
        at = (store, ledger_id) == (self.store, self.ledger_id)
        return at and self.first <= entry_id <= self.last


def build(root: Path) -> None:
    """Build the stores, and the ensembles in `root / ENSEMBLES`, without a fault."""
    _build(root, _ReplicaFault(None), Random(0))  # noqa: S311 - repeatable on purpose


def plant(fault: Fault, seed: int, root: Path) -> Planted:
    """Build the stores with that fault in one of them."""
    dice = Random(seed)  # noqa: S311 - repeatable on purpose
    ledger = dice.choice(LEDGERS)
    if fault is Fault.REPLICA_STALE:
        first, last = _LAST - dice.randrange(_STALE_MAX), _LAST
        store = dice.choice(ledger.ensemble)
    else:
        first = last = dice.randrange(_LAST + 1)
        store = dice.choice(ledger.stores_of(first))
    _build(root, _ReplicaFault(fault, store, ledger.ledger_id, first, last), dice)
    gone = [one for one in range(first, last + 1) if store in ledger.stores_of(one)]
    ledgers = frozenset({ledger.ledger_id})
    expected = Expectation(kinds=kinds("RPL-001"), store=store, ledgers=ledgers)
    if fault is Fault.REPLICA_DIFFERS:
        expected = Expectation(
            kinds=kinds("RPL-002"), ledgers=ledgers
        )  # nothing shows which of the two is right
    wanted = tuple((replace(expected, entry_id=one),) for one in gone)
    return Planted(
        fault=fault,
        file="",
        ledger_id=ledger.ledger_id,
        entry_id=first,
        wanted=wanted,
        words=f"store {store}, entries {first} to {last}",
    )


def _build(root: Path, wrong: _ReplicaFault, dice: Random) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name in STORES:
        with open_store(root / name, CONFIG) as store:
            for entry in _entries(name, wrong, dice):
                store.add(entry)
    (root / ENSEMBLES).write_text(json.dumps(_ensembles()))


def _entries(name: str, wrong: _ReplicaFault, dice: Random) -> Iterator[Entry]:
    for ledger in LEDGERS:
        payloads = Random(ledger.ledger_id)  # noqa: S311 - repeatable on purpose
        length = 0
        for entry_id in range(_LAST + 1):
            payload = payloads.randbytes(payloads.randrange(1, _SIZE_MAX))
            length += len(payload)
            if name not in ledger.stores_of(entry_id):
                continue
            if wrong.holds(name, ledger.ledger_id, entry_id):
                if wrong.fault is not Fault.REPLICA_DIFFERS:
                    continue
                payload = dice.randbytes(len(payload) - 1) + bytes([payload[-1] ^ 1])
            yield Entry(ledger.ledger_id, entry_id, entry_id - 1, length, payload)


def _ensembles() -> dict[str, object]:
    return {
        "stores": {name: name for name in STORES},
        "ledgers": {
            str(ledger.ledger_id): {
                "write_quorum": ledger.write_quorum,
                "ack_quorum": ledger.write_quorum,
                "last_entry": _LAST,
                "segments": [{"first_entry": 0, "stores": list(ledger.ensemble)}],
            }
            for ledger in LEDGERS
        },
    }

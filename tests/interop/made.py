"""Directories that seeded workloads on a real bookie have left, and what was acknowledged there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from shown import NO_LAC, Access, LedgerShown

from storage import StoreConfig
from storage.entry import DigestType
from storage.errors import LedgerFenced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from jvm import Driver
    from shown import Shown

    from storage.store import Store

    Manifest = dict[str, Any]

EXPLICIT_LAC_SINCE = 6
"""The journal version that has a record for it; an older one acknowledges it, and forgets."""


CONFIG = StoreConfig(
    journal_size=1 << 20, group_size_max=1 << 16, entry_size_max=1 << 17, index_size_max=64 << 20
)
"""For stores that a bookie's directory has become."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What bookie, and how it ended."""

    storage: str
    direct: bool
    journal: int
    end: str
    runs: int


def kind_of(seed: int) -> Kind:
    """Every storage with every journal version, in turn; the rest as the dice fall."""
    dice = Random(f"kind {seed}")
    storage, direct = (("db", False), ("sorted", False), ("db", True), ("interleaved", False))[seed % 4]
    end = dice.choice(["clean", "halt", "inflight" if storage == "db" else "halt"])
    return Kind(storage, direct, (4, 5, 6)[seed // 4 % 3], end, dice.randint(1, 3))


def make(driver: Driver, directory: Path, seed: int, kind: Kind) -> Manifest:
    """Plays it; leaves `bookie` in the directory."""
    return driver.ask("make", dir=str(directory), seed=seed, **asdict(kind))


def accesses(manifest: Manifest) -> dict[int, Access]:
    return {
        ledger["ledger"]: Access(DigestType[ledger["digest_type"]], ledger["password"].encode())
        for ledger in manifest["ledgers"]
    }


def add(store: Store, accesses: Mapping[int, Access]) -> None:
    """Something new for each ledger that takes it, and a ledger of our own."""
    for ledger_id, access in {**accesses, 77: Access(DigestType.CRC32C, b"")}.items():
        with suppress(LedgerFenced):
            store.ledger(ledger_id, access.digest_type, access.password).append(b"ours")


def differences(manifest: Manifest, shown: Shown, kind: Kind) -> Iterator[str]:
    """What was acknowledged must be there, what was on its way may be, and nothing else."""
    for ledger in manifest["ledgers"]:
        ledger_id = ledger["ledger"]
        found = shown.get(ledger_id, LedgerShown())
        yield from _entries(ledger, found)
        if ledger["fenced"] and not found.fenced:
            yield f"ledger {ledger_id} was fenced, and we do not know it"
        confirmed = ledger["explicit_lac"] if kind.journal >= EXPLICIT_LAC_SINCE else None
        if (NO_LAC if confirmed is None else confirmed) != found.explicit_lac:
            yield f"ledger {ledger_id}: its explicit LAC was {confirmed}, we say {found.explicit_lac}"
        if found.master_key not in (None, ledger["master_key"]):
            yield f"ledger {ledger_id}: its key was {ledger['master_key']}, we say {found.master_key}"
    strange = sorted({*shown} - {ledger["ledger"] for ledger in manifest["ledgers"]})
    yield from (f"ledger {ledger_id} was never written" for ledger_id in strange)


def _entries(ledger: dict[str, Any], found: LedgerShown) -> Iterator[str]:
    acknowledged = {entry["entry"]: entry["sha256"] for entry in ledger["entries"]}
    handed = {entry["entry"]: entry["sha256"] for entry in ledger["handed"]}
    for entry_id, digest in acknowledged.items():
        if found.entries.get(entry_id) != digest:
            yield (
                f"entry {entry_id} of ledger {ledger['ledger']} was acknowledged as {digest}, "
                f"we show {found.entries.get(entry_id)}"
            )
    for entry_id, digest in found.entries.items():
        if digest not in (acknowledged.get(entry_id), handed.get(entry_id)):
            yield f"entry {entry_id} of ledger {ledger['ledger']}: nobody wrote {digest}"

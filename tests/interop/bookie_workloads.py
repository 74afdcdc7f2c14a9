"""Directories that seeded workloads on a real bookie have left, and the entries that it acknowledged."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from observed import NO_LAC, LedgerAccess, ObservedLedger

from storage import StoreConfig
from storage.entry.model import DigestType
from storage.errors import LedgerFenced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from jvm import Driver
    from observed import ObservedLedgers

    from storage.store import Store

    Manifest = dict[str, Any]

EXPLICIT_LAC_SINCE = 6
"""The first journal version with a record for it. With an older one a bookie acknowledges an explicit LAC and
forgets it."""


CONFIG = StoreConfig(
    journal_size=1 << 20, group_size_max=1 << 16, entry_size_max=1 << 17, index_size_max=64 << 20
)
"""The configuration of stores that were made from a bookie's directory."""


@dataclass(frozen=True, slots=True)
class BookieKind:
    """The configuration of a bookie, and how it ended."""

    storage: str
    direct: bool
    journal: int
    end: str
    runs: int


def bookie_kind(seed: int) -> BookieKind:
    """Combine every storage with every journal version in turn; choose the rest at random."""
    dice = Random(f"kind {seed}")
    storage, direct = (("db", False), ("sorted", False), ("db", True), ("interleaved", False))[seed % 4]
    end = dice.choice(["clean", "halt", "inflight" if storage == "db" else "halt"])
    return BookieKind(storage, direct, (4, 5, 6)[seed // 4 % 3], end, dice.randint(1, 3))


def make(driver: Driver, directory: Path, seed: int, kind: BookieKind) -> Manifest:
    """Run the workload. It leaves the bookie's files in `bookie`."""
    return driver.ask("make", dir=str(directory), seed=seed, **asdict(kind))


def accesses(manifest: Manifest) -> dict[int, LedgerAccess]:
    return {
        ledger["ledger"]: LedgerAccess(DigestType[ledger["digest_type"]], ledger["password"].encode())
        for ledger in manifest["ledgers"]
    }


def add(store: Store, accesses: Mapping[int, LedgerAccess]) -> None:
    """Add an entry to each ledger that is not fenced, and create a ledger of our own."""
    for ledger_id, access in {**accesses, 77: LedgerAccess(DigestType.CRC32C, b"")}.items():
        with suppress(LedgerFenced):
            store.ledger(ledger_id, access.digest_type, access.password).append(b"ours")


def differences(manifest: Manifest, shown: ObservedLedgers, kind: BookieKind) -> Iterator[str]:
    """Yield what is wrong: acknowledged entries must be there, unanswered ones may be, and no others."""
    for ledger in manifest["ledgers"]:
        ledger_id = ledger["ledger"]
        found = shown.get(ledger_id, ObservedLedger())
        yield from _entries(ledger, found)
        if ledger["fenced"] and not found.fenced:
            yield f"ledger {ledger_id} was fenced, and we show it as open"
        confirmed = ledger["explicit_lac"] if kind.journal >= EXPLICIT_LAC_SINCE else None
        if (NO_LAC if confirmed is None else confirmed) != found.explicit_lac:
            yield f"ledger {ledger_id}: its explicit LAC was {confirmed}, we say {found.explicit_lac}"
        if found.master_key not in (None, ledger["master_key"]):
            yield f"ledger {ledger_id}: its key was {ledger['master_key']}, we say {found.master_key}"
    strange = sorted({*shown} - {ledger["ledger"] for ledger in manifest["ledgers"]})
    yield from (f"ledger {ledger_id} was never written" for ledger_id in strange)


def _entries(ledger: dict[str, Any], found: ObservedLedger) -> Iterator[str]:
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
            yield f"entry {entry_id} of ledger {ledger['ledger']}: {digest} was never written"

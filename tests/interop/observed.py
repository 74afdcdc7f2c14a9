"""The content that one side (ledgerstore or BookKeeper) reads from a directory, in a form that both share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jvm import Driver

    from storage.entry.model import DigestType

NO_LAC = -1


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """The digest type of a ledger's entries, and the password for adds."""

    digest_type: DigestType
    password: bytes


@dataclass(frozen=True, slots=True)
class ObservedLedger:
    """One ledger as one side reads it."""

    entries: Mapping[int, str] = field(default_factory=dict)
    """By entry id: the SHA-256 of the entry's bytes, its digest included."""
    fenced: bool = False
    explicit_lac: int = NO_LAC
    master_key: str | None = None
    last_entry_id: int | None = None
    problems: Mapping[int, str] = field(default_factory=dict)
    """By entry id: why an entry cannot be read, or that its digest is wrong."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """The answers to adds with the right and the wrong key, if they were tried."""


ObservedLedgers = dict[int, ObservedLedger]


@dataclass(frozen=True, slots=True, order=True)
class RecordPlace:
    """The place of a record: the id of its journal or log, and the offset of its length word."""

    file: int
    offset: int


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record that a scan has found. Records that are not entries have a negative entry id."""

    place: RecordPlace
    ledger_id: int
    entry_id: int
    size: int
    sha256: str
    data: bytes = field(default=b"", compare=False, repr=False)
    """The record's bytes, if the scan returns them."""

    @property
    def ids(self) -> tuple[int, int]:
        return self.ledger_id, self.entry_id


@dataclass(frozen=True, slots=True)
class Scans:
    """All records in the files of a directory, in file order."""

    mark: tuple[int, int]
    journals: tuple[FoundRecord, ...]
    logs: tuple[FoundRecord, ...]
    maps: Mapping[int, Mapping[int, int]]
    """By log id: its ledgers map (bytes by ledger), if it has one."""
    journal_problems: Mapping[int, str] = field(default_factory=dict)
    log_problems: Mapping[int, str] = field(default_factory=dict)
    """By file id: the error that stopped the scan of a journal or log."""


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


# ── theirs ────────────────────────────────────────────────────────────────────────────────────────────────


def bookkeeper_scans(driver: Driver, directory: Path) -> Scans:
    """Return the records that BookKeeper's own readers list."""
    journals = driver.ask("scan-journal", dir=str(directory))
    logs = driver.ask("scan-log", dir=str(directory))["logs"]
    first, offset = journals["mark"]
    return Scans(
        (first, offset),
        tuple(_found(one["journal"], row) for one in journals["journals"] for row in one["records"]),
        tuple(_found(one["log"], row) for one in logs for row in one["entries"]),
        {
            one["log"]: {int(ledger): size for ledger, size in one["map"].items()}
            for one in logs
            if "map" in one
        },
        {one["journal"]: one["problem"] for one in journals["journals"] if "problem" in one},
        {one["log"]: one["problem"] for one in logs if "problem" in one},
    )


def _found(file: int, row: list[Any]) -> FoundRecord:
    offset, ledger_id, entry_id, size, digest = row
    return FoundRecord(RecordPlace(file, offset), ledger_id, entry_id, size, digest)


class BookieRefused(AssertionError):
    """The real bookie does not start on the directory."""


def run_bookie(
    driver: Driver, directory: Path, accesses: Mapping[int, LedgerAccess], **how: bool
) -> ObservedLedgers:
    """Start a real bookie on the directory, which changes it, and return what the bookie serves.

    `rebuild`: BookKeeper's tools make the index first; with `handed_over` in the way that a handover asks
    for.
    `wrong_key`, `right_key`: also try adds with these keys.
    """
    ledgers = [
        {"ledger": ledger_id, "digest": access.digest_type.name, "password": access.password.decode()}
        for ledger_id, access in accesses.items()
    ]
    answer = driver.ask("serve", dir=str(directory), ledgers=ledgers, **how)
    if "refused" in answer:
        raise BookieRefused(answer["refused"])
    return {one["ledger"]: _ledger(one) for one in answer["ledgers"]}


def _ledger(one: dict[str, Any]) -> ObservedLedger:
    return ObservedLedger(
        dict(one["entries"]),
        one["fenced"],
        one.get("explicit_lac", NO_LAC),
        one["key"],
        one["last_entry"],
        dict.fromkeys(one["mismatches"], "a wrong digest") | dict(one["unreadable"]),
        {name: one[name] for name in ("wrong_key", "right_key") if name in one},
    )

"""What one side shows of a directory, in words that both sides share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jvm import Driver

    from storage.entry import DigestType

NO_LAC = -1


@dataclass(frozen=True, slots=True)
class Access:
    """How a ledger's entries are protected, and the password that its adds come with."""

    digest_type: DigestType
    password: bytes


@dataclass(frozen=True, slots=True)
class LedgerShown:
    """One ledger as one side shows it."""

    entries: Mapping[int, str] = field(default_factory=dict)
    """Of each entry the SHA-256 of its bytes, digest and all."""
    fenced: bool = False
    explicit_lac: int = NO_LAC
    master_key: str | None = None
    last_entry_id: int | None = None
    problems: Mapping[int, str] = field(default_factory=dict)
    """Of entries that are there and cannot be had, or whose digest does not hold: why."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What adds with the right key and with a wrong one were answered, where that was tried."""


Shown = dict[int, LedgerShown]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a scan has found a record: in which journal or log, and where its length word stands."""

    file: int
    offset: int


@dataclass(frozen=True, slots=True)
class Found:
    """A record that a scan has found; one that is no entry has a negative entry id."""

    place: Place
    ledger_id: int
    entry_id: int
    size: int
    sha256: str
    data: bytes = field(default=b"", compare=False, repr=False)
    """The bytes, where the one who scanned hands them on."""

    @property
    def ids(self) -> tuple[int, int]:
        return self.ledger_id, self.entry_id


@dataclass(frozen=True, slots=True)
class Scans:
    """Everything that lies in the files of a directory, in their order."""

    mark: tuple[int, int]
    journals: tuple[Found, ...]
    logs: tuple[Found, ...]
    maps: Mapping[int, Mapping[int, int]]
    """Of each log that has one its ledgers map: bytes by ledger."""
    journal_problems: Mapping[int, str] = field(default_factory=dict)
    log_problems: Mapping[int, str] = field(default_factory=dict)
    """Of a journal or log that was not read to its end without trouble: what the trouble was."""


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


# ── theirs ────────────────────────────────────────────────────────────────────────────────────────────────


def their_scans(driver: Driver, directory: Path) -> Scans:
    """What BookKeeper's own readers list."""
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


def _found(file: int, row: list[Any]) -> Found:
    offset, ledger_id, entry_id, size, digest = row
    return Found(Place(file, offset), ledger_id, entry_id, size, digest)


class BookieRefused(AssertionError):
    """The real bookie does not start on the directory."""


def their_bookie(driver: Driver, directory: Path, accesses: Mapping[int, Access], **how: bool) -> Shown:
    """What a real bookie shows that is started on the directory, which is changed by that.

    `rebuild`: its index is made first, by its own tools; with `handed_over`, as it is done with a directory
    that was handed over. `wrong_key`, `right_key`: with which keys adds are tried.
    """
    ledgers = [
        {"ledger": ledger_id, "digest": access.digest_type.name, "password": access.password.decode()}
        for ledger_id, access in accesses.items()
    ]
    answer = driver.ask("serve", dir=str(directory), ledgers=ledgers, **how)
    if "refused" in answer:
        raise BookieRefused(answer["refused"])
    return {one["ledger"]: _ledger(one) for one in answer["ledgers"]}


def _ledger(one: dict[str, Any]) -> LedgerShown:
    return LedgerShown(
        dict(one["entries"]),
        one["fenced"],
        one.get("explicit_lac", NO_LAC),
        one["key"],
        one["last_entry"],
        dict.fromkeys(one["mismatches"], "a wrong digest") | dict(one["unreadable"]),
        {name: one[name] for name in ("wrong_key", "right_key") if name in one},
    )

"""Damage one copy of a store, and check what an audit reports."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import audited_stores

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.audit.self_test.trials import STORE_FAULTS, plant, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.findings.finding import Finding


class NoPlace(Exception):
    """The store has no place for this damage."""


@dataclass(frozen=True, slots=True)
class FaultTrial:
    """A kind of damage and its place. Its text is enough to run the trial again."""

    store: str
    fault: str
    seed: int
    knows_passwords: bool = True

    def __str__(self) -> str:
        return f"FaultTrial({self.store!r}, {self.fault!r}, {self.seed}, {self.knows_passwords})"

    def run(self) -> str | None:
        """Return what is wrong with the audit's report, or `None`. Raise `NoPlace` if the store has no place
        for the damage."""
        content = audited_stores.content if self.knows_passwords else audited_stores.blind_content
        known = audited_stores.passwords(self.store) if self.knows_passwords else {}
        with TemporaryDirectory(prefix="fault-") as scratch:
            root = Path(scratch) / "store"
            planted = plant(content(self.store), self.fault, self.seed, root)
            if planted is None:
                raise NoPlace
            with unreadable(planted.bad_sector):
                complaint = planted.damage.complaint(audited(root, known))
        return None if complaint is None else f"{self}: {complaint}"


def audited(root: Path, passwords: Mapping[int, bytes]) -> tuple[Finding, ...]:
    """Return the audit's report on a store."""
    return run_audit(AuditRequest((str(root),), policy=DigestPolicy(passwords=passwords))).findings


@cache
def faults_of(store: str) -> tuple[str, ...]:
    """Return the kinds of damage that the store has a place for."""
    content = audited_stores.content(store)
    found = []
    with TemporaryDirectory(prefix="fault-") as scratch:
        root = Path(scratch) / "store"
        for fault in STORE_FAULTS:
            if plant(content, fault, 1, root) is not None:
                found.append(fault)
            shutil.rmtree(root)
    return tuple(found)


def trials_of(store: str, count: int, seed: int) -> Iterator[FaultTrial]:
    """Return this number of trials, going through all kinds of damage that the store has a place for."""
    dice = Random(f"{store} {seed}")
    faults = faults_of(store)
    for number in range(count):
        fault = faults[(number + seed * count) % len(faults)]
        yield FaultTrial(store, fault, dice.getrandbits(32), dice.random() < 0.8)

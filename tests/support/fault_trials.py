"""One fault, planted in a copy of a store, and what an audit says of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import audited_stores

from recovery.audit.asked import Asked
from recovery.audit.faults.planted import shown
from recovery.audit.faults.planting import HOW, plant
from recovery.audit.faults.site import NoPlace
from recovery.audit.inspect import inspect
from recovery.audit.ways import Ways

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.faults.kinds import Fault
    from recovery.verify.finding import Finding


@dataclass(frozen=True, slots=True)
class Trial:
    """Which fault where: its text is all that is needed to do it again."""

    store: str
    fault: Fault
    seed: int
    knows_passwords: bool = True

    def __str__(self) -> str:
        return f"Trial({self.store!r}, {self.fault}, {self.seed}, {self.knows_passwords})"

    def run(self) -> str | None:
        """What is wrong with what the audit says; `None` if nothing is. `NoPlace` where it has no place."""
        chart = audited_stores.chart if self.knows_passwords else audited_stores.blind_chart
        known = audited_stores.passwords(self.store) if self.knows_passwords else {}
        with TemporaryDirectory(prefix="fault-") as scratch:
            root = Path(scratch) / "store"
            planted = plant(chart(self.store), self.fault, self.seed, root)
            if planted is None:
                raise NoPlace
            findings = audited(root, known)
        strays = [f"  too much: {shown(one)}" for one in planted.strays_of(findings)]
        if planted.is_told_by(findings) and not strays:
            return None
        return "\n".join([f"{self}: {planted.why_not(findings)}", *strays])


def audited(root: Path, passwords: Mapping[int, bytes]) -> tuple[Finding, ...]:
    """What the audit says of a store."""
    return inspect(Asked((str(root),), ways=Ways(passwords=passwords))).findings


@cache
def faults_of(store: str) -> tuple[Fault, ...]:
    """The kinds that the store has a place for."""
    chart = audited_stores.chart(store)
    found = []
    with TemporaryDirectory(prefix="fault-") as scratch:
        root = Path(scratch) / "store"
        for fault in HOW:
            if plant(chart, fault, 1, root) is not None:
                found.append(fault)
            shutil.rmtree(root)
    return tuple(found)


def trials_of(store: str, count: int, seed: int) -> Iterator[Trial]:
    """So many faults of all kinds that the store has a place for, in turn."""
    dice = Random(f"{store} {seed}")
    faults = faults_of(store)
    for number in range(count):
        fault = faults[(number + seed * count) % len(faults)]
        yield Trial(store, fault, dice.getrandbits(32), dice.random() < 0.8)

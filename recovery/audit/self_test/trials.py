"""Damage copies of a store in every way, one at a time, and count how much an audit finds.

The store is made for the purpose, or a given one is copied if it is small. A given store is only read. The
undamaged copy, and what kills leave, has to be without findings.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.local import Serial
from recovery.audit.pipeline import ensemble_file
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.audit.self_test import stores
from recovery.audit.self_test.content import content_of
from recovery.audit.self_test.corruptions import BLOCK, CORRUPTIONS
from recovery.audit.self_test.directories import ROWS, StoreCopy
from recovery.audit.self_test.expectations import Expected, PlantedDamage, expect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.audit.engines.task import TaskEngine
    from recovery.audit.findings.finding import Finding
    from recovery.audit.self_test.content import StoreContent

SMALL = 256 << 20
"""The largest store that is copied. In place of a larger one sample stores are made."""

BAD_SECTOR = "a sector that the disk cannot read"
_CHANGES_BETWEEN_KILLS = 40

STORE_FAULTS = (*(row.name for row in CORRUPTIONS), *(row.name for row in ROWS), BAD_SECTOR)
FAULTS = (*STORE_FAULTS, *stores.REPLICA_FAULTS)
"""The names of all kinds of damage."""

_CORRUPTIONS = {row.name: row for row in CORRUPTIONS}
_ROWS = {row.name: row for row in ROWS}


class BadSector(NamedTuple):
    """Bytes of a file that the disk cannot read."""

    path: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Planted:
    """A damaged copy of a store."""

    damage: PlantedDamage
    bad_sector: BadSector | None = None


def plant(content: StoreContent, name: str, seed: int, root: Path) -> Planted | None:
    """Make a copy of the store at `root` and damage it. Return `None` if the store has no place for it.

    The same seed makes the same damage.
    """
    dice = stores.seeded(seed)
    copy = StoreCopy(content.root, root)
    if name == BAD_SECTOR:
        files = [one for one in (*content.logs, *content.journals) if one.end > one.start + BLOCK]
        if not files:
            return None
        file = dice.choice(files)
        at = dice.randrange(file.start // BLOCK, file.end // BLOCK) * BLOCK
        expected = Expected(kinds=frozenset({"DIR-004"}), file=file.name)
        hit = [piece for piece in file.pieces if piece.start < at + BLOCK and at < piece.end]
        also = {
            "ELG-001",
            "ELG-002",
            "ELG-003",
            "ELG-004",
            "ELG-005",
            "ELG-006",
            "ELG-007",
            "IDX-002",
            "LGR-004",
        }
        also |= {"JRN-001", "JRN-002", "JRN-003", "JRN-004", "JRN-005", "JRN-006", "MRK-004"}
        named = [
            (
                Expected(
                    kinds=frozenset({"ELG-003", "ELG-007", "IDX-002"}),
                    ledger_id=one.ledger_id,
                    entry_id=one.entry_id,
                ),
            )
            for one in hit
            if one.is_indexed and one.digest is not None
        ]
        damage = PlantedDamage(
            name=name, file=file.name, place=f"@{at}", wanted=((expected,), *named), also=frozenset(also)
        )
        return Planted(damage, BadSector(copy.inside(file.path), at, at + BLOCK))
    if (row := _ROWS.get(name)) is not None:
        found = row.damage(content, copy, dice)
        return None if found is None else Planted(replace(found, name=name))
    corruption = _CORRUPTIONS[name]
    spots = corruption.spots(content, dice)
    for spot in dice.sample(spots, min(len(spots), 4)):
        old = spot.path.read_bytes()
        new = corruption.corrupt(old, spot, dice)
        if new != old:
            copy.replace(spot.path, new)
            return Planted(expect(content, corruption, spot, old, new))
    return None


@contextmanager
def unreadable(sector: BadSector | None) -> Iterator[None]:
    """Let reads of the sector fail in this process, as they do on a disk with a bad sector."""
    if sector is None:
        yield
        return
    pread, preadv = os.pread, os.preadv
    status = sector.path.stat()

    def check(descriptor: int, offset: int, size: int) -> None:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino) and max(offset, sector.start) < min(
            offset + size, sector.end, found.st_size
        ):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(sector.path))

    def checked_pread(descriptor: int, size: int, offset: int, /) -> bytes:
        check(descriptor, offset, size)
        return pread(descriptor, size, offset)

    def checked_preadv(descriptor: int, buffers: Sequence[memoryview], offset: int, /) -> int:
        check(descriptor, offset, sum(len(one) for one in buffers))
        return preadv(descriptor, buffers, offset)

    os.pread, os.preadv = checked_pread, checked_preadv  # type: ignore[assignment]
    try:
        yield
    finally:
        os.pread, os.preadv = pread, preadv


# ── a self-test ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FaultScore:
    """The results for the damage of one kind."""

    name: str
    planted: int
    found: int
    located: int

    @property
    def missed(self) -> int:
        return self.planted - self.located


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """The result of a self-test."""

    what: str
    """A description of the stores, for users."""
    seed: int
    scores: tuple[FaultScore, ...]
    misses: tuple[str, ...]
    """One text for each damage that was not found in its place, with its seed."""
    false_alarms: tuple[Finding, ...]
    """Errors and warnings about undamaged stores."""
    kills: int = 0
    """How many stores were audited as a kill leaves them."""
    not_planted: tuple[str, ...] = ()
    """Kinds of damage that the store has no place for."""

    @property
    def is_passed(self) -> bool:
        return not self.misses and not self.false_alarms

    @property
    def planted(self) -> int:
        return sum(score.planted for score in self.scores)

    @property
    def located(self) -> int:
        return sum(score.located for score in self.scores)


def _ignore_trials(_: int, __: int) -> None:
    """Ignore progress: the default callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The options of a self-test."""

    seed: int = 1
    count: int = 200
    engine: TaskEngine = field(default_factory=Serial)
    passwords: Mapping[int, bytes] = field(default_factory=dict)
    password: bytes | None = None
    watch: Callable[[int, int], None] = _ignore_trials
    """Called with the number of finished trials and their total."""

    def findings(self, root: Path, sector: BadSector | None = None) -> tuple[Finding, ...]:
        """Return what the audit finds in a store. A bad sector exists in this process only."""
        policy = DigestPolicy(passwords=self.passwords, password=self.password)
        engine = self.engine if sector is None else Serial()
        with unreadable(sector):
            return run_audit(AuditRequest((str(root),), policy=policy, engine=engine)).findings

    def compared(self, root: Path) -> tuple[Finding, ...]:
        """Return what the audit finds in stores that should hold the same."""
        replicas = ensemble_file.load(root / stores.ENSEMBLES)
        return run_audit(
            AuditRequest(tuple(replicas.stores.values()), engine=self.engine, replicas=replicas)
        ).findings


def self_test(path: Path | None, trials: Trials) -> SelfTest:
    """Damage copies of the store at `path`, or of stores made for the purpose, and audit them."""
    with TemporaryDirectory(prefix="ledgerstore-self-test-") as name:
        return _Run(path, trials, Path(name)).run()


class _Run:
    """One self-test, with its stores below `scratch`."""

    def __init__(self, path: Path | None, trials: Trials, scratch: Path) -> None:
        self._trials = trials
        self._scratch = scratch
        self._faults = FAULTS
        self._kills: list[stores.KillPoint] = []
        if path is not None and _size_of(path) <= SMALL:
            self._roots = [scratch / "store"]
            shutil.copytree(path, self._roots[0])
            self._what = f"a copy of {path}"
            self._faults = STORE_FAULTS
        else:
            self._what = "two small stores made for the test, one closed and one as a kill leaves it"
            self._roots = [scratch / "closed", scratch / "killed"]
            stores.build(self._roots[0], trials.seed)
            stores.build_killed(self._roots[1], trials.seed, scratch / "running")
            self._kills = stores.killed_at_steps(scratch / "kills", trials.seed, _CHANGES_BETWEEN_KILLS)
            self._trials = replace(trials, passwords=stores.PASSWORDS, password=None)
            if path is not None:
                self._what += f": {path} is too large to be copied for each fault"
        known = self._trials
        self._contents = [content_of(root, known.passwords, known.password) for root in self._roots]
        self._planted: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._located: Counter[str] = Counter()
        self._misses: list[str] = []

    def run(self) -> SelfTest:
        roots = [*self._roots, *(point.root for point in self._kills)]
        alarms = [one for root in roots for one in self._trials.findings(root) if one.is_wrong]
        for number in range(self._trials.count):
            self._try(self._faults[number % len(self._faults)], number)
            self._trials.watch(number + 1, self._trials.count)
        tried = self._faults[: self._trials.count]
        return SelfTest(
            what=self._what,
            seed=self._trials.seed,
            scores=tuple(
                FaultScore(one, self._planted[one], self._found[one], self._located[one])
                for one in tried
                if self._planted[one]
            ),
            misses=tuple(self._misses),
            false_alarms=tuple(alarms),
            kills=len(self._kills),
            not_planted=tuple(one for one in tried if not self._planted[one]),
        )

    def _try(self, name: str, number: int) -> None:
        root = self._scratch / "damaged"
        seed = self._trials.seed * 1_000_000 + number
        if name in stores.REPLICA_FAULTS:
            self._judge(stores.build_damaged_replicas(name, seed, root), self._trials.compared(root), seed)
        else:
            turn = number // len(self._faults)
            # In one store after the other, and in another one if it has no place.
            for offset in range(len(self._contents)):
                content = self._contents[(turn + offset) % len(self._contents)]
                planted = plant(content, name, seed, root)
                if planted is not None:
                    findings = self._trials.findings(root, planted.bad_sector)
                    self._judge(planted.damage, findings, seed)
                    break
                shutil.rmtree(root)
        shutil.rmtree(root, ignore_errors=True)

    def _judge(self, damage: PlantedDamage, findings: Sequence[Finding], seed: int) -> None:
        self._planted[damage.name] += 1
        self._found[damage.name] += damage.is_found_by(findings)
        complaint = damage.complaint(findings)
        if complaint is None:
            self._located[damage.name] += 1
        else:
            self._misses.append(f"seed {seed}: {complaint}")


def _size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())

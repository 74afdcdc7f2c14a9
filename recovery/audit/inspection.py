"""The reading of stores: one job for everything, and what that has made necessary, mostly nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from recovery.audit import ensembles, snapshot, stitch, suspects
from recovery.audit.gather import Gathered
from recovery.audit.ground import check_is_a_store, survey
from recovery.audit.keeping import Keeping
from recovery.audit.kept_parts import Kept, Reuse
from recovery.audit.log_scan import ScanLog
from recovery.audit.part_identity import whose
from recovery.audit.plan import Careful, journal_task, plan
from recovery.audit.replica_drills import Looked
from recovery.audit.retyped import retyped
from recovery.founding import Layout
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from recovery.audit.asked import Asked
    from recovery.audit.ground import Ground
    from recovery.audit.meter import Meter
    from recovery.audit.replicas import ReplicaReport
    from recovery.audit.task import Task
    from recovery.verify.comparison import Compared
    from recovery.verify.facts import StoreFacts


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One store, as it was seen."""

    ground: Ground
    gathered: Gathered
    facts: StoreFacts
    compared: Compared
    not_covered: tuple[str, ...]
    seconds: float


class Inspection:
    """One look at all the stores that were asked for."""

    def __init__(self, asked: Asked, held: ExitStack, meter: Meter) -> None:
        self._asked = asked
        self._meter = meter
        self._grounds = [self._ground(path, held) for path in _paths(asked)]
        self._gathered = [Gathered(ground) for ground in self._grounds]
        self._keeping = _keeping(asked, self._grounds)
        self._engine = self._keeping or asked.engine

    def run(self) -> tuple[list[Seen], ReplicaReport | None]:
        """What is known of each store, and of what they should share."""
        clock = time.monotonic()
        self._read()
        self._stitch()
        self._retype()
        facts = [gathered.facts() for gathered in self._gathered]
        comparisons = suspects.compare(self._grounds, self._gathered, facts, self._run)
        # Again: what was looked at twice may have been readable only once.
        facts = [gathered.facts() for gathered in self._gathered]
        compared = [one.ended(found) for one, found in zip(comparisons, facts, strict=True)]
        replicas = self._compare(facts)
        notes = self._end_keeping()
        seconds = time.monotonic() - clock
        looked = zip(self._grounds, self._gathered, facts, compared, strict=True)
        seen = [Seen(*one, (*one[0].not_covered, *notes), seconds) for one in looked]
        return seen, replicas

    def _end_keeping(self) -> list[str]:
        if self._keeping is None:
            return []
        self._keeping.tidy()
        trouble = self._keeping.trouble
        return [f"what the next audit could go on from: parts cannot be kept ({trouble})"] if trouble else []

    # ── held ─────────────────────────────────────────────────────────────────────────────────────────

    def _ground(self, path: str, held: ExitStack) -> Ground:
        # From the root: executors of a cluster have directories of their own.
        layout = Layout(PosixDirectory(Path(path).absolute()))
        check_is_a_store(layout)
        scratch = held.enter_context(TemporaryDirectory(prefix="ledgerstore-audit-"))
        still = held.enter_context(snapshot.hold(layout, Path(scratch)))
        return survey(path, layout, still, self._asked.ways)

    # ── read ─────────────────────────────────────────────────────────────────────────────────────────

    def _steps(self, ground: Ground) -> Mapping[int, int]:
        replicas = self._asked.replicas
        if replicas is None or ground.store not in replicas.stores.values():
            return {}
        return ensembles.steps(replicas.ledgers)

    def _run(self, stage: str, tasks: Sequence[Task[Any]]) -> Iterator[tuple[int, Any]]:
        if not tasks:
            return
        self._meter.begin(stage, sum(task.size for task in tasks))
        for done in self._engine.run(tasks, self._meter.read):
            if self._keeping is not None:
                self._meter.reuse(self._keeping.reused_bytes)
            yield done.number, done.part

    def _read(self) -> None:
        planned = plan(self._grounds, [self._steps(one) for one in self._grounds], self._asked.jobs)
        for number, part in self._run("reading", [one.task for one in planned]):
            self._gathered[planned[number].store].take(part)

    def _stitch(self) -> None:
        """Reads again what began at a wrong guess, until each range begins where the one before it ends."""
        while again := [
            (store, task)
            for store, gathered in enumerate(self._gathered)
            for log in gathered.ground.logs
            for task in self._broken(store, log.log_id)
        ]:
            for number, part in self._run("reading again", [Careful(task) for _, task in again]):
                self._gathered[again[number][0]].take(part)

    def _broken(self, store: int, log_id: int) -> list[ScanLog]:
        gathered = self._gathered[store]
        ground = gathered.ground
        log = next(one for one in ground.logs if one.log_id == log_id)
        parts = gathered.body(log)
        return [
            ScanLog(log.path, log_id, start, end, ground.ways, self._steps(ground), entry=start)
            for start, end in (stitch.broken(parts) if parts else ())
        ]

    def _retype(self) -> None:
        """Reads again what was verified in another way than the rest of its ledger tells."""
        again: list[tuple[int, Any]] = []
        for store, gathered in enumerate(self._gathered):
            ground = gathered.ground
            if ground.ways.presumed is not None:
                continue
            told = retyped(gathered)
            ways = replace(ground.ways, declared={**ground.ways.declared, **told.types})
            logs = {log.log_id: log for log in ground.logs}
            for part in told.logs:
                path = logs[part.log_id].path
                extent = part.start, part.end
                task = ScanLog(path, part.log_id, *extent, ways, self._steps(ground), entry=part.entry)
                again.append((store, task))
            again += [
                (store, journal_task(journal, ground, ways, self._steps(ground)))
                for journal in ground.journals
                if journal.journal_id in told.journals
            ]
        for number, part in self._run("reading again", [Careful(task) for _, task in again]):
            self._gathered[again[number][0]].take(part)

    def _compare(self, facts: Sequence[StoreFacts]) -> ReplicaReport | None:
        replicas = self._asked.replicas
        if replicas is None:
            return None
        from recovery.audit.replicas import compare

        by_path = {path: name for name, path in replicas.stores.items()}
        looked = [
            Looked(by_path[ground.store], ground, found)
            for ground, found in zip(self._grounds, facts, strict=True)
            if ground.store in by_path
        ]
        return compare(replicas, looked, self._run)


def _paths(asked: Asked) -> list[str]:
    """Each store once; those of the replicas as their ensembles call them."""
    others = list(asked.replicas.stores.values()) if asked.replicas else []
    known = {Path(path).resolve() for path in others}
    return [*others, *(path for path in asked.paths if Path(path).resolve() not in known)]


def _keeping(asked: Asked, grounds: Sequence[Ground]) -> Keeping | None:
    keep = asked.keep
    if keep is None:
        return None
    logs = whose(grounds)
    before = [Kept(keep.report, logs, Reuse.ENDED)] if keep.is_resumed else []
    before += [Kept(keep.since, logs)] if keep.since else []
    return Keeping(asked.engine, Kept(keep.report, logs), before, keep.reread)

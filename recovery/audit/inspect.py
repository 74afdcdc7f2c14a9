"""Stores looked at, whole: every file read once, by whichever engine, and judged by the rules.

held        each store is held still: marks, rows and names are read, the index copied, files linked
read        one job reads everything; a second one what the first has made necessary, mostly nothing:
            ranges whose beginning was a wrong guess, ledgers whose digest type others tell, suspects
judged      the rules, over facts that no longer tell who gathered them
confirmed   of a live store whatever is wrong is looked at once more: what a writer's progress explains
            is gone then
"""

from __future__ import annotations

import datetime as dt
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit import ensembles, snapshot, stitch
from recovery.audit.asked import Progress
from recovery.audit.drill import DrillLog
from recovery.audit.drill_index import DrillIndex
from recovery.audit.gather import Gathered
from recovery.audit.ground import check_is_a_store, survey
from recovery.audit.inspected import AuditReport, Coverage, StoreReport
from recovery.audit.keeping import Keeping
from recovery.audit.kept_parts import Kept, Reuse
from recovery.audit.log_scan import ScanLog
from recovery.audit.part_identity import whose
from recovery.audit.plan import Careful, Unread, journal_task, plan
from recovery.audit.questions import checks
from recovery.audit.retyped import retyped
from recovery.founding import Layout
from recovery.verify import index_rules, soundness
from recovery.verify.entries import no_entries, no_rows
from recovery.verify.facts import IndexFacts, StoreFacts
from recovery.verify.finding import order
from recovery.verify.index_rules import Drilled
from storage.codec.entrylog import HEADER_SIZE
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.audit.asked import Asked
    from recovery.audit.ground import Ground
    from recovery.audit.replicas import ReplicaReport
    from recovery.audit.task import Task
    from recovery.verify.finding import Finding


def inspect(asked: Asked) -> AuditReport:
    """Looks at the stores. Raises `NotAStore` where there is none; whatever is wrong in one is a finding."""
    started, clock = _now(), time.monotonic()
    meter = _Meter(asked.watch)
    stores, replicas = _look(asked, meter)
    changing = tuple(store.store for store in stores if store.is_live and _is_wrong(store.findings))
    if changing:
        others, _ = _look(replace(asked, paths=changing, replicas=None, keep=None), meter)
        again = {store.store: store for store in others}
        stores = tuple(_confirmed(store, again.get(store.store)) for store in stores)
    found = chain(replicas.findings if replicas else (), *(store.findings for store in stores))
    return AuditReport(
        stores=stores,
        engine=asked.engine.name,
        started=started,
        ended=_now(),
        argv=asked.argv,
        seconds=time.monotonic() - clock,
        bytes_read=meter.everything,
        bytes_reused=meter.reused,
        replicas=replicas,
        findings=tuple(sorted(found, key=order)),
    )


def _look(asked: Asked, meter: _Meter) -> tuple[tuple[StoreReport, ...], ReplicaReport | None]:
    with ExitStack() as held:
        return _Inspection(asked, held, meter).run()


def _is_wrong(findings: Sequence[Finding]) -> bool:
    return any(one.is_wrong for one in findings)


def _confirmed(store: StoreReport, again: StoreReport | None) -> StoreReport:
    """Of a store that somebody writes to: without what was different when it was looked at once more."""
    if again is None:
        return store
    seen = {_identity(one) for one in again.findings}
    findings = tuple(one for one in store.findings if not one.is_wrong or _identity(one) in seen)
    return replace(store, findings=findings, checks=checks(store.facts, findings))


def _identity(finding: Finding) -> tuple[object, ...]:
    ids = finding.ledger_id, finding.first_entry, finding.last_entry
    return finding.kind, finding.file, finding.offset, *ids


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


@dataclass(slots=True)
class _Meter:
    """Sums up what workers have read."""

    watch: Callable[[Progress], None]
    stage: str = ""
    total: int = 0
    done: int = 0
    everything: int = 0
    reused: int = 0

    def begin(self, stage: str, total: int) -> None:
        self.stage, self.total, self.done = stage, total, 0
        self.watch(Progress(stage, 0, total))

    def read(self, size: int) -> None:
        self.done += size
        self.everything += size
        self.watch(Progress(self.stage, min(self.done, self.total), self.total))


class _Inspection:
    """One look at all the stores that were asked for."""

    def __init__(self, asked: Asked, held: ExitStack, meter: _Meter) -> None:
        self._asked = asked
        self._meter = meter
        self._grounds = [self._ground(path, held) for path in _paths(asked)]
        self._gathered = [Gathered(ground) for ground in self._grounds]
        self._keeping = _keeping(asked, self._grounds)
        self._engine = self._keeping or asked.engine

    def run(self) -> tuple[tuple[StoreReport, ...], ReplicaReport | None]:
        clock = time.monotonic()
        self._read()
        self._stitch()
        self._retype()
        facts = [gathered.facts() for gathered in self._gathered]
        drilled = self._drill(facts)
        replicas = self._compare(facts)
        if self._keeping is not None:
            self._keeping.tidy()
            self._meter.reused += self._keeping.reused_bytes
        seconds = time.monotonic() - clock
        reports = [
            self._report(number, found, one, seconds)
            for number, (found, one) in enumerate(zip(facts, drilled, strict=True))
        ]
        return tuple(reports), replicas

    # ── held ─────────────────────────────────────────────────────────────────────────────────────────

    def _ground(self, path: str, held: ExitStack) -> Ground:
        layout = Layout(PosixDirectory(path))
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

    # ── suspects ─────────────────────────────────────────────────────────────────────────────────────

    def _drill(self, facts: Sequence[StoreFacts]) -> list[Drilled]:
        tasks: list[tuple[int, Any]] = []
        for store, found in enumerate(facts):
            suspects = index_rules.suspects(found)
            if suspects:
                tasks += [(store, task) for task in self._drills(self._grounds[store], found, suspects)]
        entries: list[list[Any]] = [[no_entries()] for _ in facts]
        rows: list[list[Any]] = [[no_rows()] for _ in facts]
        for number, part in self._run("comparing", [Careful(task) for _, task in tasks]):
            store, task = tasks[number]
            if isinstance(part, Unread):
                self._gathered[store].take(part)
            elif isinstance(task, DrillLog):
                entries[store].append(part)
            else:
                rows[store].append(part)
        return [
            Drilled(np.concatenate(some), np.concatenate(others))
            for some, others in zip(entries, rows, strict=True)
        ]

    def _drills(self, ground: Ground, facts: StoreFacts, suspects: frozenset[int]) -> Iterator[Any]:
        assert isinstance(facts.index, IndexFacts), "suspects come of an index"
        logs = {log.log_id: log for log in ground.logs}
        for log in facts.logs:
            there = suspects & set(np.unique(log.runs["ledger"]).tolist())
            if there and not log.is_leftover:
                end = log.file_size if log.limit is None else min(log.limit, log.file_size)
                yield DrillLog(logs[log.log_id].path, log.log_id, HEADER_SIZE, end, there, ground.ways)
        yield DrillIndex(str(ground.index), suspects)

    def _compare(self, facts: Sequence[StoreFacts]) -> ReplicaReport | None:
        replicas = self._asked.replicas
        if replicas is None:
            return None
        from recovery.audit.replicas import Looked, compare

        by_path = {path: name for name, path in replicas.stores.items()}
        looked = [
            Looked(by_path[ground.store], ground, found)
            for ground, found in zip(self._grounds, facts, strict=True)
            if ground.store in by_path
        ]
        return compare(replicas, looked, self._run)

    # ── judged ───────────────────────────────────────────────────────────────────────────────────────

    def _report(self, store: int, facts: StoreFacts, drilled: Drilled, seconds: float) -> StoreReport:
        ground = self._grounds[store]
        found = soundness.findings(facts, drilled)
        coverage = _coverage(ground, self._gathered[store], facts)
        return StoreReport(
            store=ground.store,
            owner=ground.owner,
            is_live=ground.is_live,
            findings=found,
            facts=facts,
            coverage=coverage,
            checks=checks(facts, found),
            live_sizes=index_rules.live_sizes(facts, drilled),
            seconds=seconds,
        )


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


def _coverage(ground: Ground, gathered: Gathered, facts: StoreFacts) -> Coverage:
    parts = [part for found in gathered.logs.values() for part in found]
    journals = facts.journals
    rows = facts.index.count if isinstance(facts.index, IndexFacts) else 0
    return Coverage(
        files=len(gathered.logs) + len(journals) + isinstance(facts.index, IndexFacts),
        bytes=sum(part.size for part in parts) + sum(part.file_size for part in journals),
        entries=sum(log.records for log in facts.logs) + sum(part.records for part in journals),
        index_rows=rows,
        journals=len(journals),
        logs=len(gathered.logs),
        not_covered=ground.not_covered,
    )

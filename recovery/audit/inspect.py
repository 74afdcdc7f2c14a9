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
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from recovery.audit.inspected import AuditReport, Coverage, StoreReport
from recovery.audit.inspection import Inspection
from recovery.audit.meter import Meter
from recovery.audit.questions import checks
from recovery.verify import soundness
from recovery.verify.facts import IndexFacts
from recovery.verify.finding import order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.audit.asked import Asked
    from recovery.audit.inspection import Seen
    from recovery.audit.replicas import ReplicaReport
    from recovery.verify.finding import Finding


def inspect(asked: Asked) -> AuditReport:
    """Looks at the stores. Raises `NotAStore` where there is none; whatever is wrong in one is a finding."""
    started, clock = _now(), time.monotonic()
    meter = Meter(asked.watch)
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


def _look(asked: Asked, meter: Meter) -> tuple[tuple[StoreReport, ...], ReplicaReport | None]:
    with ExitStack() as held:
        seen, replicas = Inspection(asked, held, meter).run()
        return tuple(map(_judged, seen)), replicas


def _judged(seen: Seen) -> StoreReport:
    ground, facts = seen.ground, seen.facts
    found = soundness.findings(facts, seen.compared)
    return StoreReport(
        store=ground.store,
        owner=ground.owner,
        is_live=ground.is_live,
        findings=found,
        facts=facts,
        coverage=_coverage(seen),
        checks=checks(facts, found),
        live_sizes=seen.compared.live,
        seconds=seen.seconds,
    )


def _coverage(seen: Seen) -> Coverage:
    facts, logs = seen.facts, seen.gathered.logs
    parts = [part for found in logs.values() for part in found]
    is_indexed = isinstance(facts.index, IndexFacts)
    return Coverage(
        files=len(logs) + len(facts.journals) + is_indexed,
        bytes=sum(part.size for part in parts) + sum(part.file_size for part in facts.journals),
        entries=sum(log.records for log in facts.logs) + sum(part.records for part in facts.journals),
        index_rows=facts.index.count if isinstance(facts.index, IndexFacts) else 0,
        journals=len(facts.journals),
        logs=len(logs),
        not_covered=seen.not_covered,
    )


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

"""Run an audit: every file of the stores is read once, by any engine, and checked by the rules.

snapshot    each store is held still: mark, ledger metadata and names are read, the index copied, files linked
scan        one job reads everything; a second job, which is rarely needed, reads again what began at a wrong
            guess or had another digest type; mismatched ledgers are read entry by entry
check       rules turn facts into findings
confirm     for live stores with errors or warnings: read again, and keep only findings that remain, because a
            writer's progress can explain the others
"""

from __future__ import annotations

import datetime as dt
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from recovery.audit.checks import all_rules
from recovery.audit.engines.progress import ProgressMeter
from recovery.audit.findings.finding import order
from recovery.audit.model.audit_report import AuditReport, ReadCoverage, StoreReport
from recovery.audit.model.store_facts import BookieIndexFacts, IndexFacts
from recovery.audit.pipeline.bookie_parts import about_part, checks_of_part
from recovery.audit.pipeline.check_results import NOT_RUN, checks
from recovery.audit.pipeline.scan_job import ScanJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import ReplicaReport
    from recovery.audit.pipeline.request import AuditRequest
    from recovery.audit.pipeline.scan_job import StoreScan


def run_audit(request: AuditRequest) -> AuditReport:
    """Audit the stores. Everything wrong in a store is a finding, and so is a path that is no store.

    Raise `NotAStore` if none of the paths is a store.
    """
    started, clock = _now(), time.monotonic()
    meter = ProgressMeter(request.watch)
    stores, replicas = _scan(request, meter)
    changing = tuple(store.store for store in stores if store.is_live and _is_wrong(store.findings))
    if changing:
        others, _ = _scan(replace(request, paths=changing, replicas=None, keep=None), meter)
        again = {store.store: store for store in others}
        stores = tuple(_confirmed(store, again.get(store.store)) for store in stores)
    found = chain(replicas.findings if replicas else (), *(store.findings for store in stores))
    return AuditReport(
        stores=stores,
        engine=request.engine.name,
        started=started,
        ended=_now(),
        argv=request.argv,
        seconds=time.monotonic() - clock,
        bytes_read=meter.everything,
        bytes_reused=meter.reused,
        replicas=replicas,
        findings=tuple(sorted(found, key=order)),
    )


def _scan(
    request: AuditRequest, meter: ProgressMeter
) -> tuple[tuple[StoreReport, ...], ReplicaReport | None]:
    with ExitStack() as held:
        scanned, replicas = ScanJob(request, held, meter).run()
        return tuple(map(_judged, scanned)), replicas


def _judged(scanned: StoreScan) -> StoreReport:
    inventory, facts = scanned.inventory, scanned.facts
    found = about_part(all_rules.findings(facts, scanned.answers, scanned.compared), inventory.part)
    return StoreReport(
        store=inventory.store,
        owner=inventory.owner,
        is_live=inventory.is_live,
        findings=found,
        facts=facts,
        identity=inventory.identity,
        coverage=_coverage(scanned),
        checks=checks_of_part(checks(facts, found), inventory.part),
        live_sizes=scanned.compared.live,
        tables=scanned.tables,
        seconds=scanned.seconds,
    )


def _coverage(scanned: StoreScan) -> ReadCoverage:
    facts, logs = scanned.facts, scanned.results.logs
    parts = [part for found in logs.values() for part in found]
    is_indexed = isinstance(facts.index, IndexFacts)
    return ReadCoverage(
        files=len(logs) + len(facts.journals) + is_indexed,
        bytes=sum(part.size for part in parts) + sum(part.file_size for part in facts.journals),
        entries=sum(log.records for log in facts.logs) + sum(part.records for part in facts.journals),
        index_rows=sum(
            index.count
            for index in (facts.index, facts.bookie_index)
            if isinstance(index, IndexFacts | BookieIndexFacts)
        ),
        journals=len(facts.journals),
        logs=len(logs),
        not_covered=scanned.not_covered,
    )


def _is_wrong(findings: Sequence[Finding]) -> bool:
    return any(one.is_wrong for one in findings)


def _confirmed(store: StoreReport, again: StoreReport | None) -> StoreReport:
    """Drop the findings on a live store that were not found a second time."""
    if again is None:
        return store
    scanned = {_identity(one) for one in again.findings}
    findings = tuple(one for one in store.findings if not one.is_wrong or _identity(one) in scanned)
    answers = {check.id: check for check in store.checks}
    # A check of which a part has no files stays as it was.
    again_asked = (check for check in checks(store.facts, findings) if answers[check.id].status != NOT_RUN)
    answers |= {check.id: check for check in again_asked}
    return replace(store, findings=findings, checks=tuple(answers.values()))


def _identity(finding: Finding) -> tuple[object, ...]:
    ids = finding.ledger_id, finding.first_entry, finding.last_entry
    return finding.kind, finding.file, finding.offset, *ids


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")

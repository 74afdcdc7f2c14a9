"""Audit one file alone, without the files that could vouch for it.

A journal's tail may be torn, or damaged where a later journal would vouch for it. A log's end may be
completed by a checkpoint, or not. A single file cannot show which: what is not certainly wrong is
information.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recovery.audit.checks import all_rules
from recovery.audit.checks.entry_compare import CompareResult
from recovery.audit.checks.store_checks import StoreChecks
from recovery.audit.engines.local import Serial
from recovery.audit.engines.progress import AuditProgress
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity, order
from recovery.audit.model.audit_report import AuditReport, ReadCoverage, StoreReport
from recovery.audit.model.store_facts import DirectoryOwner, IndexNotRead
from recovery.audit.model.store_tables import StoreTables
from recovery.audit.pipeline.audit_tables import AuditTables
from recovery.audit.pipeline.merge import ScanResults
from recovery.audit.pipeline.password_check import repeat_without_wrong_passwords
from recovery.audit.pipeline.plan import journal_task, log_tasks
from recovery.audit.snapshot.inventory import JournalFile, LogFile, StoreInventory
from storage.checkpoint import mark
from storage.checkpoint.mark_format import EmptyMark
from storage.disk import cookie, filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory, open_file
from storage.entry.model import DigestType
from storage.entry.position import START
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage_format
from storage.entrylog.lineage import NoLineage
from storage.errors import CorruptionError, NewerFormat, NotAStore
from storage.journal import format as journal_format
from storage.ledgers import metadata_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.store_facts import StoreFacts

_LOGS = frozenset(
    {FileKind.ENTRY_LOG, FileKind.ENTRY_LOG_DRAFT, FileKind.COMPACTING_LOG, FileKind.COMPACTED_LOG}
)
_JOURNALS = frozenset({FileKind.JOURNAL, FileKind.JOURNAL_DRAFT})
_MAGIC = {
    journal_format.MAGIC: FileKind.JOURNAL,
    entrylog_format.MAGIC: FileKind.ENTRY_LOG,
    lineage_format.MAGIC: FileKind.LINEAGE,
}
_ELSEWHERE = frozenset({"LGR-005", "DIR-004"})
"""Reported for one file too, although the file may not have its name in a store."""


def audit_file(path: Path, policy: DigestPolicy, watch: Callable[[AuditProgress], None]) -> AuditReport:
    """Audit a journal, an entry log, a lastMark, a ledgers.rows, a lineage or a VERSION."""
    return repeat_without_wrong_passwords(lambda fitting: _run(path, fitting, watch), policy)


def _run(path: Path, policy: DigestPolicy, watch: Callable[[AuditProgress], None]) -> AuditReport:
    started, clock = _now(), time.monotonic()
    store = _audited(path, policy, _FileMeter(watch, path.stat().st_size))
    return AuditReport(
        stores=(store,),
        engine="serial",
        started=started,
        ended=_now(),
        seconds=time.monotonic() - clock,
        bytes_read=store.coverage.bytes,
        findings=store.findings,
    )


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


class _FileMeter:
    def __init__(self, watch: Callable[[AuditProgress], None], total: int) -> None:
        self._watch = watch
        self._total = total
        self._done = 0

    def read(self, size: int) -> None:
        self._done += size
        self._watch(AuditProgress("reading", min(self._done, self._total), self._total))


def _audited(path: Path, policy: DigestPolicy, meter: _FileMeter) -> StoreReport:
    kind = _kind(path)
    if kind in _LOGS:
        return _log(path, policy, meter)
    if kind in _JOURNALS:
        return _journal(path, policy, meter)
    small = {
        FileKind.LAST_MARK: _mark,
        FileKind.LEDGER_ROWS: _rows,
        FileKind.LINEAGE: _lineage,
        FileKind.COOKIE: _cookie,
    }
    if kind not in small:
        raise NotAStore(str(path), "it is not a file that can be verified alone")
    inventory = _inventory(path, policy)
    found = tuple(replace(one, store=inventory.store) for one in small[kind](path))
    return _report(path, inventory, ScanResults(inventory).facts(), found)


def _kind(path: Path) -> FileKind:
    """Return the kind by the file's name or, for a copy with another name, by its first bytes."""
    kind = filenames.parse(path.name).kind
    if kind is not FileKind.UNKNOWN:
        return kind
    with open_file(path) as file:
        return _MAGIC.get(file.read(0, 4), FileKind.UNKNOWN)


# ── entry logs and journals ──────────────────────────────────────────────────────────────────────────────


def _log(path: Path, policy: DigestPolicy, meter: _FileMeter) -> StoreReport:
    log_id = filenames.parse(path.name).number or 0
    with open_file(path) as file:
        header = entrylog_format.decode_header(file.read(0, entrylog_format.HEADER_SIZE))
    is_ours = isinstance(header, entrylog_format.LogHeader) and header.origin is not None
    inventory = _inventory(path, _presuming(policy, DigestType.CRC32C if is_ours else None))
    log = LogFile(
        log_id, str(path), path.stat().st_size, header, limit=None, is_leftover=False, is_active=False
    )
    inventory = replace(inventory, logs=(log,))
    return _judged(
        path, inventory, log_tasks(log, inventory.policy, {}, 1), filenames.entry_log(log_id), meter
    )


def _journal(path: Path, policy: DigestPolicy, meter: _FileMeter) -> StoreReport:
    journal_id = filenames.parse(path.name).number or 0
    with open_file(path) as file:
        header = journal_format.decode_header(file.read(0, journal_format.HEADER_SIZE_MAX))
    is_ours = isinstance(header, journal_format.JournalHeader) and header.salt is not None
    inventory = _inventory(path, _presuming(policy, DigestType.CRC32C if is_ours else None))
    read = JournalFile(journal_id, str(path), path.stat().st_size, start=0)
    inventory = replace(inventory, journals=(read,))
    task = journal_task(read, inventory, inventory.policy, {})
    return _judged(path, inventory, [task], filenames.journal(journal_id), meter)


def _presuming(policy: DigestPolicy, kind: DigestType | None) -> DigestPolicy:
    return replace(policy, presumed=kind)


def _inventory(path: Path, policy: DigestPolicy) -> StoreInventory:
    """Return the inventory of a directory with a single file."""
    return StoreInventory(
        store=str(path.parent),
        owner=DirectoryOwner.BOOKIE,
        is_live=False,
        mark=EmptyMark(),
        replay_from=START,
        rows={},
        rows_damage=None,
        policy=policy,
        index=IndexNotRead(),
        index_state=None,
        lineage=NoLineage(),
        logs=(),
        journals=(),
        inventory_findings=(),
        not_covered=(),
    )


def _judged(
    path: Path, inventory: StoreInventory, tasks: Sequence[Any], name: str, meter: _FileMeter
) -> StoreReport:
    results, tables = ScanResults(inventory), AuditTables(Serial())
    throttle = ReadThrottle(meter.read)
    for task in tasks:
        results.take(tables.take(tables.task(0, task).run(throttle)))
    facts = results.facts()
    checks = StoreChecks(tables.choose([results]), [facts])
    (answers,) = checks.answers()
    every = all_rules.findings(facts, answers, CompareResult())
    found = tuple(
        replace(one, file=path.name if one.file else "")
        for one in every
        if one.file == name or one.kind in _ELSEWHERE
    )
    return _report(path, inventory, facts, found, StoreTables(checks.sql, 0))


def _report(
    path: Path,
    inventory: StoreInventory,
    facts: StoreFacts,
    found: Sequence[Finding],
    tables: StoreTables | None = None,
) -> StoreReport:
    coverage = ReadCoverage(
        files=1,
        bytes=path.stat().st_size,
        entries=sum(one.records for one in facts.logs) + sum(one.records for one in facts.journals),
        journals=len(facts.journals),
        logs=len(facts.logs),
    )
    return StoreReport(
        store=inventory.store,
        owner=inventory.owner,
        is_live=False,
        findings=tuple(sorted(found, key=order)),
        facts=facts,
        coverage=coverage,
        tables=tables,
    )


# ── the small files ──────────────────────────────────────────────────────────────────────────────────────


def _mark(path: Path) -> list[Finding]:
    match mark.load(PosixDirectory(path.parent), path.name):
        case Damaged(flaw=Flaw.FUTURE_VERSION) as wrong:
            return [KINDS["DIR-003"].at(file=path.name, offset=wrong.offset, detail=str(wrong))]
        case Damaged() as wrong:
            return [KINDS["MRK-001"].at(file=path.name, offset=wrong.offset, detail=str(wrong))]
        case Torn(offset, flaw):
            return [KINDS["MRK-001"].at(file=path.name, offset=offset, detail=flaw.value)]
        case _:
            return []


def _rows(path: Path) -> list[Finding]:
    try:
        loaded = metadata_log.load(PosixDirectory(path.parent), 0)
    except CorruptionError as error:
        return [KINDS["LGR-002"].at(file=path.name, offset=error.offset, detail=error.reason)]
    except NewerFormat as error:
        return [KINDS["DIR-003"].at(file=path.name, detail=error.what)]
    if loaded.torn is None:
        return []
    detail = "a row was being written, and its caller had got no answer"
    kind = KINDS["LGR-002"]
    return [kind.at(severity=Severity.INFORMATION, file=path.name, offset=loaded.torn, detail=detail)]


def _lineage(path: Path) -> list[Finding]:
    data = path.read_bytes()
    match lineage_format.decode(data, lineage_format.written_by(data)):
        case Damaged(flaw=Flaw.FUTURE_VERSION) as wrong:
            return [KINDS["DIR-003"].at(file=path.name, offset=wrong.offset, detail=str(wrong))]
        case Damaged() as wrong:
            return [KINDS["ELG-008"].at(file=path.name, offset=wrong.offset, detail=str(wrong))]
        case _:
            return []


def _cookie(path: Path) -> list[Finding]:
    match cookie.load(PosixDirectory(path.parent)):
        case Damaged(flaw=Flaw.FUTURE_VERSION) as wrong:
            return [KINDS["DIR-003"].at(file=path.name, offset=wrong.offset, detail=str(wrong))]
        case Damaged() as wrong:
            return [KINDS["CKE-001"].at(file=path.name, offset=wrong.offset, detail=str(wrong))]
        case Torn(offset, flaw):
            return [KINDS["CKE-001"].at(file=path.name, offset=offset, detail=flaw.value)]
        case _:
            return []

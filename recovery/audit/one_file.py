"""One file looked at alone: what its own bytes tell, and nothing of what others would say of it.

A journal's tail may be torn, or damaged where a later journal would vouch for it; a log's end may be that
of what a checkpoint completed, or not. Alone neither can be told: what is not certainly wrong is information.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recovery.audit.asked import Progress
from recovery.audit.fitting import with_what_fits
from recovery.audit.gather import Gathered
from recovery.audit.ground import Ground, JournalFile, LogFile
from recovery.audit.inspected import AuditReport, Coverage, StoreReport
from recovery.audit.plan import Careful, journal_task, log_tasks
from recovery.audit.task import Pace
from recovery.verify import soundness
from recovery.verify.catalogue import KINDS
from recovery.verify.comparison import compared
from recovery.verify.facts import NotLookedAt, Owner
from recovery.verify.finding import Severity, order
from storage import cookie, filenames, lastmark, ledger_rows
from storage.codec import entrylog, journal
from storage.codec.mark import EmptyMark
from storage.entry import DigestType
from storage.errors import CorruptionError, NewerFormat, NotAStore
from storage.filenames import FileKind
from storage.outcome import Damaged, Flaw, Torn
from storage.position import START
from storage.posix_files import PosixDirectory, open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from recovery.audit.ways import Ways
    from recovery.verify.facts import StoreFacts
    from recovery.verify.finding import Finding

_LOGS = frozenset(
    {FileKind.ENTRY_LOG, FileKind.ENTRY_LOG_DRAFT, FileKind.COMPACTING_LOG, FileKind.COMPACTED_LOG}
)
_JOURNALS = frozenset({FileKind.JOURNAL, FileKind.JOURNAL_DRAFT})
_MAGIC = {journal.MAGIC: FileKind.JOURNAL, entrylog.MAGIC: FileKind.ENTRY_LOG}
_ELSEWHERE = frozenset({"LGR-005", "DIR-004"})
"""Told of one file too, though it is not named as it is in a store."""


def inspect_file(path: Path, ways: Ways, watch: Callable[[Progress], None]) -> AuditReport:
    """What is wrong with a journal, an entry log, a lastMark, a ledgers.rows or a VERSION."""
    return with_what_fits(lambda fitting: _inspected(path, fitting, watch), ways)


def _inspected(path: Path, ways: Ways, watch: Callable[[Progress], None]) -> AuditReport:
    started, clock = _now(), time.monotonic()
    store = _looked(path, ways, _Meter(watch, path.stat().st_size))
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


class _Meter:
    def __init__(self, watch: Callable[[Progress], None], total: int) -> None:
        self._watch = watch
        self._total = total
        self._done = 0

    def read(self, size: int) -> None:
        self._done += size
        self._watch(Progress("reading", min(self._done, self._total), self._total))


def _looked(path: Path, ways: Ways, meter: _Meter) -> StoreReport:
    kind = _kind(path)
    if kind in _LOGS:
        return _log(path, ways, meter)
    if kind in _JOURNALS:
        return _journal(path, ways, meter)
    small = {
        FileKind.LAST_MARK: _mark,
        FileKind.LEDGER_ROWS: _rows,
        FileKind.COOKIE: _cookie,
    }
    if kind not in small:
        raise NotAStore(str(path), "it is no file that can be verified alone")
    ground = _ground(path, ways)
    found = tuple(replace(one, store=ground.store) for one in small[kind](path))
    return _report(path, ground, Gathered(ground).facts(), found)


def _kind(path: Path) -> FileKind:
    """By the name; a copy under another one still tells what it is."""
    kind = filenames.parse(path.name).kind
    if kind is not FileKind.UNKNOWN:
        return kind
    with open_file(path) as file:
        return _MAGIC.get(file.read(0, 4), FileKind.UNKNOWN)


# ── entry logs and journals ──────────────────────────────────────────────────────────────────────────────


def _log(path: Path, ways: Ways, meter: _Meter) -> StoreReport:
    log_id = filenames.parse(path.name).number or 0
    with open_file(path) as file:
        header = entrylog.decode_header(file.read(0, entrylog.HEADER_SIZE))
    is_ours = isinstance(header, entrylog.Header) and header.origin is not None
    ground = _ground(path, _presuming(ways, DigestType.CRC32C if is_ours else None))
    log = LogFile(
        log_id, str(path), path.stat().st_size, header, limit=None, is_leftover=False, is_active=False
    )
    ground = replace(ground, logs=(log,))
    return _judged(path, ground, log_tasks(log, ground.ways, {}, 1), filenames.entry_log(log_id), meter)


def _journal(path: Path, ways: Ways, meter: _Meter) -> StoreReport:
    journal_id = filenames.parse(path.name).number or 0
    with open_file(path) as file:
        header = journal.decode_header(file.read(0, journal.HEADER_SIZE_MAX))
    is_ours = isinstance(header, journal.Header) and header.salt is not None
    ground = _ground(path, _presuming(ways, DigestType.CRC32C if is_ours else None))
    read = JournalFile(journal_id, str(path), path.stat().st_size, start=0)
    ground = replace(ground, journals=(read,))
    task = journal_task(read, ground, ground.ways, {})
    return _judged(path, ground, [task], filenames.journal(journal_id), meter)


def _presuming(ways: Ways, kind: DigestType | None) -> Ways:
    return replace(ways, presumed=kind)


def _ground(path: Path, ways: Ways) -> Ground:
    """A directory of which nothing is known but one file."""
    return Ground(
        store=str(path.parent),
        owner=Owner.BOOKIE,
        is_live=False,
        mark=EmptyMark(),
        replay_from=START,
        rows={},
        rows_damage=None,
        ways=ways,
        index=NotLookedAt(),
        index_state=None,
        logs=(),
        journals=(),
        complaints=(),
        not_covered=(),
    )


def _judged(path: Path, ground: Ground, tasks: Sequence[Any], name: str, meter: _Meter) -> StoreReport:
    gathered = Gathered(ground)
    pace = Pace(meter.read)
    for task in tasks:
        gathered.take(Careful(task).run(pace))
    facts = gathered.facts()
    every = soundness.findings(facts, compared(facts))
    found = tuple(
        replace(one, file=path.name if one.file else "")
        for one in every
        if one.file == name or one.kind in _ELSEWHERE
    )
    return _report(path, ground, facts, found)


def _report(path: Path, ground: Ground, facts: StoreFacts, found: Sequence[Finding]) -> StoreReport:
    coverage = Coverage(
        files=1,
        bytes=path.stat().st_size,
        entries=sum(one.records for one in facts.logs) + sum(one.records for one in facts.journals),
        journals=len(facts.journals),
        logs=len(facts.logs),
    )
    return StoreReport(
        store=ground.store,
        owner=ground.owner,
        is_live=False,
        findings=tuple(sorted(found, key=order)),
        facts=facts,
        coverage=coverage,
    )


# ── the small files ──────────────────────────────────────────────────────────────────────────────────────


def _mark(path: Path) -> list[Finding]:
    match lastmark.load(PosixDirectory(path.parent), path.name):
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
        loaded = ledger_rows.load(PosixDirectory(path.parent), 0)
    except CorruptionError as error:
        return [KINDS["LGR-002"].at(file=path.name, offset=error.offset, detail=error.reason)]
    except NewerFormat as error:
        return [KINDS["DIR-003"].at(file=path.name, detail=error.what)]
    if loaded.torn is None:
        return []
    detail = "a row was being written: nobody had been answered for it"
    kind = KINDS["LGR-002"]
    return [kind.at(severity=Severity.INFORMATION, file=path.name, offset=loaded.torn, detail=detail)]


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

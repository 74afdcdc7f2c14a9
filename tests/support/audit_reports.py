"""Made-up audit reports: facts of any shape, and findings of every kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import run_tables

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import order
from recovery.audit.model import store_tables
from recovery.audit.model.audit_report import (
    AuditReport,
    Check,
    CopyCounts,
    ReadCoverage,
    ReplicaReport,
    StoreReport,
    StoreShare,
)
from recovery.audit.model.runs import RUN, no_runs
from recovery.audit.model.scan_results import JournalPart
from recovery.audit.model.store_facts import DirectoryOwner, IndexFacts, IndexNotRead, LogFacts, StoreFacts
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.entry.position import JournalPosition
from storage.entrylog.format import EmptyLog
from storage.index.state import IndexState
from storage.journal.scan import JournalScan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.runs import Runs

JOURNAL = 0x1A1ED5A57FA
MIB = 1 << 20


def runs(rows: Iterable[tuple[int, int, int, int, int]]) -> np.ndarray[Any, Any]:
    """Make runs from tuples (file, ledger, first, last, size)."""
    made = [
        (f, ledger, 1, first, last, last - first + 1, size, 1, 2, 0) for f, ledger, first, last, size in rows
    ]
    return np.array(made, dtype=RUN)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MadeLog(LogFacts):
    """A log with its runs, which go to the tables of the store that it is put into."""

    runs: Runs = field(default_factory=no_runs)


def log(log_id: int, file_size: int, ledgers: Sequence[tuple[int, int]], **other: Any) -> MadeLog:
    """Make a log from pairs (ledger, bytes)."""
    rows = runs((log_id, ledger, 100 * log_id, 100 * log_id + 99, size) for ledger, size in ledgers)
    return MadeLog(log_id=log_id, file_size=file_size, header=EmptyLog(), runs=rows, **other)


def journal(journal_id: int, file_size: int) -> JournalPart:
    scan = JournalScan.__new__(JournalScan)
    return JournalPart(journal_id=journal_id, file_size=file_size, scan=scan, records=1200)


def store(
    path: str = "/data/store",
    logs: Sequence[MadeLog] = (),
    found: Sequence[Finding] = (),
    *,
    owner: DirectoryOwner = DirectoryOwner.OURS,
    checks: Sequence[Check] = (),
    not_covered: Sequence[str] = (),
    journals: int = 2,
    is_live: bool = False,
) -> StoreReport:
    """Make one store whose index agrees with its logs."""
    both = [log.runs for log in logs]
    rows = np.concatenate(both) if both else runs(())
    entries = int(rows["count"].sum())
    index = IndexFacts(IndexState(), entries) if owner is DirectoryOwner.OURS else IndexNotRead()
    parts = tuple(journal(JOURNAL + number, 64 * MIB) for number in range(journals))
    facts = StoreFacts(
        store=path,
        owner=owner,
        mark=Mark(JournalPosition(JOURNAL, 20 * MIB), None),
        replay_from=JournalPosition(JOURNAL, 20 * MIB),
        logs=tuple(logs),
        journals=parts,
        index=index,
    )
    size = sum(one.file_size for one in logs) + sum(one.file_size for one in parts)
    coverage = ReadCoverage(
        files=len(logs) + journals + 4,
        bytes=size,
        entries=entries,
        index_rows=entries,
        journals=journals,
        logs=len(logs),
        not_covered=tuple(not_covered),
    )
    return StoreReport(
        store=path,
        owner=owner,
        is_live=is_live,
        findings=tuple(sorted(found, key=order)),
        facts=facts,
        coverage=coverage,
        checks=tuple(checks),
        live_sizes=_live(logs, found) if owner is DirectoryOwner.OURS else None,
        tables=run_tables.tables_of(facts, *runs_of(facts)),
        seconds=3.4,
    )


def runs_of(facts: StoreFacts) -> list[tuple[str, Runs]]:
    """Return the runs of made-up facts, each with its source."""
    found = [(store_tables.LOG, one.runs) for one in facts.logs if isinstance(one, MadeLog)]
    if isinstance(facts.index, IndexFacts):
        found += [(store_tables.INDEX, runs) for _, runs in found]
    return found


def _live(logs: Sequence[MadeLog], found: Sequence[Finding]) -> dict[int, int]:
    dead = {one.file: one.count for one in found if one.kind == "LGR-007"}
    sizes = {log.log_id: int(log.runs["size"].sum()) for log in logs}
    return {one: size - dead.get(filenames.entry_log(one), 0) for one, size in sizes.items()}


def report(*stores: StoreReport, **other: Any) -> AuditReport:
    """Return the report of an audit of these stores."""
    size = sum(one.coverage.bytes for one in stores)
    return AuditReport(
        **{
            "stores": stores,
            "engine": "local, 2 processes",
            "started": "2026-11-19T02:00:00Z",
            "ended": "2026-11-19T02:00:03Z",
            "argv": ("ledgerstore", "audit", *(one.store for one in stores)),
            "seconds": 3.4,
            "bytes_read": size,
            "findings": tuple(sorted((one for part in stores for one in part.findings), key=order)),
            **other,
        }
    )


CHECKS = (
    Check("log.digests", "Every entry in a log carries the digest of its bytes", "passed"),
    Check("log.structure", "Entry logs are records from one end to the other", "failed", "", 2),
    Check("index.log", "Each row of the index points at its entry", "passed"),
    Check("log.index", "Each entry of a living ledger has its row", "passed"),
    Check("journal.chain", "Journals go on from one to the next, to the last acknowledged byte", "passed"),
    Check("mark", "The mark is at a record of a journal that is there", "passed"),
    Check("replicas", "Each entry has as many copies as it should", "not run", "no ensembles were given"),
)


def ledgers(count: int, seed: int = 1) -> list[tuple[int, int]]:
    random = Random(seed)
    return [(number * 3 + 1, int(random.paretovariate(1.1) * 90_000)) for number in range(count)]


def sound() -> AuditReport:
    """A report without findings."""
    checks = [Check(one.id, one.title, "passed") for one in CHECKS[:-1]]
    logs = [log(number, 64 * MIB, ledgers(12, number)) for number in range(6)]
    return report(store(logs=logs, checks=checks))


def damaged(path: str = "/data/store", owner: DirectoryOwner = DirectoryOwner.OURS) -> StoreReport:
    """A report with some findings of each kind."""
    logs = [log(number, (64 - 7 * number) * MIB, ledgers(60, number)) for number in range(6)]
    logs.append(log(6, 9 * MIB, ledgers(9, 6), is_active=True))
    txn = filenames.journal(JOURNAL + 1)
    at = KINDS
    found = [
        at["ELG-003"].at(
            store=path,
            file="0.log",
            offset=12_345_678,
            end=12_346_790,
            ledger_id=4,
            first_entry=17,
            last_entry=17,
            detail="its CRC-32C is 9f3c01aa, and 1f3c01aa is stored",
        ),
        at["ELG-004"].at(
            store=path,
            file="2.log",
            offset=30 * MIB,
            end=31 * MIB,
            count=MIB,
            detail="the length is negative",
        ),
        at["ELG-002"].at(store=path, file="3.log", offset=42 * MIB, end=43 * MIB, detail="3 ledgers differ"),
        at["ELG-005"].at(store=path, file="9.log", detail="the index has 1,204 entries in it"),
        at["JRN-003"].at(store=path, file=txn, offset=5 * MIB, end=7 * MIB, detail="a seal out of sequence"),
        at["JRN-001"].at(store=path, file=txn, offset=63 * MIB, end=64 * MIB, count=MIB),
        at["IDX-002"].at(
            store=path,
            file="index",
            ledger_id=7,
            first_entry=40,
            last_entry=55,
            count=16,
            detail="entries of ledger 10 stand there",
        ),
        at["LGR-001"].at(store=path, ledger_id=10, first_entry=700, last_entry=799, count=100),
        at["LGR-005"].at(store=path, ledger_id=13, count=600, detail="a MAC whose password is not known"),
        at["CKE-001"].at(store=path, file="journal/VERSION", detail="missing"),
        at["DIR-001"].at(store=path, file="notes.txt"),
        *(
            at["LGR-007"].at(store=path, file=f"{number:x}.log", count=number * 3 * MIB, detail="ledger 22")
            for number in range(1, 6)
        ),
    ]
    logs[0] = log(0, 64 * MIB, ledgers(60, 0), unverified={13: 600})
    logs[0].runs["bad"][1] = 1
    uncovered = (
        ["6.log after byte 4,812,032: it was being written"]
        if owner is DirectoryOwner.OURS
        else ["the index"]
    )
    return store(path, logs, found, owner=owner, checks=CHECKS, not_covered=uncovered, is_live=True)


def several() -> AuditReport:
    return report(damaged("/data/one"), damaged("/data/bookie two", DirectoryOwner.BOOKIE), *sound().stores)


def replicated() -> AuditReport:
    """A report on three stores with two copies of each entry; some entries lack a copy."""
    names = ("bk1", "bk2", "bk3")
    parts = [store(f"/data/{name}", [log(0, 50 * MIB, ledgers(20, 3))], checks=CHECKS[:-1]) for name in names]
    found = [
        KINDS["RPL-001"].at(
            store="/data/bk2",
            ledger_id=7,
            first_entry=500,
            last_entry=698,
            count=100,
            detail="should be on bk2 and bk3; is on bk3; every second entry",
        ),
        KINDS["RPL-002"].at(store="/data/bk1", ledger_id=9, first_entry=12, last_entry=12, detail="and bk3"),
    ]
    compared = ReplicaReport(
        findings=tuple(found),
        ledgers=(
            CopyCounts(7, is_open=False, copies=(0, 100, 4900)),
            CopyCounts(8, is_open=True, copies=(0, 0, 20_000)),
            CopyCounts(9, is_open=False, copies=(3, 250, 8000)),
        ),
        stores={
            "bk1": StoreShare(22_000, 22_000, 0),
            "bk2": StoreShare(22_100, 21_747, 0),
            "bk3": StoreShare(22_050, 22_050, 9),
        },
        paths={name: f"/data/{name}" for name in names},
        compared_by_entry=(7, 9),
        not_covered=("bk2: 1 ledger that no ensemble names",),
    )
    return report(*parts, replicas=compared, findings=tuple(found))


def large(findings: int = 10_000, logs: int = 1500, ledgers_each: int = 70) -> AuditReport:
    """A report with more of everything than a page can show."""
    random = Random(5)
    many = [log(number, 64 * MIB, ledgers(ledgers_each, number)) for number in range(logs)]
    found = [
        KINDS["ELG-003"].at(
            store="/data/large",
            file=f"{random.randrange(logs // 4):x}.log",
            offset=(at := random.randrange(63 * MIB)),
            end=at + 1100,
            ledger_id=random.randrange(200),
            first_entry=number,
            last_entry=number,
            detail="the digest does not match the entry",
        )
        for number in range(findings)
    ]
    return report(store("/data/large", many, found, checks=CHECKS, journals=3))

"""Stores that hold two of every three entries of a ledger, audited without a file of ensembles."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from recovery.audit.model.store_tables import LOG
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.opening.open_async_store import open_async_store
from storage import Entry, StoreConfig
from storage.disk import filenames

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from recovery.audit.model.audit_report import StoreReport

SMALL = StoreConfig(journal_size=1 << 20, entry_size_max=4096, group_size_max=1 << 16)
LEDGERS = (3, 4)
LAST = 300


def striped(path: Path, lost: Collection[int] = ()) -> Path:
    """Fill a store with the entries of its share, except the lost ones of the first ledger."""

    async def fill() -> None:
        async with open_async_store(path, SMALL) as store:
            keys = [(ledger, one) for one in range(LAST) for ledger in LEDGERS if one % 3 != 1]
            await asyncio.gather(
                *(
                    store.add(Entry(ledger, one, one - 1, 10 * one, b"payload"))
                    for ledger, one in keys
                    if ledger != LEDGERS[0] or one not in lost
                )
            )
            await store.checkpoint()

    asyncio.run(fill())
    return path


def audited(path: Path) -> StoreReport:
    (report,) = run_audit(AuditRequest((str(path),))).stores
    return report


def test_the_share_of_a_ledger_is_a_run_for_each_residue_and_no_gap(tmp_path: Path) -> None:
    report = audited(striped(tmp_path / "store"))
    assert [one for one in report.findings if one.kind.startswith("LGR")] == []
    assert report.tables is not None
    runs = report.tables.runs([LOG])
    assert sorted({(int(run["step"]), int(run["first"])) for run in runs}) == [(3, 0), (3, 2)]
    assert len(runs) == 2 * len(LEDGERS)


def test_an_entry_of_the_share_that_is_not_there_is_a_gap(tmp_path: Path) -> None:
    report = audited(striped(tmp_path / "store", lost={150, 152, 153}))
    (gap,) = [one for one in report.findings if one.kind == "LGR-001"]
    assert (gap.ledger_id, gap.first_entry, gap.last_entry, gap.count) == (LEDGERS[0], 150, 153, 3)
    assert "the store has a part of every 3 entries" in gap.detail


def test_the_same_share_in_two_logs_of_a_bookie_is_reported(tmp_path: Path) -> None:
    store = striped(tmp_path / "store")
    bookie = tmp_path / "bookie"
    logs = bookie / filenames.LEDGER_DIRECTORY / filenames.CURRENT
    for directory in (filenames.JOURNAL_DIRECTORY, filenames.LEDGER_DIRECTORY):
        (bookie / directory / filenames.CURRENT).mkdir(parents=True)
    (log,) = store.glob(f"**/{filenames.entry_log(0)}")
    for log_id in (0, 1):
        shutil.copy(log, logs / filenames.entry_log(log_id))
    found = [one for one in audited(bookie).findings if one.kind == "LGR-008"]
    assert [(one.file, one.ledger_id, one.count) for one in found] == [
        (filenames.entry_log(1), ledger, LAST * 2 // 3) for ledger in LEDGERS
    ]

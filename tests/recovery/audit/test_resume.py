"""Whole audits of whole stores that use older reports have the findings of an audit that reads everything."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import SETS, bookie, entry_logs, passwords

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.local import Serial
from recovery.audit.model.store_tables import LOG
from recovery.audit.pipeline.request import AuditRequest, CacheOptions
from recovery.audit.pipeline.run_audit import run_audit
from recovery.opening.open_store import open_store
from storage.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.audit.engines.sql import DuckSql
    from recovery.audit.engines.task import AuditTask, TaskResult
    from recovery.audit.model.audit_report import AuditReport, StoreReport


class Interrupted(Exception):
    """The user has pressed Ctrl-C."""


@dataclass
class Stopping:
    """An engine that is interrupted after a number of tasks."""

    tasks_max: int
    name: str = "stopping"
    inner: Serial = field(default_factory=Serial)

    def sql(self, rows: int) -> DuckSql:
        return self.inner.sql(rows)

    def run(self, tasks: Sequence[AuditTask[Any]], watch: Callable[[int], None]) -> Iterator[TaskResult[Any]]:
        for number, done in enumerate(self.inner.run(tasks, watch)):
            if number == self.tasks_max:
                raise Interrupted
            yield done


@dataclass(frozen=True)
class Audited:
    """A store, and the reports on it."""

    store: Path
    reports: Path

    @property
    def logs(self) -> list[Path]:
        return sorted((self.store / "ledgers/current").glob("*.log"))

    def audit(self, report: str, since: str | None = None, engine: Any = None, **how: Any) -> AuditReport:
        keep = CacheOptions(self.reports / report, None if since is None else self.reports / since, **how)
        return run_audit(AuditRequest((str(self.store),), engine=engine or Serial(), keep=keep))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several logs, which are sealed or have a known end."""
    store = tmp_path_factory.mktemp("written") / "store"
    with open_store(str(store), StoreConfig(entry_log_size_max=16_384)) as opened:
        for entry in range(60):
            opened.ledger(entry % 3).append(bytes([entry]) * 1000)
            if entry % 10 == 9:
                opened.checkpoint()
    return store


@pytest.fixture
def audited(written: Path, tmp_path: Path) -> Audited:
    return Audited(Path(shutil.copytree(written, tmp_path / "store")), tmp_path)


def test_an_older_report_is_used_for_the_logs(audited: Audited) -> None:
    first = audited.audit("monday")
    second = audited.audit("tuesday", "monday")
    assert len(audited.logs) > 2
    assert second.findings == first.findings
    assert second.bytes_reused > 60 * 1000
    assert second.bytes_read + second.bytes_reused == first.bytes_read
    assert second.stores[0].coverage == first.stores[0].coverage


def test_damage_since_the_older_report_is_found(audited: Audited) -> None:
    audited.audit("monday")
    _flip(audited.logs[1])
    found = audited.audit("tuesday", "monday")
    assert [one.kind for one in found.findings] == [one.kind for one in audited.audit("full").findings] != []
    assert found.bytes_reused > 0


@pytest.mark.slow
def test_rot_changes_no_time_and_is_found_by_reading_again(audited: Audited) -> None:
    audited.audit("monday")
    stat = audited.logs[1].stat()
    _flip(audited.logs[1])
    os.utime(audited.logs[1], ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert audited.audit("tuesday", "monday").findings == ()
    again = audited.audit("wednesday", "tuesday", reread=1.0)
    assert again.bytes_reused == 0
    assert again.findings == audited.audit("full").findings != ()


@pytest.mark.parametrize("tasks", [0, 1, 3])
def test_an_interrupted_audit_of_a_store_is_resumed(audited: Audited, tasks: int) -> None:
    _flip(audited.logs[0])
    whole = audited.audit("whole")
    with pytest.raises(Interrupted):
        audited.audit("report", engine=Stopping(tasks))
    resumed = audited.audit("report", is_resumed=True)
    assert resumed.findings == whole.findings != ()
    assert (resumed.bytes_reused > 0) == (tasks > 0)


@pytest.mark.parametrize("name", SETS)
def test_a_bookie_s_logs_are_kept_too(name: str, tmp_path: Path) -> None:
    root = bookie(name) / "bookie"
    policy = DigestPolicy(passwords=passwords(name))

    def audit(report: str, since: Path | None = None) -> AuditReport:
        return run_audit(AuditRequest((str(root),), policy, keep=CacheOptions(tmp_path / report, since)))

    first, second = audit("monday"), audit("tuesday", tmp_path / "monday")
    assert second.findings == first.findings
    assert [_entries(one) for one in second.stores] == [_entries(one) for one in first.stores]
    sealed = [one for one in entry_logs(name) if any(one.read_bytes()[8:16])]
    assert (second.bytes_reused > 0) == bool(sealed)


def _entries(store: StoreReport) -> Any:
    assert store.tables is not None
    logs = [(one.log_id, dict(one.types), dict(one.unverified)) for one in store.facts.logs]
    return logs, store.tables.runs([LOG]).tolist()


def _flip(log: Path) -> None:
    """Flip a bit in the middle of the log's first payload."""
    data = bytearray(log.read_bytes())
    data[1024 + 500] ^= 1
    with log.open("r+b") as file:
        file.write(data)

"""An engine that keeps the results of scans, and does not read again what was kept and is still valid.

    --since     parts of an older report are used for logs that have not changed
    --resume    parts of this report are used for what was read before the audit was interrupted

Both work the same way: parts are looked up in a directory, all other tasks go to the inner engine, and every
part is kept as it comes, including those of the older report. So each report contains all that the next audit
may use.

An entry log is never written again, therefore its part can be used instead of the file. But its bytes may
rot, and only reading finds that: an audit that read only new logs would, after a year, call a store sound of
which it has read one day. So a share of the reusable parts is read again each time, the longest unread first.
With a share of 0.1 every byte is read at least once in ten audits, and each of them costs a tenth of a full
audit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar, cast

from recovery.audit.cache.part_cache import Reuse
from recovery.audit.engines.task import TaskResult, TolerantTask
from recovery.audit.model.scan_results import LogPart, Scanned, split
from recovery.audit.scan.entry_log import ScanLog
from recovery.audit.scan.scan_task import ScanTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.audit.cache.part_cache import CachedPart, PartCache
    from recovery.audit.cache.part_identity import Identity
    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.engines.task import AuditTask, TaskEngine

Answer = TypeVar("Answer")


@dataclass(slots=True)
class CachingEngine:
    """The engine of one audit. A part that was used or kept once is not used again, because a repeated task
    wants the file to be read.
    """

    inner: TaskEngine
    now: PartCache
    """Where parts are kept."""
    older: Sequence[PartCache] = ()
    """Where parts are looked up, in this order: an interrupted audit before older ones."""
    reread: float = 0.0
    """The share of the bytes found in older reports that is read again."""
    reused_bytes: int = field(default=0, init=False)
    """The number of bytes that were not read."""
    trouble: OSError | None = field(default=None, init=False)
    """The error after which nothing is kept any more. The audit goes on and reports it."""
    _used: set[str] = field(default_factory=set, init=False)

    @property
    def name(self) -> str:
        """The inner engine's name, because what is kept changes no finding."""
        return self.inner.name

    def run(
        self, tasks: Sequence[AuditTask[Answer]], watch: Callable[[int], None]
    ) -> Iterator[TaskResult[Answer]]:
        """Yield kept parts first, which are not reported to `watch`, then the results of the inner engine."""
        scans = self._scans(tasks)
        due = self._due(scans)
        rest = []
        for number in range(len(tasks)):
            found = self._found(scans.get(number), due)
            if found is None:
                rest.append(number)
                continue
            self.reused_bytes += found.part.size
            self._used.add(found.name)
            self._keep(partial(self.now.adopt, found))
            yield TaskResult(number, cast("Answer", _as_result(tasks[number], found.part)))
        if rest:
            yield from self._read(tasks, rest, scans, watch)

    def sql(self, rows: int) -> SqlEngine:
        return self.inner.sql(rows)

    def _scans(self, tasks: Sequence[AuditTask[Any]]) -> dict[int, _CacheableScan]:
        found = ((number, scan_of(task)) for number, task in enumerate(tasks))
        # Before anything is read, because a file that changes while it is read must not be kept.
        return {
            number: _CacheableScan(number, task, self.now.identity(task))
            for number, task in found
            if task is not None
        }

    # ── reuse of parts ───────────────────────────────────────────────────────────────────────────────────

    def _due(self, scans: Mapping[int, _CacheableScan]) -> frozenset[int]:
        """Return the tasks that are run although an older report has a part for them."""
        if not self.reread:
            return frozenset()
        older = [kept for kept in self.older if kept.reuse is Reuse.SOUND]
        found = ((scan, self._first(scan, older)) for scan in scans.values())
        aged = sorted((one.read_at_ns, scan.number, scan.task.size) for scan, one in found if one is not None)
        wanted = self.reread * sum(size for _, _, size in aged)
        before = accumulate((size for _, _, size in aged), initial=0)
        return frozenset(number for (_, number, _), size in zip(aged, before, strict=False) if size < wanted)

    def _found(self, scan: _CacheableScan | None, due: frozenset[int]) -> CachedPart | None:
        if scan is None:
            return None
        # A part that is due may have been read already by this very audit, before it was interrupted.
        return self._first(
            scan, [kept for kept in self.older if scan.number not in due or kept.reuse is Reuse.ENDED]
        )

    def _first(self, scan: _CacheableScan, places: Sequence[PartCache]) -> CachedPart | None:
        found = (kept.found(scan.task, scan.state, self._used) for kept in places)
        return next((one for one in found if one is not None), None)

    # ── keeping parts ────────────────────────────────────────────────────────────────────────────────────

    def _read(
        self,
        tasks: Sequence[AuditTask[Answer]],
        rest: Sequence[int],
        scans: Mapping[int, _CacheableScan],
        watch: Callable[[int], None],
    ) -> Iterator[TaskResult[Answer]]:
        for done in self.inner.run([tasks[number] for number in rest], watch):
            number = rest[done.number]
            # A block that could not be read this time is read again the next time. Runs that stay on the
            # executors of a cluster are not kept.
            part = done.part.whole() if isinstance(done.part, Scanned) and done.part.rows else done.part
            if number in scans and isinstance(part, LogPart) and not part.unreadable:
                scan = scans[number]
                self._keep(partial(self.now.keep, scan.task, part, scan.state))
            yield TaskResult(number, done.part)

    def _keep(self, keep: Callable[[], str | None]) -> None:
        if self.trouble is not None:
            return
        try:
            name = keep()
        except OSError as error:
            self.trouble = error
        else:
            self._used |= {name} if name else set()

    def tidy(self) -> None:
        """Remove all kept parts that this audit did not use or keep. Called at the end of an audit."""
        if self.trouble is None:
            self.now.forget_others(self._used)


@dataclass(frozen=True, slots=True)
class _CacheableScan:
    """A task whose part can be kept, and the identity of the file before it is read."""

    number: int
    task: ScanLog
    state: Identity | None


def scan_of(task: AuditTask[Any]) -> ScanLog | None:
    """Return the log scan that a task contains, or `None`."""
    inner = task.task if isinstance(task, TolerantTask | ScanTask) else task
    return inner if isinstance(inner, ScanLog) else None


def _as_result(task: AuditTask[Any], part: LogPart) -> LogPart | Scanned:
    """Return a kept part in the form in which the task would return it."""
    return split(part, task.number) if isinstance(task, ScanTask) else part

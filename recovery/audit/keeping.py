"""An engine that keeps what it has read, and reads nothing that was kept and still holds.

    --since     parts of an older report stand for logs that have not changed since
    --resume    parts of this report stand for what was read before the audit was interrupted

Both are the same: parts are found in a directory, all else goes to the engine inside, and every part is kept
as it comes, those of the older report too. So each report holds all that the next one may go on from.

An entry log is never written again, and that is why its part may stand for it. Its bytes rot all the same,
and nothing but reading them finds that: an audit that only ever read what is new would, after a year, call a
store sound of which it has seen one day. So a share of what could be used again is read again each time, that
first which nobody has looked at for longest. With a share of 0.1 every byte is read at least once in ten
audits, and each of them costs a tenth of one that reads everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar, cast

from recovery.audit.kept_parts import Reuse
from recovery.audit.log_scan import ScanLog
from recovery.audit.plan import Careful
from recovery.audit.task import Done
from recovery.verify.parts import LogPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.audit.kept_parts import Found, Kept
    from recovery.audit.part_identity import Identity
    from recovery.audit.task import Engine, Task

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Keeping:
    """One audit's: what it has used or kept once is not used again, because who asks twice wants it read."""

    inner: Engine
    now: Kept
    """Where parts are kept."""
    before: Sequence[Kept] = ()
    """Where parts are looked for, in this order; what was interrupted comes before what is older."""
    reread: float = 0.0
    """The share of the bytes found in older reports that is read again."""
    reused_bytes: int = field(default=0, init=False)
    """Bytes that were not read."""
    trouble: OSError | None = field(default=None, init=False)
    """Why nothing is kept any more: no reason to give up an audit, and one to say so."""
    _used: set[str] = field(default_factory=set, init=False)

    @property
    def name(self) -> str:
        """The inner engine's: what is kept changes no finding."""
        return self.inner.name

    def run(self, tasks: Sequence[Task[Answer]], watch: Callable[[int], None]) -> Iterator[Done[Answer]]:
        """First what was kept, of which `watch` hears nothing; then what the inner engine finds."""
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
            yield Done(number, cast("Answer", found.part))
        if rest:
            yield from self._read(tasks, rest, scans, watch)

    def _scans(self, tasks: Sequence[Task[Any]]) -> dict[int, _Scan]:
        found = ((number, scan_of(task)) for number, task in enumerate(tasks))
        # Before anything is read: what changes while it is read is not kept.
        return {
            number: _Scan(number, task, self.now.identity(task)) for number, task in found if task is not None
        }

    # ── used again ───────────────────────────────────────────────────────────────────────────────────

    def _due(self, scans: Mapping[int, _Scan]) -> frozenset[int]:
        """The tasks to which no older report's part is given, although there is one."""
        if not self.reread:
            return frozenset()
        older = [kept for kept in self.before if kept.reuse is Reuse.SOUND]
        found = ((scan, self._first(scan, older)) for scan in scans.values())
        aged = sorted((one.read_at_ns, scan.number, scan.task.size) for scan, one in found if one is not None)
        wanted = self.reread * sum(size for _, _, size in aged)
        before = accumulate((size for _, _, size in aged), initial=0)
        return frozenset(number for (_, number, _), size in zip(aged, before, strict=False) if size < wanted)

    def _found(self, scan: _Scan | None, due: frozenset[int]) -> Found | None:
        if scan is None:
            return None
        # What is due may have been read already by this very audit, before it was interrupted.
        return self._first(
            scan, [kept for kept in self.before if scan.number not in due or kept.reuse is Reuse.ENDED]
        )

    def _first(self, scan: _Scan, places: Sequence[Kept]) -> Found | None:
        found = (kept.found(scan.task, scan.state, self._used) for kept in places)
        return next((one for one in found if one is not None), None)

    # ── kept ─────────────────────────────────────────────────────────────────────────────────────────

    def _read(
        self,
        tasks: Sequence[Task[Answer]],
        rest: Sequence[int],
        scans: Mapping[int, _Scan],
        watch: Callable[[int], None],
    ) -> Iterator[Done[Answer]]:
        for done in self.inner.run([tasks[number] for number in rest], watch):
            number = rest[done.number]
            if number in scans and isinstance(done.part, LogPart):
                scan = scans[number]
                self._keep(partial(self.now.keep, scan.task, done.part, scan.state))
            yield Done(number, done.part)

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
        """At the end of an audit: what is kept is what the next one can go on from, and nothing else."""
        if self.trouble is None:
            self.now.forget_others(self._used)


@dataclass(frozen=True, slots=True)
class _Scan:
    """A task whose part can be kept, and the file as it was before."""

    number: int
    task: ScanLog
    state: Identity | None


def scan_of(task: Task[Any]) -> ScanLog | None:
    """The scan of a log that a task is, if it is one."""
    inner = task.task if isinstance(task, Careful) else task
    return inner if isinstance(inner, ScanLog) else None

"""The facts about each entry log of a viewed store, for the policy of collection."""

from __future__ import annotations

import enum
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.directory.layout import Layout
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory
from storage.entry.digest_inference import EntryVerifier
from storage.entrylog.format import LogHeader
from storage.entrylog.reader import EntryLogReader
from storage.gc.collector import facts_of
from storage.gc.exact import examine
from storage.gc.policy import PolicyFacts, Problem, ProblemKind, Standing
from storage.gc.usage import UsageSurvey

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from recovery.view.view import View
    from storage.gc.usage import LogUsage
    from storage.runtime.worker import Pause


class Exactness(enum.Enum):
    """How the live bytes of a log are found."""

    BY_MAPS = "by the ledgers maps, which are quick and may be wrong where entries were added again"
    BY_INDEX = "by reading every record and asking the index about it"


class Use(enum.Enum):
    """Whether a process has the store open."""

    OPEN = "open"
    CLOSED = "closed"


class LogFactsOfView:
    """The logs of a view: those that the store has, and removed ones that still take space.

    For one thread.
    """

    def __init__(self, view: View, use: Use) -> None:
        self._root = view.path
        self._directory = Layout(PosixDirectory(view.path)).ledgers
        self._snapshot = view.snapshot
        self._use = use
        # The names before the state, so that a log that is begun in between is not taken for a removed one.
        names = self._directory.names()
        self._state = view.snapshot.index.state()
        self._survey = UsageSurvey(
            self._directory,
            view.snapshot.index,
            view.snapshot.visible,
            view.snapshot.metadata,
            self._state.log_ends,
            self._state.last_log,
        )
        self._others = [
            found.number
            for found in map(filenames.parse, names)
            if found.kind is FileKind.ENTRY_LOG
            and found.number is not None
            and found.number not in self._state.log_ends
        ]
        self.ledgers: dict[int, int] = {}
        """How many ledgers have records in a log, by log."""

    @property
    def sizes(self) -> dict[int, int]:
        """The durable bytes of each log of the store, which are the most that is read of it."""
        return dict(self._state.log_ends)

    def facts(self, log_id: int, exactness: Exactness) -> Generator[Pause, None, PolicyFacts | None]:
        """Return what is known of a log of the store; `None` if it is removed meanwhile. In small steps."""
        standing = self._standing(log_id)
        try:
            if standing is Standing.COMMITTED:
                usage: LogUsage | None = yield from self._survey.usage_of(log_id)
            else:
                usage = self._survey.known_usage_of(log_id)
            if usage is None:
                return PolicyFacts(log_id, standing, self._survey.size_of(log_id))
            self.ledgers[log_id] = usage.ledgers
            facts = facts_of(usage, standing, None)
            if exactness is Exactness.BY_MAPS or standing is not Standing.COMMITTED:
                return facts
            metadata = self._snapshot.metadata
            live, problem = yield from examine(
                self._directory, self._snapshot.visible, self._state, metadata.of, metadata.digester, log_id
            )
        except FileNotFoundError:
            if log_id not in self._snapshot.index.state().log_ends:
                return None
            return PolicyFacts(log_id, standing, 0, problem=Problem(ProblemKind.DAMAGED, "ELG-005", 0))
        return replace(facts, live=live, problem=problem)

    def others(self) -> Iterator[PolicyFacts]:
        """Yield the facts about logs that the store does not have."""
        for log_id in self._others:
            with suppress(FileNotFoundError), self._directory.open(filenames.entry_log(log_id)) as file:
                header = EntryLogReader(file, log_id, EntryVerifier()).header
                origin = header.origin if isinstance(header, LogHeader) else None
                # The checkpoint that writes it has not ended yet.
                is_new = origin is not None and origin.generation > self._state.generation
                is_active = is_new and self._use is Use.OPEN
                standing = Standing.ACTIVE if is_active else Standing.REMOVED
                yield PolicyFacts(log_id, standing, file.size())
        yield from self._held()

    def _standing(self, log_id: int) -> Standing:
        if log_id != self._state.last_log:
            return Standing.COMMITTED
        with suppress(FileNotFoundError), self._directory.open(filenames.entry_log(log_id)) as file:
            header = EntryLogReader(file, log_id, EntryVerifier()).header
            is_sealed = isinstance(header, LogHeader) and header.map_offset > 0
            if self._use is Use.OPEN and not is_sealed and not self._others:
                return Standing.ACTIVE
        return Standing.LAST

    def _held(self) -> Iterator[PolicyFacts]:
        """Yield the removed logs to which audits hold hard links."""
        there = {*self._state.log_ends, *self._others}
        for audit in sorted(Path(self._root).glob(f"{filenames.AUDIT_LINKS}/*")):
            with suppress(FileNotFoundError, NotADirectoryError):
                since = datetime.fromtimestamp(audit.stat().st_mtime, UTC).astimezone()
                for link in sorted(audit.iterdir()):
                    name = filenames.parse(link.name)
                    if (
                        name.kind is FileKind.ENTRY_LOG
                        and name.number is not None
                        and name.number not in there
                    ):
                        there.add(name.number)
                        size = link.stat().st_size
                        yield PolicyFacts(name.number, Standing.REMOVED, size, held_since=since)

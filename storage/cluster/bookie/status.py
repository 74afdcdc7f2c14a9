"""What a bookie tells its operator over HTTP: metrics, health, state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from storage import prometheus
from storage._version import __version__
from storage.cluster.bookie.http import HttpAnswer, failure
from storage.cluster.bookie.metrics import BookieFigures, OperationFigures, bookie_metrics
from storage.metrics import store_metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from storage.aio.store import AsyncStore
    from storage.cluster.bookie.membership import Membership
    from storage.cluster.bookie.server import BookieServer


class CountedDeletion(Protocol):
    """Deletes ledgers of this bookie by the metadata."""

    @property
    def deleted(self) -> int:
        """The number of ledgers that were deleted."""
        ...


class BookieStatus:
    """The pages of one bookie. For the thread of the loop."""

    def __init__(
        self,
        bookie_id: str,
        store: AsyncStore,
        server: BookieServer,
        membership: Membership,
        deletions: Sequence[CountedDeletion],
    ) -> None:
        self._bookie_id = bookie_id
        self._store = store
        self._bookie = store.bookie
        self._server = server
        self._membership = membership
        self._deletions = deletions

    @property
    def pages(self) -> Mapping[str, Callable[[], Awaitable[HttpAnswer]]]:
        """The pages by their paths. Those of `/api` and `/heartbeat` answer as a Java bookie does."""
        return {
            "/metrics": self.metrics,
            "/healthz": self.health,
            "/state": self.state,
            "/heartbeat": self.heartbeat,
            "/api/v1/bookie/is_ready": self.readiness,
            "/api/v1/bookie/state": self.java_state,
        }

    async def metrics(self) -> HttpAnswer:
        """Return all metrics, as text for Prometheus."""
        stats = await self._store.stats()
        size, free = await self._bookie.call(self._server.disk_space)
        traffic, membership = self._server.traffic, self._membership
        now = traffic.clock()
        figures = BookieFigures(
            self._bookie_id,
            __version__,
            membership.registered_as,
            membership.has_session,
            self._server.load,
            size,
            free,
            sum(one.deleted for one in self._deletions),
            {
                operation: OperationFigures(one.done.summary(now), one.failed.summary(now), dict(one.codes))
                for operation, one in traffic.operations.items()
            },
            traffic.bytes_added,
            traffic.bytes_read,
            self._bookie.commit_waits(),
        )
        body = prometheus.text([*bookie_metrics(figures), *store_metrics(stats)])
        return HttpAnswer(200, body, prometheus.CONTENT_TYPE)

    def _flaw(self) -> str | None:
        """Return why clients cannot write here now; `None` if they can."""
        if (refusal := self._bookie.refusal) is not None:
            return f"adds are refused: {refusal}"
        if not self._membership.has_session:
            return "there is no session with the metadata"
        if self._membership.registered_as is None:
            return "the bookie is not registered"
        return None

    async def health(self) -> HttpAnswer:
        """Return 200 while clients can write here, else 503 and the reason."""
        flaw = self._flaw()
        return HttpAnswer(200, b"ok\n") if flaw is None else failure(503, flaw)

    async def state(self) -> HttpAnswer:
        """Return the state as JSON."""
        stats = await self._store.stats()
        size, free = await self._bookie.call(self._server.disk_space)
        mode = self._membership.registered_as
        return _json(
            {
                "bookie_id": self._bookie_id,
                "version": __version__,
                "registered": None if mode is None else mode.value,
                "session": self._membership.has_session,
                "healthy": self._flaw() is None,
                "reason": self._flaw(),
                "read_only": stats.read_only,
                "failed": stats.failed,
                "ledgers": stats.ledgers,
                "connections": self._server.load.connections,
                "opened_at": stats.opened_at,
                "disk": {"bytes": size, "free_bytes": free},
                "store": {
                    "entry_log_bytes": stats.entry_logs.bytes,
                    "journal_bytes": stats.journals.bytes,
                    "index_bytes": stats.index_bytes,
                },
            }
        )

    async def heartbeat(self) -> HttpAnswer:
        """Return 200 while the process answers."""
        return HttpAnswer(200, b"OK\n")

    async def readiness(self) -> HttpAnswer:
        """Return 200 when the bookie serves clients, even if only reads."""
        if self._membership.registered_as is None:
            return failure(503, "Bookie is not fully started yet")
        return HttpAnswer(200, b"OK")

    async def java_state(self) -> HttpAnswer:
        """Return the state with the fields of a Java bookie."""
        return _json(
            {
                "running": True,
                "readOnly": self._bookie.refuses_adds,
                "shuttingDown": False,
                "availableForHighPriorityWrites": self._bookie.refusal is None,
            }
        )


def _json(fields: Mapping[str, object]) -> HttpAnswer:
    body = json.dumps(fields, indent=2) + "\n"
    return HttpAnswer(200, body.encode(), "application/json")

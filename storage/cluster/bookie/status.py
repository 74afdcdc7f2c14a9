"""The pages of a bookie for its operator, over HTTP: metrics, health, state."""

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


_BY_ORDER = "the bookie is read-only by order of its operator"


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
        self._is_forced = server.adds.is_read_only
        """Whether the bookie was started as read-only, and stays so."""

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
            "/api/v1/bookie/state/readonly": self.read_only,
        }

    @property
    def orders(self) -> Mapping[str, Callable[[bytes], Awaitable[HttpAnswer]]]:
        """The orders that an operator can give, by path. They are those of a Java bookie."""
        return {"/api/v1/bookie/state/readonly": self.change_read_only}

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
        if self._server.adds.is_read_only:
            return f"adds are refused: {_BY_ORDER}"
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
                "read_only": stats.read_only or (_BY_ORDER if self._server.adds.is_read_only else None),
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
                "readOnly": self._is_read_only,
                "shuttingDown": False,
                "availableForHighPriorityWrites": self._bookie.refusal is None,
            }
        )

    @property
    def _is_read_only(self) -> bool:
        return self._bookie.refuses_adds or self._server.adds.is_read_only

    async def read_only(self) -> HttpAnswer:
        """Return whether the bookie is read-only, as a Java bookie does."""
        return _json({"readOnly": self._is_read_only})

    async def change_read_only(self, body: bytes) -> HttpAnswer:
        """Refuse the adds of writers from now on, or take them again, until the process ends."""
        try:
            order = json.loads(body)
        except ValueError:
            order = None
        wanted = order.get("readOnly") if isinstance(order, dict) else None
        if not isinstance(wanted, bool):
            return failure(400, 'an order is {"readOnly": true} or {"readOnly": false}')
        if not wanted and self._is_forced:
            return failure(400, "the bookie was started as read-only (--read-only, forceReadOnlyBookie)")
        self._server.adds.is_read_only = wanted
        return await self.read_only()


def _json(fields: Mapping[str, object]) -> HttpAnswer:
    body = json.dumps(fields, indent=2) + "\n"
    return HttpAnswer(200, body.encode(), "application/json")

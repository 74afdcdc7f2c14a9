"""The membership of a bookie in its cluster: the node by which clients find it.

    register     after the port listens, and again after each session that has expired
    check_first  whether the metadata allow the first add to a ledger, with the session of the moment
    unregister   at an orderly stop: no new writer chooses this bookie, while its answers still leave

A bookie whose session has expired goes on serving its clients: they hold connections and need no metadata.
One whose store refuses adds, because the disk is nearly full, is shown as read-only, so that new writers
choose others; when the store accepts adds again, it is shown as writable.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from storage.cluster.bookie import first_add
from storage.cluster.errors import ClusterError, MetadataUnavailable
from storage.cluster.metadata.paths import LedgerPaths, read_tree
from storage.cluster.metadata.registration import (
    BOOKIE_PROTOCOL,
    HTTP_PROTOCOL,
    BookieMode,
    Endpoint,
    ServiceInfo,
    bookie_path,
    register,
    unregister,
)
from storage.cluster.metadata.znodes import Gone
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from storage.cluster.bookie.first_add import EndedLedger
    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.wire.codes import Code
    from storage.entry.credentials import Purpose

_LOG = logging.getLogger("ledgerstore.bookie")

POLL_S = 1.0
"""How often a registered bookie looks whether it still takes adds."""

UNREGISTER_TIMEOUT_S = 3.0
"""How long an orderly stop waits for the metadata, which may be gone."""

RETRY_S = 1.0
"""The pause before another session is tried."""

CHECK_TIMEOUT_S = 3.0
"""How long a check goes on without the metadata: less than the 5 s for which clients wait by default."""

CHECK_RETRY_S = 0.05
"""The pause before a check is tried again."""


def service_info(host: str, port: int, http: tuple[str, int] | None = None) -> ServiceInfo:
    """Return the service info of a bookie for the address at which clients reach it.

    `http` is where it answers HTTP, if it does.
    """
    endpoints = [Endpoint("bookie", host, port, BOOKIE_PROTOCOL)]
    if http is not None:
        endpoints.append(Endpoint("httpserver", *http, HTTP_PROTOCOL))
    return ServiceInfo(tuple(endpoints))


class Membership:
    """Keeps one bookie registered. For one event loop."""

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Znodes]],
        root: str,
        bookie_id: str,
        session_timeout_s: float,
        mode: Callable[[], BookieMode],
    ) -> None:
        """`connect` opens a session for a block. `mode` returns whether the bookie takes adds now."""
        self._mode = mode
        self._connect = connect
        self._root = root
        self._bookie_id = bookie_id
        self._session_timeout_s = session_timeout_s
        self._znodes: Znodes | None = None
        self._paths: LedgerPaths | None = None
        self._registered = asyncio.Event()
        self._registered_as: BookieMode | None = None
        self._task: asyncio.Task[None] | None = None

    async def register(self, info: ServiceInfo) -> None:
        """Return when the bookie is registered; raise if it cannot be. `unregister` ends it."""
        self._task = asyncio.create_task(self._keep_registered(info))
        registered = asyncio.create_task(self._registered.wait())
        await asyncio.wait([self._task, registered], return_when=asyncio.FIRST_COMPLETED)
        registered.cancel()
        if self._task.done():
            await self._task

    async def unregister(self) -> None:
        """Unregister, and end the session."""
        znodes, task = self._znodes, self._task
        if znodes is not None:
            with suppress(ClusterError, TimeoutError):  # then the node goes with the session
                async with asyncio.timeout(UNREGISTER_TIMEOUT_S):
                    await unregister(znodes, self._root, self._bookie_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOG.warning("bookie %s has ended its membership: %s", self._bookie_id, error)

    @property
    def registered_as(self) -> BookieMode | None:
        """How the bookie is registered now; `None` while it is not."""
        return self._registered_as

    @property
    def has_session(self) -> bool:
        """Whether there is a session with the metadata."""
        return self._znodes is not None

    async def check_first(self, ledger_id: int, purpose: Purpose) -> Code | EndedLedger:
        """Return whether the first add to a ledger may be taken; raises if the metadata cannot be read.

        After an outage of the metadata a writer may have its session back before this bookie has one. An
        error would make it replace the bookie, and fail if the others are late too, so the add waits.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CHECK_TIMEOUT_S
        while True:
            try:
                znodes, paths = self.session()
                return await first_add.check_first_add(znodes, paths, ledger_id, self._bookie_id, purpose)
            except MetadataUnavailable:
                is_member = self._task is not None and not self._task.done()
                if not is_member or loop.time() >= give_up_at:
                    raise
            await asyncio.sleep(CHECK_RETRY_S)

    def session(self) -> tuple[Znodes, LedgerPaths]:
        """Return the session of the moment, and the paths of the ledgers; raises if there is none."""
        if self._znodes is None or self._paths is None:
            raise MetadataUnavailable("no session with the metadata")
        return self._znodes, self._paths

    async def _keep_registered(self, info: ServiceInfo) -> None:
        while True:
            try:
                async with self._connect() as znodes:
                    await self._register_in_session(znodes, info)
            except ClusterError as error:
                # Any error: if the task ended, the bookie would never be registered again.
                if not self._registered.is_set():
                    raise
                _LOG.warning("bookie %s is not registered: %s", self._bookie_id, error)
            except Exception:
                if not self._registered.is_set():
                    raise
                _LOG.exception("bookie %s is not registered: unexpected error", self._bookie_id)
            finally:
                self._znodes = self._registered_as = None
            await asyncio.sleep(RETRY_S)

    async def _register_in_session(self, znodes: Znodes, info: ServiceInfo) -> None:
        """Register, and return when the node is gone; raises when the session is over."""
        bookie_id = self._bookie_id
        paths = self._paths
        if paths is None:
            paths = LedgerPaths(self._root, await read_tree(znodes, self._root))
        self._znodes, self._paths = znodes, paths
        mode = self._mode()
        while True:
            await register(znodes, self._root, bookie_id, info, mode, 2 * self._session_timeout_s)
            _LOG.info("bookie %s is registered as %s", bookie_id, mode.value)
            self._registered.set()
            self._registered_as = mode
            watch = znodes.watch(bookie_path(self._root, bookie_id, mode))
            try:
                while self._mode() is mode:
                    if isinstance(await watch.next(POLL_S), Gone):
                        return  # another process has deleted it, for example an operator's
            finally:
                watch.close()
            mode = self._mode()


class Deletion(Protocol):
    """Deletes ledgers of this bookie by the metadata, in passes."""

    async def make_pass(self, znodes: Znodes, paths: LedgerPaths) -> object:
        """Make one pass."""
        ...


async def delete_repeatedly(deletions: Sequence[Deletion], membership: Membership, interval_s: float) -> None:
    """Delete ledgers by the metadata, again and again, until the task is cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        for deletion in deletions:
            try:
                await deletion.make_pass(*membership.session())
            except (StoreError, OSError) as error:
                _LOG.warning("no ledger is deleted: %s", error)
            except Exception:
                # If the task ended, no ledger would ever be deleted again.
                _LOG.exception("no ledger is deleted: unexpected error")

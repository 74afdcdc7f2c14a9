"""Auto-recovery in one process: a candidate for auditor, and a worker.

A part that fails is started again after a pause, which grows. A lost session ends both parts, because their
vote and their locks are gone with it; they begin again with a new one. A part that fails again and again ends
the service, so that its supervisor notices.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from recovery.autorecovery.auditor import Auditor
from recovery.autorecovery.worker import ReplicationWorker
from storage.cluster.client.cluster import open_cluster
from storage.cluster.errors import MetadataUnavailable, SessionExpired
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.paths import LedgerPaths, read_tree

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractAsyncContextManager

    from recovery.autorecovery.config import AutoRecoveryConfig
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.connections import ConnectionOptions
    from storage.cluster.metadata.paths import LedgerTree
    from storage.cluster.metadata.znodes import Znodes

_LOG = logging.getLogger("ledgerstore.autorecovery")

_FAILURES_MAX = 10
"""A part that has failed so often, without `_LONG_S` of work in between, is not started again."""
_LONG_S = 600.0
_PAUSE_S = 1.0
_PAUSE_MAX_S = 60.0

ClientOpener = Callable[
    ["Znodes", str, "LedgerTree | None", "ConnectionOptions | None"],
    "AbstractAsyncContextManager[AsyncCluster]",
]
"""Opens a client of a cluster with a session that is there already."""


class PartFailed(Exception):
    """A part of auto-recovery has failed again and again."""


class AutoRecovery:
    """Auto-recovery in one process, until it is cancelled."""

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Znodes]],
        root: str,
        tree: LedgerTree | None,
        name: str,
        config: AutoRecoveryConfig,
        options: ConnectionOptions | None = None,
        open_client: ClientOpener = open_cluster,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`connect` opens a session. `name` is written into votes and locks: a bookie's id, or a host.

        A simulation has another client, and a `clock` of its own in the place of the time of day.
        """
        self._connect = connect
        self._root = root
        self._tree = tree
        self._name = name
        self._config = config
        self._options = options
        self._open_client = open_client
        self._clock = clock

    async def run(self) -> None:
        """Serve until the caller is cancelled. Raise `PartFailed` if a part fails again and again."""
        await _supervise("auto-recovery", self._run_session, PartFailed)

    async def _run_session(self) -> None:
        async with self._connect() as znodes:
            paths = LedgerPaths(self._root, self._tree or await read_tree(znodes, self._root))
            async with self._open_client(znodes, self._root, paths.tree, self._options) as cluster:
                await underreplication.prepare(znodes, self._root)
                auditor = Auditor(znodes, paths, cluster, self._name, self._config, self._clock)
                worker = ReplicationWorker(znodes, self._root, cluster, self._name, self._config, self._clock)
                _LOG.info("auto-recovery of %s runs as %s", self._root, self._name)
                async with asyncio.TaskGroup() as group:
                    group.create_task(_supervise("the auditor", auditor.run, SessionExpired))
                    group.create_task(_supervise("the worker", worker.run, SessionExpired))


async def _supervise(
    part: str, run: Callable[[], Coroutine[object, object, None]], passed_on: type[Exception]
) -> None:
    """Run a part, and again when it fails. Errors of the type `passed_on` are raised to the caller."""
    loop = asyncio.get_running_loop()
    failures, pause_s = 0, _PAUSE_S
    while True:
        began = loop.time()
        error = await _error_of(run)
        if error is not None:
            cause = _cause_of(error)
            if isinstance(cause, passed_on):
                raise cause from error
            failures, pause_s = (failures + 1, pause_s) if loop.time() - began < _LONG_S else (1, _PAUSE_S)
            # An unreachable metadata service does not count: it may be away for any time.
            is_expected = isinstance(cause, MetadataUnavailable)
            if failures >= _FAILURES_MAX and not is_expected:
                raise PartFailed(f"{part} has failed {failures} times: {cause}") from error
            _LOG.warning(
                "%s has ended, and is started again in %.0f s: %s",
                part,
                pause_s,
                cause,
                exc_info=None if is_expected else error,
            )
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


async def _error_of(run: Callable[[], Coroutine[object, object, None]]) -> BaseException | None:
    """Run a part to its end, and return its error.

    It runs in a task of its own. A group of tasks that is cancelled in the moment in which one of them fails
    raises that error, and the cancellation of the service would be lost.
    """
    work = asyncio.get_running_loop().create_task(run())
    try:
        await asyncio.wait((work,))
    finally:
        work.cancel()
        await asyncio.wait((work,))
        # The error is asked for even when the caller is cancelled, because asyncio would otherwise log it as
        # unexpected.
        error = None if work.cancelled() else work.exception()
    return error


def _cause_of(error: BaseException) -> BaseException:
    """Return the first error of a group of tasks that have failed together."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

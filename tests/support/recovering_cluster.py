"""Auto-recovery beside bookies on the loopback interface, all on one event loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from example_cluster import ROOT

from recovery.autorecovery.config import AutoRecoveryConfig
from recovery.autorecovery.service import AutoRecovery
from storage.cluster.client.connections import CallLimits, ConnectionOptions
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.underreplication import list_marked, marks_path
from storage.cluster.metadata.update import read_ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from running_cluster import RunningCluster

    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.znodes import Znodes

PATHS = LedgerPaths(ROOT, LedgerTree.HIERARCHICAL)
FAST = AutoRecoveryConfig(
    open_ledger_grace_s=0.0, pause_max_s=0.0, check_interval_s=0, progress_interval_s=3600.0
)
OPTIONS = ConnectionOptions(
    limits=CallLimits(call_timeout_s=2.0, connect_timeout_s=2.0, reconnect_delay_s=0.0)
)


def service(
    cluster: RunningCluster,
    config: AutoRecoveryConfig = FAST,
    name: str = "recovery-1",
    options: ConnectionOptions = OPTIONS,
) -> AutoRecovery:
    """Return a service with sessions of its own."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Znodes]:
        yield cluster.server.session()

    return AutoRecovery(connect, ROOT, LedgerTree.HIERARCHICAL, name, config, options)


@asynccontextmanager
async def recovering(
    cluster: RunningCluster,
    config: AutoRecoveryConfig = FAST,
    name: str = "recovery-1",
    options: ConnectionOptions = OPTIONS,
) -> AsyncIterator[None]:
    """Run a service for a block."""
    running = asyncio.ensure_future(service(cluster, config, name, options).run())
    try:
        yield
        if running.done():
            running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def lose(cluster: RunningCluster, name: str) -> None:
    """Let a bookie be killed, and its session expire."""
    await cluster.stop(name)
    await cluster.withdraw(name)


async def marked(cluster: RunningCluster) -> list[int]:
    return [one async for one in list_marked(cluster.znodes, ROOT)]


async def metadata_of(cluster: RunningCluster, ledger_id: int) -> ClusterLedgerMetadata:
    return (await read_ledger(cluster.znodes, PATHS, ledger_id)).value


async def changes_until(cluster: RunningCluster, is_so: Callable[[], bool]) -> None:
    """Wait for changes of the metadata until the condition holds."""
    changed = cluster.server.changes()
    while not is_so():
        changed.clear()
        await changed.wait()


def marks_of(cluster: RunningCluster) -> int:
    """Return how many nodes are below the root of the marks."""
    top = marks_path(ROOT)
    return sum(path.startswith(f"{top}/") for path in cluster.server.paths())


def locks_of(cluster: RunningCluster) -> list[str]:
    return [path for path in cluster.server.paths() if "/locks/" in path]

"""A metadata server and bookies on a loop in another thread, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from example_cluster import INSTANCE_ID, ROOT, info
from running_cluster import RunningCluster
from zookeeper_servers import serving

from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.registration import BookieMode, register
from storage.cluster.zookeeper import client as zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 60.0


@contextmanager
def cluster_in_a_thread(path: Path, bookies: int) -> Iterator[str]:
    """Run a cluster for a block; its address."""
    addresses: list[str] = []
    is_ready, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    def ready(address: str) -> None:
        addresses.append(address)
        is_ready.set()

    def run() -> None:
        try:
            loop.run_until_complete(_serve(path, bookies, ready, ended))
        finally:
            loop.close()
            is_ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_ready.wait(PATIENCE_S)
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(PATIENCE_S)


async def _serve(path: Path, bookies: int, ready: Callable[[str], None], ended: asyncio.Event) -> None:
    cluster = RunningCluster(path)
    await init_cluster(cluster.znodes, ROOT, INSTANCE_ID)
    try:
        for number in range(1, bookies + 1):
            await cluster.start(f"b{number}")
        async with serving() as server:
            place = f"127.0.0.1:{server.port}"
            async with zookeeper.connect(zookeeper.ClientConfig((place,))) as znodes:
                await init_cluster(znodes, ROOT, INSTANCE_ID)
                for name, port in cluster.ports.items():
                    await register(znodes, ROOT, name, info(port), BookieMode.WRITABLE, 1)
                ready(f"zk://{place}{ROOT}")
                await ended.wait()
    finally:
        await cluster.stop_all()

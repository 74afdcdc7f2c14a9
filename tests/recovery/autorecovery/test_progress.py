"""What workers publish of themselves: how fast they copy, and why a ledger is not repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_loops import run_with_server
from example_cluster import INSTANCE_ID, ROOT

from recovery.autorecovery.progress import (
    CopyRate,
    StuckLedger,
    WorkerProgress,
    decode,
    encode,
    publish,
    read_all,
)
from storage.cluster.metadata.format import init_cluster

if TYPE_CHECKING:
    from memory_znodes import MemoryServer

PROGRESS = WorkerProgress("bk1:3181", 3, 40, 5000, 1.5, 100.0, 1, (StuckLedger(7, "why", None),))


def test_progress_is_read_as_it_was_published() -> None:
    assert decode(encode(PROGRESS)) == PROGRESS


@pytest.mark.parametrize("data", [b"", b"junk", b"[]", b"{}", b'{"stuck": [1]}', b'{"stuck": [], "x": 1}'])
def test_what_is_no_progress_is_passed_over(data: bytes) -> None:
    assert decode(data) is None


def test_rates_are_those_since_the_last_look() -> None:
    rate = CopyRate(100.0)
    assert rate.at(102.0, 10, 4000) == (5.0, 2000.0)
    assert rate.at(103.0, 10, 4000) == (0.0, 0.0)


def test_the_node_of_a_worker_is_replaced_and_goes_with_its_session() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, worker = server.session(), server.session()
        await init_cluster(znodes, ROOT, INSTANCE_ID)
        await publish(worker, ROOT, WorkerProgress("bk1:3181"))
        await publish(worker, ROOT, PROGRESS)
        assert await read_all(znodes, ROOT) == [PROGRESS]
        worker.expire()
        assert await read_all(znodes, ROOT) == []

    run_with_server(test)

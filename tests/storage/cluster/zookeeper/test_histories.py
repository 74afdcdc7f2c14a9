"""Histories that a real ZooKeeper 3.9.5 has played give the same answers, errors, stats and events here.

`python tests/interop/zookeeper.py record` has noted a digest of what each client saw. If one differs,
`python tests/interop/zookeeper.py history SEED` plays both servers and shows the first line that differs.
"""

from __future__ import annotations

import json

import pytest
from async_stores import run
from sampling import many
from stepped_store import Site
from zookeeper import RECORDED, digests
from zookeeper_servers import LARGE_ENTRIES, serving

from storage.cluster.zookeeper.server import ServerConfig
from storage.cluster.zookeeper.sessions import TimeoutRange


@pytest.mark.sampled
def test_recorded_histories_are_answered_as_a_real_zookeeper_has_answered_them() -> None:
    expected = json.loads(RECORDED.read_text())[: many(40, 3)]

    async def main() -> None:
        config = ServerConfig(port=0, timeouts=TimeoutRange(1000, 10_000))
        async with serving(config, Site(LARGE_ENTRIES)) as server:
            assert await digests(server.port, range(len(expected))) == expected

    run(main())

"""Each promise in docs/replication.md links tests that exist, and the program that is shown runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from example_cluster import INSTANCE_ID, info
from running_cluster import RunningCluster, run_with_cluster
from zookeeper_servers import serving

from storage.cluster.client.async_reader import AsyncLedgerReader
from storage.cluster.client.async_writer import AsyncLedgerWriter
from storage.cluster.client.blocking import Cluster, ClusterLedgerReader, ClusterLedgerWriter
from storage.cluster.client.cluster import AsyncCluster
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.registration import BookieMode, register
from storage.cluster.zookeeper import client as zookeeper

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "replication.md").read_text(encoding="utf-8")
LINKS = re.findall(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)", PAGE)
PROMISES = re.findall(r"^\* (.*?)(?=^\* |^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "file"), LINKS)
def test_a_test_that_is_named_exists(name: str, file: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("sentence", PROMISES, ids=lambda sentence: sentence[:40])
def test_no_promise_is_without_a_test(sentence: str) -> None:
    assert re.search(r"\[test_\w+\]", sentence)


def test_the_program_that_is_shown_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)

    async def steps(running: RunningCluster) -> None:
        async with serving() as server:
            place = f"127.0.0.1:{server.port}"
            async with zookeeper.connect(zookeeper.ClientConfig((place,))) as znodes:
                await init_cluster(znodes, "/ledgers", INSTANCE_ID)
                for name, port in running.ports.items():
                    await register(znodes, "/ledgers", name, info(port), BookieMode.WRITABLE, 1)
                await names["main"](f"zk://{place}/ledgers")

    run_with_cluster(tmp_path, 3, steps)
    *ids, payloads, error = capsys.readouterr().out.splitlines()
    assert ids == ["0", "[1, 2]", "3"]
    assert payloads == "[b'one', b'two', b'three', b'four']"
    assert error == "AddOutcomeUnknown"


@pytest.mark.parametrize(
    ("coroutines", "threads"),
    [
        (AsyncCluster, Cluster),
        (AsyncLedgerWriter, ClusterLedgerWriter),
        (AsyncLedgerReader, ClusterLedgerReader),
    ],
)
def test_the_client_for_threads_has_the_same_methods(coroutines: type, threads: type) -> None:
    public = {name for name in vars(coroutines) if not name.startswith("_")} - DRIVERS
    blocking = {name for name in vars(threads) if not name.startswith("_")}
    assert blocking | {"close"} == public | {"close"}


@pytest.mark.parametrize("kind", [AsyncCluster, AsyncLedgerWriter, AsyncLedgerReader])
def test_every_method_that_a_user_calls_is_in_the_table(kind: type) -> None:
    shown = set(re.findall(r"`(\w+)[`(]", PAGE.split("| method |")[1].split("\n\n")[0]))
    coroutines = {name for name, one in vars(kind).items() if not name.startswith("_") and callable(one)}
    assert coroutines - shown - DRIVERS == set()


DRIVERS = {
    "abandon",
    "bookies_for_batches",
    "call",
    "candidates",
    "connection_lost",
    "entry_batches",
    "follow_bookies",
    "follow_metadata",
    "forget",
    "mark",
    "metadata_of_all",
    "note_without_batches",
    "read_metadata",
    "run",
    "send_adds",
    "slow_bookies",
    "submit_now",
    "use",
    "write_metadata",
    "write_soon",
    "znodes",
}
"""Methods that the parts of the client, and topics, call on each other."""

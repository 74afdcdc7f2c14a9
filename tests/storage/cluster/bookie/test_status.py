"""What a bookie tells its operator: metrics, health, state."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, cast

from bookie_connection import RawBookieConnection, add_of, running_bookie
from prometheus_client.parser import text_string_to_metric_families

from storage.cluster.bookie.metrics import BOOKIE_METRICS
from storage.cluster.bookie.status import BookieStatus
from storage.cluster.metadata.registration import BookieMode
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddOptions, Protocol, ReadEntry
from storage.config import StoreConfig
from storage.metrics import STORE_METRICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from storage.aio.store import AsyncStore
    from storage.cluster.bookie.http import HttpAnswer
    from storage.cluster.bookie.membership import Membership

    Steps = Callable[["BookieStatus", "LittleMembership", int, AsyncStore], Awaitable[None]]


DEFAULTS = StoreConfig()


class LittleMembership:
    """A membership as far as the pages need it, with any state."""

    def __init__(self) -> None:
        self.registered_as: BookieMode | None = BookieMode.WRITABLE
        self.has_session = True
        self.deleted = 3


def with_status(path: Path, steps: Steps, config: StoreConfig = DEFAULTS) -> None:
    async def run() -> None:
        async with running_bookie(path, config=config) as (store, server, port):
            little = LittleMembership()
            membership = cast("Membership", little)
            status = BookieStatus("the-bookie", store, server, membership, [little, little])
            await steps(status, little, port, store)

    asyncio.run(run())


def values(answer: HttpAnswer) -> dict[str, float]:
    """Return the samples by name and labels, as Prometheus reads the text."""
    assert answer.status == 200
    return {
        sample.name + "".join(f"|{value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def test_the_metrics_follow_the_requests_of_clients(tmp_path: Path) -> None:
    async def steps(status: BookieStatus, _: LittleMembership, port: int, __: AsyncStore) -> None:
        client = await RawBookieConnection.open(port)
        for entry_id in range(3):
            await client.ask(add_of(7, entry_id, b"payload"), Protocol.V3)
        await client.ask(ReadEntry(7, 0), Protocol.V3)
        await client.ask(ReadEntry(7, 9), Protocol.V3)
        found = values(await status.metrics())
        await client.close()
        assert found["bookie_SERVER_STATUS"] == 1
        assert found["bookkeeper_server_ADD_ENTRY_count|true"] == 3
        assert found["bookkeeper_server_ADD_ENTRY_REQUEST|0.99|true"] > 0
        assert found["bookkeeper_server_READ_ENTRY_count|true"] == 1
        assert found["bookkeeper_server_READ_ENTRY_count|false"] == 1
        assert found["ledgerstore_answers_total|NO_ENTRY|READ_ENTRY"] == 1
        assert found["bookie_journal_JOURNAL_SYNC_count|0|true"] >= 1
        assert found["ledgerstore_adds_total"] == 3
        assert found["ledgerstore_connections"] == 1
        assert found["bookie_gc_DELETED_LEDGER_TOTAL"] == 6
        assert 0 < found["ledgerstore_disk_free_bytes"] < found["ledgerstore_disk_bytes"]
        assert found["process_resident_memory_bytes"] > 0

    with_status(tmp_path / "store", steps)


def test_every_metric_is_shown_and_no_other(tmp_path: Path) -> None:
    async def steps(status: BookieStatus, _: LittleMembership, __: int, store: AsyncStore) -> None:
        await store.ledger(1).append(b"entry")
        await store.checkpoint()
        await store.collect()
        text = (await status.metrics()).body.decode()
        shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
        named = {one.name for one in BOOKIE_METRICS} | {one.metric.name for one in STORE_METRICS}
        assert {name for name in shown if not name.startswith("process_")} == named

    with_status(tmp_path / "store", steps)


def test_a_bookie_is_healthy_while_clients_can_write_to_it(tmp_path: Path) -> None:
    async def steps(status: BookieStatus, little: LittleMembership, _: int, __: AsyncStore) -> None:
        assert await status.health() == (200, b"ok\n", "text/plain; charset=utf-8")
        assert (await status.readiness()).status == 200
        little.registered_as = None
        found = await status.health()
        assert (found.status, found.body) == (503, b"the bookie is not registered\n")
        assert values(await status.metrics())["bookie_SERVER_STATUS"] == -1
        assert (await status.readiness()).status == 503
        little.has_session = False
        assert (await status.health()).body == b"there is no session with the metadata\n"

    with_status(tmp_path / "store", steps)


def test_a_bookie_that_refuses_adds_says_why_and_serves_reads(tmp_path: Path) -> None:
    async def steps(status: BookieStatus, little: LittleMembership, _: int, __: AsyncStore) -> None:
        little.registered_as = BookieMode.READ_ONLY
        found = await status.health()
        assert found.status == 503
        assert found.body.startswith(b"adds are refused: ")
        assert (await status.readiness()).status == 200
        assert values(await status.metrics())["bookie_SERVER_STATUS"] == 0
        assert values(await status.metrics())["bookie_ledger_writable_dirs"] == 0
        state = json.loads((await status.state()).body)
        assert (state["registered"], state["healthy"]) == ("read-only", False)
        assert state["read_only"] in state["reason"]
        assert json.loads((await status.java_state()).body)["readOnly"] is True

    with_status(tmp_path / "store", steps, StoreConfig(space_min_free=1 << 60))


def test_the_state_is_json(tmp_path: Path) -> None:
    async def steps(status: BookieStatus, little: LittleMembership, _: int, store: AsyncStore) -> None:
        await store.ledger(1).append(b"entry")
        found = json.loads((await status.state()).body)
        assert found["bookie_id"] == "the-bookie"
        assert (found["registered"], found["session"], found["healthy"]) == ("writable", True, True)
        assert (found["ledgers"], found["reason"], found["failed"]) == (1, None, None)
        assert found["disk"]["free_bytes"] < found["disk"]["bytes"]
        little.registered_as = None
        found = json.loads((await status.state()).body)
        assert (found["registered"], found["healthy"]) == (None, False)
        assert found["reason"] == "the bookie is not registered"

    with_status(tmp_path / "store", steps)


def test_a_java_bookie_s_paths_answer_as_it_does(tmp_path: Path) -> None:
    async def steps(status: BookieStatus, _: LittleMembership, __: int, ___: AsyncStore) -> None:
        assert (await status.pages["/heartbeat"]()).body == b"OK\n"
        assert json.loads((await status.pages["/api/v1/bookie/state"]()).body) == {
            "running": True,
            "readOnly": False,
            "shuttingDown": False,
            "availableForHighPriorityWrites": True,
        }
        assert (await status.pages["/api/v1/bookie/is_ready"]()).status == 200

    with_status(tmp_path / "store", steps)


def test_an_operator_makes_a_bookie_read_only_and_writable_again(tmp_path: Path) -> None:
    async def steps(status: BookieStatus, _: LittleMembership, port: int, __: AsyncStore) -> None:
        path = "/api/v1/bookie/state/readonly"
        client = await RawBookieConnection.open(port)

        async def order(body: bytes) -> int:
            return (await status.orders[path](body)).status

        async def codes() -> list[Code]:
            writer, recovery = AddOptions(), AddOptions(is_recovery=True)
            adds = [add_of(7, 0, b"x", options=one) for one in (writer, recovery)]
            return [(await client.ask(one, Protocol.V3)).code for one in adds]

        assert await order(b'{"readOnly": true}') == 200
        assert await codes() == [Code.READ_ONLY, Code.OK]
        assert (await client.ask(ReadEntry(7, 0), Protocol.V3)).code is Code.OK
        assert json.loads((await status.pages[path]()).body) == {"readOnly": True}
        assert json.loads((await status.java_state()).body)["readOnly"] is True
        assert (await status.health()).status == 503
        for wrong in (b"", b"[]", b'{"readOnly": 1}', b"{}"):
            assert await order(wrong) == 400
        assert await order(b'{"readOnly": false}') == 200
        assert await codes() == [Code.OK, Code.OK]
        assert (await status.health()).status == 200
        await client.close()

    with_status(tmp_path / "store", steps)

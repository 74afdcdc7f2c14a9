"""`ledgerstore audit --replicas zk://…`: stores compared with the metadata of their cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from shell_samples import run
from zookeeper_servers import serving_in_a_thread

from recovery import open_store
from recovery.shell import audited_cluster
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.format import read_instance_id
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import create_ledger, delete_ledger
from storage.cluster.zookeeper import client
from storage.config import StoreConfig
from storage.disk import cookie_format
from storage.disk.cookie_format import Cookie
from storage.entry.model import DigestType, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from recovery.shell.cluster_metadata import MetadataConnection
    from storage.cluster.metadata.znodes import Znodes

PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
BOOKIES = ("b1:3181", "b2:3181")
CLOSED, OPEN, SECRET, ELSEWHERE = 7, 8, 9, 10
PASSWORD = b"secret"
LOST = (CLOSED, 4)
SMALL = StoreConfig(journal_size=1 << 20, entry_size_max=4096, group_size_max=1 << 16)


def do(uri: str, work: Callable[[Znodes], Coroutine[Any, Any, Any]]) -> Any:
    return client.run(client.ClientConfig(parse_address(uri).hosts), work)


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with serving_in_a_thread() as port:
        address = f"zk://127.0.0.1:{port}/ledgers"
        assert run("cluster", "init", address).exit_code == 0
        yield address


def build(path: Path, bookie: str, instance_id: str) -> Path:
    """Write the copies of one bookie; the second one lacks an entry."""
    with open_store(path, SMALL) as store:
        store.ledger(SECRET, DigestType.MAC, PASSWORD).append_many([b"%d" % entry for entry in range(3)])
        for ledger_id in (CLOSED, OPEN):
            for entry_id in range(10):
                if (ledger_id, entry_id) != LOST or bookie == BOOKIES[0]:
                    store.add(Entry(ledger_id, entry_id, entry_id - 1, 5 * (entry_id + 1), b"hello"))
    for stamp in path.glob("*/current/VERSION"):
        cookie = cookie_format.decode(stamp.read_bytes())
        assert isinstance(cookie, Cookie)
        store_id = cookie.store_id or (cookie.instance_id or "").replace("-", "")
        changed = replace(cookie, bookie_host=bookie, instance_id=instance_id, store_id=store_id)
        stamp.write_bytes(cookie_format.encode(changed))
    return path


@pytest.fixture(scope="module")
def stores(uri: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    instance_id = do(uri, lambda znodes: read_instance_id(znodes, "/ledgers"))
    place = tmp_path_factory.mktemp("stores")
    growing = ClusterLedgerMetadata(2, 2, 2, (LedgerSegment(0, BOOKIES),), creator_token=1)
    secret = replace(growing.closed(2, 3), digest_type=DigestType.MAC, password=PASSWORD)
    elsewhere = replace(growing, segments=(LedgerSegment(0, (BOOKIES[0], "b3:3181")),))

    async def work(znodes: Znodes) -> None:
        await create_ledger(znodes, PATHS, CLOSED, growing.closed(9, 50))
        await create_ledger(znodes, PATHS, OPEN, growing.in_recovery())
        await create_ledger(znodes, PATHS, SECRET, secret)
        await create_ledger(znodes, PATHS, ELSEWHERE, elsewhere)

    do(uri, work)
    built = [build(place / f"{number}", name, instance_id) for number, name in enumerate(BOOKIES)]
    # Here, because the first audit of a process imports what it needs, which takes half a second.
    assert run("audit", *built, "--engine", "local", "--out", place / "alone").exit_code == 0
    return built


def audited(uri: str, stores: list[Path], out: Path) -> tuple[int, dict[str, Any]]:
    done = run("audit", *stores, "--replicas", uri, "--engine", "local", "--out", out, "--json")
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, json.loads(done.stdout)


def test_stores_are_compared_with_the_ledgers_of_their_cluster(
    uri: str, stores: list[Path], tmp_path: Path
) -> None:
    exit_code, found = audited(uri, stores, tmp_path / "out")
    assert exit_code == 1
    [finding] = [one for one in found["worst"] if one["severity"] == "error"]
    assert (finding["store"], finding["ledger"], finding["first_entry"]) == (str(stores[1]), *LOST)
    copies = {one["ledger"]: one["copies"] for one in found["replicas"]["ledgers"]}
    assert copies == {CLOSED: [0, 1, 9], OPEN: [0, 0, 10], SECRET: [0, 0, 3]}
    assert found["replicas"]["not_covered"] == [
        "1 ledgers are not compared, because the audit has no store of b3:3181"
    ]


def test_what_was_found_in_a_ledger_that_is_deleted_meanwhile_is_dropped(
    uri: str, stores: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = audited_cluster.read_cluster

    def read_and_delete(connection: MetadataConnection, at: str, paths: Any) -> Any:
        found = read(connection, at, paths)
        do(at, lambda znodes: delete_ledger(znodes, PATHS, CLOSED))
        return found

    monkeypatch.setattr(audited_cluster, "read_cluster", read_and_delete)
    exit_code, found = audited(uri, stores, tmp_path / "out")
    assert (exit_code, found["findings"].get("error", 0)) == (0, 0)
    assert "ledger 7: its metadata were changed during the audit" in found["replicas"]["not_covered"]


def test_stores_are_needed_and_need_cookies_of_this_cluster(
    uri: str, stores: list[Path], tmp_path: Path
) -> None:
    without = run("audit", "--replicas", uri)
    assert (without.exit_code, "give each STORE" in without.stderr) == (2, True)
    unknown = run("audit", tmp_path, "--replicas", uri)
    assert (unknown.exit_code, "has the cookie" in unknown.stderr) == (3, True)
    twice = run("audit", stores[0], stores[0], "--replicas", uri)
    assert (twice.exit_code, "and so has that of" in twice.stderr) == (3, True)

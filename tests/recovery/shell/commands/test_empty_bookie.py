"""`check`, `recover` and `decommission` on bookies that run: a ledger names a bookie that is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cluster_in_a_thread import cluster_in_a_thread
from shell_samples import rows, run, verdict

from storage.cluster import connect
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import change_ledger, create_node
from storage.cluster.metadata.znodes import Gone
from storage.cluster.zookeeper import client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.znodes import Znodes

PATHS = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
LOST = "gone:3181"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_in_a_thread(tmp_path_factory.mktemp("bookies"), 3) as address:
        yield address


def do(uri: str, work: Callable[[Znodes], Coroutine[Any, Any, Any]]) -> Any:
    return client.run(client.ClientConfig(parse_address(uri).hosts), work)


def ledger_at_a_lost_bookie(uri: str, quorums: Quorums) -> int:
    """Write a ledger, and let its metadata name a bookie that is gone in the place of the first one."""
    with connect(uri) as cluster:
        writer = cluster.create(quorums)
        for number in range(10):
            writer.append(b"%d" % number)
        writer.close()

    def changed(metadata: ClusterLedgerMetadata) -> ClusterLedgerMetadata:
        [segment] = metadata.segments
        return replace(metadata, segments=(replace(segment, bookies=(LOST, *segment.bookies[1:])),))

    async def work(znodes: Znodes) -> None:
        await create_node(znodes, f"/ledgers/cookies/{LOST}")
        await change_ledger(znodes, PATHS, writer.id, changed)

    do(uri, work)
    return int(writer.id)


def test_a_lost_bookie_is_found_recovered_and_decommissioned(uri: str) -> None:
    ledger_id = ledger_at_a_lost_bookie(uri, Quorums(2, 2, 2))
    [found] = rows("check", uri, str(ledger_id), "--entries", "all")
    assert (found["ledger"], found["bookie"], found["state"], found["entries"]) == (
        ledger_id,
        LOST,
        "lost",
        10,
    )
    assert run("check", uri, str(ledger_id)).exit_code == 1

    recovered = run("recover", uri, LOST)
    assert (recovered.exit_code, verdict(recovered)) == (0, f"recover: no ledger names {LOST}")
    whole = run("check", uri, str(ledger_id), "--entries", "all")
    assert (whole.exit_code, verdict(whole)) == (0, "check: 1 ledger, 0 copies are not whole")
    assert run("underreplicated", uri).exit_code == 0

    assert run("decommission", uri, LOST).exit_code == 0
    cookie = do(uri, lambda znodes: znodes.get(f"/ledgers/cookies/{LOST}"))
    assert isinstance(cookie, Gone)


def test_a_ledger_without_a_good_copy_ends_a_recovery_with_1(uri: str) -> None:
    ledger_id = ledger_at_a_lost_bookie(uri, Quorums(1, 1, 1))
    found = run("recover", uri, LOST)
    assert (found.exit_code, str(ledger_id) in verdict(found)) == (1, True)
    everything = run("check", uri, "--all")
    assert everything.exit_code == 1


def test_a_bookie_that_runs_is_neither_recovered_nor_decommissioned(uri: str) -> None:
    for command in ("recover", "decommission"):
        found = run(command, uri, "b1")
        assert (found.exit_code, "still registered" in found.stderr) == (3, True)


def test_a_bookie_that_the_cluster_does_not_know_is_refused_with_those_that_it_knows(uri: str) -> None:
    do(uri, lambda znodes: create_node(znodes, "/ledgers/cookies/other:3181"))
    for command in ("recover", "decommission"):
        found = run(command, uri, "othre:3181")
        assert found.exit_code == 3
        assert "knows no bookie othre:3181; it knows: b1, b2, b3, " in found.stderr
        assert "other:3181" in found.stderr


def test_check_wants_one_ledger_or_all(uri: str) -> None:
    assert run("check", uri).exit_code == 2
    assert run("check", uri, "1", "--all").exit_code == 2
    assert run("check", uri, "999").exit_code == 3

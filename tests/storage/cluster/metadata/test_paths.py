"""Paths of ledgers: the examples of BookKeeper, all trees, nodes in wrong places, and the listing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_loops import collected, run, run_with_server
from fixtures import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from storage.cluster.errors import InvalidMetadata, NoSuchCluster
from storage.cluster.metadata.paths import (
    LEDGER_ID_MAX,
    LedgerPaths,
    LedgerTree,
    MisplacedNode,
    decode_layout,
    encode_layout,
    is_special,
    list_ledgers,
    read_tree,
)
from storage.cluster.metadata.update import create_node

if TYPE_CHECKING:
    from memory_znodes import MemoryServer, MemoryZnodes

HYBRID = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
LONG = LedgerPaths("/ledgers", LedgerTree.LONG_HIERARCHICAL)
FLAT = LedgerPaths("/ledgers", LedgerTree.FLAT)
HIERARCHICAL = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


@pytest.mark.parametrize(
    ("paths", "ledger_id", "path"),
    [
        (HYBRID, 0, "/ledgers/00/0000/L0000"),
        (HYBRID, 7, "/ledgers/00/0000/L0007"),
        (HYBRID, (1 << 31) - 2, "/ledgers/21/4748/L3646"),
        (HYBRID, (1 << 31) - 1, "/ledgers/000/0000/0021/4748/L3647"),
        (HYBRID, 1 << 31, "/ledgers/000/0000/0021/4748/L3648"),
        (HYBRID, LEDGER_ID_MAX, "/ledgers/922/3372/0368/5477/L5807"),
        (LONG, 7, "/ledgers/000/0000/0000/0000/L0007"),
        (FLAT, 7, "/ledgers/L0000000007"),
        (FLAT, 1 << 40, "/ledgers/L1099511627776"),
    ],
)
def test_a_ledger_has_one_path_and_the_path_leads_back(paths: LedgerPaths, ledger_id: int, path: str) -> None:
    assert paths.path_of(ledger_id) == path
    assert paths.ledger_at(path) == ledger_id


@given(st.sampled_from(LedgerTree), st.integers(0, LEDGER_ID_MAX))
def test_every_id_survives_the_way_to_its_path_and_back(tree: LedgerTree, ledger_id: int) -> None:
    paths = LedgerPaths("/some/root", tree)
    assert paths.ledger_at(paths.path_of(ledger_id)) == ledger_id


@pytest.mark.parametrize(
    ("paths", "path", "problem"),
    [
        (HYBRID, "/ledgers/00/0000/L00070", "not the node of a ledger"),
        (HYBRID, "/ledgers/00/0000/X0007", "not the node of a ledger"),
        (HYBRID, "/ledgers/L0000000007", "not the node of a ledger"),
        (HYBRID, "/elsewhere/00/0000/L0007", "not the node of a ledger"),
        (HYBRID, "/ledgers/99/9999/L9999", "ledger 9999999999 belongs at /ledgers/000/0000/0099/9999/L9999"),
        (HYBRID, "/ledgers/000/0000/0000/0000/L0007", "ledger 7 belongs at /ledgers/00/0000/L0007"),
        (LONG, "/ledgers/00/0000/L0007", "ledger 7 belongs at /ledgers/000/0000/0000/0000/L0007"),
        (LONG, "/ledgers/999/9999/9999/9999/L9999", "9999999999999999999 is too large"),
        (FLAT, "/ledgers/L00000000007", "ledger 7 belongs at /ledgers/L0000000007"),
        (FLAT, "/ledgers/00/0000/L0007", "not the node of a ledger"),
    ],
)
def test_a_node_in_a_wrong_place_is_named_with_its_problem(
    paths: LedgerPaths, path: str, problem: str
) -> None:
    found = paths.ledger_at(path)
    assert isinstance(found, MisplacedNode)
    assert found.path == path
    assert found.problem.startswith(problem)


def test_the_nodes_beside_the_ledgers_are_known() -> None:
    names = [
        "available",
        "cookies",
        "LAYOUT",
        "INSTANCEID",
        "underreplication",
        "idgen",
        "idgen-long",
        "ID-0001",
    ]
    assert all(map(is_special, names))
    assert not any(map(is_special, ["00", "000", "L0000000001"]))


# ── the layout ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_layout_is_that_of_a_real_cluster() -> None:
    dump = (FIXTURES / "wire/zk-after-metaformat.txt").read_text()
    assert str(HIERARCHICAL) in dump
    assert encode_layout(LedgerTree.HIERARCHICAL) == HIERARCHICAL


@pytest.mark.parametrize("tree", LedgerTree)
def test_a_layout_is_decoded_to_the_tree_it_was_made_of(tree: LedgerTree) -> None:
    assert decode_layout("/ledgers/LAYOUT", encode_layout(tree)) is tree


@pytest.mark.parametrize(
    ("name", "tree"), [("flat", LedgerTree.FLAT), ("hierarchical", LedgerTree.HIERARCHICAL)]
)
def test_a_layout_of_the_first_version_is_decoded(name: str, tree: LedgerTree) -> None:
    assert decode_layout("/ledgers/LAYOUT", f"1\n{name}:1".encode()) is tree


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no layout of ledgers"),
        (b"junk", "no layout of ledgers"),
        (b"3\nx:1", "version 3; this program knows 1 and 2"),
        (b"2\norg.other.Factory:1", "ledgers are arranged by org.other.Factory"),
    ],
)
def test_a_layout_of_something_else_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(InvalidMetadata, match=words) as refused:
        decode_layout("/ledgers/LAYOUT", data)
    assert refused.value.path == "/ledgers/LAYOUT"


def test_a_cluster_without_a_layout_is_hierarchical_and_a_missing_root_is_named() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        with pytest.raises(NoSuchCluster, match="no cluster at /ledgers"):
            await read_tree(znodes, "/ledgers")
        await znodes.create("/ledgers")
        assert await read_tree(znodes, "/ledgers") is LedgerTree.HIERARCHICAL
        await znodes.create("/ledgers/LAYOUT", encode_layout(LedgerTree.FLAT))
        assert await read_tree(znodes, "/ledgers") is LedgerTree.FLAT

    run(test)


# ── listing ───────────────────────────────────────────────────────────────────────────────────────────────

IDS = [
    0,
    7,
    9999,
    10_000,
    99_999_999,
    100_000_000,
    2147483646,
    2147483647,
    2147483648,
    1 << 40,
    LEDGER_ID_MAX,
]


@pytest.mark.parametrize("tree", LedgerTree)
def test_29_ledgers_are_listed_in_ascending_order(tree: LedgerTree) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        paths = LedgerPaths("/ledgers", tree)
        for ledger_id in reversed(IDS):
            await create_node(znodes, paths.path_of(ledger_id))
        for name in (
            "available",
            "cookies",
            "idgen",
            "idgen-long",
            "underreplication",
            "LAYOUT",
            "INSTANCEID",
        ):
            await create_node(znodes, f"/ledgers/{name}/x")
        assert await collected(list_ledgers(znodes, paths)) == IDS

    run(test)


@pytest.mark.parametrize("tree", [LedgerTree.HIERARCHICAL, LedgerTree.LONG_HIERARCHICAL])
def test_29_ledgers_are_listed_beside_empty_inner_nodes_and_deletes(tree: LedgerTree) -> None:
    async def test(server: MemoryServer) -> None:
        znodes, other = server.session(), server.session()
        paths = LedgerPaths("/ledgers", tree)
        ids = [7, 10_007, 20_007, 100_000_007]
        for ledger_id in ids:
            await create_node(znodes, paths.path_of(ledger_id))
        await create_node(znodes, paths.path_of(30_007).rpartition("/")[0])

        found: list[object] = []
        async for one in list_ledgers(znodes, paths):
            found.append(one)
            if one == 7:
                # The last ledger of an inner node goes, and so does the inner node.
                path = paths.path_of(100_000_007)
                await other.delete(path)
                await other.delete(path.rpartition("/")[0])
        assert found in (ids[:3], ids)

    run_with_server(test)


def test_a_node_that_is_no_ledger_is_listed_with_its_problem() -> None:
    wrong = ["/ledgers/odd", "/ledgers/00/odd", "/ledgers/00/0000/odd", "/ledgers/000/0000/0000/0000/L0007"]

    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, HYBRID.path_of(7))
        for path in wrong:
            await create_node(znodes, path)
        found = await collected(list_ledgers(znodes, HYBRID))
        assert [one for one in found if isinstance(one, int)] == [7]
        assert {one.path for one in found if isinstance(one, MisplacedNode)} == {*wrong}

    run(test)


def test_a_listing_of_a_missing_root_names_it() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        with pytest.raises(NoSuchCluster, match="/ledgers"):
            await collected(list_ledgers(znodes, HYBRID))

    run(test)

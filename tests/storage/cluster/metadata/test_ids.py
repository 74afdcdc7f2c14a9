"""New ledger ids: in order, never twice, beyond 31 bits, and when answers are lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from cluster_loops import run, run_with_server
from memory_znodes import Loss

from storage.cluster.errors import InvalidMetadata, LedgerIdOverflow, MetadataUnavailable
from storage.cluster.metadata.ids import new_ledger_id
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import ChildNames, CreateMode, Node

if TYPE_CHECKING:
    from memory_znodes import MemoryServer, MemoryZnodes

LAST = (1 << 31) - 2


def count_from(server: MemoryServer, path: str, number: int) -> None:
    """Let the next sequential child of the node get this number, as after so many children."""
    tree = server.tree
    tree.nodes[path] = tree.nodes[path]._replace(created=number)


async def names_in(znodes: MemoryZnodes, path: str) -> tuple[str, ...]:
    children = await znodes.children(path)
    assert isinstance(children, ChildNames)
    return children.names


def test_ids_count_from_zero_and_leave_no_nodes() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        assert [await new_ledger_id(znodes, "/ledgers") for _ in range(3)] == [0, 1, 2]
        assert await names_in(znodes, "/ledgers/idgen") == ()

    run(test)


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name)
def test_an_id_whose_answer_is_lost_is_given_up(loss: Loss) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, "/ledgers/idgen")
        znodes.lose(loss)
        found = [await new_ledger_id(znodes, "/ledgers") for _ in range(2)]
        assert found == ([0, 1] if loss is Loss.NOT_DONE else [1, 2])
        # The node that was lost goes with the session.
        for name in await names_in(znodes, "/ledgers/idgen"):
            node = await znodes.get(f"/ledgers/idgen/{name}")
            assert isinstance(node, Node)
            assert node.stat.is_ephemeral

    run(test)


def test_no_answer_at_all_ends_as_an_error() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, "/ledgers/idgen")
        for after in range(10):
            znodes.lose(Loss.DONE, after)
        with pytest.raises(MetadataUnavailable, match="no id in 10 attempts"):
            await new_ledger_id(znodes, "/ledgers")

    run(test)


def test_27_ids_of_ten_clients_at_once_are_different() -> None:
    async def test(server: MemoryServer) -> None:
        async def ids() -> list[int]:
            znodes = server.session()
            return [await new_ledger_id(znodes, "/ledgers") for _ in range(10)]

        found = await asyncio.gather(*(ids() for _ in range(10)))
        assert sorted(one for each in found for one in each) == list(range(100))
        assert all(each != list(range(each[0], each[0] + 10)) for each in found)

    run_with_server(test)


def test_27_ids_go_on_with_a_high_half_when_31_bits_are_used_up() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        await create_node(znodes, "/ledgers/idgen")
        count_from(server, "/ledgers/idgen", LAST)
        assert await new_ledger_id(znodes, "/ledgers") == LAST
        assert await new_ledger_id(znodes, "/ledgers") == 1 << 32
        assert await new_ledger_id(znodes, "/ledgers") == (1 << 32) + 1
        assert await names_in(znodes, "/ledgers/idgen-long") == ("HOB-0000000001",)

    run_with_server(test)


def test_the_high_half_grows_when_a_low_half_is_used_up_and_three_nodes_are_kept() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        for high in range(1, 5):
            await create_node(znodes, f"/ledgers/idgen-long/HOB-{high:010}")
        count_from(server, "/ledgers/idgen-long/HOB-0000000004", LAST + 1)
        assert await new_ledger_id(znodes, "/ledgers") == 5 << 32
        assert await names_in(znodes, "/ledgers/idgen-long") == (
            "HOB-0000000003",
            "HOB-0000000004",
            "HOB-0000000005",
        )

    run_with_server(test)


def test_the_last_id_of_all_is_an_overflow() -> None:
    async def test(server: MemoryServer) -> None:
        znodes = server.session()
        last = f"/ledgers/idgen-long/HOB-{(1 << 31) - 1:010}"
        await create_node(znodes, last)
        count_from(server, last, LAST + 1)
        with pytest.raises(LedgerIdOverflow, match="/ledgers/idgen-long"):
            await new_ledger_id(znodes, "/ledgers")

    run_with_server(test)


def test_a_node_that_is_no_number_is_not_taken_for_a_high_half() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, "/ledgers/idgen-long/HOB-x")
        await create_node(znodes, "/ledgers/idgen-long/other")
        assert await new_ledger_id(znodes, "/ledgers") == 1 << 32

    run(test)


def test_a_server_that_appends_no_number_is_named() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        plain = znodes.create

        async def without_number(
            path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT
        ) -> object:
            del mode
            return await plain(path, data)

        znodes.create = without_number  # type: ignore[method-assign, assignment]
        with pytest.raises(InvalidMetadata, match="appended no number"):
            await new_ledger_id(znodes, "/ledgers")

    run(test)

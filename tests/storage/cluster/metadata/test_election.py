"""The election of the auditor: the vote that each candidate watches, and the end of a candidate."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from cluster_loops import run, run_with_server
from fixtures import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from memory_znodes import Loss

from storage.cluster.errors import InvalidMetadata, SessionExpired
from storage.cluster.metadata.election import (
    Candidate,
    Elected,
    NotElected,
    NoVote,
    election_path,
    read_auditor,
    standing,
)
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import ChildNames, Gone

if TYPE_CHECKING:
    from memory_znodes import MemoryServer, MemoryZnodes


def candidate(server: MemoryServer, name: str) -> tuple[MemoryZnodes, Candidate]:
    znodes = server.session()
    return znodes, Candidate(znodes, "/ledgers", name)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# ── who watches whom ──────────────────────────────────────────────────────────────────────────────────────


@given(st.sets(st.integers(0, 1 << 40), min_size=1, max_size=9))
def test_one_vote_is_elected_and_every_other_watches_the_one_before_it(numbers: set[int]) -> None:
    votes = [f"V_{number:010}" for number in numbers]
    order = sorted(votes, key=lambda vote: int(vote[2:]))
    assert standing(votes, order[0]) == Elected()
    for before, vote in pairwise(order):
        assert standing(votes, vote) == NotElected(before)


def test_votes_are_compared_as_numbers_and_other_nodes_do_not_count() -> None:
    votes = ["V_9999999999", "V_10000000000", "other", "V_x"]
    assert standing(votes, "V_9999999999") == Elected()
    assert standing(votes, "V_10000000000") == NotElected("V_9999999999")
    assert standing(votes, "V_0000000007") == NoVote()


# ── candidates ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_candidate_is_the_auditor_and_the_next_one_follows() -> None:
    async def test(server: MemoryServer) -> None:
        first, one = candidate(server, "bk1")
        second, two = candidate(server, "bk2")
        _, three = candidate(server, "bk3")
        await one.wait_until_elected()
        waiting = [asyncio.create_task(other.wait_until_elected()) for other in (two, three)]
        await settle()
        assert not any(task.done() for task in waiting)
        assert await read_auditor(second, "/ledgers") == "bk1"
        assert await one.is_elected()
        first.expire()
        await waiting[0]
        assert await read_auditor(second, "/ledgers") == "bk2"
        assert not waiting[1].done()
        with pytest.raises(SessionExpired):
            await one.is_elected()
        await two.withdraw()
        await waiting[1]
        assert not await two.is_elected()

    run_with_server(test)


def test_the_end_of_a_waiting_candidate_does_not_elect_the_one_after_it() -> None:
    async def test(server: MemoryServer) -> None:
        first, one = candidate(server, "bk1")
        second, two = candidate(server, "bk2")
        _, three = candidate(server, "bk3")
        await one.wait_until_elected()
        lost = asyncio.create_task(two.wait_until_elected())
        await settle()
        waiting = asyncio.create_task(three.wait_until_elected())
        await settle()
        second.expire()
        with pytest.raises(SessionExpired):
            await lost
        await settle()
        assert not waiting.done()
        first.expire()
        await waiting

    run_with_server(test)


def test_the_nodes_are_those_of_bookkeeper() -> None:
    async def test(server: MemoryServer) -> None:
        _, one = candidate(server, "bk1")
        await one.wait_until_elected()
        vote = (FIXTURES / "wire/zk-vote.bin").read_bytes()
        path = election_path("/ledgers")
        assert server.paths()[path] == vote
        assert server.paths()[f"{path}/V_0000000000"] == vote

    run_with_server(test)


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name)
def test_a_vote_whose_answer_is_lost_is_found_and_there_is_only_one(loss: Loss) -> None:
    async def test(server: MemoryServer) -> None:
        znodes, one = candidate(server, "bk1")
        await one.wait_until_elected()
        await one.withdraw()
        znodes.lose(loss, after=1)
        await one.wait_until_elected()
        votes = await znodes.children(election_path("/ledgers"))
        assert isinstance(votes, ChildNames)
        assert len(votes.names) == 1
        assert await one.is_elected()

    run_with_server(test)


def test_a_vote_whose_answer_is_lost_is_found_at_a_server_that_lags() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, one = candidate(server, "bk1")
        await create_node(znodes, election_path("/ledgers"))
        znodes.lose(Loss.DONE, after=1)  # the first write finds the parent

        async def lag() -> None:
            znodes.before_write = lagging

        async def lagging() -> None:
            znodes.lag()

        znodes.before_write = lag
        await asyncio.wait_for(one.wait_until_elected(), 5)
        votes = await znodes.children(election_path("/ledgers"))
        assert isinstance(votes, ChildNames)
        assert len(votes.names) == 1

    run_with_server(test)


def test_a_candidate_takes_the_vote_that_an_earlier_one_of_its_session_has_left() -> None:
    """Otherwise it would wait for that vote as long as the session lasts."""

    async def test(server: MemoryServer) -> None:
        znodes, one = candidate(server, "bk1")
        await one.wait_until_elected()
        again = Candidate(znodes, "/ledgers", "bk1")
        await asyncio.wait_for(again.wait_until_elected(), 5)
        assert await again.is_elected()

    run_with_server(test)


def test_a_candidate_whose_vote_was_deleted_votes_again() -> None:
    async def test(server: MemoryServer) -> None:
        znodes, one = candidate(server, "bk1")
        _, two = candidate(server, "bk2")
        await one.wait_until_elected()
        waiting = asyncio.create_task(two.wait_until_elected())
        await settle()
        await znodes.delete(f"{election_path('/ledgers')}/V_0000000001")
        await znodes.delete(f"{election_path('/ledgers')}/V_0000000000")
        await waiting
        assert await read_auditor(znodes, "/ledgers") == "bk2"
        assert not await one.is_elected()

    run_with_server(test)


def test_without_a_candidate_there_is_no_auditor_and_junk_is_named() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        assert await read_auditor(znodes, "/ledgers") == Gone()
        one = Candidate(znodes, "/ledgers", "bk1")
        await one.wait_until_elected()
        await znodes.set(f"{election_path('/ledgers')}/V_0000000000", b"bookieId")
        with pytest.raises(InvalidMetadata, match="V_0000000000"):
            await read_auditor(znodes, "/ledgers")

    run(test)

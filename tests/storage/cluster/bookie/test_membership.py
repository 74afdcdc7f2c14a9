"""A bookie is registered while it serves, again after an expired session, and not while it stops."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from cluster_loops import run_with_server

from storage.cluster.bookie import membership as membership_module
from storage.cluster.bookie.first_add import EndedLedger
from storage.cluster.bookie.membership import Membership, delete_repeatedly, service_info
from storage.cluster.errors import MetadataUnavailable, NoSuchCluster, OutcomeUnknown
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.registration import BookieMode, read_bookies, read_service_info
from storage.entry.credentials import Purpose

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memory_znodes import MemoryServer, MemoryZnodes

INFO = service_info("127.0.0.1", 3181)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "RETRY_S", 0.0)
    monkeypatch.setattr(membership_module, "POLL_S", 0.001)
    monkeypatch.setattr(membership_module, "CHECK_RETRY_S", 0.001)


class Sessions:
    """Opens sessions, and remembers them."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.opened: list[MemoryZnodes] = []
        self.refused = 0
        self.errors: list[Exception] = []
        self.mode = BookieMode.WRITABLE

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[MemoryZnodes]:
        if self.errors:
            raise self.errors.pop()
        if self.refused:
            self.refused -= 1
            raise MetadataUnavailable("nothing listens")
        session = self.server.session()
        self.opened.append(session)
        try:
            yield session
        finally:
            session.expire()


def member(sessions: Sessions) -> Membership:
    return Membership(sessions.connect, "/ledgers", "127.0.0.1:3181", 1.0, lambda: sessions.mode)


async def registered(server: MemoryServer) -> tuple[Sessions, Membership]:
    """Make a cluster, and register the bookie there."""
    await init_cluster(server.session(), "/ledgers", "an-instance")
    sessions = Sessions(server)
    one = member(sessions)
    await one.register(INFO)
    return sessions, one


async def bookies(server: MemoryServer) -> frozenset[str]:
    return (await read_bookies(server.session(), "/ledgers")).writable


def test_a_bookie_is_shown_with_its_address_until_it_hides() -> None:
    async def main(server: MemoryServer) -> None:
        await init_cluster(server.session(), "/ledgers", "an-instance")
        one = member(Sessions(server))
        await one.register(INFO)
        assert await bookies(server) == {"127.0.0.1:3181"}
        assert await read_service_info(server.session(), "/ledgers", "127.0.0.1:3181") == INFO
        await one.unregister()
        assert await bookies(server) == frozenset()

    run_with_server(main)


def test_a_bookie_whose_session_has_expired_is_registered_again() -> None:
    async def main(server: MemoryServer) -> None:
        sessions, one = await registered(server)
        sessions.refused = 3
        sessions.opened[0].expire()
        async with asyncio.timeout(10.0):
            while not await bookies(server) or len(sessions.opened) < 2:
                await asyncio.sleep(0)
        assert sessions.refused == 0
        await one.unregister()

    run_with_server(main)


def test_a_bookie_that_could_not_register_in_a_new_session_tries_again() -> None:
    async def main(server: MemoryServer) -> None:
        sessions, one = await registered(server)
        sessions.errors = [OutcomeUnknown("/ledgers/available", "the connection was lost")]
        sessions.opened[0].expire()
        async with asyncio.timeout(10.0):
            while len(sessions.opened) < 2 or not await bookies(server):
                await asyncio.sleep(0)
        assert sessions.errors == []
        assert await bookies(server) == {"127.0.0.1:3181"}
        await one.unregister()

    run_with_server(main)


def test_an_unexpected_error_in_a_session_is_logged_and_the_bookie_registers_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(server: MemoryServer) -> None:
        sessions, one = await registered(server)
        sessions.errors = [RuntimeError("a bug")]
        sessions.opened[0].expire()
        async with asyncio.timeout(10.0):
            while len(sessions.opened) < 2 or not await bookies(server):
                await asyncio.sleep(0)
        await one.unregister()

    run_with_server(main)
    [record] = [one for one in caplog.records if one.exc_info is not None]
    assert "127.0.0.1:3181" in record.getMessage()
    assert "a bug" in str(record.exc_info)


def test_an_unexpected_error_before_the_first_registration_ends_the_start() -> None:
    async def main(server: MemoryServer) -> None:
        sessions = Sessions(server)
        sessions.errors = [RuntimeError("a bug")]
        with pytest.raises(RuntimeError, match="a bug"):
            await member(sessions).register(INFO)

    run_with_server(main)


def test_ledgers_are_deleted_again_after_an_unexpected_error(caplog: pytest.LogCaptureFixture) -> None:
    class Deletion:
        passes = 0

        async def make_pass(self, *_: object) -> None:
            self.passes += 1
            if self.passes == 1:
                raise RuntimeError("a bug")

    async def main(server: MemoryServer) -> None:
        await init_cluster(server.session(), "/ledgers", "an-instance")
        one, deletion = member(Sessions(server)), Deletion()
        await one.register(INFO)
        task = asyncio.create_task(delete_repeatedly([cast("Any", deletion)], one, 0.0))
        async with asyncio.timeout(10.0):
            while deletion.passes < 3:
                await asyncio.sleep(0)
        task.cancel()
        await one.unregister()

    run_with_server(main)
    assert any("a bug" in str(one.exc_info) for one in caplog.records)


def test_a_bookie_that_refuses_adds_is_shown_as_read_only_until_it_accepts_them_again() -> None:
    async def main(server: MemoryServer) -> None:
        sessions, one = await registered(server)
        for mode in (BookieMode.READ_ONLY, BookieMode.WRITABLE):
            sessions.mode = mode
            while True:
                found = await read_bookies(server.session(), "/ledgers")
                assert found.all == {"127.0.0.1:3181"}, "it is never lost"
                here = found.writable if mode is BookieMode.WRITABLE else found.read_only
                if here and len(found.writable) + len(found.read_only) == 1:
                    break
                await asyncio.sleep(0)
        await one.unregister()
        assert await bookies(server) == frozenset()

    run_with_server(main)


def test_a_cluster_that_is_not_there_ends_the_start() -> None:
    async def main(server: MemoryServer) -> None:
        with pytest.raises(NoSuchCluster):
            await member(Sessions(server)).register(INFO)
        refusing = Sessions(server)
        refusing.refused = 1
        with pytest.raises(MetadataUnavailable):
            await member(refusing).register(INFO)

    run_with_server(main)


def test_without_a_session_no_ledger_is_checked() -> None:
    async def main(server: MemoryServer) -> None:
        one = member(Sessions(server))
        with pytest.raises(MetadataUnavailable):
            await one.check_first(7, Purpose.WRITING)
        await init_cluster(server.session(), "/ledgers", "an-instance")
        await one.register(INFO)
        assert await one.check_first(7, Purpose.WRITING) == EndedLedger()
        await one.unregister()
        with pytest.raises(MetadataUnavailable):
            await one.check_first(7, Purpose.WRITING)

    run_with_server(main)


def test_a_first_add_waits_for_the_next_session() -> None:
    async def main(server: MemoryServer) -> None:
        sessions, one = await registered(server)
        sessions.refused = 3
        sessions.opened[0].expire()
        assert await one.check_first(7, Purpose.WRITING) == EndedLedger()
        assert sessions.refused == 0
        await one.unregister()

    run_with_server(main)


def test_a_first_add_is_refused_if_no_session_comes_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "CHECK_TIMEOUT_S", 0.01)

    async def main(server: MemoryServer) -> None:
        sessions, one = await registered(server)
        sessions.refused = 1 << 30
        sessions.opened[0].expire()
        with pytest.raises(MetadataUnavailable):
            await one.check_first(7, Purpose.WRITING)
        await one.unregister()

    run_with_server(main)

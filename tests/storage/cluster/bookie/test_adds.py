"""Adds without room wait by ledger, and not longer than the throttle time-out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from bookie_connection import add_of

from storage.cluster.bookie.adds import Adds
from storage.cluster.bookie.traffic import Traffic
from storage.cluster.wire import v2
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddRun, Incoming

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TIMEOUT_S = 10.0


class Work:
    """An add, as far as `Adds` looks at it."""

    def __init__(self, ledger_id: int) -> None:
        self.state = SimpleNamespace(ledger_id=ledger_id)
        self.is_durable = False
        self.refusal = None
        self.group = None


class Bookie:
    """A bookie whose ledgers have room when a test says so."""

    def __init__(self, on_wait: Callable[[float], None]) -> None:
        self.has_room: set[int] = set()
        self.held: set[int] = set()
        """Ledgers whose adds wait until they are deleted."""
        self._on_wait = on_wait

    def has_entries(self, _: int) -> bool:
        return True

    def entries(self, ledger_id: int, *_: object) -> Work:
        return Work(ledger_id)

    def commit(self, works: Sequence[Work], done: Callable[[], None]) -> None:
        for work in works:
            work.is_durable = work.state.ledger_id in self.has_room
        done()

    async def wait_for_room(self, work: Work, timeout_s: float) -> bool:
        self._on_wait(timeout_s)
        if work.state.ledger_id in self.held:
            await asyncio.Event().wait()
        return True


class Client:
    """Remembers the answers to a connection."""

    def __init__(self) -> None:
        self.codes: dict[int, Code] = {}

    def answer_adds(self, run: AddRun, code: Code) -> None:
        self.codes[run.ledger_id] = code

    refuse_adds = answer_adds

    def flush(self) -> None:
        """Do nothing: no answer waits here."""


class World:
    """`Adds` with a bookie that has no room, a clock and one client."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now, self._step_s = 0.0, step_s
        self.timeouts: list[float] = []
        self.bookie, self.client = Bookie(self._wait), Client()
        self.tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        self._adds = Adds(
            cast("Any", self.bookie),
            loop.call_soon,
            lambda work: self.tasks.append(loop.create_task(work)),
            cast("Any", None),
            TIMEOUT_S,
            Traffic(lambda: self.now),
        )

    def _wait(self, timeout_s: float) -> None:
        self.timeouts.append(timeout_s)
        self.now += self._step_s

    def add(self, ledger_id: int) -> None:
        incoming = v2.decode_request(v2.encode_request(add_of(ledger_id, 0, b"x"))[4:])
        assert isinstance(incoming, Incoming)
        self._adds.take(cast("Any", self.client), AddRun.of(incoming, cast("Any", incoming.request)))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0)


def test_a_ledger_that_takes_no_adds_does_not_hold_up_the_adds_to_others() -> None:
    async def main() -> None:
        world = World()
        world.bookie.held = {1}
        world.add(1)
        world.add(2)
        await world.until(lambda: len(world.tasks) > 0)
        world.bookie.has_room = {1, 2}
        await world.until(lambda: world.client.codes.get(2) is Code.OK)
        assert 1 not in world.client.codes
        for task in world.tasks:
            task.cancel()

    asyncio.run(main())


def test_an_add_that_finds_the_room_taken_again_and_again_is_refused_in_the_end() -> None:
    async def main() -> None:
        world = World(step_s=TIMEOUT_S / 4)
        world.add(1)
        await world.until(lambda: bool(world.client.codes))
        assert world.client.codes == {1: Code.TOO_MANY_REQUESTS}
        assert world.timeouts == [10.0, 7.5, 5.0, 2.5]

    asyncio.run(main())

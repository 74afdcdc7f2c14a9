"""Disturbs a cluster while its clients work, by one fault after the other, from a seed.

Bookies are killed and started again, and paused; so is the metadata server. The connections of the clients go
through proxies, which hold, delay, throttle, cut and reset them. Clients find the proxy of a bookie in its
service info, where `advertised` keeps it; the proxy of the metadata is in the URI that they get.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fault_proxy import HOLD, NO_FAULTS, SILENCE, FaultProxy, ProxyFaults

from storage.cluster.errors import MetadataUnavailable
from storage.cluster.metadata.registration import (
    BOOKIE_PROTOCOL,
    BookieMode,
    ServiceInfo,
    bookie_path,
    encode_service_info,
    follow_service_info,
)
from storage.cluster.metadata.znodes import Unknown
from storage.cluster.zookeeper.client import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from random import Random

    from zookeeper_processes import KillableServer

    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.zookeeper.client import ClientConfig

_RETRY_S = 0.2


@asynccontextmanager
async def advertised(config: ClientConfig, root: str, ports: Mapping[str, int]) -> AsyncIterator[None]:
    """Keep the address of each bookie, by id, at this port, also when it registers again."""
    known = {bookie: asyncio.Event() for bookie in ports}
    advertising = asyncio.create_task(_advertise_all(config, root, ports, known))
    try:
        for event in known.values():
            await event.wait()
        yield
    finally:
        advertising.cancel()
        await asyncio.gather(advertising, return_exceptions=True)


async def _advertise_all(
    config: ClientConfig, root: str, ports: Mapping[str, int], known: Mapping[str, asyncio.Event]
) -> None:
    while True:
        # The session expires if the metadata server is away for long.
        with suppress(MetadataUnavailable):
            async with connect(config) as znodes:
                await asyncio.gather(
                    *(
                        _advertise(znodes, root, bookie, mode, port, known[bookie])
                        for bookie, port in ports.items()
                        for mode in BookieMode
                    )
                )
        await asyncio.sleep(_RETRY_S)


async def _advertise(
    znodes: Znodes, root: str, bookie: str, mode: BookieMode, port: int, is_done: asyncio.Event
) -> None:
    async for info in follow_service_info(znodes, root, bookie, mode):
        if not isinstance(info, ServiceInfo):
            continue
        if info.bookie_endpoint(bookie).port == port:
            is_done.set()
            continue
        others = tuple(one for one in info.endpoints if one.protocol != BOOKIE_PROTOCOL)
        moved = replace(info.bookie_endpoint(bookie), port=port)
        data = encode_service_info(replace(info, endpoints=(moved, *others)))
        await _set(znodes, bookie_path(root, bookie, mode), data)


async def _set(znodes: Znodes, path: str, data: bytes) -> None:
    """Set the data of a node, also if the first answers are lost."""
    while isinstance(await znodes.set(path, data), Unknown):
        await asyncio.sleep(_RETRY_S)


@dataclass(slots=True)
class Target:
    """A server with the proxy before it."""

    name: str
    server: KillableServer
    proxy: FaultProxy

    async def kill(self, down_s: float) -> None:
        self.server.kill()
        await asyncio.sleep(down_s)
        await asyncio.to_thread(self.server.start)

    async def pause(self, seconds: float) -> None:
        self.server.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.server.send(signal.SIGCONT)

    async def use(self, faults: ProxyFaults, seconds: float) -> None:
        self.proxy.use(faults)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.proxy.use(NO_FAULTS)

    async def cut(self, to_server: int | None, from_server: int | None, seconds: float) -> None:
        self.proxy.cut_after(to_server, from_server)
        await asyncio.sleep(seconds)
        self.proxy.cut_after(None, None)

    async def reset(self) -> None:
        self.proxy.reset_now()


async def pause_process(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


@dataclass(slots=True)
class Disturber:
    """Disturbs one thing after the other until it is stopped, and then mends everything."""

    dice: Random
    bookies: Sequence[Target]
    metadata: Target
    others: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    """Other disturbances by name, such as the kill of a client."""
    between_s: float = 0.5
    """The longest pause between two disturbances."""
    counted: Counter[str] = field(default_factory=Counter)

    async def run(self, is_over: asyncio.Event) -> None:
        """Disturb until `is_over` is set, and return when the last disturbance has ended."""
        while not is_over.is_set():
            await self._disturb()
            await asyncio.sleep(self.dice.random() * self.between_s)

    async def _disturb(self) -> None:
        dice = self.dice
        seconds = 0.3 + 2.5 * dice.random()
        choices = {"bookie": 12, "metadata": 4, **dict.fromkeys(self.others, 2)}
        what = dice.choices(list(choices), list(choices.values()))[0]
        if what in self.others:
            self.counted[what] += 1
            await self.others[what]()
            return
        target = dice.choice(self.bookies) if what == "bookie" else self.metadata
        faults: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "kill": (3, lambda: target.kill(seconds / 2)),
            "pause": (3, lambda: target.pause(seconds)),
            "hold": (2, lambda: target.use(HOLD, seconds)),
            "silence": (2, lambda: target.use(SILENCE, seconds)),
            "latency": (1, lambda: target.use(ProxyFaults(latency_s=0.05, jitter_s=0.2), seconds)),
            "throttle": (1, lambda: target.use(ProxyFaults(bytes_per_s=50_000), seconds)),
            "cut to": (1, lambda: target.cut(dice.randrange(2000), None, seconds)),
            "cut from": (1, lambda: target.cut(None, dice.randrange(2000), seconds)),
            "reset": (2, target.reset),
        }
        kind = dice.choices(list(faults), [weight for weight, _ in faults.values()])[0]
        self.counted[f"{what} {kind}"] += 1
        await faults[kind][1]()

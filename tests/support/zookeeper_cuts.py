"""Connections to a metadata server that are cut at any byte, and what ZooKeeper promises after each.

    python tests/support/zookeeper_cuts.py 20000      so many cuts; a thousand without a number

One client works through a proxy that cuts its connection; another, untouched, watches. The first has sent
changes of each kind and a watch without waiting. Then it takes its session over with a new connection, or
stays away until the session expires. `problems_after_a_cut` says what must hold.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from fault_proxy import fault_proxy
from zookeeper_client import ConnectionCut, RawClient, Reply, open_client, session
from zookeeper_servers import serving

from storage.cluster.zookeeper.records import (
    OPEN_ACL,
    SET_WATCHES_XID,
    Create,
    ErrorCode,
    EventType,
    OpCode,
    PathAndVersion,
    PathAndWatch,
    SetData,
    SetWatches,
)

if TYPE_CHECKING:
    from fault_proxy import FaultProxy

    from storage.cluster.zookeeper.server import Server

REQUESTS = 12
_REQUEST_BYTES = 620
_ANSWER_BYTES = 960
"""About the bytes of a whole run in each direction; cuts are placed below."""


async def cut_often(seed: int, cuts: int) -> list[str]:
    """Cut so many connections of one server; return what was wrong."""
    problems: list[str] = []
    async with serving() as server, fault_proxy(server.port) as proxy:
        for number in range(cuts):
            dice = Random(f"cut {seed} {number}")
            found = await problems_after_a_cut(server, proxy, dice, f"/n{number}")
            problems += [f"cut {number} of seed {seed}: {problem}" for problem in found]
    return problems


async def problems_after_a_cut(server: Server, proxy: FaultProxy, dice: Random, root: str) -> list[str]:
    """Cut one connection at a random byte; return the promises that do not hold.

    1. Each request ends exactly once, with its answer or because the connection was cut; those answered are
       the first ones.
    2. What was answered has happened. Of the others the first ones have happened, each once.
    3. A client that connects again in time finds its session and its ephemeral nodes, and hears of what it
       watches exactly once, before or after the cut.
    4. If it does not come, its ephemeral nodes go, and those who watch them are told once.
    """
    problems: list[str] = []
    async with session(server.port, 40_000) as watcher:
        await watcher.create(root)
        await watcher.create(f"{root}/watched", b"before")
        if dice.random() < 0.5:
            proxy.cut_after(dice.randrange(20, _REQUEST_BYTES), None)
        else:
            proxy.cut_after(None, dice.randrange(20, _ANSWER_BYTES))
        client = await open_client(proxy.port)
        try:
            await client.begin(10_000)
        except ConnectionCut:
            await watcher.delete(f"{root}/watched")
            await watcher.delete(root)
            return []
        ends: list[int] = []
        futures = [client.send(OpCode.GET_DATA, PathAndWatch(f"{root}/watched", True))]
        futures += [_send(client, root, number) for number in range(REQUESTS)]
        for number, future in enumerate(futures):
            future.add_done_callback(partial(_note_end, ends, number))
        await asyncio.wait(futures)
        await watcher.set_data(f"{root}/watched", b"after")
        if len(futures) != len(ends) or sorted(ends) != list(range(len(futures))):
            problems.append(f"the requests ended as {ends}")
        answered = [future.exception() is None for future in futures]
        if answered != sorted(answered, reverse=True):
            problems.append(f"answered are {answered}")
        client.close()
        await client.closed.wait()
        proxy.cut_after(None, None)
        happened = await _happened(watcher, root)
        done = [future.result() for future in futures[1:] if future.exception() is None]
        if any(reply.error for reply in done) or happened < len(done):
            problems.append(f"{len(done)} requests were answered, and {happened} have happened")
        if dice.random() < 0.7:
            watching = futures[0].result() if answered[0] else None
            problems += await _connect_again(server, client, root, watching)
        else:
            problems += await _stay_away(server, watcher, root, happened)
    return problems


def _note_end(ends: list[int], number: int, _: asyncio.Future[Reply]) -> None:
    ends.append(number)


def _send(client: RawClient, root: str, number: int) -> asyncio.Future[Reply]:
    """Send the request of that number: an ephemeral node first and then, in turns, three kinds of change."""
    if number == 0:
        return client.send(OpCode.CREATE, Create(f"{root}/mine", b"", OPEN_ACL, 1))
    kind, name = number % 3, f"{root}/e-"
    if kind == 0:
        return client.send(OpCode.SET_DATA, SetData(f"{root}/mine", b"%d" % number, -1))
    if kind == 1:
        return client.send(OpCode.CREATE, Create(name, b"%d" % number, OPEN_ACL, 3))
    return client.send(OpCode.SET_DATA, SetData(root, b"%d" % number, -1))


async def _happened(watcher: RawClient, root: str) -> int:
    """Return how many of the requests have happened; the first ones, and each once, or it fails."""
    sequential = sorted(name for name in await watcher.children(root) if name.startswith("e-"))
    created = [int(await watcher.data(f"{root}/{name}") or b"") for name in sequential]
    if not await watcher.exists(f"{root}/mine"):
        assert not created, f"{created} have happened before the first one"
        return 0
    set_last = [int(await watcher.data(path) or b"0") for path in (root, f"{root}/mine")]
    last = max([0, *created, *set_last])
    by_kind = [[one for one in range(1, last + 1) if one % 3 == kind] for kind in range(3)]
    assert created == by_kind[1], f"created were {created}, and the last change is {last}"
    assert set_last == [max([0, *by_kind[2]]), max([0, *by_kind[0]])], f"{set_last} of {last}"
    return last + 1


async def _connect_again(server: Server, before: RawClient, root: str, watching: Reply | None) -> list[str]:
    """Take the session over. `watching` is the answer of the read that has left a watch, if it came."""
    problems = []
    client = await open_client(server.port)
    old = before.session
    answer = await client.begin(10_000, old.session_id, old.password, before.zxid_seen)
    if answer != old:
        return [f"the session is {answer}, and was {old}"]
    if watching is not None:
        since = before.zxid_seen
        watches = SetWatches(since, (f"{root}/watched",), (), ())
        if (EventType.DATA_CHANGED, f"{root}/watched") not in before.events:
            await client.send(OpCode.SET_WATCHES, watches, SET_WATCHES_XID)
        await client.set_data(f"{root}/watched", b"again")
        heard = [*before.events, *client.events].count((EventType.DATA_CHANGED, f"{root}/watched"))
        if heard != 1:
            problems.append(f"a watch was told {heard} times")
    if await client.exists(f"{root}/mine"):
        reply = await client.ask(OpCode.GET_DATA, PathAndWatch(f"{root}/mine", False))
        assert reply.record is not None
        if reply.record[1].ephemeral_owner != old.session_id:
            problems.append("the ephemeral node has another owner")
    await client.end()
    await client.closed.wait()
    return problems


async def _stay_away(server: Server, watcher: RawClient, root: str, happened: int) -> list[str]:
    mine = await watcher.exists(f"{root}/mine", watch=True)
    if mine != (happened > 0):
        return [f"{happened} requests have happened, and the ephemeral node is there: {mine}"]
    server.expire(server.now_ms() + 20_000)
    left = [name for name in await watcher.children(root) if name != "watched"]
    told = watcher.events.count((EventType.DELETED, f"{root}/mine"))
    await watcher.delete(f"{root}/watched")
    if left or told != int(mine):
        return [f"after the session expired {left} are there, and the watch was told {told} times"]
    reply = await watcher.ask(OpCode.DELETE, PathAndVersion(root, -1))
    return [] if reply.error == ErrorCode.OK else [f"{root} cannot be deleted: {reply.error}"]


def main(arguments: list[str]) -> int:
    cuts = int(arguments[0]) if arguments else 1000
    problems: list[str] = []
    done = 0
    while done < cuts:
        count = min(1000, cuts - done)
        problems += asyncio.run(cut_often(done, count))
        done += count
        print(f"{done:,} cuts, {len(problems)} problems", flush=True)
    print(*problems[:20], sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Crashes of the metadata server on a simulated disk: three clients work, and the power fails at any time.

    python tests/support/zookeeper_crashes.py         four workloads, as `make crash` does
    python tests/support/zookeeper_crashes.py 17      one workload again, as a violation names it

The server and its clients run on one loop over real sockets, and its store in the same thread, so that a copy
of the disk can be made before each operation. With each copy goes what was promised by then: the largest zxid
that any client has seen in any answer, because an answer may tell nothing that a crash can take back.

After each power cut the log is read again. The tree and the sessions must be those after some change, whole,
and not one before the largest zxid that was seen.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from stepped_store import SMALL, Site
from zookeeper_client import RawClient, open_client
from zookeeper_servers import InlineMetadataStore, SteadyTime

from recovery.crashlab import LoseAll, RandomFate, Tearing, Verb
from storage.cluster.zookeeper.log import DamagedLog, LogLimits, load
from storage.cluster.zookeeper.records import OPEN_ACL, Create, Multi, OpCode, PathAndVersion, SetData
from storage.cluster.zookeeper.server import Server, ServerConfig
from storage.errors import StoreError

if TYPE_CHECKING:
    from recovery.crashlab import Fate, Operation, SimulatedDisk
    from storage.cluster.zookeeper.tree import DurableSession, Znode, ZnodeTree

CLIENTS = 3
LIMITS = LogLimits(changes=40, size=16 << 10)
"""So small that a workload writes several snapshots."""


@dataclass(frozen=True, slots=True)
class ObservedTree:
    """Nodes and sessions after a change."""

    nodes: dict[str, Znode]
    sessions: dict[int, DurableSession]

    @classmethod
    def of(cls, tree: ZnodeTree) -> ObservedTree:
        return cls(dict(tree.nodes), dict(tree.sessions))


@dataclass
class ServerHistory:
    """The history of a server: the tree after each change, and the copies of its disk."""

    after: dict[int, ObservedTree] = field(default_factory=dict)
    """By zxid."""
    moments: list[tuple[str, Verb, SimulatedDisk, int]] = field(default_factory=list)
    """Before each operation: its name and verb, the disk, and the largest zxid that a client has seen."""
    snapshots: int = 0

    def observe(self, tree: ZnodeTree) -> None:
        """Note the tree as it is after its last change."""
        self.after[tree.zxid] = ObservedTree.of(tree)


def record(seed: int, bursts: int = 40) -> ServerHistory:
    """Run a workload on a server, and return its history."""
    return asyncio.run(_record(seed, bursts))


async def _record(seed: int, bursts: int) -> ServerHistory:
    history, dice, site = ServerHistory(), Random(f"crashes {seed}"), Site(SMALL)
    clients: list[RawClient] = []
    gone: list[RawClient] = []

    def keep(operation: Operation) -> None:
        # Only the server's loop runs Python, so that nothing is answered between the two lines.
        seen = max((client.zxid_seen for client in [*clients, *gone]), default=0)
        what = f"{operation.number}, {operation.verb} {operation.path}"
        history.moments.append((what, operation.verb, site.disk.copy(), seen))

    async with asyncio.timeout(60):
        store = site.open()
        passwords = count(1)
        config = ServerConfig(port=0, log=LIMITS)
        server = Server(
            InlineMetadataStore(store),  # type: ignore[arg-type]
            config,
            SteadyTime(),
            lambda: next(passwords).to_bytes(16, "big"),
        )
        await server.start()
        _observe_each_change(server, history)
        site.disk.watch(keep)
        for _ in range(CLIENTS):
            clients.append(await open_client(server.port))
            await clients[-1].begin()
        for number in range(bursts):
            futures = [_send(client, dice) for client in clients for _ in range(dice.choice([0, 1, 2, 5]))]
            if futures:
                await asyncio.wait(futures)
            if number % 8 == 7:
                ended = dice.randrange(CLIENTS)
                await clients[ended].end()
                await clients[ended].closed.wait()
                gone.append(clients[ended])  # the answers that it has got must stay true
                clients[ended] = await open_client(server.port)
                await clients[ended].begin()
            if number % 10 == 9:
                site.checkpoint(store)
        history.snapshots = load(store).generation
        await server.stop()
        store.close()
    return history


def _observe_each_change(server: Server, history: ServerHistory) -> None:
    tree = server.service.tree
    apply = tree.apply
    history.observe(tree)

    def observed(*arguments: object) -> object:
        outcome = apply(*arguments)  # type: ignore[arg-type]
        if outcome.is_applied:
            history.observe(tree)
        return outcome

    tree.apply = observed  # type: ignore[method-assign,assignment]


def _send(client: RawClient, dice: Random) -> asyncio.Future[object]:
    path = f"/{dice.choice('abcd')}"
    if dice.random() < 0.5:
        path += f"/{dice.choice('xyz')}"
    data = dice.randbytes(dice.choice([0, 10, 300]))
    create = OpCode.CREATE, Create(path, data, OPEN_ACL, dice.choice([0, 0, 0, 1]))
    delete = OpCode.DELETE, PathAndVersion(path, -1)
    change = OpCode.SET_DATA, SetData(path, data, -1)
    both = OpCode.SET_DATA, SetData("/", data, -1)
    multi = OpCode.MULTI, Multi((both, dice.choice([create, change, delete]), both))
    opcode, request = dice.choice([create, create, change, delete, multi, multi])
    return client.send(opcode, request)  # type: ignore[return-value]


# ── what a crash leaves ───────────────────────────────────────────────────────────────────────────────────


@dataclass
class MetadataCrashFigures:
    """How much was explored."""

    moments: int = 0
    cuts: int = 0
    images: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)


_SYNCS = (Verb.SYNC, Verb.SYNC_DIRECTORY)


def explore(seed: int, stride: int = 1, bursts: int = 40) -> MetadataCrashFigures:
    """Crash a workload before every `stride`-th operation in every way; compare what is left."""
    history, figures = record(seed, bursts), MetadataCrashFigures()
    found: dict[str, tuple[int, ObservedTree] | str] = {}
    for what, verb, disk, seen in history.moments[seed % stride :: stride]:
        figures.moments += 1
        for fate in _fates(disk, verb, Random(f"{seed} {what}")):
            after = disk.copy()
            after.power_cut(fate)
            figures.cuts += 1
            image = after.image()
            if image not in found:
                found[image] = _recovered(after)
            problem = _problem(found[image], history, seen)
            if problem:
                figures.violations.append(f"workload {seed}, before {what}, {fate}: {problem}")
    figures.images = set(found)
    return figures


def _fates(disk: SimulatedDisk, verb: Verb, dice: Random) -> list[Fate]:
    if verb not in _SYNCS:
        return [LoseAll()]
    return [*disk.fates(), *(RandomFate(dice.getrandbits(32), tearing) for tearing in Tearing)]


def _recovered(disk: SimulatedDisk) -> tuple[int, ObservedTree] | str:
    """Read the log twice, with a power cut between; return the tree, or what is wrong."""
    site = Site(SMALL, disk, first_salt=1000)
    try:
        first = load(site.open()).tree
        second = load(site.after_power_cut()).tree
    except (StoreError, DamagedLog, OSError, AssertionError) as error:
        return f"refused: {error!r}"
    if (first.zxid, ObservedTree.of(first)) != (second.zxid, ObservedTree.of(second)):
        return "opened again it differs"
    return first.zxid, ObservedTree.of(first)


def _problem(found: tuple[int, ObservedTree] | str, history: ServerHistory, seen: int) -> str:
    if isinstance(found, str):
        return found
    zxid, tree = found
    if zxid < seen:
        return f"a client has seen zxid {seen}, and the log ends at {zxid}"
    return "" if history.after.get(zxid) == tree else f"at zxid {zxid} the tree is another"


WORKLOADS = range(4)
BURSTS = 60
STATES_MIN = 3000


def main(arguments: list[str]) -> int:
    """Explore the workloads; return 1 if a promise does not hold, or too few states were explored."""
    seeds = [int(arguments[0])] if arguments else list(WORKLOADS)
    states, violations = 0, []
    for seed in seeds:
        figures = explore(seed, bursts=BURSTS)
        states += len(figures.images)
        violations += figures.violations
        print(f"workload {seed}: {figures.moments} moments, {figures.cuts:,} power cuts", flush=True)
    print(*violations[:20], sep="\n")
    print(f"metadata server: {states:,} states, {len(violations)} violations")
    return 1 if violations or (not arguments and states < STATES_MIN) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

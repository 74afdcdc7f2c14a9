"""Seeded histories of requests from three clients, played on any ZooKeeper server, and what each client saw.

A history is made of bursts: one client sends some requests at once and waits for all answers, then it is the
next one's turn. The order of all requests is thereby the same on every server, and so must be the answers,
the errors, the stats and the watch events, in each client's own order. `play` returns that as lines of text.

What must differ between servers is replaced: a zxid by its place among the history's zxids, the id of a
session by the number of its client, and times are left out. The answer of a request that was refused, or
that only reads, tells the server's newest zxid; that is left out too, because ZooKeeper also gives zxids to
refused requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from zookeeper_client import Notified, RawClient, Reply, open_client

from storage.cluster.zookeeper.records import (
    ALL_PERMISSIONS,
    AUTH_XID,
    OPEN_ACL,
    SET_WATCHES_XID,
    Acl,
    Auth,
    ClientInfos,
    Create,
    CreateTtl,
    ErrorCode,
    EventType,
    Multi,
    Nothing,
    OpCode,
    PathAndMode,
    PathAndVersion,
    PathAndWatch,
    PathOnly,
    SetAcl,
    SetData,
    SetWatches,
    Stat,
)
from storage.cluster.zookeeper.service import WRITES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Record = tuple[Any, ...]

CLIENTS = 3
OPERATIONS = 200
_TIMEOUT_MS = 10_000


@dataclass
class _Seat:
    """One client of a history, and what it has seen with its sessions so far."""

    client: RawClient
    lines: list[object] = field(default_factory=list)


class History:
    """One seed's history on one server."""

    def __init__(self, port: int, seed: int, operations: int = OPERATIONS) -> None:
        self._port = port
        self._dice = Random(f"history {seed}")
        self._root = f"/h{seed}"
        self._left = operations
        self._seats: list[_Seat] = []
        self._owners: dict[int, str] = {}
        """By session id: the name of that session."""
        self._zxids: set[int] = set()
        """Those of changes that were made, and all that were shown."""
        self._written: list[int] = [0]
        """Zxids of the changes that were made, in their order."""
        self._closings: set[int] = set()
        """Zxids of the ends of sessions, whose nodes go in any order."""

    async def play(self) -> list[str]:
        """Run the history; return what was seen, line by line."""
        for number in range(CLIENTS):
            self._seats.append(_Seat(await self._begin(f"session {number}.0")))
        await self._burst(self._seats[0], [(OpCode.CREATE, Create(self._root, b"", OPEN_ACL))])
        while self._left > 0:
            number = self._dice.randrange(CLIENTS)
            seat = self._seats[number]
            fate = self._dice.random()
            if fate < 0.03:
                await self._end_and_begin(seat, number)
            elif fate < 0.06:
                await self._cut_and_connect(seat)
            else:
                count = min(self._left, self._dice.choice([1, 1, 2, 4, 8]))
                self._left -= count
                await self._burst(seat, [self._request() for _ in range(count)])
                await self._alone(seat)
        for seat in self._seats:
            await self._hear_everything(seat)
        for seat in self._seats:
            await self._burst(seat, [(OpCode.CLOSE_SESSION, Nothing())])
            await seat.client.closed.wait()
            self._keep(seat)
        return list(self._transcript())

    async def _alone(self, seat: _Seat) -> None:
        """Sometimes send a request that must not be in one burst with others.

        The real server takes authentication before requests that came earlier; and requests that came before
        it has applied a setACL are checked against the list before that.
        """
        if self._dice.random() < 0.03:
            user = Auth(0, "digest", b"user%d:secret" % self._dice.randrange(2))
            await self._burst(seat, [(OpCode.AUTH, user)])
        if self._dice.random() < 0.05:
            await self._burst(seat, [(OpCode.SET_ACL, SetAcl(self._path(), self._acl(), self._version()))])

    async def _begin(self, name: str) -> RawClient:
        client = await open_client(self._port)
        answer = await client.begin(_TIMEOUT_MS)
        self._owners[answer.session_id] = name
        return client

    async def _end_and_begin(self, seat: _Seat, number: int) -> None:
        await self._burst(seat, [(OpCode.CLOSE_SESSION, Nothing())])
        await seat.client.closed.wait()
        self._keep(seat)
        seat.lines.append("begins a session")
        seat.client = await self._begin(f"session {number}.{len(seat.lines)}")

    async def _cut_and_connect(self, seat: _Seat) -> None:
        """Lose the connection, take the session over with another, and set some watches again."""
        known, dice = seat.client.session, self._dice
        await self._hear_everything(seat)
        seat.client.close()
        await seat.client.closed.wait()
        self._keep(seat)
        seat.client = await open_client(self._port)
        answer = await seat.client.begin(_TIMEOUT_MS, known.session_id, known.password)
        seat.lines.append(f"connects again: {answer == known}, time-out {answer.timeout_ms}")
        since = self._written[int(dice.random() * len(self._written))]
        some = [tuple(self._path() for _ in range(dice.randrange(3))) for _ in range(5)]
        opcode = dice.choice([OpCode.SET_WATCHES, OpCode.SET_WATCHES2])
        watches = SetWatches(since, *some[:3]) if opcode is OpCode.SET_WATCHES else SetWatches(since, *some)
        reply = await seat.client.send(opcode, watches, SET_WATCHES_XID)
        seat.lines.append(f"sets watches again: {reply.error}")

    async def _hear_everything(self, seat: _Seat) -> None:
        """Wait for the answer to one more read: it comes after all events that the client is told of."""
        await self._burst(seat, [(OpCode.EXISTS, PathAndWatch(self._root, False))])

    async def _burst(self, seat: _Seat, requests: list[tuple[int, Record]]) -> None:
        sent = [
            seat.client.send(opcode, record, AUTH_XID if opcode == OpCode.AUTH else None)
            for opcode, record in requests
        ]
        for (opcode, record), future in zip(requests, sent, strict=True):
            reply = await future
            seat.lines.append((OpCode(opcode), record, reply))
            if reply.error == 0 and _is_made(opcode, reply):
                self._zxids.add(reply.zxid)
                self._written.append(reply.zxid)
            if opcode == OpCode.CLOSE_SESSION:
                self._closings.add(reply.zxid)
            self._zxids.update(_shown_zxids(reply.record))

    def _keep(self, seat: _Seat) -> None:
        """Note in which order the connection has got its answers and events."""
        order = [one if isinstance(one, Notified) else "answer" for one in seat.client.received]
        seat.lines.append(order)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    def _path(self) -> str:
        dice = self._dice
        if dice.random() < 0.02:
            return str(dice.choice(["a", "/", self._root + "/", self._root + "//a", self._root + "/../a"]))
        depth = dice.choice([0, 1, 1, 1, 2, 2, 3])
        names = [dice.choice(["a", "b", "c", "s-0000000000", "s-0000000001"]) for _ in range(depth)]
        return "/".join([self._root, *names])

    def _data(self) -> bytes | None:
        return self._dice.choice([None, b"", b"x", self._dice.randbytes(9)])

    def _acl(self) -> tuple[Acl, ...]:
        if self._dice.random() < 0.93:
            return OPEN_ACL
        permissions = self._dice.choice([0, 1, 2, 3, 7, 15, 27, ALL_PERMISSIONS])
        one = Acl(permissions, "world", "anyone")
        return self._dice.choice([(one,), (one, one), (one, Acl(1, "world", "anyone")), ()])

    def _version(self) -> int:
        return self._dice.choice([-1, -1, -1, 0, 0, 1, 2, 7])

    def _request(self) -> tuple[int, Record]:
        makers: list[tuple[Callable[[], tuple[int, Record]], int]] = [
            (self._create, 30),
            (self._delete, 12),
            (self._set_data, 12),
            (self._read, 26),
            (self._multi, 9),
            (self._multi_read, 2),
            (self._watch, 8),
            (self._other, 9),
        ]
        (maker,) = self._dice.choices([one for one, _ in makers], [weight for _, weight in makers])
        return maker()

    def _create(self) -> tuple[int, Record]:
        dice, path = self._dice, self._path()
        flags = dice.choice([0, 0, 0, 1, 1, 2, 3, 4, 9 if dice.random() < 0.1 else 0])
        if flags in (2, 3):
            path = path.rpartition("/")[0] + "/s-"
        opcode = OpCode.CREATE_CONTAINER if flags == 4 else dice.choice([OpCode.CREATE, OpCode.CREATE2])
        if dice.random() < 0.05:
            ttl_ms = dice.choice([1000, 10**9, 0, 1 << 40])
            return OpCode.CREATE_TTL, CreateTtl(path, self._data(), self._acl(), dice.choice([5, 6]), ttl_ms)
        return opcode, Create(path, self._data(), self._acl(), flags)

    def _delete(self) -> tuple[int, Record]:
        return OpCode.DELETE, PathAndVersion(self._path(), self._version())

    def _set_data(self) -> tuple[int, Record]:
        return OpCode.SET_DATA, SetData(self._path(), self._data(), self._version())

    def _read(self) -> tuple[int, Record]:
        opcodes = [OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2]
        return self._dice.choice(opcodes), PathAndWatch(self._path(), self._dice.random() < 0.5)

    def _multi(self) -> tuple[int, Record]:
        dice, parts = self._dice, []
        for _ in range(dice.choice([0, 1, 2, 2, 3, 5])):
            part = dice.choice([self._create, self._create, self._delete, self._set_data, self._check])()
            if isinstance(part[1], Create | CreateTtl) and not 0 <= part[1].flags <= 6:
                continue  # ZooKeeper does not decode such a multi at all
            parts.append(part)
        return OpCode.MULTI, Multi(tuple(parts))

    def _check(self) -> tuple[int, Record]:
        return OpCode.CHECK, PathAndVersion(self._path(), self._dice.choice([-1, 0, 0, 1]))

    def _multi_read(self) -> tuple[int, Record]:
        opcodes = [OpCode.GET_DATA, OpCode.GET_CHILDREN]
        parts = [
            (self._dice.choice(opcodes), PathAndWatch(self._path(), False))
            for _ in range(self._dice.randrange(4))
        ]
        return OpCode.MULTI_READ, Multi(tuple(parts))

    def _watch(self) -> tuple[int, Record]:
        dice = self._dice
        opcode = dice.choice(
            [OpCode.ADD_WATCH, OpCode.ADD_WATCH, OpCode.REMOVE_WATCHES, OpCode.CHECK_WATCHES]
        )
        mode = dice.choice([0, 1]) if opcode is OpCode.ADD_WATCH else dice.choice([1, 2, 3, 4, 5])
        return opcode, PathAndMode(self._path(), mode)

    def _other(self) -> tuple[int, Record]:
        dice, path = self._dice, self._path()
        return dice.choice(
            [
                (OpCode.SYNC, PathOnly(path)),
                (OpCode.GET_ACL, PathOnly(path)),
                (OpCode.GET_EPHEMERALS, PathOnly(dice.choice(["", "/", path]))),
                (OpCode.GET_ALL_CHILDREN_NUMBER, PathOnly(path if path != "/" else self._root)),
                (OpCode.WHO_AM_I, Nothing()),
            ]
        )

    # ── what was seen ─────────────────────────────────────────────────────────────────────────────────

    def _transcript(self) -> Iterator[str]:
        places = {zxid: place for place, zxid in enumerate(sorted(self._zxids))}
        for number, seat in enumerate(self._seats):
            for line in seat.lines:
                if isinstance(line, tuple):
                    opcode, request, reply = line
                    yield f"{number}: {opcode.name} {request} → {self._answer(opcode, reply, places)}"
                elif isinstance(line, list):
                    yield from (f"{number}: {text}" for text in self._order(line, places))
                else:
                    yield f"{number}: {line}"

    def _answer(self, opcode: int, reply: Reply, places: dict[int, int]) -> str:
        if reply.error:
            return ErrorCode(reply.error).name
        made = f"zxid {places[reply.zxid]} " if _is_made(opcode, reply) else ""
        return made + str(self._masked(reply.record, places))

    def _masked(self, value: object, places: dict[int, int]) -> object:
        if isinstance(value, Stat):
            owner = self._owners.get(value.ephemeral_owner, value.ephemeral_owner)
            zxids = [places[zxid] for zxid in (value.czxid, value.mzxid, value.pzxid)]
            rest = (value.version, value.cversion, value.aversion, value.data_length, value.num_children)
            return ("stat", *zxids, *rest, owner)
        if isinstance(value, ClientInfos):
            return sorted(value.infos)
        if isinstance(value, tuple):
            masked = [self._masked(one, places) for one in value]
            # The names of children come in any order.
            is_names = (
                bool(value) and all(isinstance(one, str) for one in value) and not hasattr(value, "_fields")
            )
            return tuple(sorted(masked, key=str)) if is_names else tuple(masked)
        return value

    def _order(self, line: list[Any], places: dict[int, int]) -> list[str]:
        texts: list[str] = []
        together: list[str] = []
        for one in [*line, "end"]:
            if isinstance(one, Notified):
                text = f"event {EventType(one.type).name} {one.path} zxid {places.get(one.zxid, one.zxid)}"
                if one.zxid in self._closings:
                    together.append(text)
                    continue
                texts += [*sorted(together), text]
            else:
                texts += [*sorted(together), one]
            together = []
        return texts


def _is_made(opcode: int, reply: Reply) -> bool:
    """Return whether the request has changed something, so that its answer has the change's zxid."""
    if opcode == OpCode.MULTI:
        assert isinstance(reply.record, Multi)
        return all(part != OpCode.ERROR for part, _ in reply.record.parts)
    return opcode in WRITES or opcode == OpCode.CLOSE_SESSION


def _shown_zxids(value: object) -> Iterator[int]:
    if isinstance(value, Stat):
        yield from (value.czxid, value.mzxid, value.pzxid)
    elif isinstance(value, tuple):
        for one in value:
            yield from _shown_zxids(one)

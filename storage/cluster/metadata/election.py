"""The election of the auditor: votes in the order of their numbers.

    underreplication/auditorelection            its data names the auditor, for people who look
    underreplication/auditorelection/V_<number>     ephemeral sequential: a candidate

The candidate with the smallest number is the auditor. Each other one watches only the candidate before it, so
that the end of one session wakes one process. Two auditors may overlap for the time-out of a session,
therefore everything that an auditor does must do no harm if it is done twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.cluster.errors import InvalidMetadata, MetadataUnavailable
from storage.cluster.metadata.underreplication import base_path
from storage.cluster.metadata.update import create_node, delete_node
from storage.cluster.metadata.znodes import Created, CreateMode, Gone, Unchanged
from storage.cluster.wire import text
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable, ProtobufMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.cluster.metadata.znodes import Znodes

VOTE = MessageTable("AuditorVoteFormat", MessageField(1, "bookieId", FieldKind.TEXT))
_PREFIX = "V_"
_VOTE_NAME = re.compile(r"V_(-?\d+)")
_ATTEMPTS_MAX = 10


# ── the order of votes ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Elected:
    """The vote is the first one."""


@dataclass(frozen=True, slots=True)
class NotElected:
    """Another vote comes before. When it is gone, look again."""

    predecessor: str


@dataclass(frozen=True, slots=True)
class NoVote:
    """The vote is gone, as its session must be."""


def standing(votes: Iterable[str], mine: str) -> Elected | NotElected | NoVote:
    """Return where the vote `mine` stands among the names of all votes."""
    order = sorted((number_of(name), name) for name in votes if _VOTE_NAME.fullmatch(name))
    names = [name for _, name in order]
    if mine not in names:
        return NoVote()
    place = names.index(mine)
    return NotElected(names[place - 1]) if place else Elected()


def number_of(vote: str) -> int:
    """Return the number of a vote. They are compared as numbers, because a large one has more digits."""
    match = _VOTE_NAME.fullmatch(vote)
    assert match is not None, vote
    return int(match[1])


# ── a candidate ───────────────────────────────────────────────────────────────────────────────────────────


def election_path(root: str) -> str:
    return f"{base_path(root)}/auditorelection"


class Candidate:
    """One process that wants to be auditor."""

    def __init__(self, znodes: Znodes, root: str, bookie_id: str) -> None:
        self._znodes = znodes
        self._path = election_path(root)
        self._data = text.encode(VOTE, ProtobufMessage({"bookieId": bookie_id}))
        self._vote: str | None = None

    async def wait_until_elected(self) -> None:
        """Return when this process is the auditor. Raise `SessionExpired` if its session ends before."""
        await create_node(self._znodes, self._path)
        while True:
            vote = await self._own_vote()
            votes = await self._znodes.children(self._path)
            match standing(() if isinstance(votes, Gone) else votes.names, vote):
                case Elected():
                    # Only for people who look at the node.
                    await self._znodes.set(self._path, self._data)
                    return
                case NotElected(predecessor):
                    await self._wait_until_gone(predecessor)
                case NoVote():
                    self._vote = None

    async def is_elected(self) -> bool:
        """Return whether this process is still the auditor."""
        votes = await self._znodes.children(self._path)
        if self._vote is None or isinstance(votes, Gone):
            return False
        return isinstance(standing(votes.names, self._vote), Elected)

    async def withdraw(self) -> None:
        """Take the vote back: the next candidate is elected at once."""
        if self._vote is not None:
            await delete_node(self._znodes, f"{self._path}/{self._vote}")
            self._vote = None

    async def _own_vote(self) -> str:
        """Return the name of our vote, and create it if necessary.

        An earlier candidate of this session may have left one, and a vote whose answer was lost may be there.
        A second vote would wait for the first one as long as the session lasts.
        """
        for _ in range(_ATTEMPTS_MAX):
            if self._vote is None:
                path = await self._find_vote()
                self._vote = None if path is None else path.rpartition("/")[2]
            if self._vote is not None:
                return self._vote
            made = await self._znodes.create(
                f"{self._path}/{_PREFIX}", self._data, CreateMode.EPHEMERAL_SEQUENTIAL
            )
            if isinstance(made, Created):
                self._vote = made.path.rpartition("/")[2]
        raise MetadataUnavailable(f"{self._path}: no vote in {_ATTEMPTS_MAX} attempts")

    async def _find_vote(self) -> str | None:
        # A server that lags would not show the vote.
        await self._znodes.sync(self._path)
        children = await self._znodes.children(self._path)
        if isinstance(children, Gone):
            await create_node(self._znodes, self._path)
            return None
        votes = [f"{self._path}/{name}" for name in children.names if _VOTE_NAME.fullmatch(name)]
        for path, node in zip(votes, await self._znodes.get_all(votes), strict=True):
            if not isinstance(node, Gone) and node.stat.ephemeral_owner == self._znodes.session_id:
                return path
        return None

    async def _wait_until_gone(self, vote: str) -> None:
        watch = self._znodes.watch(f"{self._path}/{vote}")
        try:
            while not isinstance(await watch.next(), Gone | Unchanged):
                pass
        finally:
            watch.close()


async def read_auditor(znodes: Znodes, root: str) -> str | Gone:
    """Return the id of the bookie whose process is the auditor now."""
    path = election_path(root)
    children = await znodes.children(path)
    votes = () if isinstance(children, Gone) else children.names
    for name in sorted(filter(_VOTE_NAME.fullmatch, votes), key=number_of):
        node = await znodes.get(f"{path}/{name}")
        if not isinstance(node, Gone):
            vote = text.decode(VOTE, node.data)
            if isinstance(vote, Malformed):
                raise InvalidMetadata(f"{path}/{name}", vote.reason)
            return vote.text("bookieId")
    return Gone()

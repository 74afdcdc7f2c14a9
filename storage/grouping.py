"""What callers have put into one turn, and the groups that it becomes: one write and one sync each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from storage.codec import journal as journal_codec
from storage.codec.digest import master_key
from storage.codec.record import FRONT_SIZE
from storage.codec.seal import GroupFlag
from storage.journal_writer import Group
from storage.tail import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

_MASTER_KEY = master_key(b"")
KEY_SIZE = len(journal_codec.encode_ledger_key(0, _MASTER_KEY))
"""What the key of one ledger takes in a group."""


@dataclass(slots=True)
class Load:
    """What callers have put into one turn."""

    runs: list[Run] = field(default_factory=list)
    size: int = 0
    pending: deque[tuple[Future[int], Run]] = field(default_factory=deque)
    wants_seal: bool = False
    wants_freeze: bool = False
    refused: BaseException | None = None
    """Why it will not be done: space for an earlier turn was missing, and ids were handed back."""

    def add(self, run: Run) -> None:
        self.size += run.size  # first: what counts too much wastes room, what counts too little has none
        self.runs.append(run)


def groups(load: Load, size_max: int) -> Iterator[tuple[Sequence[Run], Group]]:
    """The runs in groups of at most this size; only a single larger entry makes a larger one."""
    if load.runs and load.size <= size_max:
        yield load.runs, _group(load.runs, load.size)
        return
    members: list[Run] = []
    size = 0
    for run in load.runs:
        for part in _parts(run, size_max):
            if members and size + part.size > size_max:
                yield members, _group(members, size)
                members, size = [], 0
            members.append(part)
            size += part.size
    if members:
        yield members, _group(members, size)


def _parts(run: Run, size_max: int) -> Iterator[Run]:
    """The run itself if it fits into one group, which then keeps all of it or nothing."""
    if run.size <= size_max:
        yield run
        return
    first, size, length = 0, 0, run.length - sum(map(len, run.payloads))
    for at, payload in enumerate(run.payloads):
        added = FRONT_SIZE + len(payload)
        if size and size + added > size_max:
            yield _part(run, slice(first, at), size, length)
            first, size = at, 0
        size += added
        length += len(payload)
    yield _part(run, slice(first, None), size, length)


def _part(run: Run, part: slice, size: int, length: int) -> Run:
    first_id = run.first_id + part.start
    return Run(run.tail, first_id, run.fronts[part], run.payloads[part], size, length, whole=run)


def _group(members: Sequence[Run], size: int) -> Group:
    records = chain.from_iterable(zip(run.fronts, run.payloads, strict=True) for run in members)
    buffers = list(chain.from_iterable(records))
    count = len(buffers) // 2
    # Of a run that was too large for one group a part may be kept; that is said where it is offered.
    is_atomic = count > len(members)
    return Group(buffers, count, size, GroupFlag.ATOMIC if is_atomic else GroupFlag.NONE)


def with_keys(group: Group, ledger_ids: Sequence[int]) -> Group:
    """A bookie skips the records of a ledger whose key its journal does not hold: keys go in front."""
    if not ledger_ids:
        return group
    keys = [journal_codec.encode_ledger_key(ledger_id, _MASTER_KEY) for ledger_id in ledger_ids]
    size = group.size + sum(map(len, keys))
    return Group([*keys, *group.buffers], len(keys) + group.record_count, size, group.flags)

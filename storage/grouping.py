"""What callers have put into one turn, and the groups that it becomes: one sync each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from storage.codec import journal as journal_codec
from storage.codec import record as record_codec
from storage.codec.seal import GroupFlag
from storage.journal_writer import Group
from storage.tail import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from storage.row import LedgerRow
    from storage.tail import Tail


_JOINED_MIN = 4
_new_tuple = tuple.__new__
_KEY_FRAME_SIZE = len(journal_codec.encode_ledger_key(0, b""))


@dataclass(slots=True)
class Statement:
    """Something about a ledger on its way to the journal: a fence, or an explicit last add confirmed."""

    tail: Tail
    record: bytes
    revise: Callable[[LedgerRow], LedgerRow]
    """What it makes of what is known of the ledger, when it is durable."""
    is_durable: bool = False


@dataclass(slots=True)
class Deletion:
    """A ledger that is to go when everything that was handed over before is durable."""

    tail: Tail
    is_done: bool = False
    is_answered: bool = False
    """Whether its ledger was let go of."""


class Load:
    """What callers have put into one turn."""

    __slots__ = (
        "decided",
        "deletions",
        "pending",
        "refused",
        "runs",
        "size",
        "statements",
        "unawaited",
        "wants_freeze",
        "wants_seal",
        "watchers",
    )

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.statements: list[Statement] = []
        self.deletions: list[Deletion] = []
        self.size = 0
        self.decided: list[Tail] = []
        """Ledgers of which something was decided, and is to be written down before their first entry."""
        self.pending: deque[tuple[Future[int], Run]] = deque()
        self.unawaited: list[Run] = []
        """Of the runs those for which nobody waits."""
        self.watchers: list[Callable[[BaseException | None], None]] = []
        """Told by whoever has led the turn when it is over: they must neither wait nor raise."""
        self.wants_seal = False
        self.wants_freeze = False
        self.refused: BaseException | None = None
        """Why it will not be done: space for an earlier turn was missing, and ids were handed back."""

    @property
    def is_done(self) -> bool:
        """Whether all of it is durable, and can be read."""
        recorded = all(run.is_durable for run in self.runs) and all(one.is_durable for one in self.statements)
        return recorded and all(one.is_done for one in self.deletions)

    @property
    def has_content(self) -> bool:
        """Whether anything of it is lost if it is not done."""
        return bool(self.runs or self.statements or self.deletions)


class Step(NamedTuple):
    """One group of a turn, and what is durable with it."""

    group: Group
    runs: Sequence[Run] = ()
    statements: Sequence[Statement] = ()

    def keys(self, keyed: Mapping[int, bytes]) -> dict[int, bytes]:
        """The keys of its ledgers that are known, but for those among these: a ledger that was made again may
        have another one than these say."""
        missing = {}
        ones: Iterable[Run | Statement] = chain(self.runs, self.statements)
        for one in ones:
            tail = one.tail
            key = tail.facts.master_key
            if key is not None and keyed.get(tail.ledger_id) != key:
                missing[tail.ledger_id] = key
        return missing


def steps(load: Load, size_max: int) -> Iterable[Step]:
    """The turn in groups of at most this size; only a single larger entry makes a larger one.

    What is said of ledgers stands behind all entries: a fence must not be durable before what it follows.
    """
    runs = load.runs
    if runs and load.size <= size_max and not load.statements:
        return (Step(_group(runs), runs),)
    return _several(load, size_max)


def group_of(fronts: bytes, payloads: Sequence[bytes], size: int) -> Group:
    """One run in one group, however large."""
    if len(payloads) == 1:
        return _new_tuple(Group, ((fronts, payloads[0]), 1, size, GroupFlag.NONE))
    return Group(record_codec.buffers(fronts, payloads), len(payloads), size, GroupFlag.ATOMIC)


def _several(load: Load, size_max: int) -> Iterator[Step]:
    groups = list(_groups(load, size_max))
    for group, runs in groups[:-1]:
        yield Step(group, runs)
    group, runs = groups[-1] if groups else (Group((), 0, 0), [])
    if groups and not load.statements:
        yield Step(group, runs)
    elif load.statements:
        yield Step(_with_statements(group, load.statements), runs, load.statements)


def _groups(load: Load, size_max: int) -> Iterator[tuple[Group, Sequence[Run]]]:
    if load.runs and load.size <= size_max:
        yield _group(load.runs), load.runs
        return
    members: list[Run] = []
    size = 0
    for run in load.runs:
        for part in _parts(run, size_max):
            if members and size + part.size > size_max:
                yield _group(members), members
                members, size = [], 0
            members.append(part)
            size += part.size
    if members:
        yield _group(members), members


def _parts(run: Run, size_max: int) -> Iterator[Run]:
    """The run itself if it fits into one group, which then keeps all of it or nothing."""
    if run.size <= size_max:
        yield run
        return
    first, size, length, front_size = 0, 0, run.length - sum(map(len, run.payloads)), run.front_size
    for at, payload in enumerate(run.payloads):
        added = front_size + len(payload)
        if size and size + added > size_max:
            yield _part(run, slice(first, at), size, length)
            first, size = at, 0
        size += added
        length += len(payload)
    yield _part(run, slice(first, None), size, length)


def _part(run: Run, part: slice, size: int, length: int) -> Run:
    first_id = run.first_id + part.start
    payloads, width = run.payloads[part], run.front_size
    fronts = run.fronts[width * part.start :][: width * len(payloads)]
    last_id = first_id + len(payloads) - 1
    return Run(run.tail, first_id, last_id, fronts, payloads, size, length, run.confirmed, whole=run)


def _group(members: Sequence[Run]) -> Group:
    if len(members) == 1:
        return group_of(members[0].fronts, members[0].payloads, members[0].size)
    buffers: list[bytes] = []
    # Counted here: that of a load may be too large, where somebody was interrupted on the way into it.
    count = size = 0
    for run in members:
        size += run.size
        if run.first_id == run.last_id:  # so common that a call counts
            buffers += (run.fronts, run.payloads[0])
            count += 1
        else:
            buffers += record_codec.buffers(run.fronts, run.payloads)
            count += len(run.payloads)
    # Of a run that was too large for one group a part may be kept; that is said where it is offered.
    is_atomic = count > len(members)
    return Group(buffers, count, size, GroupFlag.ATOMIC if is_atomic else GroupFlag.NONE)


def _with_statements(group: Group, statements: Sequence[Statement]) -> Group:
    records = [one.record for one in statements]
    count, size = group.record_count + len(records), group.size + sum(map(len, records))
    return Group([*group.buffers, *records], count, size, group.flags)


def joined(runs: Sequence[Run]) -> Sequence[Run]:
    """The same entries in fewer runs: what many callers have added to one ledger, one by one, is one."""
    if len(runs) < _JOINED_MIN or len({run.tail for run in runs}) == len(runs):
        return runs
    found: list[Run] = []
    first = 0
    for at, run in enumerate(runs[1:], 1):
        before = runs[at - 1]
        if run.tail is not before.tail or not _continues(run, before):
            found.append(_joined(runs, first, at))
            first = at
    found.append(_joined(runs, first, len(runs)))
    return found


def _continues(run: Run, before: Run) -> bool:
    """Whether both are single entries, with fronts alike, and the one follows the other."""
    is_next = run.first_id == run.last_id == before.first_id + 1 and before.first_id == before.last_id
    return is_next and len(run.fronts) == len(before.fronts)


def _joined(runs: Sequence[Run], start: int, stop: int) -> Run:
    if stop == start + 1:
        return runs[start]
    stretch = runs[start:stop]
    first, last = stretch[0], stretch[-1]
    return Run(
        first.tail,
        first.first_id,
        last.last_id,
        b"".join([run.fronts for run in stretch]),
        [run.payloads[0] for run in stretch],
        sum([run.size for run in stretch]),
        last.length,
        max([run.confirmed for run in stretch]),
    )


def key_records_size(keys: Mapping[int, bytes]) -> int:
    """What the key records of these ledgers take."""
    return sum(_KEY_FRAME_SIZE + len(key) for key in keys.values()) if keys else 0


def with_keys(group: Group, keys: Mapping[int, bytes]) -> Group:
    """A bookie skips the records of a ledger whose key its journal does not hold: keys go in front."""
    if not keys:
        return group
    records = [journal_codec.encode_ledger_key(ledger_id, key) for ledger_id, key in sorted(keys.items())]
    size = group.size + size_of(records)
    return Group([*records, *group.buffers], len(records) + group.record_count, size, group.flags)


def size_of(records: Iterable[bytes]) -> int:
    return sum(map(len, records))

"""The portions of a pending group: each is written to the journal as one group, and synced at once."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from storage.commit.pending import PendingEntries
from storage.entry import record_format
from storage.journal import format as journal_format
from storage.journal.seal import GroupFlag
from storage.journal.writer import Group as JournalGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from storage.commit.pending import ControlRecord, PendingGroup

JOINED_MIN = 4
"""With fewer pieces of work it does not pay to join them for the table."""

_KEY_FRAME_SIZE = len(journal_format.encode_ledger_key(0, b""))
_new_tuple = tuple.__new__


class Portion(NamedTuple):
    """A part of a group that is written to the journal and synced at once."""

    journal_group: JournalGroup
    entries: Sequence[PendingEntries] = ()
    controls: Sequence[ControlRecord] = ()
    is_seal: bool = False

    def keys(self, keyed: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the keys of its ledgers that are known and not among these.

        A ledger that was made again after a delete may have another key than these say.
        """
        missing = {}
        work: Iterable[PendingEntries | ControlRecord] = chain(self.entries, self.controls)
        for one in work:
            state = one.state
            key = state.facts.master_key
            if key is not None and keyed.get(state.ledger_id) != key:
                missing[state.ledger_id] = key
        return missing


SEAL = Portion(JournalGroup((), 0, 0), is_seal=True)
"""An empty group that proves the one before it to be durable."""


def portions_of(group: PendingGroup, size_max: int) -> list[Portion]:
    """Divide the group into portions of at most this size; only a single larger entry makes a larger one."""
    entries, controls = group.entries, group.controls
    portions = [Portion(journal_group_of(members), members) for members in _members(group, size_max)]
    if controls:
        last = portions.pop() if portions else Portion(JournalGroup((), 0, 0))
        records = [one.record for one in controls]
        before = last.journal_group
        count, size = before.record_count + len(records), before.size + size_of(records)
        with_records = JournalGroup([*before.buffers, *records], count, size, before.flags)
        portions.append(Portion(with_records, last.entries, controls))
    assert portions or not entries, "each entry is in a portion"
    return portions


def _members(group: PendingGroup, size_max: int) -> Iterator[Sequence[PendingEntries]]:
    if group.size <= size_max:
        if group.entries:
            yield group.entries
        return
    members: list[PendingEntries] = []
    size = 0
    for one in group.entries:
        for part in _parts(one, size_max):
            if members and size + part.size > size_max:
                yield members
                members, size = [], 0
            members.append(part)
            size += part.size
    if members:
        yield members


def _parts(work: PendingEntries, size_max: int) -> Iterator[PendingEntries]:
    """Yield the work itself if it fits into one portion, which a crash then keeps whole or not at all."""
    if work.size <= size_max:
        yield work
        return
    first, size, length = 0, 0, work.length - sum(map(len, work.payloads))
    front_size = work.front_size
    for at, payload in enumerate(work.payloads):
        added = front_size + len(payload)
        if size and size + added > size_max:
            yield _part(work, slice(first, at), size, length)
            first, size = at, 0
        size += added
        length += len(payload)
    yield _part(work, slice(first, None), size, length)


def _part(work: PendingEntries, part: slice, size: int, length: int) -> PendingEntries:
    payloads, width = work.payloads[part], work.front_size
    headers = work.headers[width * part.start :][: width * len(payloads)]
    found = _entries(work, work.first_id + part.start, headers, payloads, size, length, work.confirmed)
    found.whole = work
    return found


def _entries(
    like: PendingEntries,
    first_id: int,
    headers: bytes,
    payloads: Sequence[bytes],
    size: int,
    length: int,
    confirmed: int,
) -> PendingEntries:
    """Return entries of the same ledger that have their ids already."""
    found = PendingEntries(like.state, like.access, payloads)
    found.first_id, found.last_id = first_id, first_id + len(payloads) - 1
    found.headers, found.size, found.length, found.confirmed = headers, size, length, confirmed
    return found


def journal_group_of(members: Sequence[PendingEntries]) -> JournalGroup:
    """Return the records of this work as a group of the journal."""
    if len(members) == 1:
        (work,) = members
        if len(work.payloads) == 1:
            return _new_tuple(JournalGroup, ((work.headers, work.payloads[0]), 1, work.size, GroupFlag.NONE))
        buffers = record_format.buffers(work.headers, work.payloads)
        return JournalGroup(buffers, len(work.payloads), work.size, GroupFlag.ATOMIC)
    pieces: list[bytes] = []
    # The records are counted here, because the group's own size may be too large after an interruption.
    count = size = 0
    for work in members:
        size += work.size
        if work.first_id == work.last_id:  # so common that the cost of a call matters
            pieces += (work.headers, work.payloads[0])
            count += 1
        else:
            pieces += record_format.buffers(work.headers, work.payloads)
            count += len(work.payloads)
    # Only a part of work that is too large for one portion may survive a crash; `append_many` says so.
    return JournalGroup(pieces, count, size, GroupFlag.ATOMIC if count > len(members) else GroupFlag.NONE)


def joined(entries: Sequence[PendingEntries]) -> Sequence[PendingEntries]:
    """Return the same entries as fewer pieces: one for all single adds of many callers to a ledger."""
    if len(entries) < JOINED_MIN or len({one.state for one in entries}) == len(entries):
        return entries
    found: list[PendingEntries] = []
    first = 0
    for at, one in enumerate(entries[1:], 1):
        before = entries[at - 1]
        if one.state is not before.state or not _continues(one, before):
            found.append(_joined(entries, first, at))
            first = at
    found.append(_joined(entries, first, len(entries)))
    return found


def _continues(one: PendingEntries, before: PendingEntries) -> bool:
    """Return whether both are single entries with headers of one size, and the one follows the other."""
    is_next = one.first_id == one.last_id == before.first_id + 1 and before.first_id == before.last_id
    return is_next and len(one.headers) == len(before.headers)


def _joined(entries: Sequence[PendingEntries], start: int, stop: int) -> PendingEntries:
    if stop == start + 1:
        return entries[start]
    members = entries[start:stop]
    return _entries(
        members[0],
        members[0].first_id,
        b"".join([one.headers for one in members]),
        [one.payloads[0] for one in members],
        sum([one.size for one in members]),
        members[-1].length,
        max([one.confirmed for one in members]),
    )


def key_records_size(keys: Mapping[int, bytes]) -> int:
    """Return the size of the key records of these ledgers."""
    return sum(_KEY_FRAME_SIZE + len(key) for key in keys.values()) if keys else 0


def with_keys(group: JournalGroup, keys: Mapping[int, bytes]) -> JournalGroup:
    """Return the group with key records first: a bookie skips the records of a ledger without a key."""
    if not keys:
        return group
    records = [journal_format.encode_ledger_key(ledger_id, key) for ledger_id, key in sorted(keys.items())]
    size = group.size + size_of(records)
    return JournalGroup([*records, *group.buffers], len(records) + group.record_count, size, group.flags)


def size_of(records: Iterable[bytes]) -> int:
    return sum(map(len, records))

"""What a journal of ours holds, noted while its groups are verified: where entries lie, and all else.

It is for journals as this store writes them: the entries of each ledger in the order of their ids, and
nothing that would have to be refused. Of any other the records are looked at one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec import journal as codec
from storage.codec import stretch
from storage.codec.gathering import Noted
from storage.codec.record import HEAD_FRONT_SIZE
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from storage.codec.gathering import Gathered, Taken
    from storage.journal_reader import StoredRecord


class Stretches:
    """Those of the groups that have ended. At most so many: the memory of more is better spent otherwise."""

    def __init__(self, number_max: int) -> None:
        self.is_plain = True
        """Whether they are all there is to know."""
        self.number = 0
        self.packed: dict[int, bytearray] = {}
        """Those of each ledger, in the order of their ids."""
        self.special: list[tuple[int, bytes]] = []
        """Records that are no entries, each with its place."""
        self._end_ids: dict[int, int] = {}
        self._open = Noted([], [])
        self._number_max = number_max

    def note(self, noted: Noted, passed: Gathered) -> None:
        """Takes what a block has brought: of groups that have ended, and of the one that goes on."""
        if passed.groups:
            self.end_group()
            self._keep(noted.stretches[: passed.stretches], noted.special[: passed.special])
            self._open = Noted(noted.stretches[passed.stretches :], noted.special[passed.special :])
        else:
            self._open.stretches.extend(noted.stretches)
            self._open.special.extend(noted.special)

    def note_one(self, item: StoredRecord, before: int, after: int) -> None:
        """Takes a record that was looked at by itself, with the group's checksum on both sides of it."""
        match item.record:
            case codec.EntryRecord(ledger_id, entry_id, data) if (
                LENGTH_WORD_SIZE + len(data) >= HEAD_FRONT_SIZE
            ):
                size = item.end - item.offset
                packed = stretch.pack(entry_id, item.offset, 1, size, size, before, after)
                self._open.stretches.append((ledger_id, entry_id, entry_id + 1, packed))
            case _:
                # A special one is small, and comes with a block, unless it says nothing sensible.
                self.is_plain = False

    def end_group(self) -> None:
        """The group that goes on has ended, and holds."""
        self._keep(*self._open)
        self._open = Noted([], [])

    def _keep(self, taken: list[Taken], special: list[tuple[int, bytes]]) -> None:
        self.number += len(taken) + len(special)
        if not self.is_plain or self.number > self._number_max:
            self._give_up()
            return
        self.special += special
        packed, end_ids = self.packed, self._end_ids
        for ledger_id, first_id, end_id, one in taken:
            if first_id < end_ids.get(ledger_id, 0):
                self._give_up()  # an older copy stands before, and would be found
                return
            end_ids[ledger_id] = end_id
            if ledger_id in packed:
                packed[ledger_id] += one
            else:
                packed[ledger_id] = bytearray(one)

    def _give_up(self) -> None:
        self.is_plain = False
        self.packed, self.special, self._end_ids = {}, [], {}

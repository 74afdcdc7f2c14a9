"""The `ledgers.rows` file as a walk from group to group finds it: the facts, and no verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.codec import rows as codec
from storage.outcome import Damaged, EndOfData, Flaw, Stop
from storage.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from storage.files import ReadFile
    from storage.row import LedgerRow

_UNFINISHED = frozenset(
    {
        Flaw.FILE_SHORT,
        Flaw.BODY_CUT,
        Flaw.BAD_MAGIC,
        Flaw.OTHER_PLACE,
        Flaw.LENGTH_TOO_LARGE,
        Flaw.CHECKSUM,
    }
)
"""What a group looks like whose write was cut short. All else is told only of one whose checksum is right."""


@dataclass(frozen=True, slots=True)
class RowsScan:
    """The sound groups from the start of the file, and what stands behind them."""

    rows: dict[int, LedgerRow]
    """Of each ledger the latest."""
    heads: tuple[codec.GroupHead, ...]
    stop: Stop
    is_contradiction: bool
    """Whether what stands at the stop has a right checksum, and cannot be what was written there."""
    is_clean: bool
    """Whether only zeros stand there, or nothing."""
    behind: int | None
    """Where a group stands behind the stop that was certainly written."""

    @property
    def sequence(self) -> int:
        """The last sound group; 0: there is none."""
        return self.heads[-1].sequence if self.heads else 0

    @property
    def vouched_end(self) -> int:
        """Everything in front of it is said to have been durable."""
        return max((head.synced_end for head in self.heads), default=0)

    @property
    def proven_sequence(self) -> int:
        """The last group that a power cut cannot take away; 0: nothing here proves any."""
        # Only an appended group proves that: it is begun when the name is durable. A rewritten one vouches
        # for its file's content alone, and a power cut may yet bring the file before it back.
        appended = [head for head in self.heads if head.synced_end <= head.start]
        proven_end = max((head.synced_end for head in appended), default=0)
        return max((head.sequence for head in self.heads if head.end <= proven_end), default=0)


def scan(file: ReadFile) -> RowsScan:
    """Reads the file up to the first group that is not sound, and looks for others only behind damage."""
    return _Walk(Window(file)).run()


def latest(rows: Iterable[LedgerRow], known: Mapping[int, LedgerRow]) -> dict[int, LedgerRow]:
    """Those of the rows that are the latest of their ledger, among themselves and what is known of it."""
    found: dict[int, LedgerRow] = {}
    for row in rows:
        before = found.get(row.ledger_id) or known.get(row.ledger_id)
        if before is None or row.change >= before.change:
            found[row.ledger_id] = row
    return found


@dataclass(frozen=True, slots=True)
class _Group:
    head: codec.GroupHead
    rows: list[LedgerRow]


class _Walk:
    def __init__(self, window: Window) -> None:
        self._window = window
        self._rows: dict[int, LedgerRow] = {}
        self._heads: list[codec.GroupHead] = []

    def run(self) -> RowsScan:
        at = 0
        while isinstance(found := self._due_at(at), _Group):
            self._rows |= latest(found.rows, self._rows)
            self._heads.append(found.head)
            at = found.head.end
        is_clean = isinstance(found, EndOfData) and self._window.first_nonzero(at) is None
        behind = None if is_clean else self._written_behind(at)
        return RowsScan(self._rows, tuple(self._heads), found, _is_contradiction(found, at), is_clean, behind)

    def _due_at(self, offset: int) -> _Group | Stop:
        """The group there, if it is the next in sequence."""
        found = self._group_at(offset)
        if isinstance(found, _Group):
            sequence = found.head.sequence
            due = self._heads[-1].sequence + 1 if self._heads else max(1, sequence)
            if sequence != due:
                return Damaged(offset, Flaw.SEAL_ORDER, f"group {sequence} where group {due} belongs")
        return found

    def _group_at(self, offset: int) -> _Group | Stop:
        head_bytes = bytes(self._window.peek(offset, codec.HEAD_SIZE))
        head = codec.decode_group_head(head_bytes, offset, self._window.size - offset)
        if not isinstance(head, codec.GroupHead):
            return head
        body = self._window.view(offset + codec.HEAD_SIZE, head.body_size)
        rows = codec.decode_group_body(head, head_bytes, body)
        return rows if isinstance(rows, Damaged) else _Group(head, rows)

    def _written_behind(self, offset: int) -> int | None:
        places = range(offset + codec.ALIGNMENT, self._window.size, codec.ALIGNMENT)
        return next((place for place in places if self._was_written_at(place)), None)

    def _was_written_at(self, place: int) -> bool:
        found = self._group_at(place)
        return isinstance(found, _Group) or _is_contradiction(found, place)


def _is_contradiction(found: Stop, place: int) -> bool:
    if isinstance(found, EndOfData):
        return False
    # The flaw of a row may have any name, and tells the row's place.
    return found.offset != place or found.flaw not in _UNFINISHED

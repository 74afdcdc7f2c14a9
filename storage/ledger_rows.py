"""The `ledgers.rows` file: what is known of each ledger beside its entries.

    rewritten whole                 │ appended, one group for each call
    ├ group ┼ group ┼ … ┼ group     ┼ group ┼ group ┤ torn
    0       × 4096                    each durable before the next is begun

One run writes a file: the first append of a run rewrites it, and no file is opened for writing again. So a
file has its name only after a sync, and what can be torn is the last appended group alone.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage import filenames
from storage.codec import row as row_codec
from storage.codec import rows as codec
from storage.errors import CorruptionError, NewerFormat
from storage.ledger_rows_scan import RowsScan, latest, scan
from storage.outcome import EndOfData, Flaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from storage.files import Directory, WriteFile
    from storage.row import LedgerRow

ROT = "LGR-002"

_SIZE_SMALL = 64 << 10
"""A file up to this size is not worth rewriting."""


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """What the file holds, without its torn tail."""

    rows: dict[int, LedgerRow]
    """Of each ledger the latest."""
    sequence: int
    """The last sound group; 0: there is none."""
    proven_sequence: int
    """Up to here a power cut takes nothing away. What is behind it can be read and may be gone tomorrow:
    who goes on from there rewrites the file before anything names it."""
    torn: int | None
    """Where the torn tail begins."""
    highest_change: int
    """The largest change of any row; 0: there is none."""


def load(directory: Directory, known_sequence: int) -> LoadedRows:
    """The rows that are there. Raises when a group that was durable is damaged or gone.

    `known_sequence` is the last group that mark or index know to be durable. Reading makes nothing durable.
    """
    try:
        file = directory.open(filenames.LEDGER_ROWS)
    except FileNotFoundError:
        if known_sequence:
            raise _rot(0, f"missing, and group {known_sequence} in it was durable") from None
        return LoadedRows({}, 0, 0, None, 0)
    with file:
        found = scan(file)
    _check(found, known_sequence)
    return LoadedRows(
        found.rows,
        found.sequence,
        max(known_sequence, found.proven_sequence),
        None if found.is_clean else found.stop.offset,
        max((row.change for row in found.rows.values()), default=0),
    )


def _check(found: RowsScan, known_sequence: int) -> None:
    """Raises unless nothing vouches for what is missing behind the last sound group."""
    stop = found.stop
    if not isinstance(stop, EndOfData) and stop.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(filenames.LEDGER_ROWS, f"{stop} at {stop.offset}")
    if why := _why_rot(found, known_sequence):
        what = "no group" if isinstance(stop, EndOfData) else stop.flaw.value
        raise _rot(stop.offset, f"{what}; {why}")


def _why_rot(found: RowsScan, known_sequence: int) -> str | None:
    """What proves that more was durable; `None` for a torn tail, and for no tail at all."""
    reasons = (
        (not found.heads, "the file was durable before it had its name"),
        (found.is_contradiction, "its checksum is right, and so it was not cut short"),
        (found.vouched_end > found.stop.offset, f"everything before {found.vouched_end} was durable"),
        (known_sequence > found.sequence, f"group {known_sequence} was durable"),
        (found.behind is not None, f"the group at {found.behind} was begun when this one was durable"),
    )
    return next((why for holds, why in reasons if holds), None)


def _rot(offset: int, reason: str) -> CorruptionError:
    return CorruptionError(filenames.LEDGER_ROWS, offset, reason, ROT)


class LedgerRows:
    """The rows of a store, and the file that keeps them. For one thread at a time.

    After an error the rows are what they were, and the next append writes a new file.
    """

    def __init__(self, directory: Directory, rows: Mapping[int, LedgerRow], sequence: int) -> None:
        self.sequence = sequence
        """The last durable group: what mark and index may name. At first, as durable as what was loaded."""
        self.is_name_unknown = False
        """Whether the directory's sync has failed: then nobody knows which file a power cut leaves, nor
        which other names, and whoever owns the store writes no more."""
        self._directory = directory
        self._rows = dict(rows)
        self._issued = sequence
        self._file: WriteFile | None = None
        self._end = 0
        self._live_size = 0

    @property
    def path(self) -> str:
        """The directory of the file."""
        return self._directory.path

    @property
    def is_open(self) -> bool:
        """Whether an append may go into the file that is there; else it writes another one, and what fails
        before that has its name was certainly not done."""
        return self._file is not None

    @property
    def rows(self) -> Mapping[int, LedgerRow]:
        """Of each ledger the latest that is durable. The mapping changes with each append."""
        return self._rows

    def append(self, rows: Sequence[LedgerRow]) -> None:
        """Makes the rows durable, all or none. After an error either may show when the file is loaded."""
        if not rows:
            return
        news = latest(rows, self._rows)
        encoded = _encode(news.values())
        size = _body_size(encoded)
        replaced = _encode(self._rows[ledger_id] for ledger_id in news if ledger_id in self._rows)
        live_size = self._live_size + size - _body_size(replaced)
        if self._file is None or size > codec.BODY_SIZE_MAX or self._is_stale_with(size, live_size):
            self._rewrite({**self._rows, **news})
        else:
            self._append_group(self._file, encoded)
            self._live_size = live_size
        self._rows |= news

    def rewrite(self) -> None:
        """Writes all the rows into a new file, which takes the place of the old one durably."""
        self._rewrite(self._rows)

    def close(self) -> None:
        """Gives the file up; an append would begin a new one."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _is_stale_with(self, size: int, live_size: int) -> bool:
        """Whether less than half of the file would count, padding included, were it appended to."""
        end = codec.group_end(self._end, size)
        return end > _SIZE_SMALL and 2 * codec.group_end(0, live_size) < end

    def _append_group(self, file: WriteFile, encoded: Sequence[bytes]) -> None:
        group = codec.encode_group(encoded, self._next_sequence(), self._end, self._end)
        try:
            file.write(self._end, (group,))
            # Before anybody is answered, and before the next group is begun: only the last can be torn.
            file.sync()
        except BaseException:
            # What the file holds is unknown now, and a sync that succeeds later would prove nothing.
            self.close()
            raise
        self._end += len(group)
        self.sequence = self._issued

    def _next_sequence(self) -> int:
        # Never the same for two groups of a run: a group that failed may yet be found in the old file.
        self._issued += 1
        return self._issued

    def _rewrite(self, rows: Mapping[int, LedgerRow]) -> None:
        assert not self.is_name_unknown, "whoever owns the store latches when a directory's sync fails"
        self.close()
        encoded = _encode(rows.values())
        with ExitStack() as unless_named:
            file = self._new_draft()
            unless_named.callback(file.close)
            end = self._write_groups(file, _in_groups(encoded))
            # Before the rename: a durable name must never precede durable content.
            file.sync()
            self._directory.rename(filenames.draft(filenames.LEDGER_ROWS), filenames.LEDGER_ROWS)
            self._sync_name()
            unless_named.pop_all()
        self._file, self._end, self._live_size = file, end, _body_size(encoded)
        self.sequence = self._issued

    def _new_draft(self) -> WriteFile:
        draft = filenames.draft(filenames.LEDGER_ROWS)
        if draft in self._directory.names():
            self._directory.remove(draft)  # what an attempt that failed has left in it is unknown
        return self._directory.create(draft)

    def _write_groups(self, file: WriteFile, groups: Sequence[Sequence[bytes]]) -> int:
        """Writes groups that vouch for the whole file; answers where it ends."""
        starts = [0]
        for group in groups:
            starts.append(codec.group_end(starts[-1], _body_size(group)))
        end = starts[-1]
        for start, group in zip(starts, groups, strict=False):
            file.write(start, (codec.encode_group(group, self._next_sequence(), start, end),))
        return end

    def _sync_name(self) -> None:
        try:
            # Before anything names a group in it: a power cut must not bring the file before it back.
            self._directory.sync()
        except OSError:
            self.is_name_unknown = True
            raise


def _encode(rows: Iterable[LedgerRow]) -> list[bytes]:
    return [row_codec.encode(row) for row in rows]


def _body_size(encoded: Iterable[bytes]) -> int:
    return sum(map(codec.item_size, encoded))


def _in_groups(encoded: Iterable[bytes]) -> list[list[bytes]]:
    """As many groups as their limit asks for. No rows make one empty group: it carries the sequence on."""
    groups: list[list[bytes]] = [[]]
    room = codec.BODY_SIZE_MAX
    for one in encoded:
        size = codec.item_size(one)
        if size > room:
            groups.append([])
            room = codec.BODY_SIZE_MAX
        assert size <= room, "no row is as large as a group"
        groups[-1].append(one)
        room -= size
    return groups

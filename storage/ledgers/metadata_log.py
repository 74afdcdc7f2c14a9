"""The log of the ledgers' metadata, `ledgers.rows`. A row is the encoded record of one ledger.

    rewritten as a whole            │ appended, one group for each call
    ├ group ┼ group ┼ … ┼ group     ┼ group ┼ group ┤ torn
    0       × 4096                    each durable before the next is begun

An opened store never appends to an existing file: its first append rewrites the file as a whole. So a file
gets its name only after a sync, and a crash can tear only the last appended group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.buffered import Window
from storage.disk.replace import replacing, sync_name
from storage.entry import ledger_record_format
from storage.entry.ledger_record_table import LedgerRecordTable, table_of
from storage.entry.read_result import Damaged, EndOfData, Flaw, Stop
from storage.errors import CorruptionError, NewerFormat
from storage.ledgers import metadata_log_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from storage.disk.files import Directory, ReadFile, WriteFile
    from storage.entry.ledger_record import LedgerRecord

ROT = "LGR-002"

_SIZE_SMALL = 64 << 10
"""A file up to this size is not worth rewriting."""


@dataclass(frozen=True, slots=True)
class LoadedMetadataLog:
    """The content of the file without its torn tail."""

    rows: LedgerRecordTable
    """The latest row of each ledger."""
    sequence: int
    """The number of the last sound group; 0 if there is none."""
    proven_sequence: int
    """The last group that a power cut cannot take away. Later groups may not be durable yet, so a store that
    uses them rewrites the file before mark or index name them."""
    torn: int | None
    """The offset of the torn tail; `None` if there is none."""
    highest_change: int
    """The largest `change` of any row; 0 if there is no row."""


def load(directory: Directory, known_sequence: int) -> LoadedMetadataLog:
    """Load the rows. Raises if a group that was durable is damaged or missing.

    `known_sequence` is the last group that mark or index name as durable. Reading makes nothing durable.
    """
    return check(scan_directory(directory), known_sequence)


def scan_directory(directory: Directory) -> MetadataLogScan | None:
    """Scan the directory's file without judging it; `None` if there is no file."""
    try:
        file = directory.open(filenames.LEDGER_ROWS)
    except FileNotFoundError:
        return None
    with file:
        return scan(file)


def check(found: MetadataLogScan | None, known_sequence: int) -> LoadedMetadataLog:
    """Return the rows of a scanned file, with the checks of `load`."""
    if found is None:
        if known_sequence:
            raise _rot(0, f"missing, and group {known_sequence} in it was durable")
        return LoadedMetadataLog(LedgerRecordTable(), 0, 0, None, 0)
    _check(found, known_sequence)
    return LoadedMetadataLog(
        found.rows,
        found.sequence,
        max(known_sequence, found.proven_sequence),
        None if found.is_clean else found.stop.offset,
        found.rows.highest_change,
    )


def _check(found: MetadataLogScan, known_sequence: int) -> None:
    """Raise if anything proves that there were durable groups after the last sound one."""
    stop = found.stop
    if not isinstance(stop, EndOfData) and stop.flaw is Flaw.FUTURE_VERSION:
        raise NewerFormat(filenames.LEDGER_ROWS, f"{stop} at {stop.offset}")
    if why := _proof_of_rot(found, known_sequence):
        what = "no group" if isinstance(stop, EndOfData) else stop.flaw.value
        raise _rot(stop.offset, f"{what}; {why}")


def _proof_of_rot(found: MetadataLogScan, known_sequence: int) -> str | None:
    """Return the proof that more groups were durable; `None` for a torn tail and for no tail."""
    reasons = (
        (not found.heads, "the file was durable before it had its name"),
        (found.is_contradiction, "its checksum is right, and so it was not cut short"),
        (found.declared_end > found.stop.offset, f"everything before {found.declared_end} was durable"),
        (known_sequence > found.sequence, f"group {known_sequence} was durable"),
        (
            found.later_group is not None,
            f"the group at {found.later_group} was begun when this one was durable",
        ),
    )
    return next((why for holds, why in reasons if holds), None)


def _rot(offset: int, reason: str) -> CorruptionError:
    return CorruptionError(filenames.LEDGER_ROWS, offset, reason, ROT)


# ── scanning ─────────────────────────────────────────────────────────────────────────────────────────────

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
"""The damage of a group whose write was cut short. Any other damage is found only under a right checksum."""


@dataclass(frozen=True, slots=True)
class MetadataLogScan:
    """The sound groups from the start of the file, and what follows them. Facts only, without a verdict."""

    rows: LedgerRecordTable
    """The latest row of each ledger."""
    heads: tuple[metadata_log_format.GroupHead, ...]
    stop: Stop
    is_contradiction: bool
    """Whether the bytes at the stop have a right checksum but cannot belong there."""
    is_clean: bool
    """Whether only zeros, or nothing, follow the last sound group."""
    later_group: int | None
    """The offset of a group after the stop that was certainly written; `None` if there is none."""

    @property
    def sequence(self) -> int:
        """The number of the last sound group; 0 if there is none."""
        return self.heads[-1].sequence if self.heads else 0

    @property
    def declared_end(self) -> int:
        """The largest end up to which any group declares the file durable."""
        return max((head.synced_end for head in self.heads), default=0)

    @property
    def proven_sequence(self) -> int:
        """The last group that a power cut cannot take away; 0 if the file proves none."""
        # Only an appended group proves it, because it is begun when the file's name is durable. A rewritten
        # group proves only the content of its file, and a power cut may bring the previous file back.
        appended = [head for head in self.heads if head.synced_end <= head.start]
        proven_end = max((head.synced_end for head in appended), default=0)
        return max((head.sequence for head in self.heads if head.end <= proven_end), default=0)


def scan(file: ReadFile) -> MetadataLogScan:
    """Read the file up to the first group that is not sound. After damage, search for later groups."""
    return _Scanner(Window(file)).run()


@dataclass(frozen=True, slots=True)
class _RecordGroup:
    head: metadata_log_format.GroupHead
    rows: LedgerRecordTable


class _Scanner:
    def __init__(self, window: Window) -> None:
        self._window = window
        self._rows = LedgerRecordTable()
        self._heads: list[metadata_log_format.GroupHead] = []

    def run(self) -> MetadataLogScan:
        at = 0
        while isinstance(found := self._next_group_at(at), _RecordGroup):
            self._rows.merge(found.rows)
            self._heads.append(found.head)
            at = found.head.end
        is_clean = isinstance(found, EndOfData) and self._window.first_nonzero(at) is None
        later_group = None if is_clean else self._find_later_group(at)
        return MetadataLogScan(
            self._rows, tuple(self._heads), found, _is_contradiction(found, at), is_clean, later_group
        )

    def _next_group_at(self, offset: int) -> _RecordGroup | Stop:
        """Return the group at this offset if it is the next in sequence."""
        found = self._group_at(offset)
        if isinstance(found, _RecordGroup):
            sequence = found.head.sequence
            expected = self._heads[-1].sequence + 1 if self._heads else max(1, sequence)
            if sequence != expected:
                return Damaged(offset, Flaw.SEAL_ORDER, f"group {sequence} where group {expected} belongs")
        return found

    def _group_at(self, offset: int) -> _RecordGroup | Stop:
        head_bytes = bytes(self._window.peek(offset, metadata_log_format.HEAD_SIZE))
        head = metadata_log_format.decode_group_head(head_bytes, offset, self._window.size - offset)
        if not isinstance(head, metadata_log_format.GroupHead):
            return head
        body = self._window.view(offset + metadata_log_format.HEAD_SIZE, head.body_size)
        items = metadata_log_format.split_group_body(head, head_bytes, body)
        if isinstance(items, Damaged):
            return items
        rows = LedgerRecordTable()
        bad = rows.take(items)
        if bad is None:
            return _RecordGroup(head, rows)
        flaw = ledger_record_format.decode(items[bad])
        assert isinstance(flaw, Damaged), "the table did not take it"
        return Damaged(metadata_log_format.item_offset(head, items, bad), flaw.flaw, flaw.detail)

    def _find_later_group(self, offset: int) -> int | None:
        places = range(
            offset + metadata_log_format.ALIGNMENT, self._window.size, metadata_log_format.ALIGNMENT
        )
        return next((place for place in places if self._is_written_at(place)), None)

    def _is_written_at(self, place: int) -> bool:
        found = self._group_at(place)
        return isinstance(found, _RecordGroup) or _is_contradiction(found, place)


def _is_contradiction(found: Stop, place: int) -> bool:
    if isinstance(found, EndOfData):
        return False
    # Damage of a row may be of any kind, and its offset is that of the row.
    return found.offset != place or found.flaw not in _UNFINISHED


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────


class MetadataLog:
    """The rows of a store, and the file that keeps them. One thread at a time may write.

    `LedgerMetadata` calls it under its lock `_writing`; any thread may read `rows` without a lock. After an
    error the rows are unchanged, and the next append writes a new file.
    """

    def __init__(self, directory: Directory, rows: Mapping[int, LedgerRecord], sequence: int) -> None:
        self.sequence = sequence
        """The last durable group, which mark and index may name. At first, that of the loaded file."""
        self.is_name_unknown = False
        """Whether the sync of the directory has failed. Then it is unknown which file a power cut would
        leave, and which other names, so the store must stop writing."""
        self._directory = directory
        self._rows = LedgerRecordTable(rows)
        self._issued = sequence
        self._file: WriteFile | None = None
        self._end = 0
        self._live_size = 0
        self._is_last_group_proven = True

    @property
    def path(self) -> str:
        """The directory of the file."""
        return self._directory.path

    @property
    def is_open(self) -> bool:
        """Whether an append may go into the present file. Otherwise it writes a new file, and if that fails
        before the rename, nothing was done for certain."""
        return self._file is not None

    @property
    def rows(self) -> LedgerRecordTable:
        """The latest durable row of each ledger. The table changes with each append."""
        return self._rows

    def append(self, rows: Sequence[LedgerRecord]) -> None:
        """Make the rows durable, all or none. After an error, the next load may find all or none of them."""
        if not rows:
            return
        news = table_of(row for row in rows if self._is_latest(row))
        encoded = list(news.encoded())
        size = metadata_log_format.body_size(encoded)
        replaced = [self._rows.encoded_row(ledger_id) for ledger_id in news if ledger_id in self._rows]
        live_size = self._live_size + size - metadata_log_format.body_size(replaced)
        if (
            self._file is None
            or size > metadata_log_format.BODY_SIZE_MAX
            or self._is_stale_with(size, live_size)
        ):
            all_rows = LedgerRecordTable(self._rows)
            all_rows.merge(news)
            self._rewrite(all_rows)
        else:
            self._append_group(self._file, encoded)
            self._live_size = live_size
            self._is_last_group_proven = False
        self._rows.merge(news)

    def _is_latest(self, row: LedgerRecord) -> bool:
        before = self._rows.get(row.ledger_id)
        return before is None or before.change <= row.change

    def prove_last_group(self) -> None:
        """Write an empty group after the last one, so that damage to the last one is not taken for a torn
        write.

        A file that was rewritten needs no empty group, so after an error `rewrite` has the same effect.
        """
        if self._is_last_group_proven:
            return
        assert self._file is not None, "an append succeeded, so the file is open"
        self._append_group(self._file, ())
        self._is_last_group_proven = True

    def rewrite(self) -> None:
        """Write all rows into a new file, which replaces the old one durably."""
        self._rewrite(self._rows)

    def rewrite_without(self, ledger_ids: Iterable[int]) -> None:
        """Write all rows but those of these ledgers into a new file, which replaces the old one durably.

        The rows in memory stay as they are.
        """
        rows = LedgerRecordTable(self._rows)
        rows.remove(ledger_ids)
        self._rewrite(rows)

    def close(self) -> None:
        """Close the file; a later append would begin a new one."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _is_stale_with(self, size: int, live_size: int) -> bool:
        """Return whether, after the append, more than half of the file would be out of date."""
        end = metadata_log_format.group_end(self._end, size)
        return end > _SIZE_SMALL and 2 * metadata_log_format.group_end(0, live_size) < end

    def _append_group(self, file: WriteFile, encoded: Sequence[bytes]) -> None:
        group = metadata_log_format.encode_group(encoded, self._next_sequence(), self._end, self._end)
        try:
            file.write(self._end, (group,))
            # Before any answer, and before the next group is begun, so that only the last can be torn.
            file.sync()
        except BaseException:
            # The content of the file is unknown now, and a later sync that succeeds would prove nothing.
            self.close()
            raise
        self._end += len(group)
        self.sequence = self._issued

    def _next_sequence(self) -> int:
        # No number is used twice, because a group whose write failed may be found in the old file.
        self._issued += 1
        return self._issued

    def _rewrite(self, rows: LedgerRecordTable) -> None:
        assert not self.is_name_unknown, "the store stops writing when the sync of a directory fails"
        self.close()
        encoded = list(rows.encoded())
        with replacing(self._directory, filenames.LEDGER_ROWS) as file:
            end = self._write_groups(file, _in_groups(encoded))
        self._sync_name(file)
        self._file, self._end, self._live_size = file, end, metadata_log_format.body_size(encoded)
        self._is_last_group_proven = True
        self.sequence = self._issued

    def _write_groups(self, file: WriteFile, groups: Sequence[Sequence[bytes]]) -> int:
        """Write groups that declare the whole file durable. Return the end of the file."""
        starts = [0]
        for group in groups:
            starts.append(metadata_log_format.group_end(starts[-1], metadata_log_format.body_size(group)))
        end = starts[-1]
        for start, group in zip(starts, groups, strict=False):
            file.write(start, (metadata_log_format.encode_group(group, self._next_sequence(), start, end),))
        return end

    def _sync_name(self, file: WriteFile) -> None:
        try:
            # Before mark or index name a group in it, because a power cut could bring the old file back.
            sync_name(self._directory, file)
        except OSError:
            self.is_name_unknown = True
            raise


def _in_groups(encoded: list[bytes]) -> list[list[bytes]]:
    """Split rows into groups of limited size. Without rows, one empty group continues the sequence."""
    if metadata_log_format.body_size(encoded) <= metadata_log_format.BODY_SIZE_MAX:
        return [encoded]
    groups: list[list[bytes]] = [[]]
    room = metadata_log_format.BODY_SIZE_MAX
    for one in encoded:
        size = metadata_log_format.item_size(one)
        if size > room:
            groups.append([])
            room = metadata_log_format.BODY_SIZE_MAX
        assert size <= room, "no row is as large as a group"
        groups[-1].append(one)
        room -= size
    return groups

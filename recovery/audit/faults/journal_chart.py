"""The chart of an undamaged journal."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from storage.disk import filenames
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.entry.model import DigestType
    from storage.journal.seal import Seal

_LENGTH = struct.Struct(">i")
_IDS = struct.Struct(">qq")


class JournalItem(NamedTuple):
    """One record or padding record. A padding has ledger -1."""

    offset: int
    end: int
    ledger_id: int
    entry_id: int
    digest: DigestType | None = None
    """The digest type that proves it, or `None` if no known digest does."""
    seal: Seal | None = None

    @property
    def is_entry(self) -> bool:
        return self.ledger_id >= 0 and self.entry_id >= 0

    @property
    def is_padding(self) -> bool:
        return self.ledger_id < 0


@dataclass(frozen=True, slots=True, eq=False)
class JournalChart:
    """One journal."""

    journal_id: int
    size: int
    header: journal_format.JournalHeader | journal_format.Void
    items: tuple[JournalItem, ...]

    @property
    def name(self) -> str:
        return filenames.journal(self.journal_id)

    @property
    def is_ours(self) -> bool:
        return isinstance(self.header, journal_format.JournalHeader) and self.header.salt is not None

    @property
    def start(self) -> int:
        """Where the first record begins."""
        return self.header.size if isinstance(self.header, journal_format.JournalHeader) else 0

    @property
    def first_group(self) -> int:
        """Where the first group begins, which may be after a padding record; at the end if there
        is no group.
        """
        return next((seal.group_start for seal, _ in self.seals), self.end)

    @property
    def end(self) -> int:
        """The end of the last item."""
        return self.items[-1].end if self.items else self.start

    @property
    def seals(self) -> list[tuple[Seal, int]]:
        """Each group's seal, and where the group ends."""
        return [(item.seal, item.end) for item in self.items if item.seal is not None]

    def group_of(self, offset: int) -> tuple[int, int]:
        """Return the group that contains a byte; in a journal without seals the record or padding."""
        for seal, end in self.seals:
            if seal.group_start <= offset < end:
                return seal.group_start, end
        item = next((one for one in self.items if one.offset <= offset < one.end), None)
        return (0, self.start) if item is None else (item.offset, item.end)


def journal_chart(
    directory: Path, journal_id: int, proves: Callable[[bytes], DigestType | None]
) -> JournalChart:
    """Make the chart of one journal, up to the first place without a record."""
    data = (directory / filenames.journal(journal_id)).read_bytes()
    header = journal_format.decode_header(data[: journal_format.HEADER_SIZE_MAX])
    assert isinstance(header, journal_format.JournalHeader | journal_format.Void), (
        f"{journal_id:x}.txn is damaged: {header}"
    )
    items = _items(data, header, proves) if isinstance(header, journal_format.JournalHeader) else ()
    return JournalChart(journal_id, len(data), header, tuple(items))


def _items(
    data: bytes, header: journal_format.JournalHeader, proves: Callable[[bytes], DigestType | None]
) -> Iterator[JournalItem]:
    at = header.size
    while at + journal_format.PREFIX_SIZE <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        if length == journal_format.PADDING:
            end = at + journal_format.PREFIX_SIZE + _LENGTH.unpack_from(data, at + 4)[0]
            yield JournalItem(at, end, -1, 0, None, _seal(data, at, end))
        else:
            end = at + 4 + length
            if length < _IDS.size or end > len(data):
                return
            ledger_id, entry_id = _IDS.unpack_from(data, at + 4)
            digest = proves(data[at + 4 : end]) if entry_id >= 0 else None
            yield JournalItem(at, end, ledger_id, entry_id, digest)
        at = end


def _seal(data: bytes, at: int, end: int) -> Seal | None:
    if end - at < journal_format.PREFIX_SIZE + journal_seal.SIZE:
        return None
    found = journal_seal.decode(data[end - journal_seal.SIZE : end])
    return found.seal if isinstance(found, journal_seal.StoredSeal) else None

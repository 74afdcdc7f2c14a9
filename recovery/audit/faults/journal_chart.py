"""Where everything stands in an undamaged journal."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from storage import filenames
from storage.codec import journal as codec
from storage.codec import seal as seal_codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.codec.seal import Seal
    from storage.entry import DigestType

_LENGTH = struct.Struct(">i")
_IDS = struct.Struct(">qq")


class Item(NamedTuple):
    """One record or padding record. `ledger_id` is -1 of a padding."""

    offset: int
    end: int
    ledger_id: int
    entry_id: int
    digest: DigestType | None = None
    """What proves it; `None`: nothing that is known."""
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
    header: codec.Header | codec.Void
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        return filenames.journal(self.journal_id)

    @property
    def is_ours(self) -> bool:
        return isinstance(self.header, codec.Header) and self.header.salt is not None

    @property
    def start(self) -> int:
        """Where the first record stands."""
        return self.header.size if isinstance(self.header, codec.Header) else 0

    @property
    def first_group(self) -> int:
        """Where the first group begins, behind a padding record perhaps; at the end if there is none."""
        return next((seal.group_start for seal, _ in self.seals), self.end)

    @property
    def end(self) -> int:
        """Behind the last item."""
        return self.items[-1].end if self.items else self.start

    @property
    def seals(self) -> list[tuple[Seal, int]]:
        """Each group's seal, and where the group ends."""
        return [(item.seal, item.end) for item in self.items if item.seal is not None]

    def group_of(self, offset: int) -> tuple[int, int]:
        """The group that a byte belongs to; in a journal without seals the record or padding."""
        for seal, end in self.seals:
            if seal.group_start <= offset < end:
                return seal.group_start, end
        item = next((one for one in self.items if one.offset <= offset < one.end), None)
        return (0, self.start) if item is None else (item.offset, item.end)


def journal_chart(
    directory: Path, journal_id: int, proves: Callable[[bytes], DigestType | None]
) -> JournalChart:
    """The chart of one journal, up to the first place where no record stands."""
    data = (directory / filenames.journal(journal_id)).read_bytes()
    header = codec.decode_header(data[: codec.HEADER_SIZE_MAX])
    assert isinstance(header, codec.Header | codec.Void), f"{journal_id:x}.txn is damaged: {header}"
    items = _items(data, header, proves) if isinstance(header, codec.Header) else ()
    return JournalChart(journal_id, len(data), header, tuple(items))


def _items(data: bytes, header: codec.Header, proves: Callable[[bytes], DigestType | None]) -> Iterator[Item]:
    at = header.size
    while at + codec.PREFIX_SIZE <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        if length == codec.PADDING:
            end = at + codec.PREFIX_SIZE + _LENGTH.unpack_from(data, at + 4)[0]
            yield Item(at, end, -1, 0, None, _seal(data, at, end))
        else:
            end = at + 4 + length
            if length < _IDS.size or end > len(data):
                return
            ledger_id, entry_id = _IDS.unpack_from(data, at + 4)
            digest = proves(data[at + 4 : end]) if entry_id >= 0 else None
            yield Item(at, end, ledger_id, entry_id, digest)
        at = end


def _seal(data: bytes, at: int, end: int) -> Seal | None:
    if end - at < codec.PREFIX_SIZE + seal_codec.SIZE:
        return None
    found = seal_codec.decode(data[end - seal_codec.SIZE : end])
    return found.seal if isinstance(found, seal_codec.StoredSeal) else None

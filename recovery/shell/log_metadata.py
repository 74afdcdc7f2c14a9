"""The facts of an entry log's header, and its bytes per ledger.

kind                    header, then ledger for each ledger
ledger, bytes           length words included; in the header's row the size of the file
source                  map: the sealed log's own statement; scan: counted entry by entry
version, map_offset, ledgers, sealed, store_id, generation, previous_log, previous_end      of the header only
flaw, detail            a stable name of what is wrong; words
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.columns import Column, numbers
from recovery.shell.entry_cells import free_text
from recovery.shell.tally import counted
from storage import entrylog_scan
from storage.codec import entrylog as codec
from storage.outcome import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.columns import Row
    from storage.entrylog_reader import EntryLogReader
    from storage.entrylog_scan import LogMetadata


COLUMNS = [
    Column("kind"),
    numbers("ledger"),
    numbers("bytes", 12),
    Column("source"),
    Column("detail", text=free_text),
]


def load(reader: EntryLogReader) -> LogMetadata:
    """Bytes per ledger; a scan knows all digest types before it judges."""
    if not isinstance(reader.ledgers_map(), dict):
        entrylog_scan.survey(reader)
    return entrylog_scan.metadata(reader)


def rows(reader: EntryLogReader, metadata: LogMetadata) -> Iterator[Row]:
    """The header, then the ledgers in order."""
    yield header_row(reader)
    for ledger_id, size in sorted(metadata.sizes.items()):
        yield {
            "kind": "ledger",
            "ledger": ledger_id,
            "bytes": size,
            "source": metadata.source.value,
            "flaw": None,
            "detail": None,
        }


def header_row(reader: EntryLogReader) -> Row:
    row: Row = {"kind": "header", "ledger": None, "bytes": reader.size, "source": None}
    match reader.header:
        case codec.Header() as header:
            return row | header_cells(header) | {"flaw": None, "detail": header_words(header)}
        case Damaged() as damaged:
            return row | {"flaw": damaged.flaw.name, "detail": str(damaged)}
        case codec.EmptyLog():
            return row | {"flaw": None, "detail": "allocated ahead and never written"}


def header_cells(header: codec.Header) -> Row:
    origin = header.origin
    previous = origin.previous if origin else None
    return {
        "version": header.version,
        "map_offset": header.map_offset,
        "ledgers": header.ledger_count,
        "sealed": header.map_offset > 0,
        "store_id": origin.store_id.hex() if origin else None,
        "generation": origin.generation if origin else None,
        "previous_log": f"{previous.log_id:x}" if previous else None,
        "previous_end": previous.offset if previous else None,
    }


def header_words(header: codec.Header) -> str:
    sealed = f"sealed: map of {counted(header.ledger_count, 'ledger')} at {header.map_offset}"
    state = sealed if header.map_offset else "not sealed"
    return ", ".join([f"version {header.version}", state, *origin_words(header)])


def origin_words(header: codec.Header) -> list[str]:
    """Whose log it is and behind which, where it says so."""
    origin = header.origin
    if origin is None:
        return []
    previous = origin.previous
    behind = f"behind log {previous.log_id:x} to {previous.offset}" if previous else "behind no log"
    return [f"store {origin.store_id.hex()}, generation {origin.generation}", behind]

"""Entries as table rows: their fields, the status of their digests, and their payloads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.model.tables import Table, dictionary_column
from recovery.audit.spark.tables import PAYLOAD
from storage.entry.format import HEAD
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, EndOfData, Torn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.model.runs import Numbers, Runs
    from recovery.audit.model.scan_results import FlawAt
    from recovery.audit.spark.pushdown import IdFilter
    from storage.disk.files import ReadFile
    from storage.entry.model import DigestType
    from storage.entry.read_result import Stop

STATUSES = ("ok", "bad", "unverified")
_OK, _BAD, _UNVERIFIED = range(3)


def is_settled(policy: DigestPolicy) -> bool:
    """Return whether the digest types of all ledgers are known without reading entries."""
    return policy.presumed is not None and not policy.open


def learned(policy: DigestPolicy, dictionary_column: Mapping[int, DigestType]) -> DigestPolicy:
    """Add the types that entries have shown to the policy, for ledgers whose type is not declared."""
    return replace(policy, declared={**dictionary_column, **policy.declared})


@dataclass(frozen=True, slots=True, eq=False)
class TableEntries:
    """Some entries of one file in its order. The columns are those of
    `recovery.audit.model.entry_columns`.
    """

    offset: Numbers
    size: Numbers
    ledger: Numbers
    entry: Numbers
    confirmed: Numbers
    length: Numbers
    digest: Any
    good: Any

    def select(self, chosen: Any) -> TableEntries:
        return TableEntries(*(getattr(self, name)[chosen] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.ledger)


@dataclass(frozen=True, slots=True)
class EntryTable:
    """Makes the batches of one file's entries."""

    table: Table
    file_column: str
    file_id: int
    policy: DigestPolicy
    """With the types that were inferred. Other types are unknown."""
    ledgers: IdFilter

    def batch(self, found: TableEntries, file: ReadFile) -> pa.RecordBatch | None:
        """Return a batch of the chosen entries, or `None` if there are none. The file is read only for
        payloads.
        """
        chosen = self.ledgers.mask(found.ledger)
        if chosen is not None:
            found = found.select(chosen)
        if not len(found):
            return None
        ids, inverse = np.unique(found.ledger, return_inverse=True)
        kinds = [self.policy.type_of(ledger_id) for ledger_id in ids.tolist()]
        widths = np.array([-1 if kind is None else kind.width for kind in kinds])[inverse]
        payloads = np.where(widths < 0, -1, found.size - LENGTH_WORD_SIZE - HEAD.size - widths)
        values: dict[str, Any] = {
            self.file_column: np.full(len(found), self.file_id, dtype=np.int64),
            "offset": found.offset,
            "size": found.size,
            "ledger": found.ledger,
            "entry": found.entry,
            "last_add_confirmed": found.confirmed,
            "length": found.length,
            "digest_type": dictionary_column(
                [None if kind is None else kind.name for kind in kinds], inverse
            ),
            "digest_status": dictionary_column(STATUSES, self._statuses(found, ids.tolist(), kinds, inverse)),
            "digest": found.digest,
            "payload_size": _unless_negative(payloads),
        }
        if PAYLOAD in self.table.columns:
            values[PAYLOAD[0]] = _payloads(found, payloads, file)
        return self.table.batch(values)

    def _statuses(
        self, found: TableEntries, ids: list[int], kinds: list[DigestType | None], inverse: Numbers
    ) -> Numbers:
        verified = np.array(
            [
                kind is not None and self.policy.digester(ledger_id, kind).verifies
                for ledger_id, kind in zip(ids, kinds, strict=True)
            ]
        )
        return np.where(~found.good, _BAD, np.where(verified[inverse], _OK, _UNVERIFIED))


def _unless_negative(numbers: Numbers) -> pa.Array:
    """Return the numbers, with null for those that are unknown or that a damaged size has made absurd."""
    import pyarrow as pa

    return pa.array(numbers, pa.int64(), mask=numbers < 0)


def _payloads(found: TableEntries, sizes: Numbers, file: ReadFile) -> pa.Array:
    """Return the bytes after each digest, with null if the digest type is unknown."""
    import pyarrow as pa

    ends = (found.offset + found.size).tolist()
    return pa.array(
        [
            None if size < 0 else file.read(end - size, size)
            for end, size in zip(ends, sizes.tolist(), strict=True)
        ],
        pa.binary(),
    )


def run_columns(file_column: str, runs: Runs) -> dict[str, Any]:
    """Return the columns of a table of runs."""
    return {
        file_column: runs["file"],
        "ledger": runs["ledger"],
        "step": runs["step"],
        "first_entry": runs["first"],
        "last_entry": runs["last"],
        "entries": runs["count"],
        "size": runs["size"],
        "places": runs["places"],
        "digests": runs["digests"],
        "bad": runs["bad"],
    }


END, TORN, UNREADABLE = "END", "TORN", "UNREADABLE"
"""Kinds of rows of `flaws` about a whole file: the end of its data is lost, its last record is unfinished, as
after a crash, or the system refuses to read it.
"""


def end_row(file_id: int, stop: Stop | None, file_size: int, data_end: int) -> tuple[object, ...] | None:
    """Return a row of `flaws` about the end of a file, or `None` if data ends as it should.

    `data_end` is where data ended when the file was complete, or 0 if nothing says so.
    """
    match stop:
        case Damaged():
            return file_id, END, stop.offset, max(file_size, stop.offset), None, None, str(stop)
        case Torn():
            return file_id, TORN, stop.offset, file_size, None, None, str(stop)
        case EndOfData(offset=offset) if offset < data_end:
            return file_id, END, offset, data_end, None, None, f"zeros; data was written up to {data_end}"
    return None


def unreadable_row(file_id: int, error: OSError) -> tuple[object, ...]:
    """Return the row of `flaws` about a file that the system refuses to read."""
    return file_id, UNREADABLE, 0, None, None, None, error.strerror or str(error)


def flaw_row(file_id: int, flaw: FlawAt) -> tuple[object, ...]:
    """Return one row of a table of flaws."""
    words = flaw.detail or ("" if flaw.flaw is None else flaw.flaw.value)
    return file_id, flaw.kind.name, flaw.offset, flaw.end, flaw.ledger_id, flaw.entry_id, words

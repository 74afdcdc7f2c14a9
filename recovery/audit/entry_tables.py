"""Entries as rows of a table: what their columns say, how their digests stand, and what they carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.tables import PAYLOAD, Table, told
from storage.codec.entry import HEAD
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from recovery.audit.choice import Choice
    from recovery.audit.ways import Ways
    from recovery.verify.parts import FlawAt
    from recovery.verify.runs import Numbers, Runs
    from storage.entry import DigestType
    from storage.files import ReadFile

STATUSES = ("ok", "bad", "unverified")
_OK, _BAD, _UNVERIFIED = range(3)


def is_settled(ways: Ways) -> bool:
    """Whether nothing of digests is left for entries to tell."""
    return ways.presumed is not None and not ways.open


def learned(ways: Ways, told: Mapping[int, DigestType]) -> Ways:
    """The same, with what entries have told of their ledgers where nothing was declared."""
    return replace(ways, declared={**told, **ways.declared})


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Some entries of one file, in its order; columns as in `recovery.verify.entries`."""

    offset: Numbers
    size: Numbers
    ledger: Numbers
    entry: Numbers
    confirmed: Numbers
    length: Numbers
    digest: Any
    good: Any

    def those(self, chosen: Any) -> Found:
        return Found(*(getattr(self, name)[chosen] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.ledger)


@dataclass(frozen=True, slots=True)
class EntryTable:
    """Makes the batches of one file's entries."""

    table: Table
    file_column: str
    file_id: int
    ways: Ways
    """As they were learned: what is not known here, nothing tells."""
    ledgers: Choice

    def batch(self, found: Found, file: ReadFile) -> pa.RecordBatch | None:
        """Those that are chosen; `None`: there are none. The file is read only for what they carry."""
        chosen = self.ledgers.mask(found.ledger)
        if chosen is not None:
            found = found.those(chosen)
        if not len(found):
            return None
        ids, inverse = np.unique(found.ledger, return_inverse=True)
        kinds = [self.ways.type_of(ledger_id) for ledger_id in ids.tolist()]
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
            "digest_type": told([None if kind is None else kind.name for kind in kinds], inverse),
            "digest_status": told(STATUSES, self._statuses(found, ids.tolist(), kinds, inverse)),
            "digest": found.digest,
            "payload_size": _unless_negative(payloads),
        }
        if PAYLOAD in self.table.columns:
            values[PAYLOAD[0]] = _payloads(found, payloads, file)
        return self.table.batch(values)

    def _statuses(
        self, found: Found, ids: list[int], kinds: list[DigestType | None], inverse: Numbers
    ) -> Numbers:
        verified = np.array(
            [
                kind is not None and self.ways.digester(ledger_id, kind).verifies
                for ledger_id, kind in zip(ids, kinds, strict=True)
            ]
        )
        return np.where(~found.good, _BAD, np.where(verified[inverse], _OK, _UNVERIFIED))


def _unless_negative(numbers: Numbers) -> pa.Array:
    """The numbers; nothing for those that cannot be told, or that a damaged size has made absurd."""
    import pyarrow as pa

    return pa.array(numbers, pa.int64(), mask=numbers < 0)


def _payloads(found: Found, sizes: Numbers, file: ReadFile) -> pa.Array:
    """The bytes behind each digest; nothing where nobody knows where that ends."""
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
    """The columns of a table of runs."""
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


def flaw_row(file_id: int, flaw: FlawAt) -> tuple[object, ...]:
    """One row of a table of flaws."""
    words = flaw.detail or ("" if flaw.flaw is None else flaw.flaw.value)
    return file_id, flaw.kind.name, flaw.offset, flaw.end, flaw.ledger_id, flaw.entry_id, words

"""The latest row of each ledger, in a table that is fast even if very many ledgers were deleted.

A plain tombstone is a row that only says that an earlier ledger of its id was deleted. It stays encoded, with
the bytes that it has in `ledgers.rows` and in the index. One regular expression finds thousands of such rows
at a time, because decoding each row by itself takes fifty times as long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

import msgpack

from storage.entry import ledger_record_format
from storage.entry.digest import master_key
from storage.entry.ledger_record import KnownBy, LedgerRecord
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_PLAIN_KEY = master_key(b"")

# A number as msgpack encodes it: at most the largest ledger id, and at most the largest log id.
_ID = rb"(?:[\x00-\x7f]|\xcc.|\xcd..|\xce.{4}|\xcf[\x00-\x7f].{7})"
_LOG = rb"(?:[\x00-\x7f]|\xcc.|\xcd..|\xce[\x00-\x7f].{3})"
_PLAIN = b"".join(
    map(
        msgpack.packb,
        (DigestType.CRC32C.value, KnownBy.DECLARED.value, _PLAIN_KEY, False, None),
    )
)
"""The fields before the tombstone: digest type, how it is known, master key, fenced, explicit LAC."""

_HEAD = ledger_record_format.encode(LedgerRecord(0, 0))[:2]
"""The first two bytes of a row: the number of fields, and the version."""

_WITHOUT_LOG, _WITH_LOG, _NO_LIMBO = b"\x92", b"\x94", b"\xc2"
_AT_ONCE = 8192
_TOMBSTONE = re.compile(
    b"(%b(%b)(%b)%b(?:%b%b%b|%b%b%b%b%b)%b.{4})"
    % (
        _HEAD,
        _ID,
        _ID,
        re.escape(_PLAIN),
        _WITHOUT_LOG,
        _ID,
        _ID,
        _WITH_LOG,
        _ID,
        _ID,
        _LOG,
        _ID,
        _NO_LIMBO,
    ),
    re.DOTALL,
)


class LedgerRecordTable(Mapping[int, LedgerRecord]):
    """Rows by ledger id; if a ledger has two, the one with the larger change stays.

    One thread at a time may change it; readers in other threads need no lock.
    """

    __slots__ = ("highest_change", "living", "tombstones")

    def __init__(self, rows: Mapping[int, LedgerRecord] | None = None) -> None:
        self.living: dict[int, LedgerRecord] = {}
        """All rows but the plain tombstones."""
        self.tombstones: dict[int, bytes] = {}
        """The plain tombstones, encoded."""
        self.highest_change = 0
        """The largest change of any row that was ever put in."""
        if isinstance(rows, LedgerRecordTable):
            self.living, self.tombstones = rows.living.copy(), rows.tombstones.copy()
            self.highest_change = rows.highest_change
        elif rows is not None:
            for row in rows.values():
                self.put(row)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def __getitem__(self, ledger_id: int) -> LedgerRecord:
        row = self.living.get(ledger_id)
        if row is None and (encoded := self.tombstones.get(ledger_id)) is not None:
            return _decoded(encoded)
        # Looked up again, because another thread may have put it in the place of a tombstone meanwhile.
        return self.living[ledger_id] if row is None else row

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self.living or ledger_id in self.tombstones

    def __iter__(self) -> Iterator[int]:
        return chain(self.living, self.tombstones)

    def __len__(self) -> int:
        return len(self.living) + len(self.tombstones)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LedgerRecordTable):
            return not self.differing(other)
        return dict(self.items()) == other

    __hash__ = None  # type: ignore[assignment]

    def differing(self, other: LedgerRecordTable) -> set[int]:
        """Return the ledgers whose rows differ, or that have a row in one table only."""
        ids = self.living.keys() | other.living.keys()
        found = {ledger_id for ledger_id in ids if self.living.get(ledger_id) != other.living.get(ledger_id)}
        if self.tombstones != other.tombstones:
            found |= {ledger_id for ledger_id, _ in self.tombstones.items() ^ other.tombstones.items()}
        return found

    def unbounded_tombstones(self) -> Iterator[LedgerRecord]:
        """Return the rows with a tombstone that does not state yet which records of the logs are dead."""
        start = _PLAIN + _WITHOUT_LOG
        for row in self.living.values():
            if row.tombstone is not None and row.tombstone.log is None:
                yield row
        yield from (_decoded(encoded) for encoded in self.tombstones.values() if start in encoded)

    def encoded(self) -> Iterator[bytes]:
        """Return every row in its encoded form."""
        return chain(map(ledger_record_format.encode, self.living.values()), self.tombstones.values())

    def encoded_row(self, ledger_id: int) -> bytes:
        """Return the ledger's row in its encoded form."""
        return self.tombstones.get(ledger_id) or ledger_record_format.encode(self.living[ledger_id])

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────

    def put(self, row: LedgerRecord) -> None:
        """Take a row, unless the table has one with a larger change."""
        # Asked first, because a look-up of a ledger that has no row raises and catches an exception.
        if row.ledger_id in self and self[row.ledger_id].change > row.change:
            return
        self.highest_change = max(self.highest_change, row.change)
        # The new row is put before the old one is removed, so that readers in other threads find one of them.
        if is_plain_tombstone(row):
            self.tombstones[row.ledger_id] = ledger_record_format.encode(row)
            self.living.pop(row.ledger_id, None)
        else:
            self.living[row.ledger_id] = row
            self.tombstones.pop(row.ledger_id, None)

    def remove(self, ledger_ids: Iterable[int]) -> None:
        """Remove the plain tombstones of these ledgers. The largest change stays what it was."""
        gone = set(ledger_ids)
        # A new dict in one step, because readers in other threads may go through the old one.
        self.tombstones = {one: row for one, row in self.tombstones.items() if one not in gone}

    def merge(self, other: LedgerRecordTable) -> None:
        """Take all rows of another table."""
        for row in other.living.values():
            self.put(row)
        # Compare the dicts and not the tables, because a table's keys are looked up one by one in Python.
        new = other.tombstones
        if self.living.keys().isdisjoint(new) and self.tombstones.keys().isdisjoint(new):
            self.tombstones.update(new)
            self.highest_change = max(self.highest_change, other.highest_change)
        else:
            for encoded in new.values():
                self.put(_decoded(encoded))

    def merge_newer(self, other: LedgerRecordTable) -> None:
        """Take the rows that have a larger change than the row here, or whose ledgers have no row here."""
        for ledger_id in self.differing(other) & other.keys():
            before, row = self.get(ledger_id), other[ledger_id]
            if before is None or before.change < row.change:
                self.put(row)

    def take_like(self, encoded: dict[int, bytes], like: LedgerRecordTable) -> dict[int, bytes]:
        """Take into an empty table those encoded rows that `like` has byte for byte; return the others."""
        known = like.tombstones
        if encoded == known:
            self.tombstones, others = encoded, {}
        else:
            self.tombstones = {one: row for one, row in encoded.items() if known.get(one) == row}
            others = {one: row for one, row in encoded.items() if one not in self.tombstones}
        self.highest_change = like.highest_change
        return others

    def take(self, encoded: Sequence[bytes]) -> int | None:
        """Take rows whose checksums were verified. Return the number of the first that is no row, if any."""
        for start in range(0, len(encoded), _AT_ONCE):
            bad = self._take_some(encoded[start : start + _AT_ONCE])
            if bad is not None:
                return start + bad
        return None

    def _take_some(self, encoded: Sequence[bytes]) -> int | None:
        tombstones = [one for one in encoded if _PLAIN in one]
        found = _TOMBSTONE.findall(b"".join(tombstones))
        if [whole for whole, _, _ in found] != tombstones:
            # At least one of them is no plain tombstone: match each by itself.
            matches = [match for one in tombstones if (match := _TOMBSTONE.fullmatch(one))]
            found, tombstones = [one.groups() for one in matches], [one.string for one in matches]
        if len(tombstones) < len(encoded):
            known = set(tombstones)
            for number, one in enumerate(encoded):
                if one not in known:
                    row = ledger_record_format.decode(one)
                    if isinstance(row, Damaged):
                        return number
                    self.put(row)
        new = LedgerRecordTable()
        new.tombstones = dict(zip(_numbers([one for _, one, _ in found]), tombstones, strict=True))
        new.highest_change = max(_numbers([one for _, _, one in found]), default=0)
        if len(new) == len(tombstones):
            self.merge(new)
        else:
            for one in tombstones:
                self.put(_decoded(one))
        return None


def living_rows(rows: Mapping[int, LedgerRecord]) -> Iterable[LedgerRecord]:
    """Return the rows without plain tombstones, if these are kept apart; otherwise all rows."""
    return rows.living.values() if isinstance(rows, LedgerRecordTable) else rows.values()


def is_plain_tombstone(row: LedgerRecord) -> bool:
    """Return whether the row is a plain tombstone.

    It only says that an earlier ledger of its id was deleted.
    """
    # Field by field, because a delete of many ledgers asks this for each, and a record to compare with costs
    # ten times as much.
    return (
        row.tombstone is not None
        and row.digest_type is DigestType.CRC32C
        and row.known_by is KnownBy.DECLARED
        and row.master_key == _PLAIN_KEY
        and not (row.fenced or row.in_limbo)
        and row.explicit_lac is None
        and row.truncation is None
    )


def _numbers(packed: Sequence[bytes]) -> list[int]:
    """Decode many of msgpack's numbers at once, as the elements of one array."""
    size = len(packed).to_bytes(4, "big")
    numbers: list[int] = msgpack.unpackb(b"\xdd" + size + b"".join(packed))
    return numbers


def _decoded(encoded: bytes) -> LedgerRecord:
    row = ledger_record_format.decode(encoded)
    assert isinstance(row, LedgerRecord), "it was checked when it was taken"
    return row


def table_of(rows: Iterable[LedgerRecord]) -> LedgerRecordTable:
    """Return a table of these rows."""
    table = LedgerRecordTable()
    for row in rows:
        table.put(row)
    return table

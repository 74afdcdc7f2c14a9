"""The cells of one journal record, padding or stretch of damage: what stands in a row, not which rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell import entry_cells
from recovery.shell.entry_cells import OK
from recovery.shell.tally import counted, reason
from storage.codec import entry as entry_codec
from storage.codec import journal as codec
from storage.codec.digest import DigestCheck, master_key
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from recovery.shell.columns import Row
    from recovery.shell.passwords import Keyring
    from recovery.shell.wanted import Payload
    from storage.codec.seal import Seal
    from storage.codec.survey import EntryVerifier
    from storage.journal_reader import StoredPadding, StoredRecord
    from storage.outcome import Torn


class JournalCells:
    """Describes what a journal of that version holds, with what is known of its ledgers."""

    def __init__(self, version: int, verifier: EntryVerifier, keyring: Keyring, payload: Payload) -> None:
        self._version = version
        self._verifier = verifier
        self._keyring = keyring
        self._payload = payload

    def record(self, item: StoredRecord) -> Row:
        """Any record, its digest checked."""
        match item.record:
            case codec.EntryRecord(ledger_id=ledger_id, data=data):
                check = self._verifier.check(data)
                known = self._verifier.digester(ledger_id)
                cells = entry_cells.describe(data, known, check, self._payload)
                return self._row("entry", item.offset, item.end) | cells
            case Damaged() as damaged:
                return self._row("unknown", item.offset, item.end) | _wrong(damaged.flaw, str(damaged))
            case record:
                cells = self._special(record) | {"ledger": record.ledger_id}
                return self._row("unknown", item.offset, item.end) | cells

    def _special(self, record: codec.Record) -> Row:
        match record:
            case codec.LedgerKey():
                return {"kind": "ledger-key", "ok": self._fits(record)}
            case codec.Fence():
                return {"kind": "fence"}
            case codec.ExplicitLac():
                return {"kind": "explicit-lac"} | self._explicit_lac(record)
        return {"detail": f"record kind {record.entry_id}"}

    def _fits(self, record: codec.LedgerKey) -> bool | None:
        """Whether the given password gives this key. Another password is no damage: never false."""
        password = self._keyring.given(record.ledger_id)
        return True if password is not None and master_key(password) == record.master_key else None

    def _explicit_lac(self, record: codec.ExplicitLac) -> Row:
        size = entry_codec.LAC_PACKET.size
        head, digest = record.packet[:size], record.packet[size:]
        if len(head) < size:
            return _wrong(Flaw.INNER_LENGTH, Flaw.INNER_LENGTH.value)
        _, lac = entry_codec.LAC_PACKET.unpack(head)
        known = self._verifier.digester(record.ledger_id)
        if known is None:
            return {"lac": lac}
        cells: Row = {"lac": lac, "digest_type": known.digest_type.name, "digest": digest.hex() or None}
        check = known.check(head, digest, b"")
        wrong = _wrong(Flaw.DIGEST, Flaw.DIGEST.value) if check is DigestCheck.MISMATCH else {}
        return cells | {"ok": OK[check]} | wrong

    def padding(self, item: StoredPadding) -> Row:
        """Padding without a seal."""
        words = "the group behind counts whole or not at all" if item.atomic_mark else None
        return self._row("padding", item.offset, item.end) | {"detail": words}

    def missing_seal(self, item: StoredPadding) -> Row:
        """Padding in a journal of ours that ought to end in a seal."""
        wrong = _wrong(Flaw.SEAL_MISSING, Flaw.SEAL_MISSING.value)
        return self._row("padding", item.offset, item.end) | wrong

    def seal(self, item: StoredPadding, seal: Seal, flaw: Flaw | None) -> Row:
        """A seal that can be read, and why it does not hold if it does not."""
        count = counted(seal.record_count, "record")
        words = f"seal {seal.sequence}, {count}, durable to {seal.durable_up_to}"
        cells: Row = {
            "ok": True,
            "detail": words,
            "sequence": seal.sequence,
            "durable_up_to": str(seal.durable_up_to),
            "records": seal.record_count,
        }
        wrong = _wrong(flaw, f"{words}: {flaw.value}") if flaw else {}
        return self._row("seal", item.offset, item.end) | cells | wrong

    def unsealed(self, end: int, start: int) -> Row:
        """The place at which the seal of the group from `start` on ought to stand."""
        words = f"the group from {start} on has no seal"
        return self._row("torn", end, end) | {"flaw": Flaw.SEAL_MISSING.name, "detail": words}

    def damage(self, kind: str, start: int, end: int, stop: Torn | Damaged) -> Row:
        """A hole, a torn tail, a damaged header."""
        return self._row(kind, start, end) | {"flaw": stop.flaw.name, "detail": reason(stop)}

    def _row(self, kind: str, start: int, end: int) -> Row:
        place: Row = {"offset": start, "size": end - start, "version": self._version, "kind": kind}
        return place | entry_cells.blank(self._payload)


def _wrong(flaw: Flaw, words: str) -> Row:
    return {"ok": False, "flaw": flaw.name, "detail": words}

"""The cells that an entry has in every listing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.columns import Column, numbers, plain_text
from recovery.shell.wanted import Payload
from storage.codec import entry as entry_codec
from storage.codec.digest import DigestCheck
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.shell.columns import Cell, Row
    from storage.codec.digest import Digester

OK = {DigestCheck.OK: True, DigestCheck.MISMATCH: False, DigestCheck.UNVERIFIED: None}

_CHECKABLE = ("entry", "explicit-lac", "seal", "ledger-key")


def _ok_text(row: Mapping[str, Cell], name: str) -> str:
    match row.get(name):
        case True:
            return "ok"
        case False:
            return "BAD"
    return "?" if row["kind"] in _CHECKABLE else "-"


def columns(payload: Payload, digits: int) -> list[Column]:
    """Ledger, entry, …, ok, and the payload where it is wanted."""
    shown = [] if payload is Payload.NONE else [Column("payload")]
    return [
        numbers("ledger"),
        numbers("entry"),
        numbers("lac", 4),
        numbers("length", digits, rank=2),
        Column("digest_type", width=6, rank=3),
        Column("digest", width=8, rank=4),
        Column("ok", width=3, text=_ok_text),
        *shown,
        Column("detail", text=free_text),
    ]


def free_text(row: Mapping[str, Cell], name: str) -> str:
    """Words at the end of a line; nothing where there are none."""
    return "" if row.get(name) is None else plain_text(row, name)


def describe(data: bytes, known: Digester | None, check: DigestCheck, payload: Payload) -> Row:
    """What the bytes of an entry say. Without its digest's type, digest and payload cannot be told apart."""
    ledger_id, entry_id = entry_codec.IDS.unpack_from(data)
    head = entry_codec.decode_head(data)
    cells = blank(payload) | {"ledger": ledger_id, "entry": entry_id, "ok": OK[check]}
    if isinstance(head, Damaged):
        return cells | {"ok": False, "flaw": head.flaw.name, "detail": str(head)}
    if check is DigestCheck.MISMATCH:
        cells |= {"flaw": Flaw.DIGEST.name, "detail": Flaw.DIGEST.value}
    cells |= {"lac": head.last_add_confirmed, "length": head.length}
    if known is None:
        return cells
    start = entry_codec.HEAD.size + known.digest_type.width
    cells |= {
        "digest_type": known.digest_type.name,
        "digest": data[entry_codec.HEAD.size : start].hex() or None,
    }
    if payload is not Payload.NONE:
        cells["payload"] = _payload(data[start:], payload)
    return cells


def blank(payload: Payload) -> Row:
    """The cells of something that is not an entry."""
    names = ("ledger", "entry", "lac", "length", "digest_type", "digest", "ok")
    cells: Row = dict.fromkeys(names)
    if payload is not Payload.NONE:
        cells["payload"] = None
    return cells | {"flaw": None, "detail": None}


def _payload(data: bytes, payload: Payload) -> str:
    return data.hex() if payload is Payload.HEX else data.decode(errors="backslashreplace")

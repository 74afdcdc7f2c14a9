"""The rows of ledgers in the metadata of a cluster. A password is never shown, only whether there is one.

ledger, path            its id, and the node that holds the metadata
state                   OPEN, IN_RECOVERY or CLOSED
ensemble                how many bookies an ensemble has
write_quorum            how many of them get an entry
ack_quorum              how many of these must answer before an add is acknowledged
last_entry, bytes       where a closed ledger ends, and the length of its payloads; null for others
segments                changes of the ensemble, plus one
bookies                 those of the last segment, joined by commas
digest_type, password   how entries are protected; whether the ledger has a password
created                 in milliseconds since 1970, from the ledger or else from its node
format, version         of the metadata, and of the node
flaw, detail            a stable name of what is wrong; an explanation
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.output import Column, free_text, number_column

if TYPE_CHECKING:
    from recovery.shell.output import Row
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.znodes import Node

COLUMNS = [
    number_column("ledger"),
    Column("path", rank=6),
    Column("state"),
    number_column("last_entry"),
    number_column("bytes"),
    number_column("ensemble", rank=2),
    number_column("write_quorum", rank=2),
    number_column("ack_quorum", rank=2),
    number_column("segments", rank=3),
    Column("bookies", rank=1),
    Column("digest_type", rank=4),
    Column("password", rank=5),
    Column("detail", text=free_text),
]

MISPLACED = "MISPLACED"
UNREADABLE = "UNREADABLE"

_EMPTY = dict.fromkeys(
    (
        "ledger",
        "path",
        "state",
        "ensemble",
        "write_quorum",
        "ack_quorum",
        "last_entry",
        "bytes",
        "segments",
        "bookies",
        "digest_type",
        "password",
        "created",
        "format",
        "version",
        "flaw",
        "detail",
    )
)


def metadata_row(ledger_id: int, path: str, metadata: ClusterLedgerMetadata, node: Node) -> Row:
    """Return the row of a ledger."""
    is_closed = metadata.is_closed
    return _EMPTY | {
        "ledger": ledger_id,
        "path": path,
        "state": metadata.state.name,
        "ensemble": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "last_entry": metadata.last_entry if is_closed else None,
        "bytes": metadata.length if is_closed else None,
        "segments": len(metadata.segments),
        "bookies": ",".join(metadata.segments[-1].bookies),
        "digest_type": None if metadata.digest_type is None else metadata.digest_type.name,
        "password": bool(metadata.password),
        "created": node.stat.created_ms if metadata.created_ms is None else metadata.created_ms,
        "format": metadata.format_version,
        "version": node.stat.version,
    }


def damaged_row(ledger_id: int | None, path: str, flaw: str, detail: str) -> Row:
    """Return the row of a node that cannot be read, or is in a wrong place."""
    return _EMPTY | {"ledger": ledger_id, "path": path, "flaw": flaw, "detail": detail, "ok": False}

"""The tables that the data sources return: the columns of each.

Offsets are those of length words, also in the index, so that tables can be joined by them.
"""

from __future__ import annotations

from recovery.audit.model.tables import Table, table


def _of_entries(file: str) -> Table:
    return table(
        file,
        "offset",
        "size",
        "ledger",
        "entry",
        "last_add_confirmed",
        "length",
        "digest_type:string",
        "digest_status:string",
        "digest",
        "payload_size",
    )


def _of_runs(file: str) -> Table:
    return table(
        file,
        "ledger",
        "step",
        "first_entry",
        "last_entry",
        "entries",
        "size",
        "places",
        "digests",
        "bad",
    )


def _of_flaws(file: str) -> Table:
    return table(file, "kind:string", "offset", "end_offset", "ledger", "entry", "detail:string")


LOG = {
    "entries": _of_entries("log"),
    "runs": _of_runs("log"),
    "flaws": _of_flaws("log"),
    "parts": table(
        "log",
        "file_size",
        "walked",
        "records",
        "entries",
        "bad",
        "unverified",
        "flaws",
        "map_records",
        "fillers",
        "ending:string",
        "ending_offset",
        "seconds:double",
    ),
}
JOURNAL = {
    "entries": _of_entries("journal"),
    "runs": _of_runs("journal"),
    "flaws": _of_flaws("journal"),
    "parts": table(
        "journal",
        "file_size",
        "records",
        "entries",
        "bad",
        "unverified",
        "flaws",
        "owner:string",
        "ending:string",
        "ending_offset",
        "seconds:double",
    ),
}
INDEX = {
    "entries": table("ledger", "entry", "log", "offset"),
    "runs": table("ledger", "log", "step", "first_entry", "last_entry", "entries", "places"),
    "flaws": table("ledger", "entry", "log", "offset", "detail:string"),
    "parts": table("ledgers", "entries", "flaws", "seconds:double"),
}

STORE = ("store", "string")
"""The column that each source adds to its tables: the path that was given, or that matched a pattern."""
PAYLOAD = ("payload", "binary")


def with_payload(table: Table) -> Table:
    """Add the payload column."""
    return Table((*table.columns, PAYLOAD))

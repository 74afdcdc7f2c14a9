"""`ledgers` and `ledger` with the address of a cluster: the ledgers as its metadata has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.shell.listing.cluster_ledger import (
    COLUMNS,
    MISPLACED,
    UNREADABLE,
    damaged_row,
    metadata_row,
)
from recovery.shell.output import Column, counted, free_text, number_column, row_writer
from storage.cluster.metadata import ledger
from storage.cluster.metadata.ledger import ClusterLedgerMetadata
from storage.cluster.metadata.paths import LedgerPaths, MisplacedNode, list_ledgers, read_tree
from storage.cluster.metadata.update import decode_ledger, read_ledger
from storage.cluster.metadata.znodes import Gone, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.shell.output import Form, Row, RowWriter
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.znodes import Znodes

_BATCH = 1000
"""Ledgers whose metadata is read at the same time."""


class Listed(NamedTuple):
    """The counts of a listing."""

    ledgers: int
    flaws: int

    def __str__(self) -> str:
        flaws = f", {counted(self.flaws, 'node')} WRONG" if self.flaws else ""
        return counted(self.ledgers, "ledger") + flaws


_ID_COLUMNS = [number_column("ledger"), Column("path"), Column("detail", text=free_text)]


async def list_ids(znodes: Znodes, address: MetadataAddress, form: Form) -> Listed:
    """Print the ids of all ledgers, ascending, and what else is among them."""
    paths = await _paths(znodes, address)
    out = row_writer(form, _ID_COLUMNS)
    count = flaws = 0
    async for found in list_ledgers(znodes, paths):
        if isinstance(found, MisplacedNode):
            flaws += 1
            row = damaged_row(None, found.path, MISPLACED, found.problem)
            out.row({name: row[name] for name in ("ledger", "path", "flaw", "detail", "ok")})
        else:
            count += 1
            out.row({"ledger": found, "path": paths.path_of(found), "flaw": None, "detail": None})
    out.end()
    return Listed(count, flaws)


async def list_metadata(znodes: Znodes, address: MetadataAddress, form: Form) -> Listed:
    """Print the metadata of all ledgers, ascending."""
    paths = await _paths(znodes, address)
    out = row_writer(form, COLUMNS)
    count = flaws = 0
    batch: list[int] = []
    async for found in list_ledgers(znodes, paths):
        if isinstance(found, MisplacedNode):
            flaws += 1
            out.row(damaged_row(None, found.path, MISPLACED, found.problem))
            continue
        count += 1
        batch.append(found)
        if len(batch) == _BATCH:
            flaws += await _print_batch(znodes, paths, batch, out)
            batch = []
    flaws += await _print_batch(znodes, paths, batch, out)
    out.end()
    return Listed(count, flaws)


async def _print_batch(znodes: Znodes, paths: LedgerPaths, ids: Sequence[int], out: RowWriter) -> int:
    flaws = 0
    nodes = await znodes.get_all([paths.path_of(ledger_id) for ledger_id in ids])
    for ledger_id, node in zip(ids, nodes, strict=True):
        # A ledger that was deleted since the listing is left out.
        if isinstance(node, Node):
            row = _row(paths, ledger_id, node)
            flaws += row["flaw"] is not None
            out.row(row)
    return flaws


def _row(paths: LedgerPaths, ledger_id: int, node: Node) -> Row:
    path = paths.path_of(ledger_id)
    found = ledger.decode(node.data)
    if isinstance(found, ClusterLedgerMetadata):
        return metadata_row(ledger_id, path, found, node)
    return damaged_row(ledger_id, path, UNREADABLE, found.reason)


# ── one ledger ────────────────────────────────────────────────────────────────────────────────────────────

_ONE_COLUMNS = [
    Column("kind"),
    number_column("first_entry"),
    number_column("last_entry"),
    Column("bookies"),
    Column("detail", text=free_text),
]


async def show_ledger(
    znodes: Znodes, address: MetadataAddress, ledger_id: int, form: Form
) -> ClusterLedgerMetadata:
    """Print the metadata of one ledger: the ledger, its segments, and the values of its application."""
    paths = await _paths(znodes, address)
    path = paths.path_of(ledger_id)
    node = await znodes.get(path)
    if isinstance(node, Gone):
        # Says whether the ledger or the whole cluster is missing.
        return (await read_ledger(znodes, paths, ledger_id)).value
    metadata = decode_ledger(path, node).value
    out = row_writer(form, _ONE_COLUMNS)
    row = metadata_row(ledger_id, path, metadata, node)
    row["detail"] = _words(metadata)
    first: Row = {"kind": "ledger", "first_entry": None}
    out.row(first | row)
    for segment, after in zip(metadata.segments, (*metadata.segments[1:], None), strict=True):
        cells: Row = {"kind": "segment", "first_entry": segment.first_entry}
        cells["last_entry"] = row["last_entry"] if after is None else after.first_entry - 1
        out.row(cells | {"bookies": ",".join(segment.bookies), "detail": None})
    for custom in metadata.custom:
        value = custom.value.decode(errors="backslashreplace")
        cells = {"kind": "custom", "first_entry": None, "last_entry": None, "bookies": None}
        out.row(cells | {"detail": f"{custom.key} = {value}"})
    out.end()
    return metadata


def _words(metadata: ClusterLedgerMetadata) -> str:
    size, write, ack = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
    words = [metadata.state.name, f"ensemble {size}, write quorum {write}, ack quorum {ack}"]
    if metadata.is_closed:
        words.append(counted(metadata.length, "byte"))
    if metadata.digest_type is not None:
        words.append(metadata.digest_type.name)
    words.append("with a password" if metadata.password else "without a password")
    return ", ".join([*words, f"format {metadata.format_version}"])


async def _paths(znodes: Znodes, address: MetadataAddress) -> LedgerPaths:
    tree = address.tree or await read_tree(znodes, address.root)
    return LedgerPaths(address.root, tree)

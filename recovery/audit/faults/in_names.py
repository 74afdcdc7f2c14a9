"""Damage the other files of a directory: ledger metadata, cookies, unknown files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.faults.planted import DamagedExtent, Expectation, Planted, kinds
from recovery.audit.faults.site import NoPlace
from storage.disk import filenames
from storage.ledgers import metadata_log_format as codec

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.kinds import Fault
    from recovery.audit.faults.planted import Alternatives
    from recovery.audit.faults.site import FaultSite

_STRANGE_NAMES = ("notes.txt", "0A.log", "1.TXN", "00.log", "1.log.bak", "lastmark", "core.1234")


# ── ledgers.rows ──────────────────────────────────────────────────────────────────────────────────────────


def _rows(site: FaultSite) -> tuple[Path, list[codec.GroupHead]]:
    path = site.chart.ledgers / filenames.LEDGER_ROWS
    if not path.exists():
        raise NoPlace
    data, heads, at = path.read_bytes(), [], 0
    while isinstance(head := codec.decode_group_head(data[at:], at, len(data) - at), codec.GroupHead):
        heads.append(head)
        at = head.end
    return path, heads


def _known_sequence(chart: Chart) -> int:
    """Return the last group that mark or index know to be durable."""
    trailer = chart.mark.trailer if chart.mark is not None else None
    return max(chart.state.rows_sequence, 0 if trailer is None else trailer.rows_sequence)


def rows_flipped(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit of a group. If mark and index do not know the last group, a torn write is as likely."""
    path, heads = _rows(site)
    head = site.choose(heads)
    at = site.flip(path, head.start, head.start + codec.HEAD_SIZE + head.body_size)
    is_known = head is not heads[-1] or head.sequence <= _known_sequence(site.chart) or len(heads) == 1
    extent = DamagedExtent(head.start, at, heads[-1].end + 1)
    expected = Expectation(kinds=kinds("LGR-002", "DIR-003"), file=filenames.LEDGER_ROWS, extent=extent)
    return _planted_in_rows(fault, ((expected,),) if is_known else (), f"byte {at}, group {head.sequence}")


def rows_older(site: FaultSite, fault: Fault) -> Planted:
    """Truncate the file to an earlier state, without its last groups."""
    path, heads = _rows(site)
    known = [head for head in heads[1:] if head.sequence <= _known_sequence(site.chart)]
    head = site.choose(known)
    site.copy.cut(path, head.start)
    expected = Expectation(kinds=kinds("LGR-002"), file=filenames.LEDGER_ROWS)
    return _planted_in_rows(fault, ((expected,),), f"ends before group {head.sequence}")


def rows_missing(site: FaultSite, fault: Fault) -> Planted:
    """Delete ledgers.rows when the mark or the index refers to it."""
    path, _ = _rows(site)
    if not _known_sequence(site.chart):
        raise NoPlace
    site.copy.remove(path)
    return _planted_in_rows(fault, ((Expectation(kinds=kinds("LGR-002"), file=filenames.LEDGER_ROWS),),), "")


def _planted_in_rows(fault: Fault, wanted: tuple[Alternatives, ...], words: str) -> Planted:
    return Planted(fault=fault, file=filenames.LEDGER_ROWS, wanted=wanted, words=words)


# ── cookies ───────────────────────────────────────────────────────────────────────────────────────────────


def _cookie(site: FaultSite) -> Path:
    paths = [one / filenames.COOKIE for one in (site.chart.ledgers, site.chart.journal)]
    return site.choose([path for path in paths if path.exists()])


def cookie_flipped(site: FaultSite, fault: Fault) -> Planted:
    """Flip a bit of the version or of the instance id. Other fields name places, and may change."""
    path = _cookie(site)
    data = path.read_bytes()
    mark = b'instanceId: "'
    start = data.find(mark)
    places = [0]
    if start >= 0:
        start += len(mark)
        places += range(start, data.index(b'"', start))
    at = site.choose(places)
    site.flip_bit(path, at, site.dice.randrange(8))
    return _planted_in_cookie(fault, path, f"byte {at}")


def cookie_other(site: FaultSite, fault: Fault) -> Planted:
    """Put the cookie of another instance into one of the directories."""
    path = _cookie(site)
    data = path.read_bytes()
    mark = b'instanceId: "'
    if mark not in data:
        raise NoPlace
    site.copy.replace(path, data.replace(mark, mark + b"another-"))
    return _planted_in_cookie(fault, path, "")


def cookie_missing(site: FaultSite, fault: Fault) -> Planted:
    path = _cookie(site)
    site.copy.remove(path)
    return _planted_in_cookie(fault, path, "")


def _planted_in_cookie(fault: Fault, path: Path, words: str) -> Planted:
    expected = Expectation(kinds=kinds("CKE-001", "DIR-003"))
    where = path.parent.parent.name
    return Planted(fault=fault, file=filenames.COOKIE, wanted=((expected,),), words=f"in {where} {words}")


# ── unknown files ─────────────────────────────────────────────────────────────────────────────────────────


def unknown_file(site: FaultSite, fault: Fault) -> Planted:
    """Add a file with a name that neither ledgerstore nor a bookie uses."""
    directory = site.choose([site.chart.ledgers, site.chart.journal])
    name = site.choose(_STRANGE_NAMES)
    site.copy.replace(directory / name, site.dice.randbytes(site.dice.choice([0, 100, 5000])))
    expected = Expectation(kinds=kinds("DIR-001"), file=name)
    return Planted(fault=fault, file=name, wanted=((expected,),), words=f"in {directory.parent.name}")

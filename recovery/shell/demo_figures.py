"""The one row of the demo, and the same figures upright for a person.

directory                       the store that was made; it is kept
acknowledged                    entries that the writer had been answered for when it was killed
recovered                       of those: read back, byte for byte what was written
lost                            of those: missing, unreadable or changed. It must be 0
unacknowledged                  kept although the kill came before their answer
wrong                           kept beyond the acknowledged, and not what was written. It must be 0
write_s, write_mb_s             how long was written, and how fast, in 10^6 bytes of payload
checkpoints, journals           ended by the writer, and begun by it
replayed                        records that opening took from the journals
replay_s, replay_mb_s           until they were in memory again, and how fast
open_s                          until the store took adds again
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.columns import Align, Column, Tone
from recovery.shell.entry_cells import free_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.demo.run import Outcome
    from recovery.shell.columns import Cell, Row

MB = 1e6

_MEANINGS = {
    "acknowledged": "entries that the writer was told are durable",
    "recovered": "of them read back, byte for byte what was written",
    "lost": "of them missing, unreadable or changed",
    "unacknowledged": "written, not answered before the kill, and kept",
    "wrong": "kept, and not what was written",
    "write_s": "from the first answer to the kill",
    "write_mb_s": "of payload, every add synced before its answer",
    "checkpoints": "ended while the writer wrote",
    "journals": "begun by it",
    "replayed": "records, from the journals behind the last checkpoint",
    "replay_s": "until they were in memory again",
    "replay_mb_s": "of records",
    "open_s": "until the store took adds again",
}
_MUST_BE_ZERO = ("lost", "wrong")


def row(directory: str, outcome: Outcome) -> Row:
    """All figures, under their stable names."""
    recovered = outcome.recovered
    opened = recovered.opened
    replay_mb_s = opened.bytes_replayed / recovered.replay_s / MB if recovered.replay_s else None
    return {
        "directory": directory,
        "acknowledged": recovered.acknowledged,
        "recovered": recovered.intact,
        "lost": recovered.lost,
        "unacknowledged": recovered.unacknowledged,
        "wrong": recovered.wrong,
        "write_s": round(outcome.written.seconds, 3),
        "write_mb_s": round(outcome.written.speed / MB, 1),
        "checkpoints": outcome.traces.checkpoints,
        "journals": outcome.traces.journals,
        "replayed": opened.records_replayed,
        "replay_s": round(recovered.replay_s, 3),
        "replay_mb_s": None if replay_mb_s is None else round(replay_mb_s, 1),
        "open_s": round(recovered.open_s, 3),
    }


def _grouped(row: Mapping[str, Cell], name: str) -> str:
    value = row[name]
    return "-" if value is None else f"{value:,}"


COLUMNS = [Column("figure"), Column("value", Align.RIGHT, text=_grouped), Column("meaning", text=free_text)]


def upright(figures: Row) -> Iterator[Row]:
    """A line for each figure. What is well and not worth a line is left out."""
    for name, meaning in _MEANINGS.items():
        value = figures[name]
        if name == "wrong" and not value:
            continue
        line: Row = {"figure": name, "value": value, "meaning": meaning}
        if name in _MUST_BE_ZERO:
            line["tone"] = (Tone.BAD if value else Tone.GOOD).value
        yield line

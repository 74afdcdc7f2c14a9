"""Which id the next entry log gets: ids are a circle, and a new one never meets a log that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage import filenames
from storage.filenames import FileKind
from storage.position import LOG_ID_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

_COUNT = LOG_ID_MAX
"""Ids go from 0 to one below this, as a bookie's do, and then from 0 again."""

_TAKING = frozenset({FileKind.ENTRY_LOG, FileKind.COMPACTED_LOG})
"""A draft and a log still being compacted have no entry that anyone knows of: their ids are free."""


def taken_by(names: Iterable[str]) -> set[int]:
    """The ids that no new log may get, by the names in a directory."""
    parsed = map(filenames.parse, names)
    return {name.number for name in parsed if name.kind in _TAKING and name.number is not None}


def next_log_id(taken: Iterable[int], last: int | None) -> int:
    """The id behind the newest log there is, or behind the one known to have been written last."""
    ids = sorted({_on_circle(log_id) for log_id in taken})
    log_id = _later(_newest(ids), None if last is None else _on_circle(last))
    log_id = 0 if log_id is None else (log_id + 1) % _COUNT
    occupied = set(ids)
    while log_id in occupied:
        log_id = (log_id + 1) % _COUNT
    return log_id


def _on_circle(log_id: int) -> int:
    return min(log_id, _COUNT - 1)


def _newest(ids: list[int]) -> int | None:
    """The one in front of the largest gap: after a wrap that is not the largest."""
    if not ids:
        return None
    gaps = zip(ids, [*ids[1:], ids[0] + _COUNT], strict=True)
    return max(gaps, key=lambda gap: gap[1] - gap[0])[0]


def _later(newest: int | None, last: int | None) -> int | None:
    """Of two ids the one further on: the log written last may be gone, and the note of it may be stale."""
    if newest is None or last is None:
        return last if newest is None else newest
    return last if (last - newest) % _COUNT < _COUNT // 2 else newest

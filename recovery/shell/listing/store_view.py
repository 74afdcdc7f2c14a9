"""Opens a read-only view of a store for a command, with progress bars and one-line errors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from recovery.shell.exit_codes import CannotDo, StoreRefused, say
from recovery.shell.output import ByteProgressBar
from recovery.view.open_view import open_view
from storage.errors import CorruptionError, NoSuchLedger, StoreError
from storage.open_report import IndexFound, ReplayProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.view.view import View
    from storage.open_report import RebuildProgress


@contextmanager
def open_store_view(path: str) -> Iterator[View]:
    """Yield a view of the store at the path. Print remarks that concern the whole store to stderr."""
    try:
        with _OpeningProgressBars() as progress:
            view = open_view(path, progress.update)
    except CorruptionError as error:
        raise StoreRefused(str(error)) from error
    except StoreError as error:
        raise CannotDo(str(error)) from error
    with view:
        for line in _remarks(view):
            say(line)
        yield view


def _remarks(view: View) -> Iterator[str]:
    if view.index_found is IndexFound.REBUILT:
        yield "the index is missing, damaged or older than the mark: it was rebuilt in memory"
    if not view.is_whole:
        yield "entries were lost when the index was rebuilt: a missing entry may have existed"
    yield from view.findings


def check_ledger_exists(view: View, ledger_id: int) -> None:
    """Raise an error if the store has no such ledger."""
    if view.exists(ledger_id):
        return
    if view.may_have_lost_entries(ledger_id):
        raise CannotDo(f"ledger {ledger_id} is not in {view.path}, but may have existed")
    was_deleted = view.metadata(ledger_id).tombstone is not None
    raise CannotDo(f"{NoSuchLedger(ledger_id)} in {view.path}" + (": it was deleted" if was_deleted else ""))


class _OpeningProgressBars:
    """A progress bar for reading the journals, and for reading the entry logs if there is no index."""

    def __init__(self) -> None:
        self._shown: tuple[str, int] | None = None
        self._bar: ByteProgressBar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.__exit__()

    def update(self, progress: ReplayProgress | RebuildProgress) -> None:
        title = "journals" if isinstance(progress, ReplayProgress) else "entry logs"
        if self._bar is None or self._shown != (title, progress.bytes_total):
            self.__exit__()
            self._shown = title, progress.bytes_total
            self._bar = ByteProgressBar(*self._shown)
        self._bar.reach(progress.bytes_done)

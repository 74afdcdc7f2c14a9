"""A store that a command looks at: the view, how long it takes, and why there is none."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.progress import ByteProgress
from recovery.viewing import open_view
from storage.errors import CorruptionError, NoSuchLedger, StoreError
from storage.report import IndexFound, ReplayProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.view import View
    from storage.report import RebuildProgress


class Refused(CannotDo):
    """Something acknowledged is damaged, so that nothing can be told: that is the finding."""

    exit_code = Exit.FINDINGS


@contextmanager
def looking_at(path: str) -> Iterator[View]:
    """What the store at the path holds; what is wrong with it as a whole is said."""
    try:
        with _Watch() as watch:
            view = open_view(path, watch.tell)
    except CorruptionError as error:
        raise Refused(str(error)) from error
    except StoreError as error:
        raise CannotDo(str(error)) from error
    with view:
        for line in _remarks(view):
            say(line)
        yield view


def _remarks(view: View) -> Iterator[str]:
    if view.how is IndexFound.REBUILT:
        yield "the index is missing, damaged or older than the mark: one was made in memory from the logs"
    if not view.is_whole:
        yield "entries were lost when the index was made: what is not here may have been"
    yield from view.findings


def must_exist(view: View, ledger_id: int) -> None:
    """Ends the command where there is no such ledger."""
    if view.exists(ledger_id):
        return
    if view.may_lack(ledger_id):
        raise CannotDo(f"ledger {ledger_id} is not in {view.path}, and may have been")
    was_deleted = view.facts(ledger_id).tombstone is not None
    raise CannotDo(f"{NoSuchLedger(ledger_id)} in {view.path}" + (": it was deleted" if was_deleted else ""))


class _Watch:
    """Shows how far the reading of the journals has come, and where there is no index that of the logs."""

    def __init__(self) -> None:
        self._shown: tuple[str, int] | None = None
        self._bar: ByteProgress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.__exit__()

    def tell(self, progress: ReplayProgress | RebuildProgress) -> None:
        title = "journals" if isinstance(progress, ReplayProgress) else "entry logs"
        if self._bar is None or self._shown != (title, progress.bytes_total):
            self.__exit__()
            self._shown = title, progress.bytes_total
            self._bar = ByteProgress(*self._shown)
        self._bar.reach(progress.bytes_done)

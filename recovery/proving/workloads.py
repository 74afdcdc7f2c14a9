"""What the store is put through while its calls are recorded: adds overlap with everything else.

A tame one finds nothing. A mark that is written too early loses something only if an add was acknowledged
between the freezing of a table and the mark; a journal that goes too early only if the mark may come back. So
there is an add between any two steps of a checkpoint, and, aside, before each of its changes of a file.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from recovery.proving.opened import layout_of
from recovery.proving.sitting import PASSWORDS, Sitting
from storage import filenames
from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from recovery.crashlab.history import Ctx

    Words = Sequence[Callable[[], None]]
    Workload = Callable[[Path, Ctx], None]

_ASIDE = 90
"""The ledger that gets entries between two calls of a checkpoint."""

_, _FIRST, _SECOND = PASSWORDS


# ── adds ──────────────────────────────────────────────────────────────────────────────────────────────────


def checkpoints(root: Path, ctx: Ctx) -> None:
    """Adds of every kind between any two steps of checkpoints; rolls of journals and logs, trims, seals."""
    numbers = count(1)
    with Sitting(root, ctx, numbers) as first:
        first.append(1, 100, 700)
        first.append_many(2, 300, 300, 300)
        _checkpoint_under_adds(first, 1)
        first.submit(1, 30, 40)
        first.submit(2, 50)
        first.append(3, 600)
        first.hear()
        first.append(1, 900, 900, 900)  # the table is full: a checkpoint has begun by itself
        _steps_under_adds(first, 3)
        first.elapse()
        first.append(1, 10)
        first.close()
    with Sitting(root, ctx, numbers) as second:
        second.place(4, 3, 1, 2, 1, 7)
        second.append(2, 50)
        _checkpoint_under_adds(second, 2)
        second.place(4, 3)
        second.append_many(2, *[700] * 7)  # larger than what a disk writes whole
        second.append(1, 800)
        for _ in zip(second.steps(), range(3), strict=False):
            second.append(3, 100)
        # It ends in the middle of a checkpoint, with entries in both tables.
    with Sitting(root, ctx, numbers) as third:
        third.append(3, 10)
        _checkpoint_under_adds(third, 3)
        third.submit(1, 5)


def _checkpoint_under_adds(sitting: Sitting, ledger_id: int) -> None:
    sitting.request_checkpoint()
    _steps_under_adds(sitting, ledger_id)


def _steps_under_adds(sitting: Sitting, ledger_id: int) -> None:
    with sitting.adding_aside(_ASIDE):
        for number in sitting.steps():
            if not sitting.opened.is_full:
                sitting.append(ledger_id + 10 * (number % 2), 30)


# ── ledgers ───────────────────────────────────────────────────────────────────────────────────────────────


def ledgers(root: Path, ctx: Ctx) -> None:
    """Fences, confirmations, deletes, ledgers made again with other digests, at every step of checkpoints."""
    numbers = count(1)
    with Sitting(root, ctx, numbers) as first:
        first.append(1, 200, 200)
        first.make(20, DigestType.MAC, _FIRST)
        first.make(21, DigestType.CRC32, _FIRST)
        first.confirm(1, 0, 1)
        first.append(20, 60, 60, password=_FIRST)
        first.append(5, 40, 40, 40)
        first.delete(5)
        first.defer(1, 100, 100)
        first.append(6, 30)
        first.force(1)
        first.fence(6)
        first.recover(6, 1, 3)
        _checkpoint_under(first, _words_of_ledgers(first))
        first.fence(30)  # of which nobody has ever added anything
        first.confirm(31, 5)
        first.close()
    with Sitting(root, ctx, numbers) as second:
        second.append(5, 70)
        second.delete(20, _SECOND)
        second.make(20, DigestType.CRC32C, _FIRST)
        second.delete(6)
        second.delete(30)
        second.append(30, 25)
        second.defer(1, 80)
        _checkpoint_under(second, _more_words(second))
        second.force(1)
        second.confirm(31, 9)
    with Sitting(root, ctx, numbers) as third:
        third.append(6 + 1, 20)
        third.recover(6, 4)
        third.append(20, 30, password=_FIRST)
        third.recover(21, 8, password=_FIRST)
        third.delete(1)
        third.append(1, 15)
        third.fence(1)
        third.close()


def _checkpoint_under(sitting: Sitting, words: Words) -> None:
    """One thing between any two steps; what is left of the things behind them."""
    left = deque(words)
    sitting.request_checkpoint()
    with sitting.adding_aside(_ASIDE):
        for _ in sitting.steps():
            if left:
                left.popleft()()
    for word in left:
        word()


def _words_of_ledgers(sitting: Sitting) -> Words:
    return (
        partial(sitting.confirm, 1, 3),
        partial(sitting.append, 5, 50, 50),  # deleted before the table was frozen
        partial(sitting.delete, 20, _FIRST),  # frozen with entries
        partial(sitting.make, 20, DigestType.DUMMY, _SECOND),
        partial(sitting.fence, 21, _FIRST),
        partial(sitting.delete, 5),
        partial(sitting.make, 5, DigestType.CRC32),
        partial(sitting.append, 20, 10, 10, password=_SECOND),
        partial(sitting.confirm, 1, 2, 4),
    )


def _more_words(sitting: Sitting) -> Words:
    return (
        partial(sitting.append, 6, 40),
        partial(sitting.delete, 6),
        partial(sitting.make, 6, DigestType.MAC),
        partial(sitting.confirm, 20, 1, password=_FIRST),
        partial(sitting.fence, 6),
        partial(sitting.append, 30, 35, 35),
        partial(sitting.delete, 30),
    )


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────────


def lost_index(root: Path, ctx: Ctx) -> None:
    """An index that is taken away between sittings, behind deletes, in whole and in halves of checkpoints."""
    numbers = count(1)
    with Sitting(root, ctx, numbers) as first:
        first.append(1, 300, 300, 300)
        first.append_many(7, 200, 200)
        first.make(21, DigestType.MAC, _FIRST)
        first.checkpoint()
        first.append(1, 700)
        first.fence(7)
        first.delete(21, _FIRST)
        first.make(22, DigestType.MAC, _FIRST)
        first.append(22, 80, password=_FIRST)
        first.confirm(22, 0, password=_FIRST)
        first.request_checkpoint()
        with first.adding_aside(_ASIDE):
            for number in first.steps():
                if number == 1:  # what this kills is in the log by now, and what is said of it is not
                    first.delete(22, _FIRST)
        first.append(8, 40)
    lose_index(root)
    with Sitting(root, ctx, numbers) as second:
        second.append(21, 60)
        second.append_many(1, 600, 600, 600)
        second.delete(7)
        for _ in zip(second.steps(), range(3), strict=False):
            second.append(2, 20)
        # It ends in the middle of a checkpoint.
    older = copy_of_index(root)
    set_index_aside(root)
    with Sitting(root, ctx, numbers) as third:
        third.append(7, 20, 20)
        third.delete(21)
        _checkpoint_under_adds(third, 1)
        third.append(8, 30)
        third.close()
    restore_index(root, older)
    with Sitting(root, ctx, numbers) as fourth:
        fourth.append(1, 25)
        fourth.checkpoint()
        fourth.append(8, 35)


def lose_index(root: Path) -> None:
    """The index's files go, one after the other; nothing of that is made durable."""
    place = layout_of(root).ledgers
    index = place.directory(filenames.INDEX)
    for name in index.names():
        index.remove(name)


def copy_of_index(root: Path) -> dict[str, bytes]:
    """The bytes of its files, as a backup has them."""
    index = layout_of(root).ledgers.directory(filenames.INDEX)
    copied = {}
    for name in index.names():
        with index.open(name) as file:
            copied[name] = file.read(0, file.size())
    return copied


def restore_index(root: Path, copied: dict[str, bytes]) -> None:
    """An index of another time: it knows nothing of what was checkpointed since."""
    lose_index(root)
    index = layout_of(root).ledgers.directory(filenames.INDEX)
    for name, data in copied.items():
        with index.create(name) as file:
            file.write(0, [data])


def set_index_aside(root: Path) -> None:
    """The index under a name that nobody reads, as who asks for a new one does it."""
    place = layout_of(root).ledgers
    aside = filenames.damaged(filenames.INDEX)
    if aside in place.names():
        for name in place.directory(aside).names():
            place.directory(aside).remove(name)
    place.rename(filenames.INDEX, aside)


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────


def endings(root: Path, ctx: Ctx) -> None:
    """Many short sittings, most of which just end: what is read is written again, journals are bounded."""
    numbers = count(1)
    for number in range(7):
        with Sitting(root, ctx, numbers) as sitting:
            sitting.append(1, 120)
            sitting.append_many(2, 200, 200)
            if number % 3 == 1:
                sitting.append(3 + number, 30)
                sitting.delete(3 + number)
                sitting.confirm(1, number)
            if number in (0, 3):
                sitting.elapse()  # an idle store vouches for its last group: what follows stands alone
                sitting.fence(80 + number)
            if number == 4:
                sitting.append(2, 900, 900, 900, 900)
                for _ in zip(sitting.steps(), range(2 + number), strict=False):
                    sitting.submit(1, 10)
            if number == 5:
                sitting.close()
            if number == 6:
                sitting.append_many(2, *[600] * 8)


WORKLOADS: dict[str, Workload] = {
    "checkpoints": checkpoints,
    "ledgers": ledgers,
    "lost index": lost_index,
    "endings": endings,
}

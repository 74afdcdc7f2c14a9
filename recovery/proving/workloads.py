"""The workloads whose calls are recorded: adds overlap with everything else.

A workload without overlap would find nothing. A mark that is written too early loses something only if an add
was acknowledged between the freezing of a table and the mark; a journal that is removed too early only if the
old mark may come back. So there is an add between any two steps of a checkpoint, and one before each change
of a file that a checkpoint makes.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from recovery.proving.session import PASSWORDS, Session
from recovery.proving.store_under_test import layout_of
from storage.disk import filenames
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from recovery.crashlab.record.history import Ctx

    Actions = Sequence[Callable[[], None]]
    Workload = Callable[[Path, Ctx], None]

_EXTRA_LEDGER = 90
"""The ledger that gets entries between two calls of a checkpoint."""

_, _FIRST, _SECOND = PASSWORDS


# ── adds ──────────────────────────────────────────────────────────────────────────────────────────────────


def checkpoints(root: Path, ctx: Ctx) -> None:
    """Adds of every kind between the steps of checkpoints; new journals and logs, trims, seals."""
    numbers = count(1)
    with Session(root, ctx, numbers) as first:
        first.append(1, 100, 700)
        first.append_many(2, 300, 300, 300)
        _checkpoint_under_adds(first, 1)
        first.submit(1, 30, 40)
        first.submit(2, 50)
        first.append(3, 600)
        first.acknowledge_durable()
        first.append(1, 900, 900, 900)  # the table is full, so a checkpoint has begun by itself
        _steps_under_adds(first, 3)
        first.elapse()
        first.append(1, 10)
        first.close()
    with Session(root, ctx, numbers) as second:
        second.add_as_replica(4, 3, 1, 2, 1, 7)
        second.append(2, 50)
        _checkpoint_under_adds(second, 2)
        second.add_as_replica(4, 3)
        second.append_many(2, *[700] * 7)  # larger than what a disk writes in one piece
        second.append(1, 800)
        for _ in zip(second.steps(), range(3), strict=False):
            second.append(3, 100)
        # It ends in the middle of a checkpoint, with entries in both tables.
    with Session(root, ctx, numbers) as third:
        third.append(3, 10)
        _checkpoint_under_adds(third, 3)
        third.submit(1, 5)


def _checkpoint_under_adds(session: Session, ledger_id: int) -> None:
    session.request_checkpoint()
    _steps_under_adds(session, ledger_id)


def _steps_under_adds(session: Session, ledger_id: int) -> None:
    with session.adding_between_changes(_EXTRA_LEDGER):
        for number in session.steps():
            if not session.opened.is_full:
                session.append(ledger_id + 10 * (number % 2), 30)


# ── ledgers ───────────────────────────────────────────────────────────────────────────────────────────────


def ledgers(root: Path, ctx: Ctx) -> None:
    """Fences, confirmations, deletes and new ledgers with used ids, between the steps of checkpoints."""
    numbers = count(1)
    with Session(root, ctx, numbers) as first:
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
        _checkpoint_under(first, _ledger_actions(first))
        first.fence(30)  # a ledger without any add
        first.confirm(31, 5)
        first.close()
    with Session(root, ctx, numbers) as second:
        second.append(5, 70)
        second.delete(20, _SECOND)
        second.make(20, DigestType.CRC32C, _FIRST)
        second.delete(6)
        second.delete(30)
        second.append(30, 25)
        second.defer(1, 80)
        _checkpoint_under(second, _more_ledger_actions(second))
        second.force(1)
        second.confirm(31, 9)
    with Session(root, ctx, numbers) as third:
        third.append(6 + 1, 20)
        third.recover(6, 4)
        third.append(20, 30, password=_FIRST)
        third.recover(21, 8, password=_FIRST)
        third.delete(1)
        third.append(1, 15)
        third.fence(1)
        third.close()


def _checkpoint_under(session: Session, actions: Actions) -> None:
    """Do one action between any two steps of a checkpoint, and the remaining ones afterwards."""
    left = deque(actions)
    session.request_checkpoint()
    with session.adding_between_changes(_EXTRA_LEDGER):
        for _ in session.steps():
            if left:
                left.popleft()()
    for action in left:
        action()


def _ledger_actions(session: Session) -> Actions:
    return (
        partial(session.confirm, 1, 3),
        partial(session.append, 5, 50, 50),  # deleted before the table was frozen
        partial(session.delete, 20, _FIRST),  # frozen with entries
        partial(session.make, 20, DigestType.DUMMY, _SECOND),
        partial(session.fence, 21, _FIRST),
        partial(session.delete, 5),
        partial(session.make, 5, DigestType.CRC32),
        partial(session.append, 20, 10, 10, password=_SECOND),
        partial(session.confirm, 1, 2, 4),
    )


def _more_ledger_actions(session: Session) -> Actions:
    return (
        partial(session.append, 6, 40),
        partial(session.delete, 6),
        partial(session.make, 6, DigestType.MAC),
        partial(session.confirm, 20, 1, password=_FIRST),
        partial(session.fence, 6),
        partial(session.append, 30, 35, 35),
        partial(session.delete, 30),
    )


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────────


def lost_index(root: Path, ctx: Ctx) -> None:
    """An index that is removed or replaced between openings, after deletes and during checkpoints."""
    numbers = count(1)
    with Session(root, ctx, numbers) as first:
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
        with first.adding_between_changes(_EXTRA_LEDGER):
            for number in first.steps():
                if number == 1:  # its entries are in the log by now, but not yet in the index
                    first.delete(22, _FIRST)
        first.append(8, 40)
    lose_index(root)
    with Session(root, ctx, numbers) as second:
        second.append(21, 60)
        second.append_many(1, 600, 600, 600)
        second.delete(7)
        for _ in zip(second.steps(), range(3), strict=False):
            second.append(2, 20)
        # It ends in the middle of a checkpoint.
    older = copy_of_index(root)
    set_index_aside(root)
    with Session(root, ctx, numbers) as third:
        third.append(7, 20, 20)
        third.delete(21)
        _checkpoint_under_adds(third, 1)
        third.append(8, 30)
        third.close()
    restore_index(root, older)
    with Session(root, ctx, numbers) as fourth:
        fourth.append(1, 25)
        fourth.checkpoint()
        fourth.append(8, 35)


def lose_index(root: Path) -> None:
    """Remove the files of the index one after the other, without making that durable."""
    place = layout_of(root).ledgers
    index = place.directory(filenames.INDEX)
    for name in index.names():
        index.remove(name)


def copy_of_index(root: Path) -> dict[str, bytes]:
    """Return the files of the index, as a backup contains them."""
    index = layout_of(root).ledgers.directory(filenames.INDEX)
    copied = {}
    for name in index.names():
        with index.open(name) as file:
            copied[name] = file.read(0, file.size())
    return copied


def restore_index(root: Path, copied: dict[str, bytes]) -> None:
    """Replace the index by an older one, which lacks everything checkpointed since."""
    lose_index(root)
    index = layout_of(root).ledgers.directory(filenames.INDEX)
    for name, data in copied.items():
        with index.create(name) as file:
            file.write(0, [data])


def set_index_aside(root: Path) -> None:
    """Rename the index to the name of a damaged index, as an operator does to get a new one."""
    place = layout_of(root).ledgers
    aside = filenames.damaged(filenames.INDEX)
    if aside in place.names():
        for name in place.directory(aside).names():
            place.directory(aside).remove(name)
    place.rename(filenames.INDEX, aside)


# ── endings ───────────────────────────────────────────────────────────────────────────────────────────────


def endings(root: Path, ctx: Ctx) -> None:
    """Many short openings that mostly end abruptly: replay writes entries again, journals are bounded."""
    numbers = count(1)
    for number in range(7):
        with Session(root, ctx, numbers) as session:
            session.append(1, 120)
            session.append_many(2, 200, 200)
            if number % 3 == 1:
                session.append(3 + number, 30)
                session.delete(3 + number)
                session.confirm(1, number)
            if number in (0, 3):
                # an idle store seals its last group, so the next group is proven by itself only
                session.elapse()
                session.fence(80 + number)
            if number == 4:
                session.append(2, 900, 900, 900, 900)
                for _ in zip(session.steps(), range(2 + number), strict=False):
                    session.submit(1, 10)
            if number == 5:
                session.close()
            if number == 6:
                session.append_many(2, *[600] * 8)


# ── space that is reclaimed ───────────────────────────────────────────────────────────────────────────────


def compaction(root: Path, ctx: Ctx) -> None:
    """Slices, removals of logs and purges of tombstones, with adds, deletes and checkpoints between any two
    of their steps. At the end of each opening the index is lost."""
    numbers = count(1)
    with Session(root, ctx, numbers) as first:
        first.store.pause_collection()  # the workload reclaims by itself, at the same place in each run
        for _ in range(2):
            first.append(20, 900, 900, 900)
            first.add_as_replica(4, 3, 0, size=700)
            first.append_many(21, 800, 800)
            first.checkpoint()
        first.delete(20)
        first.checkpoint()
        _reclaim_under(first, _reclaimed_actions(first)[:5])
    lose_index(root)
    with Session(root, ctx, numbers) as second:
        second.store.pause_collection()
        second.append(20, 500)
        second.delete(21)
        second.checkpoint()
        with second.adding_between_changes(_EXTRA_LEDGER):
            _reclaim_under(second, _reclaimed_actions(second)[5:])
        second.close()
    lose_index(root)
    with Session(root, ctx, numbers) as third:
        third.store.pause_collection()
        third.append(20, 30)
        third.delete(22)


def _reclaim_under(session: Session, actions: Actions) -> None:
    """Reclaim space, with one action after every third step."""
    left = deque(actions)
    for number, _ in enumerate(session.reclaiming()):
        if left and number % 3 == 2:
            left.popleft()()
    for action in left:
        action()


def _reclaimed_actions(session: Session) -> Actions:
    return (
        partial(session.add_as_replica, 4, 1, 3, size=200),  # ids that are moved at the same time
        partial(session.append, 22, 60),
        partial(session.delete, 22),
        partial(session.append, 22, 70, 70),
        session.request_checkpoint,
        partial(session.append, 1, 80),
        partial(session.delete, 4),
        partial(session.add_as_replica, 4, 0, 1, size=90),
        partial(session.append, 20, 40),
    )


# ── truncation ────────────────────────────────────────────────────────────────────────────────────────────


def truncation(root: Path, ctx: Ctx) -> None:
    """Truncations between the steps of checkpoints, of everything and of parts; of ledgers that are deleted,
    several at once, and made again. At the end of the first opening the index is lost."""
    numbers = count(1)
    with Session(root, ctx, numbers) as first:
        first.append_many(1, 100, 100, 100, 100, 100, 100)
        first.append(20, 60, 60)
        first.append(21, 70)
        first.truncate(1, 2)
        _checkpoint_under(first, _truncating_actions(first))
        first.append(20, 50, 50)
        first.truncate(20, 3)
        first.close()
    lose_index(root)
    with Session(root, ctx, numbers) as second:
        second.append(1, 80)
        second.truncate(1, second.next_id(1))
        second.delete_all(20, 21)
        second.append(20, 40, 40)
        _checkpoint_under(second, _more_truncating_actions(second))
        second.append(22, 20)
    with Session(root, ctx, numbers) as third:
        third.append(1, 30)
        third.truncate(20, 2)
        third.append(20, 25)
        _checkpoint_under_adds(third, 3)


def _truncating_actions(session: Session) -> Actions:
    return (
        partial(session.truncate, 1, 4),  # entries of the frozen table
        partial(session.append, 1, 90, 90),
        partial(session.truncate, 21, 1),  # all of them
        partial(session.append, 21, 30),
        partial(session.truncate, 1, 6),
    )


def _more_truncating_actions(session: Session) -> Actions:
    return (
        partial(session.truncate, 20, 1),
        partial(session.append, 1, 45),
        partial(session.fence, 21),
    )


WORKLOADS: dict[str, Workload] = {
    "checkpoints": checkpoints,
    "ledgers": ledgers,
    "lost index": lost_index,
    "endings": endings,
    "compaction": compaction,
    "truncation": truncation,
}

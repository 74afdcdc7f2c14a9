"""Empties a bookie that is gone for good: until no ledger names it.

Its ledgers are marked, as an audit would do, and workers copy what it held. A bookie is emptied when no
segment of any ledger names it, also none that is still written.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from recovery.autorecovery.audits import mark, read_chunks
from storage.cluster.errors import BookiesRegistered, InvalidMetadata, NoSuchBookie
from storage.cluster.metadata import cookies, registration, underreplication

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.autorecovery.audits import Flaw
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes

_LOOK_S = 2.0


async def mark_ledgers_of(
    znodes: Znodes, paths: LedgerPaths, bookie: str, unreadable: Callable[[str], None]
) -> frozenset[int]:
    """Mark all ledgers that name a bookie. Raise `BookiesRegistered` if it still runs.

    Raise `NoSuchBookie` if the cluster has no cookie of it and no ledger names it.
    """
    await _refuse_registered(znodes, paths, bookie)
    await underreplication.prepare(znodes, paths.root)
    flaws: list[Flaw] = []
    named = await ledgers_of(znodes, paths, bookie, flaws.append)
    known = await cookies.list_cookies(znodes, paths.root)
    for flaw in flaws:
        unreadable(str(flaw))
    # A ledger that cannot be read may name it, which the caller reports at the end.
    may_be_named = named or any(isinstance(flaw, InvalidMetadata) for flaw in flaws)
    if bookie not in known and not may_be_named:
        bookies = await registration.read_bookies(znodes, paths.root)
        raise NoSuchBookie(paths.root, bookie, tuple(sorted({*known, *bookies.all})))
    for ledger_id in sorted(named):
        await mark(znodes, paths.root, ledger_id, [bookie])
    return named


async def ledgers_of(
    znodes: Znodes, paths: LedgerPaths, bookie: str, unreadable: Callable[[Flaw], None]
) -> frozenset[int]:
    """Return the ledgers that name a bookie."""
    return frozenset(
        [
            ledger.ledger_id
            async for chunk in read_chunks(znodes, paths, unreadable)
            for ledger in chunk
            if any(bookie in segment.bookies for segment in ledger.metadata.segments)
        ]
    )


async def wait_until_empty(
    znodes: Znodes,
    paths: LedgerPaths,
    bookie: str,
    given_up: Callable[[], frozenset[int]],
    changed: Callable[[int], None],
) -> frozenset[int]:
    """Wait until no ledger names a bookie, but for those that were given up; return these.

    `changed` is called with the number of ledgers that name it, each time when it is another one. Raise
    `InvalidMetadata` if all others are done and a ledger cannot be read, because it may name the bookie, too.
    """
    before = -1
    while True:
        flaws: list[Flaw] = []
        named = await ledgers_of(znodes, paths, bookie, flaws.append)
        if len(named) != before:
            changed(len(named))
            before = len(named)
        if named <= given_up():
            # A node that is no ledger was reported when the ledgers were marked.
            for flaw in flaws:
                if isinstance(flaw, InvalidMetadata):
                    raise flaw
            return named
        await asyncio.sleep(_LOOK_S)


async def remove_cookie(znodes: Znodes, paths: LedgerPaths, bookie: str) -> None:
    """Remove a bookie from the cluster: with its old directories it may never come back."""
    await _refuse_registered(znodes, paths, bookie)
    await cookies.delete_cookie(znodes, paths.root, bookie)


async def _refuse_registered(znodes: Znodes, paths: LedgerPaths, bookie: str) -> None:
    # The newest: a bookie that runs would keep its entries, and could not start again without its cookie.
    if bookie in (await registration.read_newest_bookies(znodes, paths.root)).all:
        raise BookiesRegistered(
            registration.bookie_path(paths.root, bookie, registration.BookieMode.WRITABLE), (bookie,)
        )

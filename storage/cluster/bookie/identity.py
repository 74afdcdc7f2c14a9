"""The cookies of a bookie: those of its directories compared with those of the metadata.

decide   read the cookies, and decide by the table of `metadata.cookies`; nothing is written
stamp    write the cookie where the decision says: the directories first, then the metadata, so that a
         crash in between leaves a case that the table finishes
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from storage.cluster.metadata.cookies import (
    CookieDecision,
    DirectoryContent,
    Ledgers,
    check_cookies,
    write_cookie,
)
from storage.cluster.metadata.format import read_instance_id
from storage.disk import cookie as cookie_file
from storage.disk import filenames
from storage.disk.cookie import NoCookie
from storage.disk.cookie_format import Cookie
from storage.errors import NotAStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.metadata.znodes import Znodes
    from storage.disk.files import Directory

EMBEDDED_HOST = "ledgerstore:0"
"""The host in the cookies of a store that no bookie has ever used."""


@dataclass(frozen=True, slots=True)
class BookieIdentity:
    """A bookie and its directories, and the names by which a cluster could know it."""

    bookie_id: str
    other_names: tuple[str, ...]
    root: Directory

    @property
    def directories(self) -> tuple[Directory, Directory]:
        """The directories with a cookie: of the journal and of the ledgers."""
        names = (filenames.JOURNAL_DIRECTORY, filenames.LEDGER_DIRECTORY)
        journal, ledgers = (self.root.directory(name).directory(filenames.CURRENT) for name in names)
        return journal, ledgers

    def cookie(self, instance_id: str | None) -> Cookie:
        """Return the cookie that the directories and the metadata should have."""
        journal = self.root.directory(filenames.JOURNAL_DIRECTORY).path
        ledgers = self.root.directory(filenames.LEDGER_DIRECTORY).path
        return Cookie(self.bookie_id, (journal,), (ledgers,), instance_id)


async def decide(
    znodes: Znodes, cluster_root: str, identity: BookieIdentity, ledgers: Ledgers
) -> CookieDecision:
    """Decide whether the bookie may start. `CookieRefused` says why it may not."""
    expected = identity.cookie(await read_instance_id(znodes, cluster_root))
    names: Sequence[str] = (identity.bookie_id, *identity.other_names)
    contents = [_content(one, ledgers) for one in identity.directories]
    return await check_cookies(znodes, cluster_root, names, expected, contents, ledgers)


def _content(directory: Directory, ledgers: Ledgers) -> DirectoryContent:
    """Return what is in a directory. A new store of ours without ledgers counts as empty."""
    found = cookie_file.load(directory)
    if isinstance(found, Cookie) and found.bookie_host != EMBEDDED_HOST:
        return DirectoryContent(directory.path, found)
    if not isinstance(found, Cookie | NoCookie):
        raise NotAStore(directory.path, f"{filenames.COOKIE}: {found}")
    try:
        names = tuple(sorted(set(directory.names()) - {filenames.COOKIE}))
    except FileNotFoundError:
        names = ()
    is_new = isinstance(found, Cookie) and ledgers is Ledgers.NONE
    return DirectoryContent(directory.path, None, () if is_new else names)


async def stamp(
    znodes: Znodes, cluster_root: str, identity: BookieIdentity, decision: CookieDecision, store_id: str
) -> None:
    """Write the cookies that the decision names. The store exists by then, and holds no ledger.

    `store_id` stays in the cookies of the directories, because the headers of the entry logs have it.
    """
    expected = identity.cookie(await read_instance_id(znodes, cluster_root))
    if decision is CookieDecision.STAMP_ALL:
        for directory in identity.directories:
            cookie_file.store(directory, replace(expected, store_id=store_id))
    if decision in (CookieDecision.STAMP_ALL, CookieDecision.STAMP_METADATA):
        await write_cookie(znodes, cluster_root, identity.bookie_id, expected)

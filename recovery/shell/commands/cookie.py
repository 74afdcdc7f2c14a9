"""`ledgerstore cookie`: the cookies of a cluster's bookies, in the metadata.

The rows of `cookie show`:

bookie              its id in the cluster
state               writable, read-only, or not registered
host                the bookieHost of the cookie
journals            the journal directories, separated by commas
ledgers             the ledger directories
indexes             the index directories; null if they are the ledger directories
instance            the id of the cluster for which the cookie was made
flaw                a field that does not fit, or why there is no cookie to read
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from recovery.shell import options
from recovery.shell.cluster_metadata import MetadataConnection, connection, uri
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.lazy_group import CommandEntry, LazyGroup
from recovery.shell.output import Column, Form, counted, free_text, row_writer
from recovery.shell.places import check_exists, current_directories

if TYPE_CHECKING:
    from recovery.shell.output import Row
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.registration import Bookies
    from storage.cluster.metadata.znodes import Znodes
    from storage.disk.cookie_format import Cookie

_COLUMNS = [
    Column("bookie", width=15),
    Column("state", width=14),
    Column("host", rank=1),
    Column("journals", rank=3),
    Column("ledgers", rank=2),
    Column("indexes", rank=5),
    Column("instance", rank=4),
    Column("flaw", text=free_text),
]


class CookieGroup(LazyGroup):
    """The commands for cookies."""

    entries: ClassVar = {
        "show": CommandEntry(__name__, "Show the cookie of a bookie, or of all bookies.", "show"),
        "create": CommandEntry(__name__, "Write the cookie of a bookie's directories.", "create"),
        "delete": CommandEntry(__name__, "Delete the cookie of a bookie that is gone.", "delete"),
    }


@click.group(cls=CookieGroup)
def command() -> None:
    """Show, create and delete the cookies that a cluster has of its bookies.

    A bookie starts only if the cookie in its directories and the one in the metadata are the same
    (docs/metadata.md).

    \b
    Examples:
      ledgerstore cookie show zk://localhost:2181/ledgers
      ledgerstore cookie create zk://localhost:2181/ledgers 10.0.0.7:3181 /data/bookie
      ledgerstore cookie delete zk://localhost:2181/ledgers 10.0.0.7:3181
    """


@click.command()
@uri
@click.argument("bookie", metavar="[ID]", required=False)
@options.output
@connection
@click.pass_context
def show(
    ctx: click.Context, address: str, bookie: str | None, form: Form, connection: MetadataConnection
) -> None:
    """Show the cookie that the cluster at URI has of the bookie ID, or all cookies.

    It ends with 1 if a cookie cannot be read, or belongs to another bookie or cluster.

    \b
    Examples:
      ledgerstore cookie show zk://localhost:2181/ledgers
      ledgerstore cookie show zk://localhost:2181/ledgers 10.0.0.7:3181 --json
    """

    async def work(znodes: Znodes, cluster: MetadataAddress) -> list[Row]:
        from storage.cluster.metadata.cookies import list_cookies
        from storage.cluster.metadata.format import read_instance_id
        from storage.cluster.metadata.registration import read_bookies

        instance_id = await read_instance_id(znodes, cluster.root)
        known = await list_cookies(znodes, cluster.root)
        if bookie is not None and bookie not in known:
            raise _unknown(bookie, known)
        bookies = await read_bookies(znodes, cluster.root)
        chosen = sorted(known) if bookie is None else [bookie]
        return [await _row(znodes, cluster.root, one, instance_id, bookies) for one in chosen]

    rows = connection.run("cookie show", address, work)
    out = row_writer(form, _COLUMNS)
    for row in rows:
        out.row(row)
    out.end()
    flaws = sum(row["flaw"] is not None for row in rows)
    say(f"cookie show: {counted(len(rows), 'cookie')}, {flaws or 'none'} with a flaw")
    ctx.exit(Exit.FINDINGS if flaws else Exit.CLEAN)


async def _row(znodes: Znodes, root: str, bookie: str, instance_id: str | None, bookies: Bookies) -> Row:
    from storage.cluster.errors import InvalidMetadata
    from storage.cluster.metadata.cookies import read_cookie
    from storage.cluster.metadata.znodes import Gone

    row: Row = dict.fromkeys(column.name for column in _COLUMNS)
    mode = "read-only" if bookie in bookies.read_only else "not registered"
    row |= {"bookie": bookie, "state": "writable" if bookie in bookies.writable else mode}
    try:
        found = await read_cookie(znodes, root, bookie)
    except InvalidMetadata as error:
        return row | {"flaw": error.reason}
    if isinstance(found, Gone):
        return row | {"flaw": "it was just deleted"}
    cookie = found.value
    indexes = cookie.index_directories
    return row | {
        "host": cookie.bookie_host,
        "journals": ",".join(cookie.journal_directories),
        "ledgers": ",".join(cookie.ledger_directories),
        "indexes": None if indexes is None else ",".join(indexes),
        "instance": cookie.instance_id,
        "flaw": _foreign(cookie, bookie, instance_id),
    }


@click.command()
@uri
@click.argument("bookie", metavar="ID")
@click.argument("store", metavar="STORE")
@connection
def create(address: str, bookie: str, store: str, connection: MetadataConnection) -> None:
    """Write the cookie of the bookie ID, as the directories of STORE have it, to the cluster at URI.

    It is for a bookie whose cookie was deleted from the metadata, or was never written there: a store that
    was handed over, or metadata that were made again. The directories have the entries, so the bookie may
    start. The command refuses directories that disagree, the cookie of another bookie or cluster, and a
    cluster that has another cookie of this bookie; it names the field that differs.

    \b
    Examples:
      ledgerstore cookie create zk://localhost:2181/ledgers 10.0.0.7:3181 /data/bookie
    """
    check_exists(store)
    cookie = _cookie_of(Path(store))

    async def work(znodes: Znodes, cluster: MetadataAddress) -> str:
        from storage.cluster.metadata.cookies import differences, read_cookie, write_cookie
        from storage.cluster.metadata.format import read_instance_id
        from storage.cluster.metadata.znodes import Gone

        instance_id = await read_instance_id(znodes, cluster.root)
        if (flaw := _foreign(cookie, bookie, instance_id)) is not None:
            raise CannotDo(f"{store}: {flaw}")
        found = await read_cookie(znodes, cluster.root, bookie)
        if isinstance(found, Gone):
            await write_cookie(znodes, cluster.root, bookie, cookie)
            return "written"
        if different := list(differences(found.value, cookie)):
            raise CannotDo(f"the cluster has another cookie of {bookie}: {'; '.join(different)}")
        return "there already"

    outcome = connection.run("cookie create", address, work)
    say(f"cookie create: the cookie of {bookie} is {outcome}")


def _cookie_of(store: Path) -> Cookie:
    """Return the cookie of a bookie's directories, or say which of them differs."""
    from storage.cluster.bookie.identity import EMBEDDED_HOST
    from storage.cluster.metadata.cookies import differences
    from storage.disk import cookie as cookie_file
    from storage.disk.cookie_format import Cookie
    from storage.disk.posix import PosixDirectory

    first: Cookie | None = None
    for directory in current_directories(store):
        found = cookie_file.load(PosixDirectory(directory.path))
        if not isinstance(found, Cookie):
            raise CannotDo(f"{directory.path} has no cookie of a bookie (the file VERSION)")
        if found.bookie_host == EMBEDDED_HOST:
            raise CannotDo(f"{directory.path}: no bookie has ever used this store")
        if first is not None and (different := list(differences(found, first))):
            raise CannotDo(f"{directory.path}: {'; '.join(different)}, as in the directory before it")
        first = first or found
    assert first is not None, "there is a directory"
    return first


def _foreign(cookie: Cookie, bookie: str, instance_id: str | None) -> str | None:
    """Return why a cookie is not that of this bookie in this cluster; `None` if it is."""
    if cookie.bookie_host != bookie:
        return f"bookieHost is {cookie.bookie_host}, and should be {bookie}"
    if cookie.instance_id != instance_id:
        return f"instanceId is {cookie.instance_id}, and that of the cluster is {instance_id}"
    return None


@click.command()
@uri
@click.argument("bookie", metavar="ID")
@click.option("--force", is_flag=True, help="Delete it although ledgers name the bookie.")
@connection
def delete(address: str, bookie: str, force: object, connection: MetadataConnection) -> None:
    """Delete the cookie that the cluster at URI has of the bookie ID, which must not be registered.

    Afterwards a bookie with empty directories can join the cluster under this ID. It answers that it has no
    entries. So the command refuses a bookie that ledgers name: `ledgerstore decommission` copies what it held
    to others first. With --force the cookie is deleted nevertheless; auto-recovery then has to copy
    everything, and what no other bookie has is lost.

    \b
    Examples:
      ledgerstore cookie delete zk://localhost:2181/ledgers 10.0.0.7:3181
    """

    async def work(znodes: Znodes, cluster: MetadataAddress) -> None:
        from recovery.autorecovery import decommission
        from storage.cluster.metadata.cookies import list_cookies
        from storage.cluster.metadata.paths import LedgerPaths, read_tree

        known = await list_cookies(znodes, cluster.root)
        if bookie not in known:
            raise _unknown(bookie, known)
        paths = LedgerPaths(cluster.root, cluster.tree or await read_tree(znodes, cluster.root))
        if not force:
            flaws: list[str] = []
            named = await decommission.ledgers_of(znodes, paths, bookie, lambda flaw: flaws.append(str(flaw)))
            if named or flaws:
                raise CannotDo(_why_kept(bookie, named, flaws))
        await decommission.remove_cookie(znodes, paths, bookie)

    connection.run("cookie delete", address, work)
    say(f"cookie delete: the cluster has no cookie of {bookie}")


def _why_kept(bookie: str, named: frozenset[int], flaws: list[str]) -> str:
    what = "ledgers that cannot be read may name it: " + "; ".join(flaws[:3])
    if named:
        some = ", ".join(map(str, sorted(named)[:5]))
        what = f"{counted(len(named), 'ledger names', 'ledgers name')} it ({some})"
    return (
        f"{bookie} keeps its cookie, because {what}. `ledgerstore decommission` copies what it held; --force"
        " deletes the cookie nevertheless"
    )


def _unknown(bookie: str, known: tuple[str, ...]) -> CannotDo:
    listed = ", ".join(sorted(known)) or "none"
    return CannotDo(f"the cluster has no cookie of {bookie}; it has those of: {listed}")

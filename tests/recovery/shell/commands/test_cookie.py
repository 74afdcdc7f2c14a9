"""`ledgerstore cookie`: what it shows, writes and refuses, on a metadata server of ours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from shell_samples import rows, run, verdict
from zookeeper_servers import serving_in_a_thread

from storage.cluster.metadata import cookies, registration
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.format import read_instance_id
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.registration import BookieMode, Endpoint, ServiceInfo
from storage.cluster.metadata.update import create_ledger, create_node, delete_ledger
from storage.cluster.metadata.znodes import Gone
from storage.cluster.zookeeper import client
from storage.disk import cookie_format
from storage.disk.cookie_format import Cookie

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from storage.cluster.metadata.znodes import Znodes

ROOT = "/ledgers"
BOOKIE = "bk1:3181"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving_in_a_thread() as number:
        yield number


class Site:
    """A cluster, and the directories of a bookie that has not its cookie in the metadata."""

    def __init__(self, uri: str, store: Path) -> None:
        self.uri = uri
        self.store = store
        self.instance_id: str = self.do(lambda znodes: read_instance_id(znodes, ROOT))
        self.cookie = Cookie(BOOKIE, ("/data/journal",), ("/data/ledgers",), self.instance_id)
        for name in ("journal", "ledgers"):
            (store / name / "current").mkdir(parents=True)
            self.stamp(name, self.cookie)

    def do(self, work: Callable[[Znodes], Coroutine[Any, Any, Any]]) -> Any:
        return client.run(client.ClientConfig(parse_address(self.uri).hosts), work)

    def stamp(self, name: str, cookie: Cookie) -> None:
        (self.store / name / "current" / "VERSION").write_bytes(cookie_format.encode(cookie))

    def stored(self) -> Any:
        found = self.do(lambda znodes: cookies.read_cookie(znodes, ROOT, BOOKIE))
        return None if isinstance(found, Gone) else found.value

    def refusal(self, *words: object) -> str:
        """Run a command that must be refused and change nothing; the reason."""
        before = self.stored()
        found = run(*words)
        assert (found.exit_code, self.stored()) == (3, before), found.output
        return found.stderr


@pytest.fixture
def site(port: int, tmp_path: Path) -> Iterator[Site]:
    uri = f"zk://127.0.0.1:{port}{ROOT}"
    assert run("cluster", "init", uri).exit_code == 0
    made = Site(uri, tmp_path)
    yield made
    assert run("metadata", "nuke", uri, "--erase", made.instance_id).exit_code == 0


def test_the_cookie_of_the_directories_is_written_shown_and_deleted(site: Site) -> None:
    created = run("cookie", "create", site.uri, BOOKIE, site.store)
    assert (created.exit_code, site.stored()) == (0, site.cookie)
    again = run("cookie", "create", site.uri, BOOKIE, site.store)
    assert (again.exit_code, "there already" in verdict(again)) == (0, True)
    [row] = rows("cookie", "show", site.uri, BOOKIE)
    assert (row["bookie"], row["state"], row["journals"]) == (BOOKIE, "not registered", "/data/journal")
    assert (row["instance"], row["flaw"]) == (site.instance_id, None)
    assert run("cookie", "delete", site.uri, BOOKIE).exit_code == 0
    assert site.stored() is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            lambda cookie: replace(cookie, bookie_host="bk2:3181"),
            "bookieHost is bk2:3181, and should be bk1:3181",
        ),
        (
            lambda cookie: replace(cookie, instance_id="another"),
            "instanceId is another, and that of the cluster is",
        ),
    ],
    ids=["bookie", "cluster"],
)
def test_the_cookie_of_another_bookie_or_cluster_is_not_written(
    site: Site, changed: Callable[[Cookie], Cookie], why: str
) -> None:
    for name in ("journal", "ledgers"):
        site.stamp(name, changed(site.cookie))
    assert why in site.refusal("cookie", "create", site.uri, BOOKIE, site.store)


def test_directories_that_disagree_or_have_no_cookie_are_refused(site: Site) -> None:
    site.stamp("ledgers", replace(site.cookie, journal_directories=("/old",)))
    disagree = site.refusal("cookie", "create", site.uri, BOOKIE, site.store)
    assert "journalDir is /old, and should be /data/journal" in disagree
    (site.store / "journal" / "current" / "VERSION").unlink()
    assert "has no cookie" in site.refusal("cookie", "create", site.uri, BOOKIE, site.store)


def test_another_cookie_of_the_bookie_is_not_replaced(site: Site) -> None:
    moved = replace(site.cookie, ledger_directories=("/other",))
    site.do(lambda znodes: cookies.write_cookie(znodes, ROOT, BOOKIE, moved))
    why = site.refusal("cookie", "create", site.uri, BOOKIE, site.store)
    assert "ledgerDirs is /other, and should be /data/ledgers" in why


def test_a_bookie_that_ledgers_name_or_that_runs_keeps_its_cookie(site: Site) -> None:
    assert run("cookie", "create", site.uri, BOOKIE, site.store).exit_code == 0
    paths = LedgerPaths(ROOT, LedgerTree.HIERARCHICAL)
    named = ClusterLedgerMetadata(1, 1, 1, (LedgerSegment(0, (BOOKIE,)),), creator_token=1)
    site.do(lambda znodes: create_ledger(znodes, paths, 7, named))
    assert "1 ledger names it (7)" in site.refusal("cookie", "delete", site.uri, BOOKIE)

    info = ServiceInfo((Endpoint("bookie", "localhost", 3181, "bookie-rpc"),))

    async def delete_while_it_runs(znodes: Znodes) -> str:
        import asyncio

        await delete_ledger(znodes, paths, 7)
        await registration.register(znodes, ROOT, BOOKIE, info, BookieMode.WRITABLE, 1)
        words = ("cookie", "delete", site.uri, BOOKIE, "--force")
        return await asyncio.to_thread(site.refusal, *words)

    assert "still registered" in site.do(delete_while_it_runs)
    site.do(lambda znodes: create_ledger(znodes, paths, 8, named))
    assert run("cookie", "delete", site.uri, BOOKIE, "--force").exit_code == 0
    assert site.stored() is None


def test_an_unknown_bookie_is_refused_with_the_cookies_that_are_there(site: Site) -> None:
    assert run("cookie", "create", site.uri, BOOKIE, site.store).exit_code == 0
    for words in (("cookie", "show"), ("cookie", "delete")):
        assert f"it has those of: {BOOKIE}" in site.refusal(*words, site.uri, "kb1:3181")


def test_a_cookie_that_cannot_be_read_is_listed_with_its_flaw(site: Site) -> None:
    site.do(lambda znodes: create_node(znodes, f"{ROOT}/cookies/bk9:3181", b"junk"))
    [row] = rows("cookie", "show", site.uri)
    assert (row["bookie"], "no cookie" in row["flaw"]) == ("bk9:3181", True)
    assert run("cookie", "show", site.uri).exit_code == 1

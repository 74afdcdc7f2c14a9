"""The commands of auto-recovery, on a metadata server of ours: what they print, write, and end with."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from shell_samples import rows, run, verdict
from zookeeper_servers import serving_in_a_thread

from recovery.autorecovery.progress import StuckLedger, WorkerProgress, publish
from recovery.shell.commands.autorecovery_status import drawn
from recovery.shell.listing.auto_recovery import look
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.update import create_node, delete_node
from storage.cluster.zookeeper import client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from recovery.shell.listing.auto_recovery import AutoRecoveryLook
    from storage.cluster.metadata.znodes import Znodes

ROOT = "/ledgers"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving_in_a_thread() as number:
        yield number


class Site:
    """A cluster, and its address."""

    def __init__(self, port: int) -> None:
        self.uri = f"zk://127.0.0.1:{port}{ROOT}"
        self._config = client.ClientConfig((f"127.0.0.1:{port}",))

    def do(self, work: Callable[[Znodes], Coroutine[Any, Any, Any]]) -> Any:
        return client.run(self._config, work)


@pytest.fixture(scope="module")
def site(port: int) -> Site:
    made = Site(port)
    assert run("cluster", "init", made.uri).exit_code == 0
    return made


def test_the_switch_is_a_node_and_is_refused_twice(site: Site) -> None:
    def enabled() -> Any:
        return site.do(lambda znodes: underreplication.is_enabled(znodes, ROOT))

    assert run("autorecovery", "disable", site.uri).exit_code == 0
    assert enabled() is False
    again = run("autorecovery", "disable", site.uri)
    assert (again.exit_code, "already disabled" in again.stderr) == (3, True)
    assert run("autorecovery", "enable", site.uri).exit_code == 0
    assert enabled() is True


def test_the_delay_is_shown_and_set_and_a_trigger_writes_it_again(site: Site) -> None:
    assert verdict(run("autorecovery", "delay", site.uri, "--set", "600")) == "autorecovery delay: 600 s"
    assert verdict(run("autorecovery", "delay", site.uri)) == "autorecovery delay: 600 s"

    def node() -> Any:
        return site.do(lambda znodes: znodes.get(underreplication.delay_path(ROOT)))

    before = node()
    assert "the next one begins with an audit" in verdict(run("autorecovery", "trigger", site.uri))
    after = node()
    assert (after.data, after.stat.version) == (before.data, before.stat.version + 1)
    assert run("autorecovery", "delay", site.uri, "--set", "-1").exit_code == 2


def test_marks_are_listed_with_their_suspects_and_flaws(site: Site) -> None:
    async def work(znodes: Znodes) -> None:
        await underreplication.prepare(znodes, ROOT)
        await underreplication.mark_ledger(znodes, ROOT, 7, ["bk1", "bk2"], 1_700_000_000_000)
        await create_node(znodes, underreplication.mark_path(ROOT, 8), b"junk")
        await create_node(znodes, f"{ROOT}/cookies/bk1")

    site.do(work)
    first, second = rows("underreplicated", site.uri)
    assert run("underreplicated", site.uri).exit_code == 1
    assert (first["ledger"], first["suspects"], first["locked_by"]) == (7, "bk1,bk2", None)
    assert first["age_s"] > 1_000_000
    assert (second["ledger"], second["flaw"] is None) == (8, False)
    [row] = rows("autorecovery", "status", site.uri)
    assert (row["marked"], row["lost"], row["auditor"]) == (2, "bk1", None)
    assert run("autorecovery", "status", site.uri).exit_code == 1


def test_the_status_has_marks_by_age_workers_and_why_a_ledger_is_stuck(site: Site) -> None:
    now_ms = int(time.time() * 1000)
    stuck = (StuckLedger(21, "no bookie can take it", 9.4), StuckLedger(22, "entries are lost", None))

    async def look_at(znodes: Znodes) -> AutoRecoveryLook:
        for ledger_id, age_s in ((20, 1), (21, 100), (22, 7200), (23, 200_000)):
            await underreplication.mark_ledger(znodes, ROOT, ledger_id, ["bk1"], now_ms - 1000 * age_s)
        await underreplication.lock_ledger(znodes, ROOT, 20, "ours")
        await underreplication.lock_ledger(znodes, ROOT, 23, "java")
        await publish(znodes, ROOT, WorkerProgress("ours", 5, 70, 9_000_000, 10.4, 2e6, 2, stuck))
        try:
            return await look(znodes, ROOT, now_ms)
        finally:
            for ledger_id in (20, 21, 22, 23):
                await delete_node(znodes, underreplication.mark_path(ROOT, ledger_id))

    found = site.do(look_at)
    figures = found.figures
    ages = [figures[f"marked_{age}"] for age in ("minute", "hour", "day", "older")]
    assert ages == [1, 1, 1, 1 + figures["marked"] - 4]
    assert (figures["locked"], figures["stuck"]) == (2, 2)
    assert (figures["workers"], figures["entries_per_s"], figures["bytes_per_s"]) == (1, 10, 2_000_000)
    ours, java = found.workers
    assert (ours["worker"], ours["repairing"], ours["MB/s"], ours["repaired"]) == ("ours", 1, "2.0", 5)
    assert (java["worker"], java["repairing"], java["MB/s"]) == ("java", 1, None)
    why = {row["ledger"]: row["why"] for row in found.stuck}
    assert why[21] == "no bookie can take it; again after 9 s (ours)"
    assert why[22] == "entries are lost (ours)"
    assert 20 not in why
    shown = io.StringIO()
    Console(file=shown, width=160).print(drawn(found))
    assert "entries are lost (ours)" in shown.getvalue()
    assert "2.0" in shown.getvalue()


def test_a_mark_without_a_worker_and_one_while_repair_is_disabled_say_so(site: Site) -> None:
    async def reasons(znodes: Znodes) -> list[Any]:
        await underreplication.prepare(znodes, ROOT)
        await underreplication.mark_ledger(znodes, ROOT, 30, ["bk1"], int(time.time() * 1000))
        without = await look(znodes, ROOT, int(time.time() * 1000))
        await underreplication.disable(znodes, ROOT)
        disabled = await look(znodes, ROOT, int(time.time() * 1000))
        await underreplication.enable(znodes, ROOT)
        await delete_node(znodes, underreplication.mark_path(ROOT, 30))
        return [next(r["why"] for r in one.stuck if r["ledger"] == 30) for one in (without, disabled)]

    without, disabled = site.do(reasons)
    assert "no worker of ours runs" in without
    assert "repair is disabled" in disabled


@pytest.mark.parametrize(
    "words",
    [("autorecovery", "status"), ("autorecovery", "enable"), ("autorecovery", "delay"), ("underreplicated",)],
    ids=" ".join,
)
def test_a_wrong_address_is_a_usage_error(words: tuple[str, ...]) -> None:
    assert run(*words, "zk://localhost:2181").exit_code == 2


def test_a_root_without_a_cluster_ends_with_3(site: Site) -> None:
    found = run("autorecovery", "status", f"{site.uri}/none")
    assert (found.exit_code, "there is no cluster" in found.stderr) == (3, True)

"""`ledgerstore top`: rates and quantiles of each bookie, and what is said of one without metrics."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from shell_samples import rows, run, verdict
from zookeeper_servers import serving_in_a_thread

from recovery.shell.commands.top import LOOK_AGAIN_S, BookieWatch, table_of
from recovery.shell.listing.bookies import (
    NO_HTTP,
    BookieTarget,
    look_of,
    row_of,
    row_without_metrics,
    verdict_of,
)
from storage.cluster.bookie.membership import service_info
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.registration import BookieMode, register
from storage.cluster.zookeeper.client import ClientConfig
from storage.cluster.zookeeper.client import run as run_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.output import Row
    from storage.cluster.metadata.znodes import Znodes

TARGET = BookieTarget("the-bookie", "127.0.0.1:8000")


def text(adds: int, reads: int = 0, status: int = 1) -> str:
    """Return metrics as a bookie answers them, as far as they are needed here."""
    return f"""# TYPE bookie_SERVER_STATUS gauge
bookie_SERVER_STATUS {status}.0
# TYPE ledgerstore_build_info gauge
ledgerstore_build_info{{bookie="bookie-9",version="0.1.0"}} 1.0
# TYPE bookkeeper_server_ADD_ENTRY summary
bookkeeper_server_ADD_ENTRY{{quantile="0.99",success="false"}} 77.0
bookkeeper_server_ADD_ENTRY_count{{success="false"}} 1000.0
bookkeeper_server_ADD_ENTRY{{quantile="0.5",success="true"}} 1.0
bookkeeper_server_ADD_ENTRY{{quantile="0.99",success="true"}} 2.34567
bookkeeper_server_ADD_ENTRY_count{{success="true"}} {adds}.0
# TYPE bookkeeper_server_READ_ENTRY summary
bookkeeper_server_READ_ENTRY{{quantile="0.99",success="true"}} NaN
bookkeeper_server_READ_ENTRY_count{{success="true"}} {reads}.0
# TYPE bookie_journal_JOURNAL_QUEUE_SIZE gauge
bookie_journal_JOURNAL_QUEUE_SIZE{{journalIndex="0"}} 3.0
bookie_journal_JOURNAL_QUEUE_SIZE{{journalIndex="1"}} 4.0
# TYPE bookie_ledgers_count gauge
bookie_ledgers_count 12.0
# TYPE ledgerstore_disk_bytes gauge
ledgerstore_disk_bytes 1000.0
# TYPE ledgerstore_disk_free_bytes gauge
ledgerstore_disk_free_bytes 250.0
"""


def test_a_row_has_rates_between_two_looks_and_the_quantiles_of_the_last() -> None:
    before, now = look_of(text(100, 10), 5.0), look_of(text(600, 10), 7.0)
    assert row_of(TARGET, before, now) == {
        "bookie": "the-bookie",
        "state": "writable",
        "adds_per_s": 250.0,
        "reads_per_s": 0.0,
        "add_p99_ms": 2.346,
        "read_p99_ms": None,
        "journal_queue": 7,
        "disk_used_percent": 75.0,
        "ledgers": 12,
        "problem": None,
        "tone": "plain",
    }


def test_a_bookie_that_was_started_between_two_looks_has_no_rates_and_neither_has_the_first_look() -> None:
    now = look_of(text(5), 7.0)
    assert row_of(TARGET, look_of(text(100), 5.0), now)["adds_per_s"] is None
    assert row_of(TARGET, None, now)["adds_per_s"] is None


@pytest.mark.parametrize(("status", "state"), [(1, "writable"), (0, "read-only"), (-1, "not registered")])
def test_the_state_is_that_of_the_metrics(status: int, state: str) -> None:
    assert row_of(TARGET, None, look_of(text(0, 0, status), 0.0))["state"] == state


def test_a_java_bookie_has_a_row_without_the_figures_that_it_does_not_have() -> None:
    java = "\n".join(line for line in text(7).splitlines() if "ledgerstore_" not in line) + "\n"
    java += 'bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99", journalIndex="0"} 1.5\n'
    java += "jvm_memory_direct_bytes_used 4.194304E7\n"
    row = row_of(BookieTarget(None, "10.0.0.1:8000"), None, look_of(java, 0.0))
    assert (row["bookie"], row["ledgers"], row["disk_used_percent"]) == ("10.0.0.1:8000", 12, None)


def test_a_watch_looks_for_new_bookies_after_some_time_and_tells_what_is_wrong_with_one() -> None:
    now = 0.0
    found = [[TARGET, BookieTarget("silent", None)], [TARGET, BookieTarget("broken", "127.0.0.1:1")]]

    def fetch(address: str) -> str:
        if address == TARGET.address:
            return text(int(100 * now))
        raise ConnectionRefusedError("nothing listens")

    watch = BookieWatch(lambda: found.pop(0), fetch, lambda: now)
    assert [row["problem"] for row in watch.rows()] == [None, NO_HTTP]
    now = LOOK_AGAIN_S - 1
    first, second = watch.rows()
    assert (first["adds_per_s"], second["bookie"]) == (100.0, "silent")
    now = LOOK_AGAIN_S
    first, second = watch.rows()
    assert (first["adds_per_s"], second["bookie"]) == (100.0, "broken")
    assert second["problem"] == "http://127.0.0.1:1/metrics: nothing listens"
    assert verdict_of([first, second]) == "1 of 2 bookies take adds; 100 adds/s, 0 reads/s"


def test_the_live_table_shows_the_rows() -> None:
    row: Row = row_of(TARGET, look_of(text(0), 0.0), look_of(text(4000), 2.0))
    silent = row_without_metrics(BookieTarget("silent", None), NO_HTTP)
    console = Console(width=80, no_color=True)
    with console.capture() as shown:
        console.print(table_of([row, silent]))
    assert f"silent: {NO_HTTP}" in " ".join(shown.get().split())
    assert {"the-bookie", "writable", "2,000", "2.3", "75.0"} <= set(shown.get().split())


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = text(1).encode() if self.path == "/metrics" else b"nothing"
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def bookie() -> Iterator[int]:
    """Answer metrics on a port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which nothing listens."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def test_bookies_are_named_by_their_http_addresses(silent_port: int) -> None:
    with bookie() as port:
        done = run("top", f"127.0.0.1:{port}", f"http://127.0.0.1:{port}/", "--once", "--interval", 0.001)
        assert done.exit_code == 0
        assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == 2 * [["bookie-9", "writable"]]
        assert verdict(done) == "top: 2 of 2 bookies take adds; 0 adds/s, 0 reads/s"
        done = run("top", f"127.0.0.1:{port}", f"127.0.0.1:{silent_port}", "--json", "--interval", 0.001)
        first, second = json.loads(done.stdout)
        assert (done.exit_code, first["adds_per_s"], first["problem"]) == (1, 0.0, None)
        assert second["problem"].startswith(f"http://127.0.0.1:{silent_port}/metrics: ")


def test_no_bookie_with_metrics_is_an_error(silent_port: int) -> None:
    done = run("top", f"127.0.0.1:{silent_port}", "--once", "--interval", 0.001)
    assert done.exit_code == 3
    assert "no bookie has metrics" in verdict(done)


@pytest.mark.parametrize("targets", [(), ("nonsense",), ("zk://a/ledgers", "b:1"), ("http://a:1/metrics",)])
def test_arguments_that_name_no_bookies_are_usage_errors(targets: tuple[str, ...]) -> None:
    assert run("top", *targets, "--once").exit_code == 2


@pytest.mark.slow(3)
def test_the_bookies_of_a_cluster_are_found_by_their_service_info() -> None:
    with bookie() as http_port, serving_in_a_thread() as port:
        uri = f"zk://127.0.0.1:{port}/ledgers"

        async def without_bookies(znodes: Znodes) -> None:
            await init_cluster(znodes, "/ledgers", "an-instance")

        async def with_bookies(znodes: Znodes) -> list[dict[str, object]]:
            import asyncio

            for name, http in (("with-http", ("127.0.0.1", http_port)), ("without-http", None)):
                info = service_info("127.0.0.1", 3181, http)
                await register(znodes, "/ledgers", name, info, BookieMode.WRITABLE, 1.0)
            return await asyncio.to_thread(rows, "top", uri, "--interval", 0.001)

        config = ClientConfig((f"127.0.0.1:{port}",))
        run_session(config, without_bookies)
        done = run("top", uri, "--once")
        assert (done.exit_code, "no bookie is registered" in verdict(done)) == (3, True)
        first, second = run_session(config, with_bookies)
        assert (first["bookie"], first["state"], first["problem"]) == ("with-http", "writable", None)
        assert (second["bookie"], second["problem"]) == ("without-http", NO_HTTP)

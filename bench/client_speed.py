"""Measure our client of ledgers beside BookKeeper's, and three of our bookies beside three of BookKeeper's.

    python bench/client_speed.py                  as `make bench-cluster` does
    python bench/client_speed.py --json FILE      also writes the figures
    python bench/client_speed.py --rounds 1       a first look

Two clusters on one machine: three bookies of ours, and three of BookKeeper's with DbLedgerStorage and its
defaults. One process of each client writes, reads and recovers ledgers of 1 KB entries with E=Qw=3 and Qa=2.
What is compared takes turns in each row of each round, and a ratio is the median of the ratios of the rounds.
Processor time is that of the client's process. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from bookie_speed import cpu_s, java_client, running_client
from bookies import ledgerstore, our_bookie, real_bookie, wait_until_registered
from jvm import exit_code_of
from speed_bars import Figures, SpeedBar, judge, print_medians
from zookeeper_processes import free_port, our_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from bookie_speed import ClientProgram

_DIRECTORY = Path(".bench-clients").absolute()
_BOOKIE_OPTIONS = (
    *("-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-Djava.net.preferIPv4Stack=true"),
    *("--add-opens=java.base/java.io=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
)
_STORAGE = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"}

SIZE = 1024
THREE = (3, 3, 2)
ONE = (1, 1, 1)
ADDS = {1: 500, 64: 20_000, 512: 40_000}
"""By adds in flight: how many adds a row measures."""
READS = 10_000
READ_AT_ONCE = 500
LATENCIES = 1_000
UNCONFIRMED = 10_000
WARM_UP = 30_000

OURS, REAL = "our bookies", "Java's bookies"
CLIENT_BARS = {64: 0.7, 512: 0.7}
BOOKIE_BARS = {1: 2.0, 64: 0.9, 512: 0.75}
CPU_BAR_US = 12.0
LATENCY_BAR = 1.5
RECOVERY_BAR = 1.0


class Clients(NamedTuple):
    """A process of each client. The names of their clusters are the kind of the bookies and the protocol."""

    ours: ClientProgram
    java: ClientProgram

    def round(self, found: Figures) -> None:
        """Measure each row once."""

        def note(name: str, figure: float) -> None:
            print(f"  {name}: {figure:,.1f}", file=sys.stderr, flush=True)
            found[name].append(figure)

        both = (("our client", self.ours), ("Java client", self.java))
        for in_flight, count in ADDS.items():
            for name, client in both:
                before = cpu_s(client.pid)
                nanoseconds = client.ask("add", "ours-v3", count, SIZE, in_flight, *THREE)
                note(f"{name}, adds/s, {in_flight} in flight", count / nanoseconds * 1e9)
                note(
                    f"{name}, µs of an add, {in_flight} in flight", (cpu_s(client.pid) - before) / count * 1e6
                )
        for name, client in both:
            before = cpu_s(client.pid)
            nanoseconds = client.ask("read", "ours-v3", READS, READ_AT_ONCE)
            note(f"{name}, reads/s", READS / nanoseconds * 1e9)
            note(f"{name}, µs of a read", (cpu_s(client.pid) - before) / READS * 1e6)
        for name, client in both:
            ledger_id = self.ours.ask("leave", "ours-v3", UNCONFIRMED, SIZE, *THREE)
            nanoseconds = client.ask("recover", "ours-v3", ledger_id)
            note(f"{name}, recovered entries/s", UNCONFIRMED / nanoseconds * 1e9)
        three, one = ("three bookies", THREE), ("one bookie", ONE)
        # In this order, because the bookies still write to their entry logs what the recovery has added.
        for name, quorums in (three, one, one, three):
            nanoseconds = self.ours.ask("p99", "ours-v3", LATENCIES, SIZE, *quorums)
            note(f"our client, p99 in µs, {name}", nanoseconds / 1000)
        for protocol in ("v2", "v3"):
            for in_flight, count in ADDS.items():
                for kind, bookies in (("ours", OURS), ("real", REAL)):
                    nanoseconds = self.java.ask("add", f"{kind}-{protocol}", count, SIZE, in_flight, *THREE)
                    note(f"{bookies}, {protocol}, {in_flight} in flight", count / nanoseconds * 1e9)


def compare(rounds: int) -> Figures:
    """Return what was measured."""
    found: Figures = defaultdict(list)
    shutil.rmtree(_DIRECTORY, ignore_errors=True)
    _DIRECTORY.mkdir()
    with ExitStack() as held:
        port = held.enter_context(our_server(_DIRECTORY / "metadata")).port
        kinds: Mapping[str, Callable[[str, Path, int], AbstractContextManager[int]]] = {
            "ours": our_bookie,
            "real": partial(real_bookie, settings=_STORAGE, options=_BOOKIE_OPTIONS),
        }
        program = [sys.executable, str(Path(__file__).with_name("ledger_client.py"))]
        ours = held.enter_context(running_client(program, _DIRECTORY / "client.log"))
        java = held.enter_context(running_client(java_client(), _DIRECTORY / "java.log"))
        for kind, run in kinds.items():
            uri = f"zk://127.0.0.1:{port}/{kind}"
            create = ledgerstore("cluster", "init", uri)
            subprocess.run(create, check=True, capture_output=True)  # noqa: S603 - a fixed command
            for number in range(3):
                held.enter_context(run(uri, _DIRECTORY / f"{kind}{number}", free_port()))
            wait_until_registered(uri, 3)
            for protocol in ("v2", "v3"):
                for client in (ours, java):
                    client.ask("open", f"{kind}-{protocol}", uri, protocol)
        for kind in kinds:
            for protocol in ("v2", "v3"):
                java.ask("add", f"{kind}-{protocol}", WARM_UP, SIZE, 512, *THREE)
        ours.ask("add", "ours-v3", WARM_UP, SIZE, 512, *THREE)
        for number in range(rounds):
            print(f"round {number + 1}", file=sys.stderr)
            Clients(ours, java).round(found)
    return found


def ratio(found: Mapping[str, list[float]], mine: str, other: str) -> float:
    """Return the median of the ratios of the rounds."""
    return median(a / b for a, b in zip(found[mine], found[other], strict=True))


def bars(found: Mapping[str, list[float]]) -> Iterator[SpeedBar]:
    """Yield all figures that have a bar."""

    def at_least(name: str, figure: float, bar: float) -> SpeedBar:
        return SpeedBar(name, figure, f"≥ {bar}", figure >= bar)

    def at_most(name: str, figure: float, bar: float) -> SpeedBar:
        return SpeedBar(name, figure, f"≤ {bar}", figure <= bar)

    for in_flight, bar in CLIENT_BARS.items():
        row = f"adds/s, {in_flight} in flight"
        figure = ratio(found, f"our client, {row}", f"Java client, {row}")
        yield at_least(f"our client ÷ Java's, {in_flight} in flight", figure, bar)
    for in_flight in CLIENT_BARS:
        row = f"our client, µs of an add, {in_flight} in flight"
        yield at_most(row, median(found[row]), CPU_BAR_US)
    figure = ratio(found, "our client, p99 in µs, three bookies", "our client, p99 in µs, one bookie")
    yield at_most("p99 of an add, three bookies ÷ one", figure, LATENCY_BAR)
    row = "recovered entries/s"
    figure = ratio(found, f"our client, {row}", f"Java client, {row}")
    yield at_least(f"recovery of {UNCONFIRMED:,} entries, ours ÷ Java's", figure, RECOVERY_BAR)
    for protocol in ("v2", "v3"):
        for in_flight, bar in BOOKIE_BARS.items():
            row = f"{protocol}, {in_flight} in flight"
            figure = ratio(found, f"{OURS}, {row}", f"{REAL}, {row}")
            yield at_least(f"three of our bookies ÷ Java's, {row}", figure, bar)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = compare(options.rounds)
    print_medians(found)
    return judge(found, list(bars(found)), options.json)


if __name__ == "__main__":
    sys.exit(exit_code_of("bench-cluster", main))

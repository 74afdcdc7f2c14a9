"""Measure our bookie beside BookKeeper's own, on the same disk and with the same unmodified Java client.

    python bench/bookie_speed.py                  as `make bench-cluster` does
    python bench/bookie_speed.py --json FILE      also writes the figures
    python bench/bookie_speed.py --rounds 1       a first look

Three bookies of one machine, each in a cluster of its own: ours, BookKeeper's with its defaults, and
BookKeeper's with `journalFlushWhenQueueEmpty`, which does not wait for more adds before it syncs. One Java
process writes ledgers of 1 KB entries to one bookie (E=1) and reads them, with both versions of the protocol.
Every add is durable when it is answered. The bookies take turns in each row of each round, and a ratio is the
median of the ratios of the rounds. Processor time is that of the bookie's process, with all that it does
besides: checkpoints, the next journal, garbage collection. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from bookies import java, ledgerstore, our_bookie, real_bookie, wait_until_registered
from jvm import exit_code_of
from speed_bars import SpeedBar, judge
from zookeeper_processes import free_port, our_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    Figures = Mapping[str, float]

_DIRECTORY = Path(".bench-bookies").absolute()
_JVM_OPTIONS = (
    *("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-Djava.net.preferIPv4Stack=true"),
    *("--add-opens=java.base/java.io=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
)
_STORAGE = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"}

PROTOCOLS = ("v2", "v3")
SIZE = 1024
ADDS = {1: 1_000, 64: 20_000, 512: 40_000, 2_000: 60_000}
"""By adds in flight: how many adds a row measures."""
READS = 20_000
READ_AT_ONCE = 500
WARM_UP = 100_000

OURS, DEFAULT, FLUSH = "ours", "Java", "Java, flush"
ADD_BARS = {
    DEFAULT: {1: 3.0, 64: 1.5, 512: 0.8, 2_000: 0.75},
    FLUSH: {1: 1.0, 64: 1.0, 512: 0.8, 2_000: 0.75},
}
READ_BARS = {"v2": 0.8, "v3": 0.7}
V3_BAR = 0.8
CPU_BARS_US = {"v2": 7.0, "v3": 8.0}
CPU_IN_FLIGHT = 512


class RowSpeed(NamedTuple):
    """One row of one bookie in one round."""

    per_second: float
    cpu_us: float
    """Processor time of the bookie for each entry, in microseconds."""


class Row(NamedTuple):
    """A workload: its name, and the words that have the client do it, but for the name of the bookie."""

    name: str
    command: str
    entries: int
    parameters: tuple[int, ...]


ROWS = (
    *(
        Row(f"adds, {in_flight} in flight", "add", count, (SIZE, in_flight))
        for in_flight, count in ADDS.items()
    ),
    Row("reads in sequence", "read", READS, (READ_AT_ONCE,)),
)


# ── the processes ────────────────────────────────────────────────────────────────────────────────────────


class ClientProgram:
    """A program that is a client of clusters: a command is a line, and its answer a number."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *words: object) -> int:
        """Give a command, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(f"the client has ended at {words}: {self._log} may say why")
        return int(answer)


@contextmanager
def running_client(command: Sequence[str], log: Path) -> Iterator[ClientProgram]:
    with log.open("wb") as written:
        pipe = subprocess.PIPE
        process = subprocess.Popen(  # noqa: S603 - a fixed command
            command, stdin=pipe, stdout=pipe, stderr=written, text=True
        )
        try:
            yield ClientProgram(process, log)
        finally:
            process.kill()
            process.wait()


def java_client() -> list[str]:
    """Return the command of the Java program that adds and reads."""
    return java("interop.ClientSpeed", options=_JVM_OPTIONS)


KINDS: Mapping[str, Callable[[str, Path, int], AbstractContextManager[int]]] = {
    OURS: our_bookie,
    DEFAULT: partial(real_bookie, settings=_STORAGE, options=_JVM_OPTIONS),
    FLUSH: partial(
        real_bookie, settings={**_STORAGE, "journalFlushWhenQueueEmpty": "true"}, options=_JVM_OPTIONS
    ),
}


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used, in all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────


def measure(client: ClientProgram, pid: int, kind: str, protocol: str, row: Row) -> RowSpeed:
    name = f"{kind}-{protocol}".replace(", ", "-")
    before = cpu_s(pid)
    nanoseconds = client.ask(row.command, name, row.entries, *row.parameters)
    return RowSpeed(row.entries / nanoseconds * 1e9, (cpu_s(pid) - before) / row.entries * 1e6)


Rounds = dict[tuple[str, str, str], list[RowSpeed]]
"""By protocol, name of the row, and kind of bookie: the speed in each round."""


def compare(rounds: int) -> Rounds:
    """Return what was measured on all bookies."""
    found: Rounds = defaultdict(list)
    shutil.rmtree(_DIRECTORY, ignore_errors=True)
    _DIRECTORY.mkdir()
    with ExitStack() as held:
        port = held.enter_context(our_server(_DIRECTORY / "metadata")).port
        client = held.enter_context(running_client(java_client(), _DIRECTORY / "client.log"))
        pids = {}
        for number, (kind, run) in enumerate(KINDS.items()):
            uri = f"zk://127.0.0.1:{port}/cluster{number}"
            create = ledgerstore("cluster", "init", uri)
            subprocess.run(create, check=True, capture_output=True)  # noqa: S603 - a fixed command
            pids[kind] = held.enter_context(run(uri, _DIRECTORY / f"bookie{number}", free_port()))
            wait_until_registered(uri, 1)
            for protocol in PROTOCOLS:
                client.ask("open", f"{kind}-{protocol}".replace(", ", "-"), uri, protocol)
        warm_up = Row("warm-up", "add", WARM_UP, (SIZE, CPU_IN_FLIGHT))
        for number in range(-1, rounds):
            for protocol in PROTOCOLS:
                for row in (warm_up, ROWS[-1]) if number < 0 else ROWS:
                    for kind, pid in pids.items():
                        one = measure(client, pid, kind, protocol, row)
                        words = (
                            f"{protocol}, {row.name}, {kind}: {one.per_second:,.0f}/s, {one.cpu_us:.1f} µs"
                        )
                        print(f"round {number + 1}: {words}", file=sys.stderr, flush=True)
                        if number >= 0:
                            found[protocol, row.name, kind].append(one)
    return found


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────


def speed_ratio(found: Rounds, ours: tuple[str, str, str], theirs: tuple[str, str, str]) -> float:
    """Return the median of the ratios of the rounds."""
    pairs = zip(found[ours], found[theirs], strict=True)
    return median(mine.per_second / other.per_second for mine, other in pairs)


def bars(found: Rounds) -> list[SpeedBar]:
    """Return all figures that have a bar."""
    result = []

    def at_least(name: str, figure: float, bar: float) -> None:
        result.append(SpeedBar(f"{name} ≥ {bar}", figure, bar, figure >= bar))

    for protocol in PROTOCOLS:
        for kind, of_kind in ADD_BARS.items():
            for in_flight, bar in of_kind.items():
                row = f"adds, {in_flight} in flight"
                ratio = speed_ratio(found, (protocol, row, OURS), (protocol, row, kind))
                at_least(f"{protocol}, {row}, ours ÷ {kind}", ratio, bar)
            read = ROWS[-1].name
            ratio = speed_ratio(found, (protocol, read, OURS), (protocol, read, kind))
            at_least(f"{protocol}, {read}, ours ÷ {kind}", ratio, READ_BARS[protocol])
        row = f"adds, {CPU_IN_FLIGHT} in flight"
        cpu_us, bar = median(one.cpu_us for one in found[protocol, row, OURS]), CPU_BARS_US[protocol]
        result.append(
            SpeedBar(f"{protocol}, {row}, processor time in µs ≤ {bar}", cpu_us, bar, cpu_us <= bar)
        )
    for in_flight in ADDS:
        row = f"adds, {in_flight} in flight"
        at_least(f"{row}, v3 ÷ v2", speed_ratio(found, ("v3", row, OURS), ("v2", row, OURS)), V3_BAR)
    return result


def medians(found: Rounds) -> Iterator[tuple[str, str, dict[str, RowSpeed]]]:
    """Yield protocol, name of the row, and the medians of each kind of bookie."""
    for protocol in PROTOCOLS:
        for row in ROWS:
            of_kinds = {kind: found[protocol, row.name, kind] for kind in KINDS}
            yield (
                protocol,
                row.name,
                {
                    kind: RowSpeed(median(one.per_second for one in all_), median(one.cpu_us for one in all_))
                    for kind, all_ in of_kinds.items()
                },
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = compare(options.rounds)
    print(
        f"{'entries per second':26}{'':>4}{''.join(f'{kind:>13}' for kind in KINDS)}   processor µs per entry"
    )
    for protocol, name, of_kinds in medians(found):
        speeds = "".join(f"{one.per_second:13,.0f}" for one in of_kinds.values())
        cpu = " ".join(f"{one.cpu_us:7.1f}" for one in of_kinds.values())
        print(f"{name:26}{protocol:>4}{speeds}   {cpu}")
    rounds = {", ".join(key): [one._asdict() for one in all_] for key, all_ in found.items()}
    return judge(rounds, bars(found), options.json)


if __name__ == "__main__":
    sys.exit(exit_code_of("bench-cluster", main))

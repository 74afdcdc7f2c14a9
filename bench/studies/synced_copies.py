"""The 99th percentile of an add to three bookies on one machine, without bookies.

    python bench/studies/synced_copies.py DIRECTORY [ROUNDS]

A client awaits each add before it sends the next. A process for each copy appends a page to a file that was
filled in advance, syncs it and answers; an add is done when enough of them have answered. There is no
protocol, no entry and no check. In half of the rows client and processes also compute for as long as our
client and our bookie do for an add that comes alone. The rows take turns, and a ratio is the median of the
ratios of the rounds. On a file system in memory a sync takes no time: what is left there is the wait for a
processor.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter_ns, thread_time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 7
ADDS = 1_000
CLIENT_S, BOOKIE_S = 150e-6, 150e-6
"""Processor time of an add that comes alone: of the client for three copies, and of each bookie."""
_PAGE = 4096
_PAGES = 2048
_FILL = 1 << 20


class Copies(NamedTuple):
    """How many processes get each add, how many answers make it done, and what an append begins with."""

    processes: int
    ack: int
    request: bytes


_SYNC, _COMPUTE = b"s", b"c"
ROWS = {
    "one copy": Copies(1, 1, _SYNC),
    "three copies, two answers": Copies(3, 2, _SYNC),
    "one copy, computing": Copies(1, 1, _COMPUTE),
    "three copies, two answers, computing": Copies(3, 2, _COMPUTE),
}
_COMPARED = {
    "three copies, two answers": "one copy",
    "three copies, two answers, computing": "one copy, computing",
}


def _compute(seconds: float) -> None:
    until = thread_time() + seconds
    while thread_time() < until:
        pass


def _append(path: Path, requests: socket.socket) -> None:
    """Append and sync a page for what has arrived, as often as something arrives, and answer it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for at in range(0, _PAGE * _PAGES, _FILL):
        os.pwrite(file, bytes(_FILL), at)
    os.fsync(file)
    requests.send(b"x")
    page, at = b"x" * _PAGE, 0
    while arrived := requests.recv(64):
        if arrived.startswith(_COMPUTE):
            _compute(BOOKIE_S)
        os.pwrite(file, page, at % _PAGES * _PAGE)
        os.fdatasync(file)
        at += 1
        requests.send(bytes(len(arrived)))
    os.close(file)


@contextmanager
def _running(directory: Path, count: int) -> Iterator[list[socket.socket]]:
    """Run processes that append; return a connection to each."""
    clients, processes = [], []
    for number in range(count):
        mine, theirs = socket.socketpair()
        # Not forked, because a child would keep the connections of the others open.
        process = get_context("spawn").Process(target=_append, args=(directory / f"copy{number}", theirs))
        process.start()
        theirs.close()
        clients.append(mine)
        processes.append(process)
    for one in clients:
        one.recv(1)
    try:
        yield clients
    finally:
        for one in clients:
            one.close()
        for process in processes:
            process.join()


def latencies(clients: list[socket.socket], copies: Copies, adds: int) -> list[int]:
    """Return the nanoseconds of each add."""
    asked = clients[: copies.processes]
    poll = select.poll()
    by_number = {one.fileno(): one for one in asked}
    answered = dict.fromkeys(by_number, 0)
    for number in by_number:
        poll.register(number, select.POLLIN)
    took = []
    for number in range(1, adds + 1):
        started = perf_counter_ns()
        if copies.request == _COMPUTE:
            _compute(CLIENT_S)
        for one in asked:
            one.send(copies.request)
        while sum(count >= number for count in answered.values()) < copies.ack:
            for ready, _ in poll.poll():
                answered[ready] += len(by_number[ready].recv(64))
        took.append(perf_counter_ns() - started)
    while min(answered.values()) < adds:
        for ready, _ in poll.poll():
            answered[ready] += len(by_number[ready].recv(64))
    return took


class Percentiles(NamedTuple):
    """Microseconds of an add."""

    p50: float
    p99: float


def rounds_of(directory: Path, rounds: int, adds: int) -> dict[str, list[Percentiles]]:
    """Return what was measured of each row in each round."""
    found: dict[str, list[Percentiles]] = {name: [] for name in ROWS}
    with _running(directory, 3) as clients:
        for copies in ROWS.values():
            latencies(clients, copies, min(adds, 200))
        for _ in range(rounds):
            for name, copies in ROWS.items():
                took = sorted(latencies(clients, copies, adds))
                found[name].append(Percentiles(took[adds // 2] / 1000, took[adds * 99 // 100] / 1000))
    return found


def main() -> None:
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as directory:
        found = rounds_of(Path(directory), rounds, ADDS)
    for name, measured in found.items():
        p50s, p99s = zip(*measured, strict=True)
        words = f"{name:38}p50 {median(p50s):6.0f} µs   p99 {median(p99s):6.0f} µs"
        print(f"{words} ({min(p99s):.0f} to {max(p99s):.0f})")
    for three, one in _COMPARED.items():
        pairs = list(zip(found[three], found[one], strict=True))
        p50, p99 = (median(getattr(a, name) / getattr(b, name) for a, b in pairs) for name in ("p50", "p99"))
        print(f"{three} ÷ {one}: p50 {p50:.2f}, p99 {p99:.2f}")


if __name__ == "__main__":
    main()

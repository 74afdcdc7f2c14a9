"""Measure what peers that misuse their connections cost a bookie: its memory, and the adds of another client.

    PYTHONPATH=tests/support python bench/studies/misused_connections.py

Rounds without and with the peers take turns in one run, and a ratio is the median of the ratios of the
rounds, because a machine that others use has slow moments of its own.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from bad_peers import OneByOneWriter, ask_without_reading, bookie_process, crowd
from bookie_connection import add_of

from storage.cluster.wire import v2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from bad_peers import BookieProcess

    Peers = Callable[[BookieProcess], AbstractContextManager[None]]

ROUNDS = 5
ADDS = 2000
_LARGE = 2


@contextmanager
def idle(bookie: BookieProcess) -> Iterator[None]:
    with crowd(bookie, 10_000) as connections:
        connections.send(b"\0\0")
        yield


@contextmanager
def one_byte_a_second(bookie: BookieProcess) -> Iterator[None]:
    frame = v2.encode_request(add_of(7, 0, bytes(100_000)))
    with crowd(bookie, 1000) as slow:
        is_over = threading.Event()

        def send() -> None:
            for at in range(len(frame)):
                for connection in slow.connections:
                    connection.send(frame[at : at + 1])
                    if is_over.wait(1 / len(slow.connections)):
                        return

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            is_over.set()
            sender.join()


@contextmanager
def reads_without_taking_answers(bookie: BookieProcess) -> Iterator[None]:
    with crowd(bookie, 1) as one:
        ask_without_reading(one.connections[0], _LARGE, 0, 10_000)
        yield


def p99_ms(writer: OneByOneWriter) -> float:
    return 1000 * quantiles([writer.add() for _ in range(ADDS)], n=100)[-1]


def main() -> None:
    cases: dict[str, Peers] = {
        "10,000 idle connections, half a header each": idle,
        "1,000 peers, one byte a second each": one_byte_a_second,
        "10,000 reads of 1 MiB, no answer taken": reads_without_taking_answers,
    }
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as path, bookie_process(Path(path) / "store") as bookie:
        writer, large = OneByOneWriter(bookie, 1), OneByOneWriter(bookie, _LARGE)
        large.add(bytes(1 << 20))
        p99_ms(writer)
        print(f"{'peers':45} {'memory MiB':>10} {'p99 ms alone':>12} {'with them':>9} {'ratio':>6}")
        for name, peers in cases.items():
            alone, beside, growth = [], [], []
            for _ in range(ROUNDS):
                alone.append(p99_ms(writer))
                before = bookie.memory
                with peers(bookie):
                    writer.add()
                    growth.append((bookie.memory - before) / (1 << 20))
                    beside.append(p99_ms(writer))
                writer.add()
            ratio = median(one / other for one, other in zip(beside, alone, strict=True))
            print(f"{name:45} {max(growth):10.1f} {median(alone):12.2f} {median(beside):9.2f} {ratio:6.2f}")


if __name__ == "__main__":
    main()

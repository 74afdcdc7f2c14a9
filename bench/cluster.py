"""Measure the metadata server beside a real ZooKeeper, on the same disk and with the same client.

    python bench/cluster.py                       as `make bench-cluster` does
    python bench/cluster.py --json FILE           also writes the figures
    python bench/cluster.py --rounds 1            a first look

One connection keeps 64 requests in flight, as fast as answers come. The client is a process of its own, which
only counts frames, so that it does not limit either server. Creates of 100 bytes are durable when they are
answered, with both servers. Rounds of both servers take turns; each figure is a median.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from jvm import exit_code_of
from zookeeper_processes import our_server, real_zookeeper

from storage.cluster.zookeeper.jute import FRAME_LENGTH, REQUEST_HEADER, encode, encode_frame, encode_request
from storage.cluster.zookeeper.records import (
    OPEN_ACL,
    PASSWORD_SIZE,
    ConnectRequest,
    Create,
    OpCode,
    PathAndWatch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

IN_FLIGHT = 64
CREATES = 20_000
READS = 60_000
_DATA = b"x" * 100
_DIRECTORY = Path(".bench-cluster").absolute()

CREATE_RATIO_MIN = 0.7
READS_MIN = 20_000


class Pipeline:
    """A connection that keeps requests in flight and counts the answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()
        request = ConnectRequest(0, 0, 10_000, 0, bytes(PASSWORD_SIZE))
        self._socket.sendall(encode_frame(encode(request)))
        self._receive()

    def close(self) -> None:
        self._socket.close()

    def rate(self, frames: Sequence[bytes]) -> float:
        """Send all frames, at most 64 unanswered; return the answers per second."""
        started, sent, answered = time.perf_counter(), 0, 0
        while answered < len(frames):
            until = min(len(frames), answered + IN_FLIGHT)
            if sent < until:
                self._socket.sendall(b"".join(frames[sent:until]))
                sent = until
            answered += self._receive()
        return len(frames) / (time.perf_counter() - started)

    def _receive(self) -> int:
        """Return how many whole frames have arrived, at least one."""
        data, frames, at = self._data, 0, 0
        while not frames:
            received = self._socket.recv(1 << 16)
            if not received:
                raise ConnectionError("the server has closed the connection")
            data += received
            while at + FRAME_LENGTH.size <= len(data):
                (size,) = FRAME_LENGTH.unpack_from(data, at)
                if at + FRAME_LENGTH.size + size > len(data):
                    break
                at += FRAME_LENGTH.size + size
                frames += 1
        del data[:at]
        return frames


def request(number: int, opcode: OpCode, record: tuple[object, ...]) -> bytes:
    return encode_frame(REQUEST_HEADER.pack(number, opcode) + encode_request(opcode, record))


def measure(port: int, number: int) -> dict[str, float]:
    """Return the rates of one round on the server at the port."""
    pipeline = Pipeline(port)
    root = f"/bench{number}"
    pipeline.rate([request(0, OpCode.CREATE, Create(root, b"", OPEN_ACL))])
    paths = [f"{root}/node{one:07d}" for one in range(CREATES)]
    creates = [request(one, OpCode.CREATE, Create(path, _DATA, OPEN_ACL)) for one, path in enumerate(paths)]
    reads = [
        request(one, OpCode.GET_DATA, PathAndWatch(paths[one * 7919 % CREATES], watch=False))
        for one in range(READS)
    ]
    rates = {"creates/s": pipeline.rate(creates), "reads/s": pipeline.rate(reads)}
    pipeline.close()
    return rates


def compare(rounds: int) -> dict[str, dict[str, float]]:
    """Return the medians of both servers, and the ratios of ours to the real one."""
    real_rounds, our_rounds = [], []
    with (
        real_zookeeper(_DIRECTORY / "zookeeper") as real,
        our_server(_DIRECTORY / "ours") as ours,
    ):
        for number in range(rounds):
            real_rounds.append(measure(real, number))
            our_rounds.append(measure(ours.port, number))
            print(f"round {number + 1}: real {real_rounds[-1]}, ours {our_rounds[-1]}", file=sys.stderr)
    names = list(real_rounds[0])
    theirs = {name: median(one[name] for one in real_rounds) for name in names}
    mine = {name: median(one[name] for one in our_rounds) for name in names}
    ratios = {
        name: median(b[name] / a[name] for a, b in zip(real_rounds, our_rounds, strict=True))
        for name in names
    }
    return {"ZooKeeper": theirs, "ledgerstore": mine, "ratio": ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = compare(options.rounds)
    print(f"{'':12}{'ZooKeeper':>12}{'ledgerstore':>13}{'ratio':>8}")
    for name in figures["ratio"]:
        theirs, mine, ratio = (figures[column][name] for column in ("ZooKeeper", "ledgerstore", "ratio"))
        print(f"{name:12}{theirs:12,.0f}{mine:13,.0f}{ratio:8.2f}")
    if options.json is not None:
        options.json.parent.mkdir(exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1))
    is_met = (
        figures["ratio"]["creates/s"] >= CREATE_RATIO_MIN and figures["ledgerstore"]["reads/s"] >= READS_MIN
    )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(exit_code_of("bench-cluster", main))

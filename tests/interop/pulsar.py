"""Test with a Pulsar broker that our bookies and our metadata server keep its topics.

    python tests/interop/pulsar.py          what `make pulsar` does: both of these
    python tests/interop/pulsar.py whole    25,000 messages, with our metadata server, which is killed too
    python tests/interop/pulsar.py quick    2,000 messages, with our metadata server and with a real ZooKeeper

`Topic` is a program with a broker and a client. It writes a line for each message that is acknowledged, and
for each that it finds. Bookies are killed while it produces and while it consumes, the topic is unloaded,
and the broker itself is killed, so that another one takes over. Each time every acknowledged message must be
found exactly once, in order, where the acknowledgement said. At last the topic is deleted, and the bookies
give its ledgers up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import Timer
from typing import TYPE_CHECKING, NamedTuple

from bookies import DIRECTORY, cluster, ledgerstore, our_bookie, our_metadata
from jvm import PULSAR, classpath, exit_code_of
from pulsar_brokers import broker_program
from zookeeper_processes import KillableServer, free_port, our_server_again, real_zookeeper

from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.paths import LedgerPaths, list_ledgers, read_tree
from storage.cluster.metadata.update import read_ledger
from storage.cluster.zookeeper.client import ClientConfig, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bookies import Metadata

    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.znodes import Znodes

_COMMAND_S = 300
_DELETION_S = 60
_BOOKIES = 4
_OUTAGE_S = 4.5
"""How long there are no metadata: longer than the bookies' sessions last without them, and shorter than the
broker's."""
_ENTRIES_OF_A_BEGINNING = 50
_MESSAGES_WITHOUT = 300
"""How many messages are produced or consumed before a killed bookie is started again."""
_PIPE_SIZE, _READ_SIZE = 4096, 512
"""Little, so that `Topic` waits until its lines are read, and is not done long before a bookie is killed."""


# ── what must hold ───────────────────────────────────────────────────────────────────────────────────────


class Position(NamedTuple):
    """Where a message is; the broker compares positions in this order."""

    ledger_id: int
    entry_id: int
    place: int
    """Its place in the batch, or -1."""


UNKNOWN = Position(-1, -1, -1)
"""The position in the acknowledgement of a message that the broker had already when it came once more."""


class FoundMessage(NamedTuple):
    """One message, as the topic has it."""

    number: int
    position: Position


@dataclass
class SentMessages:
    """What a producer has sent to the topic, with ascending numbers."""

    sent: int = 0
    """All numbers are below this one."""
    acknowledged: dict[int, Position] = field(default_factory=dict)


def differences(written: SentMessages, found: Sequence[FoundMessage]) -> Iterator[str]:
    """Yield what is wrong with the messages of the topic, in the order in which they were found."""
    for before, after in pairwise(found):
        if after.position <= before.position:
            yield f"{after} was found after {before}, which is not the order of positions"
        if after.number <= before.number:
            yield f"{after} was found after {before}, which is not the order of sending"
    positions = {message.number: message.position for message in found}
    for number, position in written.acknowledged.items():
        if number not in positions:
            yield f"message {number} was acknowledged at {position} and is not there"
        elif position not in (UNKNOWN, positions[number]):
            yield f"message {number} was acknowledged at {position} and is at {positions[number]}"
    yield from (f"{message} was never sent" for message in found if message.number >= written.sent)


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────


class Broker:
    """A running `Topic`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._is_killed = False

    def lines(self, command: str) -> Iterator[list[str]]:
        """Give a command; yield the words of each line of its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        return self.lines_until(command.partition(" ")[0])

    def lines_until(self, end: str) -> Iterator[list[str]]:
        """Yield the words of each line, up to the one that says only this, or to the end if it was killed."""
        assert self._process.stdout is not None
        limit = Timer(_COMMAND_S, self._process.kill)
        limit.start()
        try:
            for line in self._process.stdout:
                words = line.decode().split()
                if words == [end] or (self._is_killed and not line.endswith(b"\n")):
                    return
                if words[0] not in ("acked", "got"):
                    raise AssertionError(f"{end}: {line.decode()}")
                yield words
        finally:
            limit.cancel()
        if not self._is_killed:
            raise AssertionError(f"the broker has ended, or has not answered for {_COMMAND_S} s: {end}")

    def run(self, command: str) -> None:
        """Give a command that is answered without lines of messages."""
        for words in self.lines(command):
            raise AssertionError(f"{command}: {words}")

    def kill(self) -> None:
        """Kill it. The lines that it has written before are still there."""
        self._is_killed = True
        self._process.kill()


def _message(words: list[str]) -> FoundMessage:
    return FoundMessage(int(words[1]), Position(*map(int, words[2:])))


@contextmanager
def broker(uri: str, name: str) -> Iterator[Broker]:
    """Run a broker on the metadata of the cluster. Its log is `name`.log."""
    with ExitStack() as held:
        process = subprocess.Popen(
            broker_program(uri, "interop.Topic"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=held.enter_context((DIRECTORY / f"{name}.log").open("wb")),
            pipesize=_PIPE_SIZE,
            bufsize=_READ_SIZE,
        )
        held.enter_context(process)
        held.callback(process.kill)
        running = Broker(process)
        list(running.lines_until("ready"))
        yield running


class MetadataServer:
    """A metadata server of ours, which is killed and started again."""

    _server: KillableServer
    """Only while it is serving."""

    def __init__(self) -> None:
        self._port = free_port()

    @contextmanager
    def serving(self) -> Iterator[int]:
        with ExitStack() as held:
            self._server = KillableServer(self._run, held)
            yield self._port

    @contextmanager
    def _run(self) -> Iterator[int]:
        directory = DIRECTORY / "metadata"
        directory.mkdir(exist_ok=True)
        with our_server_again(directory, self._port) as server:
            yield server.pid

    def fail_for(self, seconds: float) -> None:
        self._server.kill()
        time.sleep(seconds)
        self._server.start()


class KillableBookies:
    """Running bookies of ours, which are killed and started again."""

    def __init__(self, uri: str, held: ExitStack) -> None:
        self._uri = uri
        self._directories: list[Path] = []
        self._servers: dict[str, KillableServer] = {}
        for number in range(_BOOKIES):
            directory, port = DIRECTORY / f"bookie-{number}", free_port()
            self._directories.append(directory)
            self._servers[f"127.0.0.1:{port}"] = KillableServer(partial(self._run, directory, port), held)

    @contextmanager
    def _run(self, directory: Path, port: int) -> Iterator[int]:
        with our_bookie(self._uri, directory, port, "--collect-every", "1") as pid:
            give_up_at = time.monotonic() + 60
            while "serves clients on" not in (directory / "log").read_text():
                assert time.monotonic() < give_up_at, f"the bookie on port {port} has not registered"
                time.sleep(0.05)
            yield pid

    def kill_one_of(self, ledger_id: int) -> str:
        """Kill a bookie that the newest entries of the ledger are written to; return its id."""
        bookie_id = _ledgers(self._uri)[ledger_id].segments[-1].bookies[0]
        self._servers[bookie_id].kill()
        return bookie_id

    def restart(self, bookie_id: str) -> None:
        self._servers[bookie_id].start()

    def ledgers(self) -> set[int]:
        """Return the ledgers that any of them has entries of."""
        stores = [str(directory / "store") for directory in self._directories]
        lists = [
            subprocess.check_output(ledgerstore("ledgers", "--json", store), stderr=subprocess.DEVNULL)
            for store in stores
        ]
        return {row["ledger"] for rows in lists for row in json.loads(rows)}


def _ledgers(uri: str) -> dict[int, ClusterLedgerMetadata]:
    """Return the metadata of every ledger of the cluster."""
    address = parse_address(uri)

    async def read(znodes: Znodes) -> dict[int, ClusterLedgerMetadata]:
        paths = LedgerPaths(address.root, await read_tree(znodes, address.root))
        ledger_ids = [one async for one in list_ledgers(znodes, paths) if isinstance(one, int)]
        return {ledger_id: (await read_ledger(znodes, paths, ledger_id)).value for ledger_id in ledger_ids}

    return run(ClientConfig(address.hosts), read)


# ── the trial ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class TopicTrial:
    """What has happened to the topic so far."""

    bookies: KillableBookies
    written: SentMessages = field(default_factory=SentMessages)
    kills: int = 0
    changes: int = 0
    """How often the broker has replaced a bookie of a ledger of the topic."""
    wrong: list[str] = field(default_factory=list)

    def produce(self, broker: Broker, count: int, form: str) -> Iterator[Position]:
        """Produce messages; yield where each is."""
        first = self.written.sent
        self.written.sent += count
        for words in broker.lines(f"produce {first} {count} {form}"):
            number, position = _message(words)
            self.written.acknowledged[number] = position
            yield position

    def consume(self, broker: Broker, into: list[FoundMessage]) -> Iterator[Position]:
        for words in broker.lines("consume"):
            into.append(_message(words))
            yield into[-1].position

    def killing(self, positions: Iterator[Position], after: int) -> None:
        """Go on to the end. Meanwhile kill a bookie that has the ledger, and start it again.

        It is killed at the beginning of a ledger, because then the broker has not gone on to the next one,
        whose entries may be on other bookies.
        """
        killed, at = "", 0
        for number, position in enumerate(positions):
            if not killed and number >= after and position.entry_id < _ENTRIES_OF_A_BEGINNING:
                killed, at = self.bookies.kill_one_of(position.ledger_id), number
                self.kills += 1
            elif killed and number == at + _MESSAGES_WITHOUT:
                self.bookies.restart(killed)

    def check(self, when: str, found: Sequence[FoundMessage]) -> None:
        self.wrong += (f"{when}: {difference}" for difference in differences(self.written, found))
        print(f"  {when}: {len(found):,} messages", flush=True)

    @property
    def ledgers(self) -> list[int]:
        """The ledgers that have acknowledged messages."""
        return sorted({one.ledger_id for one in self.written.acknowledged.values() if one != UNKNOWN})

    def count_changes(self, uri: str) -> None:
        ledgers = _ledgers(uri)
        self.changes = sum(len(ledgers[ledger_id].segments) - 1 for ledger_id in self.ledgers)
        if not self.changes:
            self.wrong.append("no bookie was replaced: none was killed while the broker wrote")


def quick(uri: str) -> TopicTrial:
    """Produce 2,000 messages, and kill a bookie. Delete the topic."""
    with ExitStack() as held:
        trial = TopicTrial(KillableBookies(uri, held))
        with broker(uri, "broker") as first:
            first.run("create")
            trial.killing(trial.produce(first, 1_000, "single"), 400)
            _exhaust(trial.produce(first, 1_000, "batched"))
            _consume_and_read(trial, first)
            trial.count_changes(uri)
            _delete(trial, first, uri)
    return trial


def whole(uri: str, metadata: MetadataServer) -> TopicTrial:
    """Produce 25,000 messages; kill bookies, the broker and the metadata server."""
    with ExitStack() as held:
        trial = TopicTrial(KillableBookies(uri, held))
        with broker(uri, "broker-1") as first:
            first.run("create")
            for form in ("single", "batched"):
                trial.killing(trial.produce(first, 10_000, form), 3_000)
            _consume_and_read(trial, first)
            for number, _ in enumerate(trial.produce(first, 2_000, "single")):
                if number == 700:
                    first.kill()
        with broker(uri, "broker-2") as second:
            _read(trial, second, "read from another broker, after the first was killed")
            trial.killing(trial.produce(second, 1_000, "single"), 0)
            _read(trial, second, "read from the other broker, which has written too")
            for number, _ in enumerate(trial.produce(second, 2_000, "single")):
                if number == 700:  # the broker needs the metadata when it begins the next ledger
                    metadata.fail_for(_OUTAGE_S)
            _read(trial, second, "read after the metadata server was killed")
        trial.count_changes(uri)
    return trial


def _exhaust(positions: Iterator[Position]) -> None:
    for _ in positions:
        pass


def _consume_and_read(trial: TopicTrial, broker: Broker) -> None:
    consumed: list[FoundMessage] = []
    trial.killing(trial.consume(broker, consumed), trial.written.sent // 4)
    trial.check("consumed", consumed)
    broker.run("unload")
    _read(trial, broker, "read after an unload")


def _read(trial: TopicTrial, broker: Broker, when: str) -> None:
    trial.check(when, [_message(words) for words in broker.lines("read")])


def _delete(trial: TopicTrial, broker: Broker, uri: str) -> None:
    """Delete the topic; wait until its ledgers are in no metadata, and on no bookie."""
    broker.run("delete")
    give_up_at = time.monotonic() + _DELETION_S
    ledgers = set(trial.ledgers)
    while left := ledgers & (trial.bookies.ledgers() | {*_ledgers(uri)}):
        if time.monotonic() > give_up_at:
            trial.wrong.append(
                f"after {_DELETION_S} s there still are ledgers of a deleted topic: {sorted(left)}"
            )
            return
        time.sleep(0.5)
    print(f"  deleted: {len(ledgers)} ledgers", flush=True)


# ── all of it ────────────────────────────────────────────────────────────────────────────────────────────


def trial(name: str, metadata: Metadata, work: Callable[[str], TopicTrial]) -> int:
    """Return how much was wrong."""
    print(f"a Pulsar broker on our bookies and {name}:", flush=True)
    with cluster(metadata, our_bookie, 0) as uri:
        done = work(uri)
    print(*done.wrong[:20], sep="\n", end="\n" if done.wrong else "")
    print(
        f"  {len(done.written.acknowledged):,} messages were acknowledged, in {len(done.ledgers)} ledgers; "
        f"{done.kills} bookies were killed, {done.changes} replaced; {len(done.wrong)} differences",
        flush=True,
    )
    return len(done.wrong)


def main(arguments: list[str]) -> int:
    wrong = 0
    classpath(PULSAR)
    if arguments in ([], ["whole"]):
        metadata = MetadataServer()
        name = "a metadata server of ours that is killed"
        wrong += trial(name, metadata.serving, lambda uri: whole(uri, metadata))
    if arguments in ([], ["quick"]):
        wrong += trial("our metadata server", our_metadata, quick)
        wrong += trial("a real ZooKeeper", lambda: real_zookeeper(DIRECTORY / "zookeeper"), quick)
    print(f"pulsar: {wrong} differences, lost or repeated messages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("pulsar", lambda: main(sys.argv[1:])))

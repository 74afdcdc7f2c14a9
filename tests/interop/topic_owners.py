"""Test that owners of a topic take over from each other without losing or repeating a message.

    python tests/interop/topic_owners.py [--rounds 200] [--seed 0]

Three bookies and the metadata server are processes of ours, and so is each owner. In every round a second
owner opens the topic while the first one produces:

    live     the first owner goes on until it learns that it is fenced
    killed   it gets SIGKILL before
    paused   it gets SIGSTOP before, and goes on when the second owner has produced
    twice    the second owner is killed while it opens the topic, and a third one takes over

Every owner has a producer with a name, which numbers its messages and goes on after the last one that the
owner before had acknowledged, and one without a name, which reports what is unknown and does not repeat it.
At the end every acknowledged message has to be where its acknowledgement said, the numbered ones without gaps
and repetitions, all in the order of their producers; and every owner that was not killed has learned that it
is fenced.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from queue import Empty, Queue
from threading import Thread

from bookies import cluster, our_bookie, our_metadata

from storage.cluster import connect
from storage.cluster.client.connect import connect_async
from storage.cluster.topics.errors import MessageOutcomeUnknown, TopicFenced
from storage.cluster.topics.message import Message
from storage.cluster.topics.message_id import MessageId
from storage.cluster.topics.policies import RollOver
from storage.errors import StoreError

_TOPIC = "public/owners/topic"
_NAMED = "numbered"
_KINDS = ("live", "killed", "paused", "twice")
_ANSWER_S = 120.0
_ENTRIES_OF_A_LEDGER = 400
_IN_FLIGHT = 20
_LOST_MAX = 50


# ── the owner, in a process of its own ───────────────────────────────────────────────────────────────────


async def _own(uri: str) -> None:
    """Open the topic when standard input says so, and produce until it is fenced, or the input ends."""
    loop = asyncio.get_running_loop()
    async with connect_async(uri) as client:
        first = int(await loop.run_in_executor(None, sys.stdin.readline))
        topic = client.topic(_TOPIC, roll_over=RollOver(entries=_ENTRIES_OF_A_LEDGER))
        try:
            numbered = await topic.producer(_NAMED)
            plain = await topic.producer()
            _say("open", numbered.last_sequence_id)
            ending = loop.run_in_executor(None, sys.stdin.readline)
            under_way: set[asyncio.Task[None]] = set()
            number = first
            while not ending.done():
                for producer, sequence_id in ((numbered, number), (plain, None)):
                    text = f"{producer.name} {number}".encode()
                    sent = await producer.submit(Message(text), sequence_id)
                    under_way.add(asyncio.create_task(_tell(sent, producer.name, number)))
                number += 1
                if len(under_way) >= _IN_FLIGHT:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for one in done:
                        one.result()
            await asyncio.gather(*under_way)
            await topic.close()
            _say("closed")
        except TopicFenced:
            _say("fenced")


async def _tell(sent: asyncio.Future[MessageId | None], producer: str, number: int) -> None:
    try:
        found = await sent
    except StoreError as error:  # after a fence the next message says so
        _say("failed", producer, number, type(error).__name__)
    else:
        _say("acked", producer, number, found)


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


# ── the rounds ───────────────────────────────────────────────────────────────────────────────────────────


class OwnerProcess:
    """A process that waits until it shall open the topic. What it says is taken by a thread."""

    def __init__(self, uri: str, held: ExitStack) -> None:
        command = [sys.executable, __file__, "--own", uri]
        self._process = held.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        held.callback(self._process.kill)
        self._lines: Queue[list[str]] = Queue()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self._lines.put(line.split())
        self._lines.put(["ended"])

    def open(self, first: int) -> None:
        """Let it open the topic, and number its messages from here on."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{first}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Let it close the topic."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def send(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def next(self) -> list[str]:
        """Return the words of its next line; "ended" after the last one."""
        try:
            return self._lines.get(timeout=_ANSWER_S)
        except Empty:
            raise AssertionError(f"an owner has said nothing for {_ANSWER_S:.0f} s") from None


@dataclass
class OwnersTrial:
    """What owners have said so far."""

    acknowledged: dict[tuple[str, int], MessageId] = field(default_factory=dict)
    last: int = -1
    """The last number that was acknowledged to the producer with a name."""
    unknown: int = 0
    dropped: int = 0
    """Messages that came a second time, and were in the topic already."""
    fenced: int = 0
    """Owners that have learned that another one has the topic."""
    lost: int = 0
    """Openings that have lost against the owner before."""
    wrong: list[str] = field(default_factory=list)

    def take(self, words: list[str]) -> str:
        """Take one line of an owner; return its first word."""
        match words:
            case ["acked", producer, number, found]:
                if producer == _NAMED:
                    self.last = max(self.last, int(number))
                if found == "None":
                    self.dropped += 1
                else:
                    self.acknowledged[producer, int(number)] = MessageId.parse(found)
            case ["failed", _, _, error]:
                self.unknown += error == MessageOutcomeUnknown.__name__
        return words[0]

    def until(self, owner: OwnerProcess, *ends: str) -> str:
        """Take the lines of an owner up to one of these, or up to its end."""
        give_up_at = time.monotonic() + _ANSWER_S
        while (word := self.take(owner.next())) not in (*ends, "ended"):
            assert time.monotonic() < give_up_at, f"no {' or '.join(ends)} of an owner for {_ANSWER_S:.0f} s"
        return word

    def until_acknowledged(self, owner: OwnerProcess, count: int) -> None:
        """Take the lines of an owner until it has produced so many more messages."""
        for _ in range(count):
            if self.until(owner, "acked") != "acked":
                self.wrong.append("an owner has ended although no other one had opened the topic")
                return

    def expect_fenced(self, owner: OwnerProcess, kind: str) -> None:
        if self.until(owner, "fenced") != "fenced":
            self.wrong.append(f"{kind}: an owner that was taken over has not learned it")
        self.fenced += 1
        owner.end()

    def check(self, found: list[tuple[str, int, MessageId]]) -> None:
        """Check all messages of the topic, in their order."""
        positions = {(producer, number): place for producer, number, place in found}
        for (producer, number), place in self.acknowledged.items():
            if positions.get((producer, number)) != place:
                there = positions.get((producer, number))
                self.wrong.append(f"{producer} {number} was acknowledged at {place} and is at {there}")
        if len(positions) != len(found):
            self.wrong.append(f"{len(found) - len(positions)} messages are there more than once")
        by_producer: dict[str, list[int]] = {}
        for producer, number, _ in found:
            by_producer.setdefault(producer, []).append(number)
        for producer, numbers in by_producer.items():
            if any(second <= first for first, second in pairwise(numbers)):
                self.wrong.append(f"the messages of {producer} are not in their order")
        numbered = by_producer.get(_NAMED, [])
        if numbered != list(range(len(numbered))):
            self.wrong.append("the messages of the producer with a name have a gap")


class Owners:
    """The owners of one trial, of which one after the other takes the topic over."""

    def __init__(self, trial: OwnersTrial, uri: str, chance: random.Random, held: ExitStack) -> None:
        self._trial = trial
        self._chance = chance
        self._start = partial(OwnerProcess, uri, held)
        self.owner = self._start()
        self._next = self._start()
        """A process that has started, because a start takes longer than a take-over."""
        self.owner.open(0)
        trial.until(self.owner, "open")

    def _spare(self) -> OwnerProcess:
        spare, self._next = self._next, self._start()
        return spare

    def take_over(self, kind: str) -> None:
        trial, chance, first = self._trial, self._chance, self.owner
        second = self._spare()
        trial.until_acknowledged(first, chance.randrange(1, 60))
        if kind == "killed":
            first.send(signal.SIGKILL)
            trial.until(first)
        elif kind == "paused":
            first.send(signal.SIGSTOP)
        second.open(trial.last + 1)
        if kind == "twice":
            time.sleep(chance.random() * 0.2)
            second.send(signal.SIGKILL)
            trial.until(second)
            second = self._spare()
            second.open(trial.last + 1)
        while trial.until(second, "open", "fenced") != "open":
            trial.lost += 1  # the first owner has begun its next ledger at the same moment
            if trial.lost > _LOST_MAX:
                raise AssertionError(f"{kind}: no other owner can open the topic")
            second.end()
            second = self._spare()
            second.open(trial.last + 1)
        if kind == "paused":
            trial.until_acknowledged(second, chance.randrange(1, 40))
            first.send(signal.SIGCONT)
        if kind != "killed":
            trial.expect_fenced(first, kind)
        self.owner = second


def run(rounds: int, seed: int) -> int:
    trial = OwnersTrial()
    with cluster(our_metadata, our_bookie, 3) as uri, ExitStack() as held:
        owners = Owners(trial, uri, random.Random(seed), held)
        for number in range(rounds):
            owners.take_over(_KINDS[number % len(_KINDS)])
            if (number + 1) % 20 == 0:
                print(f"  {number + 1} take-overs, {len(trial.acknowledged):,} messages", flush=True)
        trial.until_acknowledged(owners.owner, 10)
        owners.owner.end()
        if trial.until(owners.owner, "closed") != "closed":
            trial.wrong.append("the last owner has not closed the topic")
        with connect(uri) as client:
            topic = client.topic(_TOPIC)
            found = []
            for message in topic.reader().messages():
                producer, count = message.payload.decode().split()
                found.append((producer, int(count), message.id))
        trial.check(found)
    print(*trial.wrong[:20], sep="\n", end="\n" if trial.wrong else "")
    print(
        f"topic-owners: {rounds} take-overs, {len(found):,} messages, {len(trial.acknowledged):,} of them "
        f"acknowledged, {trial.dropped} repeated and dropped, {trial.unknown} of unknown outcome; "
        f"{trial.fenced} owners fenced, {trial.lost} openings lost; {len(trial.wrong)} wrong"
    )
    return 1 if trial.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--own", metavar="URI", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own is not None:
        asyncio.run(_own(options.own))
        return 0
    return run(options.rounds, options.seed)


if __name__ == "__main__":
    sys.exit(main())

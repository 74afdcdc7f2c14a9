"""Crashes of a topic in a store on a simulated disk: messages, roll-overs, trims, and a second owner.

Before each operation of the disk a copy of it is made, with the messages that were acknowledged by then.
After each power cut the topic is opened again. It has to have these messages at their ids, all others in
their order, none twice, and no ledger that its list does not name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import TYPE_CHECKING

from stepped_store import SMALL, Site

from recovery.crashlab import LoseAll, RandomFate, Tearing, Verb
from storage.cluster.topics.embedded_ledgers import NODES_LEDGER, EmbeddedLedgers
from storage.cluster.topics.format import decode_entry
from storage.cluster.topics.managed_ledger import TopicName
from storage.cluster.topics.message_id import MessageId
from storage.cluster.topics.policies import Retention, RollOver
from storage.cluster.topics.topic import AsyncTopic
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from recovery.crashlab import Fate, Operation, SimulatedDisk
    from storage.entry.model import Entry
    from storage.store import Store

NAME = TopicName.parse("played")
_SYNCS = (Verb.SYNC, Verb.SYNC_DIRECTORY)


class InlineStore:
    """An `AsyncStore` as far as topics need it, without threads: the loop itself waits for the disk."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ledger(self, ledger_id: int, password: bytes) -> InlineLedger:
        return InlineLedger(self._store, ledger_id, password)

    async def ledgers(self) -> list[int]:
        return self._store.ledgers()

    async def delete(self, ledger_ids: Iterable[int], password: bytes) -> None:
        self._store.delete(ledger_ids, password)


class InlineLedger:
    """A ledger whose awaited methods are done in the thread of the loop."""

    def __init__(self, store: Store, ledger_id: int, password: bytes) -> None:
        self.id = ledger_id
        self._ledger = store.ledger(ledger_id, password=password)

    async def append_many(self, payloads: Sequence[bytes]) -> range:
        # The loop goes round before and after, so that others go on while a commit is under way.
        await asyncio.sleep(0)
        ids = self._ledger.append_many(payloads)
        await asyncio.sleep(0)
        return ids

    async def fence(self) -> int | None:
        return self._ledger.fence()

    async def truncate(self, before: int) -> None:
        self._ledger.truncate(before)

    async def delete(self) -> None:
        self._ledger.delete()

    async def exists(self) -> bool:
        return self._ledger.exists

    @property
    def is_fenced(self) -> bool:
        return self._ledger.is_fenced

    async def last_entry_id(self) -> int | None:
        return self._ledger.last_entry_id

    async def read(self, entry_id: int) -> Entry:
        return self._ledger.read(entry_id)

    async def entries(self, first: int | None = None, last: int | None = None) -> AsyncIterator[Entry]:
        for entry in self._ledger.entries(first, last):
            yield entry


@dataclass
class TopicHistory:
    """What was acknowledged, and the copies of the disk."""

    acknowledged: dict[bytes, MessageId] = field(default_factory=dict)
    trimmed: set[int] = field(default_factory=set)
    """Ledgers that a trim might have deleted by now."""
    moments: list[tuple[str, Verb, SimulatedDisk, dict[bytes, MessageId], set[int]]] = field(
        default_factory=list
    )


def topic_in(store: Store, **options: object) -> AsyncTopic:
    return AsyncTopic(EmbeddedLedgers(InlineStore(store), SMALL.entry_size_max), NAME, **options)  # type: ignore[arg-type]


def record(seed: int, rounds: int) -> TopicHistory:
    """Run a workload, and return its history."""
    return asyncio.run(_record(seed, rounds))


async def _record(seed: int, rounds: int) -> TopicHistory:
    history, dice, site = TopicHistory(), Random(f"topic {seed}"), Site(SMALL)

    def keep(operation: Operation) -> None:
        what = f"{operation.number}, {operation.verb} {operation.path}"
        known = dict(history.acknowledged), set(history.trimmed)
        history.moments.append((what, operation.verb, site.disk.copy(), *known))

    store = site.open()
    site.disk.watch(keep)
    ledgers = EmbeddedLedgers(InlineStore(store), SMALL.entry_size_max)  # type: ignore[arg-type]
    options = {"roll_over": RollOver(entries=2), "retention": Retention(0, 60)}
    topic = AsyncTopic(ledgers, NAME, **options)  # type: ignore[arg-type]
    number = 0
    for _ in range(rounds):
        payloads = [b"message %d" % (number + one) for one in range(dice.choice([1, 2, 5]))]
        number += len(payloads)
        for payload, sent in zip(payloads, await asyncio.gather(*map(topic.send, payloads)), strict=True):
            history.acknowledged[payload] = sent
        match dice.randrange(5):
            case 0:
                history.trimmed.update(one.ledger_id for one in await topic.ledgers())
                await topic.trim()
            case 1:
                await topic.close()
                topic = AsyncTopic(ledgers, NAME, **options)  # type: ignore[arg-type]
            case 2:
                topic = AsyncTopic(ledgers, NAME, **options)  # type: ignore[arg-type]
                await topic.take_over()
            case 3:
                site.checkpoint(store)
    await topic.close()
    store.close()
    return history


@dataclass
class TopicCrashFigures:
    """How much was explored."""

    moments: int = 0
    images: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)


def explore(seed: int, rounds: int, stride: int = 1) -> TopicCrashFigures:
    """Crash a workload before every `stride`-th operation in every way; look at what is left."""
    return explore_history(record(seed, rounds), seed, stride)


def explore_history(history: TopicHistory, seed: int, stride: int = 1) -> TopicCrashFigures:
    """Do so with a workload that has run."""
    figures = TopicCrashFigures()
    for what, verb, disk, acknowledged, trimmed in history.moments[seed % stride :: stride]:
        figures.moments += 1
        for fate in _fates(disk, verb, Random(f"{seed} {what}")):
            after = disk.copy()
            after.power_cut(fate)
            image = after.image()
            if image in figures.images:
                continue
            figures.images.add(image)
            problem = asyncio.run(_problem(after, acknowledged, trimmed))
            if problem:
                figures.violations.append(f"workload {seed}, before {what}, {fate}: {problem}")
    return figures


def _fates(disk: SimulatedDisk, verb: Verb, dice: Random) -> list[Fate]:
    if verb not in _SYNCS:
        return [LoseAll()]
    return [*disk.fates(), *(RandomFate(dice.getrandbits(32), tearing) for tearing in Tearing)]


async def _problem(disk: SimulatedDisk, acknowledged: dict[bytes, MessageId], trimmed: set[int]) -> str:
    """Open the topic after a power cut, and return what is wrong with it."""
    store = Site(SMALL, disk, first_salt=1000).open()
    topic = topic_in(store)
    try:
        await topic.send(b"after the cut")
        listed = [one.ledger_id for one in await topic.ledgers()]
        found = list(chain.from_iterable(_messages(store, ledger_id) for ledger_id in listed))
    except (StoreError, AssertionError) as error:
        return f"refused: {error!r}"
    finally:
        topic.abandon()
    payloads = [payload for _, payload in found]
    numbers = [int(payload.split()[1]) for payload in payloads[:-1]]
    places = dict(zip(payloads, (place for place, _ in found), strict=True))
    lost = [
        one for one, place in acknowledged.items() if one not in places and place.ledger_id not in trimmed
    ]
    moved = [one for one, place in acknowledged.items() if places.get(one, place) != place]
    leaked = set(store.ledgers()) - set(listed) - {NODES_LEDGER}
    if payloads[-1:] != [b"after the cut"] or numbers != sorted(set(numbers)):
        return f"the order is {payloads}"
    return " ".join(
        f"{what} {one}" for what, one in (("lost", lost), ("moved", moved), ("leaked", leaked)) if one
    )


def _messages(store: Store, ledger_id: int) -> list[tuple[MessageId, bytes]]:
    if not store.ledger(ledger_id).exists:
        return []
    return [
        (MessageId(ledger_id, entry.entry_id), message.payload)
        for entry in store.ledger(ledger_id).entries()
        for message in decode_entry(entry.payload).messages
    ]

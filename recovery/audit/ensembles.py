"""The file that tells which stores hold which ledgers: what `ledgerstore audit --replicas` is given.

    {
      "stores": {"bk1": "/data/bk1", "bk2": "/data/bk2", "bk3": "../bk3"},
      "ledgers": {
        "7": {
          "write_quorum": 2,
          "ack_quorum": 2,
          "last_entry": 4999,
          "segments": [
            {"first_entry": 0, "stores": ["bk1", "bk2", "bk3"]},
            {"first_entry": 1200, "stores": ["bk1", "bk3", "bk2"]}
          ]
        }
      }
    }

The same that BookKeeper's metadata say of a ledger. Paths are taken from the file's own directory. Without an
`ack_quorum` it is the write quorum; without a `last_entry` the ledger is open. What that means for missing
copies is told in `recovery.verify.ensemble`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.verify.ensemble import Ensembles, Segment
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ID = re.compile("0|[1-9][0-9]{0,18}")
_ID_MAX = 2**63 - 1

QUORUM_MAX = 32
"""More copies than that are a mistake in the file."""

_LEDGER_FIELDS = frozenset({"write_quorum", "ack_quorum", "last_entry", "segments"})


@dataclass(frozen=True, slots=True)
class Replicas:
    """Several stores, and the ledgers that they share."""

    stores: Mapping[str, str]
    """The path of each by its name."""
    ledgers: tuple[Ensembles, ...]
    """In the order of their ids."""

    def steps(self) -> dict[str, dict[int, int]]:
        """By the stores' paths how each ledger's runs are to be made there."""
        return {path: steps(self.ledgers) for path in self.stores.values()}


def load(path: str | Path) -> Replicas:
    """What the file says; `InvalidConfig` names the field in it that makes no sense."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidConfig(str(path), f"not UTF-8: byte {error.start} is none") from error
    return parse(text, str(path), path.parent)


def parse(text: str, name: str, base: Path) -> Replicas:
    """The same of the file's text. `name` is told in errors; paths in it begin at `base`."""
    try:
        told = json.loads(text, object_pairs_hook=_Object, parse_constant=_no_number)
    except _Twice as error:
        raise InvalidConfig(name, f"the key {error.args[0]!r} stands there twice in one object") from None
    except json.JSONDecodeError as error:
        raise InvalidConfig(f"{name}:{error.lineno}:{error.colno}", f"no JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(name, f"no JSON that is of use here: {error}") from error
    return _Reader(name).replicas(told, base)


def steps(ledgers: Iterable[Ensembles]) -> dict[int, int]:
    """For each ledger how far apart ids are in its runs, so that a store which has a share of it has few."""
    return {ledger.ledger_id: ledger.step for ledger in ledgers}


class _Object(dict[str, Any]):
    """A JSON object, whose keys stand there once."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        if len(self) < len(pairs):
            keys = [key for key, _ in pairs]
            raise _Twice(next(key for key in keys if keys.count(key) > 1))


class _Twice(Exception):
    """A key that an object has twice: whichever counted, the other was meant too."""


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


class _Reader:
    """Takes what was parsed apart, and knows how to name each place in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def replicas(self, told: Any, base: Path) -> Replicas:
        told = self._object(told, "", {"stores", "ledgers"}, {"stores", "ledgers"})
        stores = self._stores(told["stores"], base)
        ledgers = self._dict(told["ledgers"], "ledgers")
        read = [self._ledger(key, value, stores) for key, value in ledgers.items()]
        return Replicas(stores, tuple(sorted(read, key=lambda ledger: ledger.ledger_id)))

    def _stores(self, told: Any, base: Path) -> dict[str, str]:
        stores = {}
        for name, path in self._dict(told, "stores").items():
            if not name:
                raise self._wrong("stores", "a store without a name")
            if not isinstance(path, str) or not path:
                raise self._wrong(f"stores.{name}", f"must be a path, not {_shown(path)}")
            stores[name] = str(base / path)
        twice = {path for path in stores.values() if list(stores.values()).count(path) > 1}
        for name, path in stores.items():
            if path in twice:
                raise self._wrong(f"stores.{name}", f"is the same directory as another store's: {path}")
        return stores

    def _ledger(self, key: str, told: Any, stores: Mapping[str, str]) -> Ensembles:
        at = f"ledgers.{key}"
        # A zero in front would make two keys of one ledger.
        if not _ID.fullmatch(key) or int(key) > _ID_MAX:
            raise self._wrong(at, "is no ledger id: a decimal number from 0 to 2^63-1")
        told = self._object(told, at, _LEDGER_FIELDS, {"write_quorum", "segments"})
        segments = self._segments(told["segments"], f"{at}.segments", stores)
        size = len(segments[0].stores)
        write = self._number(told["write_quorum"], f"{at}.write_quorum", 1, min(size, QUORUM_MAX))
        ack = self._number(told.get("ack_quorum", write), f"{at}.ack_quorum", 1, write)
        last = told.get("last_entry")
        if last is not None:
            # A segment may be without entries: the ledger was closed right behind a change of its ensemble.
            last = self._number(last, f"{at}.last_entry", segments[-1].first_entry - 1, _ID_MAX - 1)
        return Ensembles(int(key), write, ack, segments, last)

    def _segments(self, told: Any, at: str, stores: Mapping[str, str]) -> tuple[Segment, ...]:
        if not isinstance(told, list) or not told:
            raise self._wrong(at, f"must be a list of at least one segment, not {_shown(told)}")
        read: list[Segment] = []
        for number, one in enumerate(told):
            here = f"{at}[{number}]"
            segment = self._segment(one, here, stores)
            if read and segment.first_entry <= read[-1].first_entry:
                raise self._wrong(f"{here}.first_entry", "must be behind the segment's before it")
            if read and len(segment.stores) != len(read[0].stores):
                raise self._wrong(f"{here}.stores", f"must be {len(read[0].stores)}, as in the first segment")
            read.append(segment)
        return tuple(read)

    def _segment(self, told: Any, at: str, stores: Mapping[str, str]) -> Segment:
        told = self._object(told, at, {"first_entry", "stores"}, {"first_entry", "stores"})
        first = self._number(told["first_entry"], f"{at}.first_entry", 0, _ID_MAX)
        names = told["stores"]
        if not isinstance(names, list) or not names:
            raise self._wrong(f"{at}.stores", f"must be a list of stores' names, not {_shown(names)}")
        for number, name in enumerate(names):
            if not isinstance(name, str) or name not in stores:
                raise self._wrong(f"{at}.stores[{number}]", f"{_shown(name)} is not among the stores")
            if name in names[:number]:
                raise self._wrong(f"{at}.stores[{number}]", f"{_shown(name)} is in this ensemble twice")
        return Segment(first, tuple(names))

    def _object(self, told: Any, at: str, known: Iterable[str], needed: Iterable[str]) -> dict[str, Any]:
        fields = self._dict(told, at)
        for key in fields:
            if key not in known:
                raise self._wrong(_join(at, key), f"is unknown here; known are {_listed(known)}")
        for key in sorted(needed):
            if key not in fields:
                raise self._wrong(_join(at, key), "is missing")
        return fields

    def _dict(self, told: Any, at: str) -> dict[str, Any]:
        if not isinstance(told, dict):
            raise self._wrong(at, f"must be an object, not {_shown(told)}")
        return told

    def _number(self, told: Any, at: str, least: int, most: int) -> int:
        if not isinstance(told, int) or isinstance(told, bool) or not least <= told <= most:
            raise self._wrong(at, f"must be a whole number from {least} to {most}, not {_shown(told)}")
        return told

    def _wrong(self, at: str, reason: str) -> InvalidConfig:
        return InvalidConfig(f"{self._name}: {at}" if at else self._name, reason)


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


_SHOWN_MAX = 40


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"

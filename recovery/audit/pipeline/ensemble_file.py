"""The file that says which stores hold which ledgers, given to `ledgerstore audit --replicas`.

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

It contains what BookKeeper's metadata say of a ledger. Paths are relative to the file's own directory.
Without an `ack_quorum` it is the write quorum; without a `last_entry` the ledger is open.
`recovery.audit.model.ensemble` explains what that means for missing copies.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.audit.model.ensemble import LedgerEnsembles, Segment
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ID = re.compile("0|[1-9][0-9]{0,18}")
_ID_MAX = 2**63 - 1

QUORUM_MAX = 32
"""A larger quorum is a mistake in the file."""

_LEDGER_FIELDS = frozenset({"write_quorum", "ack_quorum", "last_entry", "segments"})


@dataclass(frozen=True, slots=True)
class Replicas:
    """Several stores, and the ledgers that they share."""

    stores: Mapping[str, str]
    """The path of each store by its name."""
    ledgers: tuple[LedgerEnsembles, ...]
    """In the order of their ids."""
    left_out: frozenset[int] = frozenset()
    """Ledgers that the stores share, too, and that are not compared."""
    notes: tuple[str, ...] = ()
    """Why ledgers are not compared."""

    def steps(self) -> dict[str, dict[int, int]]:
        """Return for each store's path the step of each ledger's runs."""
        return {path: steps(self.ledgers) for path in self.stores.values()}


def load(path: str | Path) -> Replicas:
    """Return the content of the file. `InvalidConfig` names the invalid field."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidConfig(str(path), f"not UTF-8: byte {error.start} is invalid") from error
    return parse(text, str(path), path.parent)


def parse(text: str, name: str, base: Path) -> Replicas:
    """Parse the text of the file. `name` is for error messages; relative paths begin at `base`."""
    try:
        value = json.loads(text, object_pairs_hook=_JsonObject, parse_constant=_no_number)
    except _DuplicateKey as error:
        raise InvalidConfig(name, f"the key {error.args[0]!r} occurs twice in one object") from None
    except json.JSONDecodeError as error:
        raise InvalidConfig(f"{name}:{error.lineno}:{error.colno}", f"not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(name, f"JSON that cannot be used here: {error}") from error
    return _EnsembleFileParser(name).replicas(value, base)


def steps(ledgers: Iterable[LedgerEnsembles]) -> dict[int, int]:
    """Return the step of each ledger's runs, so that a store with a share of a ledger has few runs."""
    return {ledger.ledger_id: ledger.step for ledger in ledgers}


class _JsonObject(dict[str, Any]):
    """A JSON object without duplicate keys."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        if len(self) < len(pairs):
            keys = [key for key, _ in pairs]
            raise _DuplicateKey(next(key for key in keys if keys.count(key) > 1))


class _DuplicateKey(Exception):
    """An object has a key twice, and there is no way to know which one was meant."""


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


class _EnsembleFileParser:
    """Checks the parsed JSON, and names each place in it in error messages."""

    def __init__(self, name: str) -> None:
        self._name = name

    def replicas(self, value: Any, base: Path) -> Replicas:
        value = self._object(value, "", {"stores", "ledgers"}, {"stores", "ledgers"})
        stores = self._stores(value["stores"], base)
        ledgers = self._dict(value["ledgers"], "ledgers")
        read = [self._ledger(key, value, stores) for key, value in ledgers.items()]
        return Replicas(stores, tuple(sorted(read, key=lambda ledger: ledger.ledger_id)))

    def _stores(self, value: Any, base: Path) -> dict[str, str]:
        stores = {}
        for name, path in self._dict(value, "stores").items():
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

    def _ledger(self, key: str, value: Any, stores: Mapping[str, str]) -> LedgerEnsembles:
        at = f"ledgers.{key}"
        # A leading zero would make a second key for the same ledger.
        if not _ID.fullmatch(key) or int(key) > _ID_MAX:
            raise self._wrong(at, "is not a ledger id: a decimal number from 0 to 2^63-1")
        value = self._object(value, at, _LEDGER_FIELDS, {"write_quorum", "segments"})
        segments = self._segments(value["segments"], f"{at}.segments", stores)
        size = len(segments[0].stores)
        write = self._number(value["write_quorum"], f"{at}.write_quorum", 1, min(size, QUORUM_MAX))
        ack = self._number(value.get("ack_quorum", write), f"{at}.ack_quorum", 1, write)
        last = value.get("last_entry")
        if last is not None:
            # A segment may be without entries, because the ledger was closed right after a change of its
            # ensemble.
            last = self._number(last, f"{at}.last_entry", segments[-1].first_entry - 1, _ID_MAX - 1)
        return LedgerEnsembles(int(key), write, ack, segments, last)

    def _segments(self, value: Any, at: str, stores: Mapping[str, str]) -> tuple[Segment, ...]:
        if not isinstance(value, list) or not value:
            raise self._wrong(at, f"must be a list of at least one segment, not {_shown(value)}")
        read: list[Segment] = []
        for number, one in enumerate(value):
            here = f"{at}[{number}]"
            segment = self._segment(one, here, stores)
            if read and segment.first_entry <= read[-1].first_entry:
                raise self._wrong(f"{here}.first_entry", "must be after that of the segment before it")
            if read and len(segment.stores) != len(read[0].stores):
                raise self._wrong(f"{here}.stores", f"must be {len(read[0].stores)}, as in the first segment")
            read.append(segment)
        return tuple(read)

    def _segment(self, value: Any, at: str, stores: Mapping[str, str]) -> Segment:
        value = self._object(value, at, {"first_entry", "stores"}, {"first_entry", "stores"})
        first = self._number(value["first_entry"], f"{at}.first_entry", 0, _ID_MAX)
        names = value["stores"]
        if not isinstance(names, list) or not names:
            raise self._wrong(f"{at}.stores", f"must be a list of stores' names, not {_shown(names)}")
        for number, name in enumerate(names):
            if not isinstance(name, str) or name not in stores:
                raise self._wrong(f"{at}.stores[{number}]", f"{_shown(name)} is not among the stores")
            if name in names[:number]:
                raise self._wrong(f"{at}.stores[{number}]", f"{_shown(name)} is in this ensemble twice")
        return Segment(first, tuple(names))

    def _object(self, value: Any, at: str, known: Iterable[str], needed: Iterable[str]) -> dict[str, Any]:
        fields = self._dict(value, at)
        for key in fields:
            if key not in known:
                raise self._wrong(_join(at, key), f"is unknown here; known are {_listed(known)}")
        for key in sorted(needed):
            if key not in fields:
                raise self._wrong(_join(at, key), "is missing")
        return fields

    def _dict(self, value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(at, f"must be an object, not {_shown(value)}")
        return value

    def _number(self, value: Any, at: str, least: int, most: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(at, f"must be a whole number from {least} to {most}, not {_shown(value)}")
        return value

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

"""A part of an entry log as JSON, without its runs. Reading it runs no code.

The text may come from anybody. So every field is checked: any other shape than the one written here, and any
number that cannot be in a file, is refused.
"""

from __future__ import annotations

import json
from operator import index
from typing import TYPE_CHECKING

from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart, MapRecord
from storage.entry.model import DigestType
from storage.entry.position import LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog.format import STORE_ID_SIZE, EmptyLog, LogHeader, Origin

if TYPE_CHECKING:
    from recovery.audit.model.runs import Runs
    from storage.entry.read_result import Stop

_NUMBERS = ("log_id", "start", "end", "entry", "exit", "file_size", "records", "size", "fillers")
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


class NotAPart(ValueError):
    """Text that was not written by `encode`."""


def encode(part: LogPart) -> str:
    """Return everything but the runs."""
    return json.dumps(
        {name: getattr(part, name) for name in _NUMBERS}
        | {
            "header": _header(part.header),
            "flaws": [_flaw(one) for one in part.flaws],
            "maps": [_map(one) for one in part.maps],
            "stop": None if part.stop is None else _stop(part.stop),
            "types": [[ledger, kind.name] for ledger, kind in part.types.items()],
            "unverified": [[ledger, count] for ledger, count in part.unverified.items()],
            "seconds": float(part.seconds),
        },
        separators=(",", ":"),
        default=index,  # for numpy's numbers
    )


def decode(text: str, runs: Runs) -> LogPart:
    """Return the part with these runs. Raise `NotAPart` for other text."""
    value = load(text)
    try:
        return LogPart(
            **{name: _number(value[name]) for name in _NUMBERS},
            header=_read_header(value["header"]),
            runs=runs,
            flaws=tuple(_read_flaw(one) for one in _list(value["flaws"])),
            maps=tuple(_read_map(one) for one in _list(value["maps"])),
            stop=None if value["stop"] is None else _read_stop(value["stop"]),
            types={ledger: DigestType[_text(name)] for ledger, name in _pairs(value["types"])},
            unverified={ledger: _number(count) for ledger, count in _pairs(value["unverified"])},
            unreadable=(),  # a part with unreadable blocks is not kept
            seconds=_seconds(value["seconds"]),
        )
    except KeyError as error:
        raise NotAPart(f"unknown or missing: {error}") from None


def load(text: str) -> dict[str, object]:
    """Return a JSON object whose numbers all fit into 64 bits. Raise `NotAPart` otherwise."""
    try:
        value = json.loads(text, parse_int=_bounded, parse_constant=_refused)
    except RecursionError:
        raise NotAPart("too many nested brackets") from None
    except json.JSONDecodeError as error:
        raise NotAPart(str(error)) from None
    if not isinstance(value, dict):
        raise NotAPart("not an object")
    return value


def _bounded(digits: str) -> int:
    # Longer texts would take time to convert.
    number = int(digits) if len(digits) <= len(str(_LEAST)) else _MOST + 1
    if not _LEAST <= number <= _MOST:
        raise NotAPart("a number that no file can contain")
    return number


def _refused(constant: str) -> float:
    raise NotAPart(f"{constant} is not a number")


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotAPart("not a number")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, float):
        raise NotAPart("not a number of seconds")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise NotAPart("not a text")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise NotAPart("not a list")
    return value


def _pairs(value: object) -> list[tuple[int, object]]:
    pairs = [_list(one) for one in _list(value)]
    if any(len(pair) != 2 for pair in pairs):
        raise NotAPart("not a pair")
    return [(_number(first), second) for first, second in pairs]


# ── the fields of a part ─────────────────────────────────────────────────────────────────────────


def _header(header: LogHeader | EmptyLog | Damaged) -> list[object]:
    match header:
        case EmptyLog():
            return ["empty"]
        case Damaged():
            return _stop(header)
        case LogHeader(version, map_offset, ledger_count, origin, map_checksum):
            whose = None if origin is None else _origin(origin)
            return ["header", version, map_offset, ledger_count, whose, map_checksum]


def _read_header(value: object) -> LogHeader | EmptyLog | Damaged:
    match value:
        case ["empty"]:
            return EmptyLog()
        case ["header", version, map_offset, ledgers, origin, map_checksum]:
            whose = None if origin is None else _read_origin(origin)
            numbers = _number(version), _number(map_offset), _number(ledgers)
            return LogHeader(*numbers, whose, _number(map_checksum))
        case _:
            return _damaged(_read_stop(value))


def _origin(origin: Origin) -> list[object]:
    previous = origin.previous
    previous_position = None if previous is None else [previous.log_id, previous.offset]
    return [origin.store_id.hex(), origin.generation, previous_position]


def _read_origin(value: object) -> Origin:
    match value:
        case [store, generation, previous]:
            store_id = bytes.fromhex(_text(store))
            if len(store_id) != STORE_ID_SIZE:
                raise NotAPart("not a store's id")
            return Origin(
                store_id,
                _number(generation),
                None if previous is None else _read_position(previous),
            )
        case _:
            raise NotAPart("not an origin")


def _read_position(value: object) -> LogPosition:
    match value:
        case [log_id, offset]:
            return LogPosition(_number(log_id), _number(offset))
        case _:
            raise NotAPart("not a position")


def _stop(stop: Stop) -> list[object]:
    match stop:
        case EndOfData(offset):
            return ["end", offset]
        case Torn(offset, flaw):
            return ["torn", offset, flaw.name]
        case Damaged(offset, flaw, detail):
            return ["damaged", offset, flaw.name, detail]


def _read_stop(value: object) -> Stop:
    match value:
        case ["end", offset]:
            return EndOfData(_number(offset))
        case ["torn", offset, flaw]:
            return Torn(_number(offset), Flaw[_text(flaw)])
        case ["damaged", offset, flaw, detail]:
            return Damaged(_number(offset), Flaw[_text(flaw)], _text(detail))
        case _:
            raise NotAPart("not an end")


def _damaged(stop: Stop) -> Damaged:
    if not isinstance(stop, Damaged):
        raise NotAPart("not damage")
    return stop


def _flaw(flaw: FlawAt) -> list[object]:
    cause = None if flaw.flaw is None else flaw.flaw.name
    ids = (flaw.ledger_id, flaw.entry_id)
    several = (flaw.count, flaw.last_entry_id)
    place = (flaw.offset, flaw.end)
    return [flaw.kind.name, cause, *place, *ids, flaw.detail, *several, flaw.is_proven_otherwise]


def _read_flaw(value: object) -> FlawAt:
    match value:
        case [kind, cause, offset, end, ledger, entry, detail, count, last, bool(otherwise)]:
            return FlawAt(
                FlawKind[_text(kind)],
                None if cause is None else Flaw[_text(cause)],
                _number(offset),
                _number(end),
                None if ledger is None else _number(ledger),
                None if entry is None else _number(entry),
                _text(detail),
                _number(count),
                None if last is None else _number(last),
                otherwise,
            )
        case _:
            raise NotAPart("not a flaw")


def _map(record: MapRecord) -> list[object]:
    pairs = record.pairs
    value = {"damage": _stop(pairs)} if isinstance(pairs, Damaged) else [list(pair) for pair in pairs]
    return [record.offset, record.end, value]


def _read_map(value: object) -> MapRecord:
    match value:
        case [offset, end, {"damage": damage}]:
            return MapRecord(_number(offset), _number(end), _damaged(_read_stop(damage)))
        case [offset, end, pairs]:
            read = tuple((ledger, _number(size)) for ledger, size in _pairs(pairs))
            return MapRecord(_number(offset), _number(end), read)
        case _:
            raise NotAPart("not a ledgers map")

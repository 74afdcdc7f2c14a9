"""New ledger ids: the server counts them.

`idgen/ID-` is created as an ephemeral sequential node, and the ten digits that the server appends are the
id. The node is deleted at once. After 2³¹−1 ids the count goes on in `idgen-long/HOB-0000000001`, whose
number is the high half of an id and whose children count the low half; then in `HOB-0000000002`, and so on.

An id whose answer is lost is given up: nothing was made with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.cluster.errors import InvalidMetadata, LedgerIdOverflow, MetadataUnavailable
from storage.cluster.metadata.paths import ID_GENERATOR, ID_PREFIX, LONG_ID_GENERATOR
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import Created, CreateMode, Gone, Unknown

if TYPE_CHECKING:
    from storage.cluster.metadata.znodes import Znodes

_HALF_MAX = (1 << 31) - 1
"""A sequence number is a signed 32-bit integer. BookKeeper does not use its largest value."""

_HIGH_PREFIX = "HOB-"
_HIGH_KEPT = 3
"""The newest nodes that stay, for clients that have just listed them."""
_ATTEMPTS_MAX = 10


async def new_ledger_id(znodes: Znodes, root: str) -> int:
    """Return an id that no client has got or will get."""
    long_path = f"{root}/{LONG_ID_GENERATOR}"
    if isinstance(await znodes.exists(long_path), Gone):
        number = await _next_number(znodes, f"{root}/{ID_GENERATOR}")
        if number is not None:
            return number
        await create_node(znodes, long_path)
    return await _new_long_id(znodes, long_path)


async def _new_long_id(znodes: Znodes, long_path: str) -> int:
    high = await _newest_high(znodes, long_path)
    while high <= _HALF_MAX:
        number = await _next_number(znodes, f"{long_path}/{_HIGH_PREFIX}{high:010}")
        if number is not None:
            await _delete_old(znodes, long_path)
            return high << 32 | number
        # Another client may have gone on to the same next number: then both count there.
        high += 1
        await create_node(znodes, f"{long_path}/{_HIGH_PREFIX}{high:010}")
    raise LedgerIdOverflow(long_path)


async def _next_number(znodes: Znodes, parent: str) -> int | None:
    """Return the next number of the parent's count, or `None` if they are used up."""
    reason = ""
    for _ in range(_ATTEMPTS_MAX):
        match await create_node(znodes, f"{parent}/{ID_PREFIX}", mode=CreateMode.EPHEMERAL_SEQUENTIAL):
            case Created(path):
                digits = path.removeprefix(f"{parent}/{ID_PREFIX}")
                # The count goes below zero after its largest value.
                if not digits.removeprefix("-").isdecimal():
                    raise InvalidMetadata(path, "the server has appended no number")
                # Best effort: it goes with the session otherwise.
                await znodes.delete(path)
                return int(digits) if 0 <= int(digits) < _HALF_MAX else None
            case Unknown(reason):
                continue
    raise MetadataUnavailable(f"{parent}: no id in {_ATTEMPTS_MAX} attempts: {reason}")


async def _high_numbers(znodes: Znodes, long_path: str) -> list[int]:
    children = await znodes.children(long_path)
    names = () if isinstance(children, Gone) else children.names
    numbers = [name.removeprefix(_HIGH_PREFIX) for name in names if name.startswith(_HIGH_PREFIX)]
    return sorted(int(number) for number in numbers if number.isdecimal())


async def _newest_high(znodes: Znodes, long_path: str) -> int:
    return max(await _high_numbers(znodes, long_path), default=1)


async def _delete_old(znodes: Znodes, long_path: str) -> None:
    """Delete the nodes whose numbers are used up, as far as they are empty."""
    for high in (await _high_numbers(znodes, long_path))[:-_HIGH_KEPT]:
        await znodes.delete(f"{long_path}/{_HIGH_PREFIX}{high:010}")

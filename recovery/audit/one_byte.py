"""Which byte is wrong, where only one is: a CRC-32C that does not match tells more than that.

CRC is linear, and running it over further bytes can be undone. The difference between the checksum that is
due and the one that is found, run backwards, becomes at the damaged byte that of one byte alone.
"""

from __future__ import annotations

from functools import cache

from crc32c import crc32c

_TOP = 24
_BYTE = 0xFF


@cache
def _differences() -> tuple[int, ...]:
    """For each difference of one byte that of the checksum just behind it."""
    nothing = crc32c(b"\0")
    return tuple(crc32c(bytes((value,))) ^ nothing for value in range(256))


@cache
def _by_top_byte() -> tuple[int, ...]:
    tops = {difference >> _TOP: value for value, difference in enumerate(_differences())}
    return tuple(tops[top] for top in range(256))


def candidates(due: int, found: int, size: int) -> list[int]:
    """The places in so many bytes at which one wrong byte would explain it; often none, hardly ever two."""
    differences, values = _differences(), _by_top_byte()
    of_one_byte = frozenset(differences[1:])
    difference, places = due ^ found, []
    for place in range(size - 1, -1, -1):
        if difference in of_one_byte:
            places.append(place)
        value = values[difference >> _TOP]
        difference = ((difference ^ differences[value]) << 8 | value) & 0xFFFF_FFFF
    return places

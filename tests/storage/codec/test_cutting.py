"""Many pieces out of one buffer."""

from __future__ import annotations

import pytest

from storage.codec.cutting import cut


@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 2048, 2500])
def test_what_is_cut_is_the_same_when_it_is_joined(count: int, width: int) -> None:
    pieces = [at.to_bytes(4, "big")[-1:] * width for at in range(count)]
    assert list(cut(b"".join(pieces), count)) == pieces

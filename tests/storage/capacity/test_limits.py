"""The limits of free space, and the size of the reserve."""

from __future__ import annotations

import pytest

from storage.capacity.guard import SpaceLimits
from storage.disk.files import DiskSpace

MIB, GIB = 1 << 20, 1 << 30
LARGE = DiskSpace(free=GIB, size=100 * GIB)
SMALL = DiskSpace(free=GIB, size=160 * MIB)


@pytest.mark.parametrize(
    ("space", "index_bytes", "size"),
    [
        (LARGE, 0, 20 * MIB),
        (LARGE, 1000 * MIB, 50 * MIB),  # 3 % of the index, because a commit of it may take as much
        (SMALL, 0, 10 * MIB),  # a sixteenth of the disk
        (SMALL, 1000 * MIB, 10 * MIB),
    ],
)
def test_the_reserve_grows_with_the_index_and_takes_no_large_part_of_a_small_disk(
    space: DiskSpace, index_bytes: int, size: int
) -> None:
    assert SpaceLimits(GIB, reserve=None).reserve_size(space, index_bytes) == size
    assert SpaceLimits(GIB, reserve=5 * MIB).reserve_size(space, index_bytes) == 5 * MIB
    assert SpaceLimits(GIB, reserve=0).reserve_size(space, index_bytes) == 0


def test_a_default_limit_is_at_most_a_tenth_of_the_disk_and_a_given_one_holds() -> None:
    default, given = SpaceLimits(64 * MIB, is_min_free_given=False), SpaceLimits(64 * MIB)
    assert (default.least(LARGE), given.least(LARGE)) == (64 * MIB, 64 * MIB)
    assert (default.least(SMALL), given.least(SMALL)) == (16 * MIB, 64 * MIB)
    assert (default.resume(SMALL), given.resume(SMALL)) == (32 * MIB, 128 * MIB)


def test_the_larger_of_both_limits_counts() -> None:
    limits = SpaceLimits(64 * MIB, usage_max=0.9, usage_resume=0.8, usage_warn=0.7)
    share = LARGE.size // 100
    assert limits.least(LARGE) == pytest.approx(10 * share, rel=1e-6)
    assert limits.resume(LARGE) == pytest.approx(20 * share, rel=1e-6)
    assert limits.low(LARGE) == pytest.approx(30 * share, rel=1e-6)
    assert SpaceLimits(20 * GIB, usage_max=0.9).least(LARGE) == 20 * GIB

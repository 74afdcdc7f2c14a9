from __future__ import annotations

import numpy as np
import pytest

from recovery.audit.spark.pushdown import EVERYTHING, IdFilter


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (EVERYTHING, [1, 2, 3, 4, 5]),
        (EVERYTHING.at_least(2).at_least(1), [2, 3, 4, 5]),
        (EVERYTHING.at_most(4).at_most(9).at_least(3), [3, 4]),
        (EVERYTHING.one_of((5, 1, 9)), [1, 5]),
        (EVERYTHING.one_of((5, 1)).one_of((1, 2)), [1]),
        (EVERYTHING.one_of((5, 1)).at_least(2), [5]),
        (EVERYTHING.one_of(()), []),
    ],
    ids=["everything", "from", "between", "among", "twice among", "among and from", "nothing"],
)
def test_ids_are_chosen_one_by_one_and_in_arrays(choice: IdFilter, chosen: list[int]) -> None:
    ids = np.arange(1, 6)
    mask = choice.mask(ids)
    assert [number for number in ids.tolist() if number in choice] == chosen
    assert (ids if mask is None else ids[mask]).tolist() == chosen


def test_everything_needs_no_mask() -> None:
    assert IdFilter().mask(np.arange(3)) is None

"""A store that a crash has left half made is made to its end."""

from __future__ import annotations

import errno

import pytest
from file_index import FileIndexPlace

from recovery.crashlab import Refused, SimulatedDisk, Verb, When
from recovery.directory.layout import Layout, create_store
from storage.disk import cookie
from storage.disk.cookie_format import Cookie


@pytest.mark.parametrize("nth", [1, 2])
def test_both_cookies_have_one_instance_id_also_if_an_error_came_between_them(nth: int) -> None:
    disk = SimulatedDisk()
    layout = Layout(disk.root())
    place = FileIndexPlace(layout.ledgers)
    disk.plant(Refused(When(verb=Verb.CREATE, name="*VERSION*", nth=nth), errno.EIO))
    with pytest.raises(OSError, match="VERSION"):
        create_store(layout, place, lambda: "1" * 32)
    create_store(layout, place, lambda: "2" * 32)
    found = [cookie.load(one) for one in (layout.journal, layout.ledgers)]
    ids = [one.instance_id for one in found if isinstance(one, Cookie)]
    assert ids == [str(3 - nth) * 32] * 2

"""What holds for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from sparks import need_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# The same examples in every run: what fails here fails for everybody.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: begun last, one would keep a single processor busy while the others rest."""
    items.sort(key=_seconds, reverse=True)


def _seconds(item: pytest.Item) -> int:
    mark = item.get_closest_marker("slow")
    return mark.kwargs.get("seconds", 0) if mark is not None else 0


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all tests of a process; modules that use it have `pytestmark = sparks.MARKS`."""
    need_spark()
    from recovery.audit.sources import register
    from recovery.audit.spark.session import open_session

    session = open_session("local[2]")
    register(session)
    yield session
    session.stop()

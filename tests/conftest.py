"""Settings of all tests: the same examples in every run, the order, and the limit of a fast test."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import crc32c
import pytest
import sampling
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from spark_session import need_spark

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql import SparkSession

# The same examples in every run, so that a failure here is a failure everywhere.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
# Hypothesis also draws numbers and texts that are in the sources of the imported modules. Then the examples
# would depend on which tests run together, and each process would read a thousand sources before the first.
pytest.MonkeyPatch().setattr(providers, "_get_local_constants", Constants, raising=False)

FAST_CPU_S = 0.5
"""Seconds of processor time that a test of `make test` may take, its child processes included.

Fixtures are not counted, because the first test that uses one would pay for all. Processor time and not wall
time, so that a test does not fail because the machine is busy. On a machine whose processor is slower than
that of a laptop of 2020, set TEST_CPU_FACTOR: the limit is multiplied by it."""

CPU_FACTOR = float(os.environ.get("TEST_CPU_FACTOR", "1"))
UNLIMITED = ("slow", "spark", "docs", "bench")
"""The markers of tests that `make test` does not run; each has its own target in the Makefile."""


@pytest.fixture(scope="session", autouse=True)
def _unicode_tables() -> None:
    """Have Hypothesis make its tables of Unicode before any test, because that takes a second."""

    @settings(max_examples=1, database=None)
    @given(st.text())
    def draw(_: str) -> None:
        pass

    draw()


ID_SIZE_MAX = 100


def pytest_make_parametrize_id(val: object) -> str | None:
    """Give a long text or long bytes a short id.

    A test's name goes from process to process several times, and with ids of megabytes `make test` takes a
    third longer.
    """
    if isinstance(val, str | bytes) and len(val) > ID_SIZE_MAX:
        checksum = crc32c.crc32c(val.encode() if isinstance(val, str) else val)
        return f"{len(val)}-{type(val).__name__}-{checksum:x}"
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw the samples of tables, and put the longest tests first.

    A long test that began last would keep one processor busy while the others rest.
    """
    left_out = sampling.left_out(items)
    config.hook.pytest_deselected(items=left_out)
    names = {one.nodeid for one in left_out}
    items[:] = [one for one in items if one.nodeid not in names]
    items.sort(key=sampling.seconds, reverse=True)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all tests again and again, at some test's cost."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the garbage collector have them at the end: DuckDB reports what is left of its objects then."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test without a marker that takes too much processor time."""
    before = _cpu_s()
    result = yield
    taken = _cpu_s() - before
    if taken > FAST_CPU_S * CPU_FACTOR and not _is_unlimited(item):
        pytest.fail(
            f"it took {taken:.2f} s of processor time, and a test of `make test` may take {FAST_CPU_S} s:"
            " make it cheaper, let it sample its sweep (tests/support/sampling.py), or mark it `slow`",
            pytrace=False,
        )
    return result


def _is_unlimited(item: pytest.Item) -> bool:
    is_whole_sweep = sampling.IS_WHOLE and item.get_closest_marker("sampled") is not None
    return is_whole_sweep or any(item.get_closest_marker(name) is not None for name in UNLIMITED)


def _cpu_s() -> float:
    """Processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of a process; modules that use it have `pytestmark = sparks.MARKS`."""
    need_spark()
    from recovery.audit.spark.data_sources import register
    from recovery.audit.spark.session import open_session

    session = open_session("local[2]")
    register(session)
    yield session
    session.stop()

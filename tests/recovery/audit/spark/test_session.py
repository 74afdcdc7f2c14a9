from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import spark_session
from spark_session import need_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = spark_session.MARKS


def test_an_active_session_is_used_as_it_is(spark: SparkSession) -> None:
    from recovery.audit.spark.session import open_session

    assert open_session("local[7]") is spark
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    again = open_session("local[7]")
    assert again.sparkContext.master == "local[2]"
    assert again.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_workers_have_this_python_and_import_what_can_be_imported_here(spark: SparkSession) -> None:
    def paths_of_worker(_: int) -> tuple[str, str]:
        import recovery

        return sys.executable, str(recovery.__file__)

    import recovery

    found = spark.sparkContext.parallelize([0], 1).map(paths_of_worker).collect()
    assert found == [(sys.executable, recovery.__file__)]


def test_launching_java_does_not_change_the_environment(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == sys.executable
    assert not {"PYTHONSAFEPATH", "SPARK_LOCAL_IP", "PYSPARK_PYTHON"} & os.environ.keys()


STARTED = """
import json, sys
from recovery.audit.spark.java import SparkUnavailable
from recovery.audit.spark.session import open_session

try:
    session = open_session(*json.loads(sys.argv[1]))
except SparkUnavailable as why:
    print("unavailable:", why)
else:
    print(session.sparkContext.parallelize(range(10), 2).map(lambda one: one * one).sum())
    session.stop()
"""


def started(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own that opens a session and evaluates an expression in it."""
    return subprocess.run(
        [sys.executable, "-c", STARTED, json.dumps(arguments)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("size", "number"), [(39, 0), (40, 1)], ids=["the user's own", "the one that all have"]
)
def test_sockets_are_where_their_paths_are_not_too_long(size: int, number: int) -> None:
    pytest.importorskip("pyspark")
    from recovery.audit.spark.session import sockets_base

    candidates = ("/" + "x" * (size - 1), "/tmp")
    assert sockets_base(candidates) == candidates[number]
    assert sockets_base(candidates[:number]) is None


def test_a_ctrl_c_while_java_starts_waits_until_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    need_spark()
    from pyspark import SparkConf

    from recovery.audit.spark import launch

    started = []

    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        started.append("java")

    monkeypatch.setattr(launch, "launch_gateway", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        launch.launch(SparkConf(loadDefaults=False).setMaster("yarn"))
    assert started == ["java"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_only_the_answer_is_printed_and_nothing_is_left(tmp_path: Path) -> None:
    need_spark()
    done = started("local[2]", TMPDIR=str(tmp_path))
    assert (done.stdout, done.stderr) == ("285\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_very_first_run_makes_the_archive(tmp_path: Path) -> None:
    need_spark()
    done = started("local[2]", XDG_CACHE_HOME=str(tmp_path))
    assert (done.stdout, done.stderr) == ("285\n", "")
    # Java writes the archive when it ends, and no process waits for that.
    assert [path.suffix for path in (tmp_path / "ledgerstore").glob("*")] in ([], [".jsa"])


def test_a_spark_that_does_not_start_says_why_in_one_line() -> None:
    need_spark()
    done = started("local[2]", {"spark.driver.memory": "many"})
    assert done.stdout.startswith("unavailable: Spark did not start: ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_without_java_one_line_says_what_to_install() -> None:
    pytest.importorskip("pyspark")
    done = started("local[2]", PATH="/nowhere", JAVA_HOME="")
    assert done.stdout.startswith(
        "unavailable: Spark needs Java 17 or newer, but none was found; to install one"
    )
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


LINGERING = """
import sys
from recovery.audit.spark.engine import SparkEngine
from recovery.audit.spark.session import open_session
from spark_tasks import HangingTask

try:
    list(SparkEngine(open_session("local[2]")).run([HangingTask(sys.argv[1])], print))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_the_job_and_its_workers(tmp_path: Path) -> None:
    need_spark()
    os.mkfifo(tmp_path / "pipe")
    paths = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", LINGERING, str(tmp_path / "pipe")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as process:
        with (tmp_path / "pipe").open("rb") as pipe:
            assert pipe.read(1) == b"!"
            process.send_signal(signal.SIGINT)
            assert pipe.read() == b""
        assert process.communicate() == ("interrupted\n", "")

"""Executors that are processes of their own, as on a cluster, and what `spark-submit` starts there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import small_stores
from sparks import need_spark

ROOT = Path(__file__).parents[4]
MASTER = "local-cluster[2,1,1024]"
SCRIPT = ROOT / "tests/support/on_a_cluster.py"
ROWS = [[8, small_stores.ENTRIES], [9, small_stores.ENTRIES]]

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_spark()
    return small_stores.make(tmp_path_factory.mktemp("cluster") / "store")


def said(directory: Path, *command: str | Path) -> dict[str, Any]:
    """What the program says, run where nothing of ours lies."""
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=directory,
        env={
            **os.environ,
            "SPARK_HOME": str(own_home(directory)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def own_home(directory: Path) -> Path:
    """Spark as it is installed, but that its executors work in a directory of this test's own."""
    import pyspark

    home = directory / "spark"
    home.mkdir()
    for one in Path(str(pyspark.__file__)).parent.iterdir():
        if one.name != "work":
            (home / one.name).symlink_to(one)
    return home


def test_code_and_tasks_reach_executors(store: Path, tmp_path: Path) -> None:
    told = said(tmp_path, sys.executable, SCRIPT, store, MASTER)
    assert told["engine"].endswith(f" on {MASTER}")
    # The code that was sent, and not what happens to be installed here.
    assert [path.rpartition("/recovery/")[0].rpartition("/")[2] for path in told["code"]] == [
        "ledgerstore.zip"
    ]
    assert told["processes"] == 2
    assert told["stays"]
    assert told["rows"] == ROWS


def test_what_spark_submit_is_given_is_enough(store: Path, tmp_path: Path) -> None:
    from recovery.audit.spark.shipping import pack

    pack(tmp_path / "given.zip")
    submit = Path(sys.executable).parent / "spark-submit"
    tasks = ROOT / "tests/support/spark_tasks.py"
    told = said(
        tmp_path,
        submit,
        *("--master", MASTER, "--conf", "spark.executor.memory=512m"),
        *("--py-files", f"{tmp_path / 'given.zip'},{tasks}"),
        SCRIPT,
        store,
    )
    assert told["driver"] == "given.zip"
    assert [path.rpartition("/recovery/")[0].rpartition("/")[2] for path in told["code"]] == ["given.zip"]
    assert told["rows"] == ROWS

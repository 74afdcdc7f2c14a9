"""Executors in processes of their own, as on a cluster, and programs started by `spark-submit`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import small_stores
from spark_session import need_spark, own_home

ROOT = Path(__file__).parents[4]
MASTER = "local-cluster[2,1,1024]"
SCRIPT = ROOT / "tests/support/run_on_cluster.py"
ROWS = [[8, small_stores.ENTRIES], [9, small_stores.ENTRIES]]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_spark()
    return small_stores.make(tmp_path_factory.mktemp("cluster") / "store")


def output_of(directory: Path, *command: str | Path) -> dict[str, Any]:
    """Return what the program prints when it is run without access to this code."""
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
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return output


def test_code_and_tasks_reach_executors(store: Path, tmp_path: Path) -> None:
    output = output_of(tmp_path, sys.executable, SCRIPT, store, MASTER)
    assert output["engine"].endswith(f" on {MASTER}")
    # The code that was sent is used, and not an installed version.
    assert [path.rpartition("/recovery/")[0].rpartition("/")[2] for path in output["code"]] == [
        "ledgerstore.zip"
    ]
    assert output["processes"] == 2
    assert output["stays"]
    assert output["rows"] == ROWS


def test_the_arguments_of_spark_submit_are_enough(store: Path, tmp_path: Path) -> None:
    from recovery.audit.spark.session import pack

    pack(tmp_path / "given.zip")
    submit = Path(sys.executable).parent / "spark-submit"
    tasks = ROOT / "tests/support/spark_tasks.py"
    output = output_of(
        tmp_path,
        submit,
        *("--master", MASTER, "--conf", "spark.executor.memory=512m"),
        *("--py-files", f"{tmp_path / 'given.zip'},{tasks}"),
        SCRIPT,
        store,
    )
    assert output["driver"] == "given.zip"
    assert [path.rpartition("/recovery/")[0].rpartition("/")[2] for path in output["code"]] == ["given.zip"]
    assert output["rows"] == ROWS

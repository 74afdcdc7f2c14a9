"""`make audit-cluster`: one audit on five engines, which have to agree about every finding.

One process; Spark on this machine; a cluster with two workers on loopback, an executor of which is killed
while it runs a task; a server of Spark Connect; and the cluster again, with all runs and queries on its
executors. The event log of the last one has to show the joins of the checks as stages with shuffles, and no
large result that came to the driver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import audit_demo
from spark_session import own_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = Path(__file__).with_name("audit_on_engine.py")
RESULT_MAX = 10_000_000
WORKERS = 2
WAIT_S = 600


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="audit-cluster-") as directory, ExitStack() as held:
        place = Path(directory)
        for number, name in enumerate(audit_demo.NAMES):
            audit_demo.build(place / name, number, place / "running")
        list(audit_demo.damaged(place))
        (place / "ensembles.json").write_text(json.dumps(audit_demo.ensembles()))
        expected = findings(place, "serial")
        kinds = sorted({one["kind"] for one in expected})
        print(f"one process: {len(expected)} findings of the kinds {', '.join(kinds)}", flush=True)
        master = held.enter_context(cluster(place, own_home(place)))
        (place / "events").mkdir()
        engines: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "Spark on this machine": lambda: findings(place, "local[2]"),
            "a cluster that loses an executor": lambda: with_a_kill(place, master),
            "Spark Connect": lambda: findings(place, "connect"),
            "a cluster whose executors keep all runs": lambda: findings(
                place, master, "--events", str(place / "events")
            ),
        }
        is_right = bool(expected)
        for name, found in engines.items():
            is_same = found() == expected
            print(f"{name}: {'the same findings' if is_same else 'OTHER FINDINGS'}", flush=True)
            is_right &= is_same
        return 0 if is_right & recorded(place / "events") else 1


def findings(place: Path, master: str, *options: str) -> list[dict[str, Any]]:
    process = started(place, master, *options)
    return result_of(process)


def started(place: Path, master: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(place), master, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )


def result_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    output, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors)
    found: list[dict[str, Any]] = json.loads(output.splitlines()[-1])["findings"]
    return found


# ── a cluster on loopback ────────────────────────────────────────────────────────────────────────────────


@contextmanager
def cluster(place: Path, home: Path) -> Iterator[str]:
    """Yield the URL of a master with two workers of one processor each."""
    with ExitStack() as held:
        log = place / "master.log"
        held.enter_context(daemon(home, log, "master.Master", "--port", "0", "--webui-port", "0"))
        url = "spark://" + awaited(log, "Starting Spark master at spark://")
        for number in range(WORKERS):
            log = place / f"worker{number}.log"
            options = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", f"{place}/work")
            held.enter_context(daemon(home, log, "worker.Worker", *options, url))
            awaited(log, "Successfully registered with master ")
        yield url


@contextmanager
def daemon(home: Path, log: Path, name: str, *options: str) -> Iterator[None]:
    from recovery.audit.spark.java import find_java

    command = [
        str(home / "bin/spark-class"),
        f"org.apache.spark.deploy.{name}",
        "--host",
        "127.0.0.1",
        *options,
    ]
    environment = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(find_java().home)}
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def awaited(log: Path, words: str) -> str:
    """Return what follows the words in the log, once they are there."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = log.read_text().partition(words)[2]
        if "\n" in found:
            return found.split()[0]
        time.sleep(0.1)
    raise SystemExit(log.read_text())


def with_a_kill(place: Path, master: str) -> list[dict[str, Any]]:
    """Return the findings of an audit one of whose executors is killed while it runs a task."""
    pause = place / "pause"
    pause.mkdir()
    os.mkfifo(pause / "pipe")
    process = started(place, master, "--pause", str(pause))
    end = time.monotonic() + WAIT_S
    while not (pause / "process").exists() or not (pause / "process").read_text():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"no task began: {result_of(process)}")
        time.sleep(0.1)
    worker = int((pause / "process").read_text())
    os.kill(executor_of(worker), signal.SIGKILL)
    # The worker waits for the pipe, and would outlive its executor.
    os.kill(worker, signal.SIGKILL)
    return result_of(process)


def executor_of(process: int) -> int:
    """Return the Java process that a Python worker belongs to."""
    while b"CoarseGrainedExecutorBackend" not in (Path("/proc") / str(process) / "cmdline").read_bytes():
        process = int((Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
    return process


# ── Spark's own record of the run ────────────────────────────────────────────────────────────────────────


def recorded(place: Path) -> bool:
    """Print what the event log shows, and return whether it is as it should be."""
    (path,) = place.iterdir()
    with path.open() as lines:
        events = [json.loads(line) for line in lines]
    results: dict[int, int] = {}
    shuffled = set()
    for event in events:
        if event["Event"] != "SparkListenerTaskEnd" or "Task Metrics" not in event:
            continue
        metrics, stage = event["Task Metrics"], event["Stage ID"]
        if event["Task Type"] == "ResultTask":
            results[stage] = results.get(stage, 0) + metrics["Result Size"]
        read = metrics["Shuffle Read Metrics"]
        if read["Local Bytes Read"] + read["Remote Bytes Read"]:
            shuffled.add(stage)
    words = [
        event["Properties"].get("spark.job.description", "")
        for event in events
        if event["Event"] == "SparkListenerJobStart"
    ]
    scans = [one for one in words if one.startswith("ledgerstore audit: ")]
    largest = max(results.values())
    print(f"the event log: {len(words)} jobs, {len(shuffled)} stages that read shuffled rows;")
    print(f"the largest result of a stage that the driver received: {largest:,} bytes; {scans[0]!r}")
    return largest < RESULT_MAX and len(shuffled) > 1 and bool(scans)


if __name__ == "__main__":
    raise SystemExit(main())

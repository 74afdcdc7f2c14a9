"""Run the fast tests on another version of Python: `run_on_python.py 3.12`, as `make test-3.12` does.

`--set-up` makes its environment and runs nothing; other options are for pytest. With SINGLE_ROWS=1 one row
of each table runs (`sampling.py`), because a version of Python rarely matters to a single row.

The interpreter is `python3.12` on the PATH, or one of pyenv's. If there is none, this prints so and exits
with 0, or with 1 if REQUIRE_PYTHONS=1 is set. The virtual environment `.venv-3.12` has only what the fast
tests need, and no Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DEPENDENCIES = ("setup.cfg", "constraints.txt")


def main(version: str, *options: str) -> int:
    interpreter = _interpreter(version)
    if interpreter is None:
        print(f"NOT RUN: there is no python{version} here, so nothing was tested on it", file=sys.stderr)
        return int(os.environ.get("REQUIRE_PYTHONS") == "1")
    environment = ROOT / f".venv-{version}"
    _set_up(interpreter, environment)
    if "--set-up" in options:
        return 0
    command = [str(environment / "bin" / "pytest"), "-q", "-n", "auto", "--dist", "worksteal", *options]
    # The time limit of a test is checked by `make test` only.
    unlimited = {**os.environ, "TEST_CPU_FACTOR": "1000"}
    return subprocess.run(command, cwd=ROOT, env=unlimited, check=False).returncode


def _interpreter(version: str) -> str | None:
    """Return the path of a working interpreter of that version."""
    candidates = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [str(one) for one in sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)]
    # A pyenv shim on the PATH fails unless its version is selected.
    return next((one for one in candidates if one is not None and _version(one) == version), None)


def _version(interpreter: str) -> str:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([interpreter, "-c", ask], check=False, capture_output=True, text=True)
    return done.stdout.strip()


def _set_up(interpreter: str, environment: Path) -> None:
    ready = environment / ".ready"
    changed = max((ROOT / name).stat().st_mtime for name in DEPENDENCIES)
    if ready.exists() and ready.stat().st_mtime >= changed:
        return
    subprocess.run([interpreter, "-m", "venv", environment], check=True)
    install = [
        str(environment / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "-c",
        "constraints.txt",
    ]
    subprocess.run([*install, "--disable-pip-version-check", "-e", ".[test]"], cwd=ROOT, check=True)
    ready.touch()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

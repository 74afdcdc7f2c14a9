"""See that there is a Java for the Spark tests, installed by the system's package manager where that may be.

Ends with 0 where there is one then. Run by `make java`, and by `make test` before the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from recovery.audit.spark.java import Java, SparkUnavailable, find_java, install_command


def main() -> int:
    try:
        java = _found()
    except SparkUnavailable as missing:
        print(f"the Spark tests are not run: {missing}", file=sys.stderr)
        return 1
    print(f"Java {java.build} in {java.home}")
    return 0


def _found() -> Java:
    try:
        return find_java()
    except SparkUnavailable:
        _install()
        return find_java()


def _install() -> None:
    """Only where nobody is asked: by root, and by a package manager that is there."""
    command = install_command()
    if command is None or os.geteuid() != 0 or shutil.which(command[0]) is None:
        return
    if command[0] == "apt-get":
        subprocess.run(["apt-get", "update", "-qq"], check=False, stdout=subprocess.DEVNULL)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())

"""Find a Java for the Spark tests, or install one with the system's package manager if that is possible.

Exit with 0 if there is a Java afterwards. Run by `make java`, and by `make test` before the tests."""

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
    """Install Java, but only as root and with an installed package manager, so that no question is asked."""
    command = install_command()
    if command is None or os.geteuid() != 0 or shutil.which(command[0]) is None:
        return
    if command[0] == "apt-get":
        subprocess.run(["apt-get", "update", "-qq"], check=False, stdout=subprocess.DEVNULL)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())

"""A Pulsar broker as a process that answers commands about its topics."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any

from bookies import DIRECTORY
from jvm import PULSAR, classpath, tool

from storage.cluster.metadata.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPENED = ("java.nio", "java.io", "java.util.zip", "sun.net", "jdk.internal.misc")
_JVM_OPTIONS = (
    *("-Xmx1200m", "-XX:MaxDirectMemorySize=800m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Djava.net.preferIPv4Stack=true",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
)
_COMMAND_S = 300


def broker_program(uri: str, program: str, *arguments: str) -> list[str]:
    """Return the command of a program that has a broker on the metadata of the cluster."""
    command = [tool("java"), *_JVM_OPTIONS, "-cp", f"{PULSAR.made / 'classes'}:{classpath(PULSAR)}"]
    return [*command, program, ",".join(parse_address(uri).hosts), *arguments]


class BrokerRefused(AssertionError):
    """The broker has answered a command with an exception."""


class TopicsBroker:
    """A running `Topics`: a broker and a client, which know nothing of the messages."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self, command: str, topic: str = "", /, **arguments: object) -> dict[str, Any]:
        """Give a command, and return its answer."""
        assert self._process.stdin is not None
        asked = {"do": command, **({"topic": topic} if topic else {}), **arguments}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answer = self.next_answer()
        if "error" in answer:
            raise BrokerRefused(f"{command} {topic}: {answer['error']}")
        return answer

    def next_answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        limit = Timer(_COMMAND_S, self._process.kill)
        limit.start()
        try:
            line = self._process.stdout.readline()
        finally:
            limit.cancel()
        if not line:
            raise AssertionError(f"the broker has ended, or has not answered for {_COMMAND_S} s")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Let the broker close its topics, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_COMMAND_S)


@contextmanager
def topics_broker(uri: str, name: str, **settings: object) -> Iterator[TopicsBroker]:
    """Run a broker with these settings on the metadata of the cluster. Its log is `name`.log."""
    given = [f"{key}={value}" for key, value in settings.items()]
    with ExitStack() as held:
        process = subprocess.Popen(
            broker_program(uri, "interop.Topics", *given),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=held.enter_context((DIRECTORY / f"{name}.log").open("wb")),
        )
        held.enter_context(process)
        held.callback(process.kill)
        running = TopicsBroker(process)
        running.next_answer()
        yield running

"""The driver of a machine ends its waits."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from storage.cluster.client.driver import MachineDriver
from storage.cluster.client.effects import Wait


class WaitingMachine:
    """A machine that only waits."""

    def __init__(self) -> None:
        self.waits_ended = 0

    def waited(self) -> list[Any]:
        self.waits_ended += 1
        return []


def test_a_stopped_machine_has_no_wait_left_and_another_goes_on() -> None:
    async def main() -> None:
        machines = [WaitingMachine(), WaitingMachine()]
        drivers = [MachineDriver(cast("Any", None), 7, cast("Any", one)) for one in machines]
        for driver in drivers:
            driver.perform([Wait(0.01)])
        drivers[0].stop()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.02, ended.set_result, None)  # after the waits
        await ended
        assert [one.waits_ended for one in machines] == [0, 1]
        drivers[1].stop()  # its wait is over

    asyncio.run(main())

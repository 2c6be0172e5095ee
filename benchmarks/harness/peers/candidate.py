"""A measured service: its requests, and the processor time of its replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import psutil

from app.commands.demo.failed import Failed
from app.commands.demo.load import LoadLane, LoadPlan, LoadProcess
from benchmarks.harness.peers.operations import Operation, Requests, check_reply
from benchmarks.harness.wire import Wire

__all__ = ["Address", "Candidate", "Throughput", "processor_s"]

_TICK_S: Final = 0.01
"""The resolution of the kernel's account of processor time."""


class Address(NamedTuple):
    """Where a service listens.

    Attributes:
        pid: The root of its processes.
    """

    host: str
    port: int
    pid: int


class Throughput(NamedTuple):
    """Successful requests per second, and requests per second of processor time."""

    rate: float
    per_core: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running service.

    Attributes:
        error: The text in a body that reports an error despite a status of success; None: its
            statuses report all errors.
        version: Its name and version, with those of its platform.
    """

    address: Address
    requests: Requests
    version: str
    error: bytes | None = None

    async def rehearse(self) -> None:
        """Send every request once, in the order of the operations, and check each reply.

        Raises:
            Failed: A reply is not the expected one.
        """
        async with Wire(self.address.host, self.address.port) as wire:
            with self._with_name():
                for operation, requests in self.requests.items():
                    for request in requests:
                        check_reply(operation, await wire.send(request), self.error)

    async def drive(
        self, load: LoadProcess, operation: Operation, connections: int, seconds: float
    ) -> Throughput:
        """Send the requests of an operation repeatedly.

        Raises:
            Failed: A reply reports an error.
        """
        lane = LoadLane(self.requests[operation], connections, error=self.error)
        plan = LoadPlan(self.address.host, self.address.port, [lane], seconds)
        before_s = processor_s(self.address.pid)
        with self._with_name():
            (result,) = await load.drive(plan)
        spent_s = max(processor_s(self.address.pid) - before_s, _TICK_S)
        # All requests count: those before and after the window have also taken processor time.
        return Throughput(result.rate, result.acknowledged / spent_s)

    @contextmanager
    def _with_name(self) -> Iterator[None]:
        try:
            yield
        except Failed as failure:
            raise Failed(f"{self.version}: {failure}") from failure


def processor_s(pid: int) -> float:
    """Return the processor time of a process and its descendants (seconds).

    Descendants have to outlive the measurement: ended ones are not counted.
    """
    process = psutil.Process(pid)
    times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
    return sum(float(time.user + time.system) for time in times)

"""A service that is measured: what it is sent, and the processor time that its replies take."""

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
        pid: The process that all of its others descend from.
    """

    host: str
    port: int
    pid: int


class Throughput(NamedTuple):
    """Requests per second that passed, and requests per second of processor time."""

    rate: float
    per_core: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A service that runs.

    Attributes:
        error: What the body of a reply holds that reports an error with a status of success;
            None: its statuses report all errors.
        version: Its name and version, with those of what it runs on.
    """

    address: Address
    requests: Requests
    version: str
    error: bytes | None = None

    async def rehearse(self) -> None:
        """Send every request once, in the order of the operations, and check each reply.

        Raises:
            Failed: A reply is not what was asked for.
        """
        async with Wire(self.address.host, self.address.port) as wire:
            with self._named():
                for operation, requests in self.requests.items():
                    for request in requests:
                        check_reply(operation, await wire.send(request), self.error)

    async def drive(
        self, load: LoadProcess, operation: Operation, connections: int, seconds: float
    ) -> Throughput:
        """Send the requests of an operation, again and again.

        Raises:
            Failed: A reply reports an error.
        """
        lane = LoadLane(self.requests[operation], connections, error=self.error)
        plan = LoadPlan(self.address.host, self.address.port, [lane], seconds)
        before_s = processor_s(self.address.pid)
        with self._named():
            (result,) = await load.drive(plan)
        spent_s = max(processor_s(self.address.pid) - before_s, _TICK_S)
        # Of all requests, as the time is: those before and after the window have taken it, too.
        return Throughput(result.rate, result.acknowledged / spent_s)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except Failed as failure:
            raise Failed(f"{self.version}: {failure}") from failure


def processor_s(pid: int) -> float:
    """Return how much processor time a process and those below it took, in seconds.

    Those below it have to outlive what is measured: what has ended is not counted.
    """
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(float(each.user + each.system) for each in times)

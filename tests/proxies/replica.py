"""A replica of the service whose steps can be stopped, in this process or in one to be killed.

A separate process first reports its address over its connection. `arm STEP` then makes the next
such step wait, which the process reports by `at STEP`; `go` lets it continue.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal, TypeAlias

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from app.coherence.caches import Caches
from app.settings.main import CacheSettings
from mediator.base.clock import SystemClock
from mediator.stores.port import SystemConfig
from sketch.filter.shape import FilterShape
from sketch.protocol.port import (
    BeginResult,
    EndResult,
    Partition,
    Purge,
    ResultChanges,
    SketchLimits,
)
from sketch.redis.server import RedisSketch
from sketch.ttl import Static
from tests.faults.operation.forked import calling, connected
from tests.process.caching.serving import served
from tests.process.service import Service, service

Step: TypeAlias = Literal["begin", "begun", "stored", "ended", "purge taken", "purge sent", "read"]
Reach: TypeAlias = Callable[[Step], Awaitable[None]]


@dataclass
class Plan:
    """The stores of a replica, and the error of its clock (seconds)."""

    systems: list[dict[str, Any]]
    catalogue_url: str
    sketch_url: str
    namespace: str
    purge: list[dict[str, str]] = field(default_factory=list)
    skew_s: float = 0.0
    lease_s: float = 3.0
    purge_repeat_s: float = 2.0


@dataclass
class Barriers:
    """Stops the next step of an armed kind."""

    reached: Callable[[Step], None] = lambda step: None
    armed: set[Step] = field(default_factory=set)
    stopped: asyncio.Queue[Step] = field(default_factory=asyncio.Queue)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def arm(self, step: Step) -> None:
        self.opened.clear()
        self.armed.add(step)

    def open(self) -> None:
        """Release the stopped step, and stop no further ones."""
        self.armed.clear()
        self.opened.set()

    async def reach(self, step: Step) -> None:
        if step in self.armed:
            self.armed.discard(step)
            self.reached(step)
            self.stopped.put_nowait(step)
            await self.opened.wait()


class SteppedSketch(RedisSketch):
    """The sketch in Redis, between whose calls a test can stop."""

    reach: Reach

    async def begin(self, partition: Partition, keys: Sequence[str], token: str) -> BeginResult:
        await self.reach("begin")
        result = await super().begin(partition, keys, token)
        await self.reach("begun")
        return result

    async def end(
        self,
        partition: Partition,
        token: str,
        versions: Mapping[str, int],
        changes: ResultChanges | None = None,
    ) -> EndResult:
        await self.reach("stored")
        result = await super().end(partition, token, versions, changes)
        await self.reach("ended")
        return result

    async def take_purges(self, partitions: Sequence[Partition], limit: int) -> list[Purge]:
        purges = await super().take_purges(partitions, limit)
        if purges:
            await self.reach("purge taken")
        return purges

    async def acknowledge_purges(self, purges: Sequence[Purge]) -> None:
        await self.reach("purge sent")
        await super().acknowledge_purges(purges)


class SkewedClock(SystemClock):
    """A wall clock that is wrong."""

    def __init__(self, skew_s: float) -> None:
        self._skew_s = skew_s

    def now(self) -> float:
        return super().now() + self._skew_s


@dataclass
class Replica:
    """A replica that runs in this process."""

    url: str
    running: Service
    sketch: SteppedSketch
    barriers: Barriers


@asynccontextmanager
async def replica(plan: Plan, barriers: Barriers) -> AsyncIterator[Replica]:
    """Run a replica on a port that the kernel picks."""
    settings = CacheSettings.model_validate(
        {"purge": plan.purge, "purge_repeat_s": plan.purge_repeat_s, "write_lease_s": plan.lease_s}
    )
    limits = SketchLimits(
        max_ttl_s=settings.cache_max_ttl_s,
        margin_s=settings.cache_margin_s,
        lease_s=plan.lease_s,
        purge_repeat_s=plan.purge_repeat_s if plan.purge else None,
    )
    clock = SkewedClock(plan.skew_s)
    sketch = SteppedSketch(plan.sketch_url, limits, FilterShape(), plan.namespace, timeout_s=10.0)
    sketch.reach = barriers.reach
    caches = Caches(settings, sketch, Static(), clock=clock)
    systems = [SystemConfig(**system) for system in plan.systems]
    async with service(systems, plan.catalogue_url, guard=caches.guard, clock=clock) as running:
        caches.start(
            running.mediator.orphan_resolver,
            lambda: running.mediator.data.model,
            running.mediator.control.databases,
        )
        options = DataOptions(b"k" * 32, sketch_valid_s=60.0)
        api = DataApi(
            running.mediator.data, options, running.observed.append, DataServices(caches=caches)
        )

        async def answer_in_steps(scope: Any, receive: Any, send: Any) -> None:
            async def send_in_steps(message: Any) -> None:
                if scope["method"] == "GET" and message["type"] == "http.response.start":
                    await barriers.reach("read")
                await send(message)

            # A direct response would bypass the barrier.
            await api({**scope, "extensions": {}}, receive, send_in_steps)

        async with served(answer_in_steps) as url:
            yield Replica(url, running, sketch, barriers)
        await caches.stop()
    await caches.close()


class Stoppable:
    """A replica in a separate process."""

    def __init__(
        self, process: BaseProcess, reports: asyncio.StreamReader, commands: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reports = reports
        self._commands = commands
        self.url = ""

    async def arm(self, step: Step) -> None:
        """Make the next such step wait."""
        self._commands.write(f"arm {step}\n".encode())
        await self._commands.drain()
        assert await self.line() == f"armed {step}"

    async def at(self, step: Step) -> None:
        """Wait until it has reached a step."""
        assert await self.line() == f"at {step}"

    async def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        await asyncio.to_thread(self._process.join)

    async def line(self) -> str:
        return (await self._reports.readline()).decode().strip()


@asynccontextmanager
async def stoppable(plan: Plan) -> AsyncIterator[Stoppable]:
    """Run a replica in a separate process, and kill it at the end."""
    ours, theirs = connected()
    reports, commands = await asyncio.open_connection(sock=ours)
    try:
        async with calling(_run, plan, theirs) as process:
            theirs.close()
            started = Stoppable(process, reports, commands)
            started.url = await started.line()
            assert started.url
            yield started
    finally:
        commands.close()


def _run(plan: Plan, connection: Connection) -> None:
    asyncio.run(_serve(plan, socket.socket(fileno=os.dup(connection.fileno()))))


async def _serve(plan: Plan, connection: socket.socket) -> None:
    commands, reports = await asyncio.open_connection(sock=connection)

    def report(line: str) -> None:
        reports.write(f"{line}\n".encode())

    barriers = Barriers(lambda step: report(f"at {step}"))
    async with replica(plan, barriers) as started:
        report(started.url)
        while line := (await commands.readline()).decode().strip():
            command, _, step = line.partition(" ")
            if command == "arm":
                barriers.arm(step)  # type: ignore[arg-type]  # the name comes from the test
                report(f"armed {step}")
            else:
                barriers.open()

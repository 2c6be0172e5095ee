"""Faults during a soak test, and their repair."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Final

import psutil

from benchmarks.harness.instances import Instance
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.port import Kind

__all__ = ["Faults", "Stage"]

_DOWN_S: Final = 2.0
_SLOW_FOR_S: Final = 4.0
_STOPPED_S: Final = 0.2
_GONE_WITHIN_S: Final = 30.0
_RELAYS: Final = "app.service.relays"


@dataclass(frozen=True, slots=True)
class Stage:
    """The servers, their directory, and the replicas of the service on them.

    Attributes:
        steady: The replica that is never restarted, so that a leak shows.
    """

    directory: Path
    fleet: EmbeddedFleet
    steady: Instance
    restarted: Instance

    @property
    def replicas(self) -> Sequence[Instance]:
        return (self.steady, self.restarted)

    def processes(self, kind: Kind) -> list[psutil.Process]:
        (file,) = (self.directory / kind).rglob("server.pid")
        server = psutil.Process(int(file.read_text()))
        return [server, *server.children(recursive=True)]


class Faults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        kinds = sorted(stage.fleet.endpoints)
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            **{f"{kind} killed": partial(self._kill_store, kind) for kind in kinds},
            "replica killed": self._kill_replica,
            "relays killed": self._kill_relays,
            **{f"{kind} slow": partial(self._slow_store, kind) for kind in kinds},
            "replica restarted": stage.restarted.restart,
        }
        self._sequence = chain.from_iterable(repeat(tuple(faults.items())))

    async def next(self) -> str:
        """Cause the next fault and repair it; return its name."""
        name, fault = next(self._sequence)
        await fault()
        return name

    async def _kill_store(self, kind: Kind) -> None:
        processes = self._stage.processes(kind)
        _send(processes, signal.SIGKILL)
        await asyncio.to_thread(psutil.wait_procs, processes, _GONE_WITHIN_S)
        await asyncio.sleep(_DOWN_S)
        await asyncio.to_thread(self._stage.fleet.revive, kind)

    async def _slow_store(self, kind: Kind) -> None:
        for _ in range(round(_SLOW_FOR_S / _STOPPED_S / 2)):
            with _stopped(self._stage.processes(kind)):
                await asyncio.sleep(_STOPPED_S)
            await asyncio.sleep(_STOPPED_S)

    async def _kill_replica(self) -> None:
        await self._stage.restarted.kill()
        await asyncio.sleep(_DOWN_S)
        await self._stage.restarted.start()

    async def _kill_relays(self) -> None:
        """Kill the relays of both replicas, which restart them."""
        for replica in self._stage.replicas:
            children = psutil.Process(replica.pid).children()
            _send([child for child in children if _RELAYS in child.cmdline()], signal.SIGKILL)


@contextlib.contextmanager
def _stopped(processes: Sequence[psutil.Process]) -> Iterator[None]:
    _send(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _send(processes, signal.SIGCONT)


def _send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)

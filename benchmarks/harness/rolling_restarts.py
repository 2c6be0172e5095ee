"""Replicas that are restarted one after the other, under steady load.

Half of the load goes through a balancer without readiness probes, which infers the state of
replicas from requests; the other half goes directly to replicas that report ready, as where a
platform balances it, and there nothing is retried.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import httpx

__all__ = ["LOOK_EVERY_S", "Load", "Replica", "roll", "steady_load"]

LOOK_EVERY_S: Final = 0.1
"""Seconds between readiness probes of the replicas."""

_LANES: Final = 2
_PAUSE_S: Final = 0.005
_READY_WITHIN_S: Final = 120.0
_UPDATE: Final = {"content-type": "application/vnd.portolan.update+json"}
_INC: Final = b'{"n":{"inc":1}}'


class Replica(Protocol):
    """A replica of the service, with the addresses of its two APIs."""

    @property
    def data(self) -> str: ...

    @property
    def admin(self) -> str: ...

    async def restart(self) -> None:
        """Stop it by SIGTERM, and restart it at the same addresses."""


@dataclass(slots=True)
class Load:
    """The outcome of the load.

    Attributes:
        answered: Requests that succeeded.
        failures: All other requests, by their failure.
        counted: Increments that were acknowledged, by path.
    """

    answered: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)

    async def is_complete(self, at: str) -> bool:
        """Whether every object has the count of its acknowledged increments."""
        async with httpx.AsyncClient(base_url=at, trust_env=False, timeout=30.0) as http:
            counts = {path: (await http.get(path)).json()["n"] for path in self.counted}
        return counts == dict(self.counted)


class _Readiness:
    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas
        self._ready: list[bool] = [False] * len(replicas)

    async def probe(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=5.0) as http:
            while True:
                probes = (_is_ready(http, replica) for replica in self._replicas)
                self._ready = await asyncio.gather(*probes)
                await asyncio.sleep(LOOK_EVERY_S)

    def choose(self) -> str | None:
        ready = [
            r.data for r, is_ready in zip(self._replicas, self._ready, strict=True) if is_ready
        ]
        return random.choice(ready) if ready else None


async def _is_ready(http: httpx.AsyncClient, replica: Replica) -> bool:
    try:
        return (await http.get(f"{replica.admin}/ready")).is_success
    except httpx.TransportError:
        return False


@asynccontextmanager
async def steady_load(
    replicas: Sequence[Replica], balancer: str, database: str, pause_s: float = _PAUSE_S
) -> AsyncIterator[Load]:
    """Read and count in the class ``counts`` of a database while the block runs.

    Each of four clients pauses between a count with its read and the next one.
    """
    load, readiness = Load(), _Readiness(replicas)
    probing = asyncio.create_task(readiness.probe())
    stop = asyncio.Event()
    await _until_all_are_ready(replicas)
    lanes = [
        asyncio.create_task(_lane(load, at, f"/v1/{database}/counts/{kind}{number}", stop, pause_s))
        for kind, at in (("balanced", lambda: balancer), ("direct", readiness.choose))
        for number in range(_LANES)
    ]
    try:
        yield load
    finally:
        stop.set()
        await asyncio.gather(*lanes)
        probing.cancel()


async def roll(replicas: Sequence[Replica], times: int) -> None:
    """Restart replicas in turn, each once the previous one is ready again."""
    for number in range(times):
        await replicas[number % len(replicas)].restart()
        await _until_all_are_ready(replicas)


async def _until_all_are_ready(replicas: Sequence[Replica]) -> None:
    async with (
        asyncio.timeout(_READY_WITHIN_S),
        httpx.AsyncClient(trust_env=False, timeout=5.0) as http,
    ):
        while True:
            ready = [await _is_ready(http, replica) for replica in replicas]
            # A balancer that probes as often has also seen the state by then.
            await asyncio.sleep(3 * LOOK_EVERY_S)
            if all(ready):
                return


async def _lane(
    load: Load, at: Callable[[], str | None], path: str, stop: asyncio.Event, pause_s: float
) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as http:
        send = partial(_send, load, http, at)
        await send("PUT", path, json={})
        while not stop.is_set():
            load.counted[path] += await send("PATCH", path, content=_INC, headers=_UPDATE)
            await send("GET", path)
            await asyncio.sleep(pause_s)


async def _send(
    load: Load,
    http: httpx.AsyncClient,
    at: Callable[[], str | None],
    method: str,
    path: str,
    **request: Any,
) -> bool:
    """Send a request to the current target; return whether it succeeded."""
    base = at()
    if base is None:
        load.failures["nobody was ready"] += 1
        return False
    try:
        response = await http.request(method, f"{base}{path}", **request)
    except httpx.TransportError as error:
        load.failures[type(error).__name__] += 1
        return False
    if response.is_error:
        load.failures[str(response.status_code)] += 1
        return False
    load.answered += 1
    return True

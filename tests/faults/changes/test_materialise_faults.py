"""Replicas killed, stalled or cut off under load: no response is staler than it states."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Answer, Connection, Unanswered, Unreachable
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied
from tests.faults.operation.forked import called
from tests.faults.service import Service
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique

BOUND_S = 5.0
OBJECTS = 10
WRITERS = 2
SAMPLES = 60
"""Samples between two faults."""
READ_WITHIN_S = 5.0
PAUSE_S = 0.02
"""Pause between requests of a client; the awaited events take seconds at any request rate."""
UPDATE = {"content-type": "application/vnd.portolan.update+json"}
BOUNDED = {"prefer": "consistency=bounded"}
STRONG = {"prefer": "consistency=strong"}
SCHEMA: dict[str, Any] = {
    "mode": "microbatched",
    "materialised_view": {"system": "postgres", "staleness_s": BOUND_S},
    "classes": {
        "articles": {
            "fields": {
                "title": field_on("postgres"),
                "hits": field_on("redis", "integer", default=0, group="hits"),
                "likes": field_on("mongo", "float", default=0, group="likes"),
            }
        }
    },
}


class Load:
    """Increments and reads articles, on any running replica."""

    def __init__(self, replicas: Sequence[Service], database: str) -> None:
        self.replicas = replicas
        self.database = database
        self._rng = random.Random(5)
        self._acknowledged: dict[tuple[str, str], list[float]] = {}
        self.refused: set[Service] = set()
        self.samples = 0
        self.stopped = False

    async def create(self) -> None:
        body = [{"id": f"a{n}", "title": "t"} for n in range(OBJECTS)]
        response = await self._send("POST", "articles", body)
        assert response is not None
        assert response.status == 200

    async def write(self) -> None:
        """Increment until the end, each time a field of one system."""
        while not self.stopped:
            await asyncio.sleep(PAUSE_S)
            counter = (f"a{self._rng.randrange(OBJECTS)}", self._rng.choice(("hits", "likes")))
            id_, field = counter
            replica = self._any()
            patch = f"articles/{id_}", {field: {"inc": 1}}, UPDATE
            response = await self._send("PATCH", *patch, replica=replica)
            if response is not None and response.status == 200:
                self._acknowledged.setdefault(counter, []).append(time.monotonic())
            elif response is not None and response.status == 503 and field == "likes":
                self.refused.add(replica)

    async def sample(self) -> None:
        """Read until the end; compare the age of each response with its stated age."""
        while not self.stopped:
            await asyncio.sleep(PAUSE_S)
            id_ = f"a{self._rng.randrange(OBJECTS)}"
            sent_at, response = time.monotonic(), None
            with suppress(TimeoutError):  # a stalled replica answers once it resumes
                async with asyncio.timeout(READ_WITHIN_S):
                    response = await self._send("GET", f"articles/{id_}", None, BOUNDED)
            if response is not None and "portolan-staleness" in response.headers:
                self._check(id_, response, sent_at)
                self.samples += 1

    async def check_equal(self) -> None:
        """Require that the view equals the systems and has all acknowledged increments."""
        for number in range(OBJECTS):
            await eventually(partial(self._is_equal, f"a{number}"))

    async def _is_equal(self, id_: str) -> bool:
        # Read each time: writes sent by a killed replica can still take effect.
        strong = await self._send("GET", f"articles/{id_}", None, STRONG)
        assert strong is not None
        for field in ("hits", "likes"):
            assert strong.json()[field] >= len(self._acknowledged.get((id_, field), ()))
        copy = await self._send("GET", f"articles/{id_}", None, BOUNDED)
        from_view = copy is not None and "portolan-staleness" in copy.headers
        return copy is not None and from_view and copy.json() == strong.json()

    def _check(self, id_: str, response: Answer, sent_at: float) -> None:
        parameters = response.headers["portolan-staleness"].split(", ")
        bound_s, measured_s = (float(parameter.partition("=")[2]) for parameter in parameters)
        assert measured_s <= bound_s
        for field in ("hits", "likes"):
            times = self._acknowledged.get((id_, field), ())
            # The header is rounded to milliseconds.
            minimum = sum(time_s < sent_at - measured_s - 0.001 for time_s in times)
            # A copy can lack a group that was created within the measured age.
            assert response.json().get(field, 0) >= minimum, (id_, field, parameters)

    def _any(self) -> Service:
        replica = self._rng.choice(self.replicas)
        if not replica.up.is_set():
            replica = next(candidate for candidate in self.replicas if candidate is not replica)
        return replica

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        headers: dict[str, str] | None = None,
        replica: Service | None = None,
    ) -> Answer | None:
        replica = replica or self._any()
        with closing(Connection(replica.data)) as http:
            try:
                return await http.request(
                    method, f"/v1/{self.database}/{path}", body, headers or {}
                )
            except (Unreachable, Unanswered):
                await asyncio.sleep(0)
                return None


@dataclass(frozen=True)
class Pair:
    """Two services, the second of which can be cut off from the coordination Redis."""

    services: list[Service]
    holding: Holding

    async def load(self) -> Load:
        """Set the schema of a new database, and create its articles."""
        load = Load(self.services, unique("shop"))
        with closing(Connection(self.services[0].admin)) as admin:
            response = await admin.request("PUT", f"/admin/v1/schemas/{load.database}", SCHEMA)
        assert response.status == 200, response
        await load.create()
        return load


@pytest.fixture
async def pair(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Pair]:
    """Two services that run relays and materialisers in their own processes."""
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_systems(*configs) as systems,
        scratch_catalogue(postgresql_config) as url,
        proxied(redis_config) as (holding, proxied_config),
    ):
        services = [
            Service.on(systems, url, config.url, sketch="off", relays="here")
            for config in (redis_config, proxied_config)
        ]
        async with services[0].running(), services[1].running():
            await services[0].favour()
            yield Pair(services, holding)


@asynccontextmanager
async def run_load(load: Load) -> AsyncIterator[None]:
    """Write and read while the block runs; require at the end that the view equals the systems."""
    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(load.write())
        group.create_task(load.sample())
        await _wait_for_samples(load)
        yield
        await _wait_for_samples(load)
        load.stopped = True
    await load.check_equal()
    await _verify(load)


@pytest.mark.timeout(600)
async def test_materialising_is_taken_over_and_keeps_its_bound(pair: Pair) -> None:
    load = await pair.load()
    async with run_load(load):
        for victim in pair.services:
            await victim.kill()
            await _wait_for_samples(load)  # by the survivor, which has taken over
            await victim.start()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["cut", "stalled", "cut and killed"])
async def test_a_replica_that_cannot_be_followed_acknowledges_nothing(
    pair: Pair, fault: str
) -> None:
    """Changes that only it can relay would be missing from responses reported as current."""
    load, second = await pair.load(), pair.services[1]
    async with run_load(load):
        if fault == "stalled":
            second.send(signal.SIGSTOP)
            second.up.clear()
        else:
            pair.holding.hold()
            await eventually(lambda: _is_refused(load, second))
        if fault == "cut and killed":
            await second.kill()
        await _wait_for_samples(load)  # by the other replica, which continues alone
        if fault == "stalled":
            second.send(signal.SIGCONT)
            second.up.set()
        else:
            await pair.holding.release()
        if fault == "cut and killed":
            await second.start()


async def _is_refused(load: Load, replica: Service) -> bool:
    return replica in load.refused


async def _wait_for_samples(load: Load) -> None:
    target = load.samples + SAMPLES

    async def has_sampled() -> bool:
        return load.samples >= target

    await eventually(has_sampled)


async def _verify(load: Load) -> None:
    arguments = ("verify", load.database, "--url", load.replicas[1].admin)
    result = await called(arguments, os.environ)
    assert result.exit_code == 0, result
    assert "articles" in result.stdout

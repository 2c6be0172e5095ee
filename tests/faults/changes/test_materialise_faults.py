"""Replicas that are killed, stalled or cut off under load: no answer is older than it states."""

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
"""Between two faults."""
READ_WITHIN_S = 5.0
PAUSE_S = 0.02
"""Between two requests of a client: what is waited for takes seconds, however many there are."""
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
    """Counts articles up and reads them, on whichever replica is there."""

    def __init__(self, replicas: Sequence[Service], database: str) -> None:
        self.replicas = replicas
        self.database = database
        self._rng = random.Random(5)
        self._acknowledged: dict[tuple[str, str], list[float]] = {}
        self.refused: set[Service] = set()
        self.samples = 0
        self.ended = False

    async def create(self) -> None:
        body = [{"id": f"a{n}", "title": "t"} for n in range(OBJECTS)]
        answer = await self._send("POST", "articles", body)
        assert answer is not None
        assert answer.status == 200

    async def write(self) -> None:
        """Count up until the end; a field of one system each time."""
        while not self.ended:
            await asyncio.sleep(PAUSE_S)
            figure = (f"a{self._rng.randrange(OBJECTS)}", self._rng.choice(("hits", "likes")))
            id_, field = figure
            replica = self._any()
            patch = f"articles/{id_}", {field: {"inc": 1}}, UPDATE
            answer = await self._send("PATCH", *patch, replica=replica)
            if answer is not None and answer.status == 200:
                self._acknowledged.setdefault(figure, []).append(time.monotonic())
            elif answer is not None and answer.status == 503 and field == "likes":
                self.refused.add(replica)

    async def sample(self) -> None:
        """Read until the end, and compare the age of each answer with the age that it states."""
        while not self.ended:
            await asyncio.sleep(PAUSE_S)
            id_ = f"a{self._rng.randrange(OBJECTS)}"
            sent_at, answer = time.monotonic(), None
            with suppress(TimeoutError):  # one that stands still answers when it goes on
                async with asyncio.timeout(READ_WITHIN_S):
                    answer = await self._send("GET", f"articles/{id_}", None, BOUNDED)
            if answer is not None and "portolan-staleness" in answer.headers:
                self._check(id_, answer, sent_at)
                self.samples += 1

    async def check_equal(self) -> None:
        """See that the view has what the systems have, and that it is all there."""
        for number in range(OBJECTS):
            await eventually(partial(self._is_equal, f"a{number}"))

    async def _is_equal(self, id_: str) -> bool:
        # Anew each time: what a replica that was killed had sent may still take effect.
        strong = await self._send("GET", f"articles/{id_}", None, STRONG)
        assert strong is not None
        for field in ("hits", "likes"):
            assert strong.json()[field] >= len(self._acknowledged.get((id_, field), ()))
        copy = await self._send("GET", f"articles/{id_}", None, BOUNDED)
        fresh = copy is not None and "portolan-staleness" in copy.headers
        return copy is not None and fresh and copy.json() == strong.json()

    def _check(self, id_: str, answer: Answer, sent_at: float) -> None:
        parameters = answer.headers["portolan-staleness"].split(", ")
        bound_s, measured_s = (float(each.partition("=")[2]) for each in parameters)
        assert measured_s <= bound_s
        for field in ("hits", "likes"):
            times = self._acknowledged.get((id_, field), ())
            # The header is rounded to milliseconds.
            due = sum(at < sent_at - measured_s - 0.001 for at in times)
            # A copy may lack a group whose creation is younger than what was measured.
            assert answer.json().get(field, 0) >= due, (id_, field, parameters)

    def _any(self) -> Service:
        replica = self._rng.choice(self.replicas)
        if not replica.up.is_set():
            replica = next(each for each in self.replicas if each is not replica)
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

    both: list[Service]
    holding: Holding

    async def load(self) -> Load:
        """Set the schema of a new database, and create what is written and read."""
        load = Load(self.both, unique("shop"))
        with closing(Connection(self.both[0].admin)) as admin:
            answer = await admin.request("PUT", f"/admin/v1/schemas/{load.database}", SCHEMA)
        assert answer.status == 200, answer
        await load.create()
        return load


@pytest.fixture
async def pair(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Pair]:
    """What relays and materialises is in the services: it dies and stalls with them."""
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_systems(*configs) as own,
        scratch_catalogue(postgresql_config) as url,
        proxied(redis_config) as (holding, through),
    ):
        both = [
            Service.on(own, url, reached.url, sketch="off", relays="here")
            for reached in (redis_config, through)
        ]
        async with both[0].running(), both[1].running():
            await both[0].favour()
            yield Pair(both, holding)


@asynccontextmanager
async def under_way(load: Load) -> AsyncIterator[None]:
    """Write and read while the block runs; at the end the view has what the systems have."""
    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(load.write())
        group.create_task(load.sample())
        await _sampled(load)
        yield
        await _sampled(load)
        load.ended = True
    await load.check_equal()
    await _is_verified(load)


@pytest.mark.timeout(600)
async def test_materialising_is_taken_over_and_keeps_its_bound(pair: Pair) -> None:
    load = await pair.load()
    async with under_way(load):
        for victim in pair.both:
            await victim.kill()
            await _sampled(load)  # by the other one, which has taken over
            await victim.start()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["cut", "stalled", "cut and killed"])
async def test_a_replica_that_cannot_be_followed_acknowledges_nothing(
    pair: Pair, fault: str
) -> None:
    """Changes that only it can relay would be missing from answers that are reported as current."""
    load, second = await pair.load(), pair.both[1]
    async with under_way(load):
        if fault == "stalled":
            second.send(signal.SIGSTOP)
            second.up.clear()
        else:
            pair.holding.hold()
            await eventually(lambda: _is_refused(load, second))
        if fault == "cut and killed":
            await second.kill()
        await _sampled(load)  # by the other one, which has gone on without it
        if fault == "stalled":
            second.send(signal.SIGCONT)
            second.up.set()
        else:
            await pair.holding.release()
        if fault == "cut and killed":
            await second.start()


async def _is_refused(load: Load, replica: Service) -> bool:
    return replica in load.refused


async def _sampled(load: Load) -> None:
    enough = load.samples + SAMPLES

    async def done() -> bool:
        return load.samples >= enough

    await eventually(done)


async def _is_verified(load: Load) -> None:
    arguments = ("verify", load.database, "--url", load.replicas[1].admin)
    result = await called(arguments, os.environ)
    assert result.exit_code == 0, result
    assert "articles" in result.stdout

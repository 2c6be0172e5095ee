"""Replicas that are killed, stalled or cut off under load: no answer is older than it states."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Answer, Connection, Unanswered, Unreachable
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied
from tests.faults.service import Service
from tests.process.service import field_on, scratch_catalogue, scratch_systems

BOUND_S = 5.0
OBJECTS = 40
WRITERS = 4
KILLS = 2
SAMPLES_BETWEEN_KILLS = 150
SAMPLES_BETWEEN_CUTS = 60
READ_WITHIN_S = 5.0
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

    def __init__(self, replicas: Sequence[Service]) -> None:
        self._replicas = replicas
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
            id_ = f"a{number}"
            strong = await self._send("GET", f"articles/{id_}", None, STRONG)
            assert strong is not None
            for field in ("hits", "likes"):
                assert strong.json()[field] >= len(self._acknowledged.get((id_, field), ()))

            async def is_equal(id_: str = id_, strong: Answer = strong) -> bool:
                copy = await self._send("GET", f"articles/{id_}", None, BOUNDED)
                fresh = copy is not None and "portolan-staleness" in copy.headers
                return copy is not None and fresh and copy.json() == strong.json()

            await eventually(is_equal)

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
        replica = self._rng.choice(self._replicas)
        if not replica.up.is_set():
            replica = next(each for each in self._replicas if each is not replica)
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
                return await http.request(method, f"/v1/shop/{path}", body, headers or {})
            except (Unreachable, Unanswered):
                await asyncio.sleep(0)
                return None


@asynccontextmanager
async def replicas(configs: Sequence[SystemConfig]) -> AsyncIterator[list[Service]]:
    """Run two services on the same stores."""
    postgres = next(config for config in configs if config.kind == "postgresql")
    redis = next(config for config in configs if config.kind == "redis")
    async with scratch_systems(*configs) as own, scratch_catalogue(postgres) as url:
        both = [Service.on(own, url, coordination_url=redis.url) for _ in range(2)]
        async with both[0].running(), both[1].running():
            await both[0].favour()
            yield both


@pytest.mark.timeout(300)
async def test_materialising_is_taken_over_and_keeps_its_bound(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> None:
    async with replicas((redis_config, postgresql_config, mongodb_config)) as both:
        await _put_schema(both[0])
        load = Load(both)
        await load.create()
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(load.write())
            group.create_task(load.sample())
            await _sampled(load)
            for number in range(KILLS):
                victim = both[number % 2]
                await victim.kill()
                await _sampled(load)  # by the other one, which has taken over
                await victim.start()
            load.ended = True
        await load.check_equal()
        await _is_verified(both[1])


@asynccontextmanager
async def cut_off(configs: Sequence[SystemConfig]) -> AsyncIterator[tuple[list[Service], Holding]]:
    """Run two services, the second of which can be cut off from the coordination Redis."""
    postgres = next(config for config in configs if config.kind == "postgresql")
    redis = next(config for config in configs if config.kind == "redis")
    async with (
        scratch_systems(*configs) as own,
        scratch_catalogue(postgres) as url,
        proxied(redis) as (holding, through),
    ):
        urls = (redis.url, through.url)
        both = [Service.on(own, url, coordination_url=u, sketch="off") for u in urls]
        async with both[0].running(), both[1].running():
            await both[0].favour()
            yield both, holding


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["cut", "stalled", "cut and killed"])
async def test_a_replica_that_cannot_be_followed_acknowledges_nothing(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    fault: str,
) -> None:
    """Changes that only it can relay would be missing from answers that are reported as current."""
    configs = (redis_config, postgresql_config, mongodb_config)
    async with cut_off(configs) as (both, holding):
        await _put_schema(both[0])
        load = Load(both)
        await load.create()
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(load.write())
            group.create_task(load.sample())
            await _sampled(load, SAMPLES_BETWEEN_CUTS)
            if fault != "stalled":
                holding.hold()
                await eventually(lambda: _is_refused(load, both[1]))
            if fault == "stalled":
                both[1].send(signal.SIGSTOP)
                both[1].up.clear()
            elif fault == "cut and killed":
                await both[1].kill()
            await _sampled(
                load, SAMPLES_BETWEEN_CUTS
            )  # by the other one, which has gone on without it
            if fault == "stalled":
                both[1].send(signal.SIGCONT)
                both[1].up.set()
            else:
                await holding.release()
            if fault == "cut and killed":
                await both[1].start()
            await _sampled(load, SAMPLES_BETWEEN_CUTS)
            load.ended = True
        await load.check_equal()
        await _is_verified(both[1])


async def _is_refused(load: Load, replica: Service) -> bool:
    return replica in load.refused


async def _sampled(load: Load, count: int = SAMPLES_BETWEEN_KILLS) -> None:
    enough = load.samples + count

    async def done() -> bool:
        return load.samples >= enough

    await eventually(done)


async def _put_schema(service: Service) -> None:
    with closing(Connection(service.admin)) as admin:
        answer = await admin.request("PUT", "/admin/v1/schemas/shop", SCHEMA)
    assert answer.status == 200, answer


async def _is_verified(service: Service) -> None:
    command = "from app.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", command, "verify", "shop", "--url", service.admin),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert "articles" in output.decode()

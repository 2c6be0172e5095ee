"""Renaming and copying a field of objects that are in use, against statements by hand.

While the field is renamed, to and fro, clients read and update the objects in process, as the
service does. Then every object is checked. The statements are written by hand, for a copy of the
same objects: PostgreSQL renames a column, MongoDB and Redis rewrite each object. Finally the field
is copied to another one under the same load: each object by a separate write that caches and the
feed see. `--objects` sets the number of objects (1,000,000 by default; quick: 5,000); a stand-in
for MongoDB that has no indexes gets 10,000 at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, Final, Protocol

import asyncpg
import redis.asyncio
from pymongo import AsyncMongoClient

from app.commands.demo.failed import Failed
from app.commands.demo.service import succeed
from benchmarks.harness.report import Measured, Options, Result, timed_ms
from benchmarks.harness.shared_servers import (
    SharedService,
    field_on,
    object_limit,
    shared_service,
    state_metrics,
)
from mediator.data_plane.port import pages
from mediator.embedded.port import Kind
from mediator.model.operations import Get, Update
from mediator.model.operators import Operator, OperatorCall

__all__ = ["run"]

_THROUGHPUT_BAR: Final = 0.8
_TIME_BAR: Final = 3.0
_OBJECTS: Final = 1_000_000
_QUICK_OBJECTS: Final = 5_000
_BATCH: Final = 5_000
_CLASS: Final = "things"
_NAMES: Final = ("price", "unit_price")
_COPY: Final = "copied"
_CLIENTS: Final = 4

_MOVE: Final = """
for _, key in ipairs(KEYS) do
  local text = redis.call('HGET', key, ARGV[1])
  if text then
    redis.call('HSET', key, ARGV[2], text)
    redis.call('HDEL', key, ARGV[1])
  end
end
"""
"""Renames a field of hashes."""


class _Statement(Protocol):
    """A driver with its own copy of the objects, and the statement that renames their field."""

    async def open(self, url: str) -> None: ...

    async def load(self, objects: range) -> None: ...

    async def rename(self, former: str, new: str) -> None: ...

    async def close(self) -> None: ...


class _Postgres:
    async def open(self, url: str) -> None:
        self._connection = await asyncpg.connect(url)
        await self._connection.execute(
            'CREATE TABLE bare (id text COLLATE "C" PRIMARY KEY, price bigint, hits bigint)'
        )

    async def load(self, objects: range) -> None:
        rows = [(f"t{number}", number, 0) for number in objects]
        await self._connection.copy_records_to_table("bare", records=rows)

    async def rename(self, former: str, new: str) -> None:
        await self._connection.execute(f"ALTER TABLE bare RENAME COLUMN {former} TO {new}")

    async def close(self) -> None:
        await self._connection.close()


class _Mongo:
    async def open(self, url: str) -> None:
        self._client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, w=1)
        self._things = self._client["native"]["bare"]

    async def load(self, objects: range) -> None:
        rows = [{"_id": f"t{number}", _NAMES[0]: number, "hits": 0} for number in objects]
        await self._things.insert_many(rows)

    async def rename(self, former: str, new: str) -> None:
        await self._things.update_many({}, {"$rename": {former: new}})

    async def close(self) -> None:
        await self._client.close()


class _Redis:
    async def open(self, url: str) -> None:
        self._client: Any = redis.asyncio.Redis.from_url(url)
        self._keys: list[str] = []

    async def load(self, objects: range) -> None:
        async with self._client.pipeline(transaction=False) as pipe:
            for number in objects:
                pipe.hset(f"bare:t{number}", mapping={_NAMES[0]: number, "hits": 0})
            await pipe.execute()
        self._keys += [f"bare:t{number}" for number in objects]

    async def rename(self, former: str, new: str) -> None:
        for first in range(0, len(self._keys), 1_000):
            keys = self._keys[first : first + 1_000]
            await self._client.eval(_MOVE, len(keys), *keys, former, new)

    async def close(self) -> None:
        await self._client.aclose()


_STATEMENTS: Final[Mapping[Kind, Callable[[], _Statement]]] = {
    "redis": _Redis,
    "postgresql": _Postgres,
    "mongodb": _Mongo,
}


@dataclass(frozen=True, slots=True)
class _Store:
    """A database on one kind of system, and the statement that it is compared with.

    `seconds` is how long throughput is measured.
    """

    running: SharedService
    kind: Kind
    objects: int
    seconds: float
    random: Random

    @property
    def database(self) -> str:
        return f"evolved_{self.kind}"

    def _schema(self, name: str) -> dict[str, Any]:
        on = field_on(self.kind)
        fields = {
            name: {"type": "integer", **on},
            _COPY: {"type": "integer", **on},
            "hits": {"type": "float", "default": 0, **on},
        }
        return {"mode": "mixed", "classes": {_CLASS: {"fields": fields}}}

    async def fill(self, statement: _Statement) -> None:
        service = self.running.service
        await service.set_schema(self.database, self._schema(_NAMES[0]))
        for first in range(0, self.objects, _BATCH):
            numbers = range(first, min(first + _BATCH, self.objects))
            batch = {f"t{number}": {_NAMES[0]: number} for number in numbers}
            await service.create(self.database, {_CLASS: batch})
            await statement.load(numbers)
        await service.caught_up()

    async def rename(self, former: str, new: str) -> None:
        """Rename the field, as an operator does."""
        await succeed(
            self.running.service.admin.put(
                f"schemas/{self.database}",
                params={"rename": f"{_CLASS}.{former}:{new}"},
                json=self._schema(new),
            )
        )

    async def copy(self, name: str) -> None:
        """Copy the field, as an operator does; raises `Failed` if an object gets no copy."""
        parameters = {"copy": f"{_CLASS}.{name}:{_COPY}"}
        while True:
            copies = f"copies/{self.database}"
            report = await succeed(self.running.service.admin.post(copies, params=parameters))
            if report["changed"] != report["objects"]:
                raise Failed(f"a copy on {self.kind} ended as {report}")
            if report["next"] is None:
                return
            parameters["after"] = report["next"]

    async def throughput(self, meanwhile: Callable[[], Awaitable[object]] | None = None) -> float:
        """Return the rate of the clients' reads and updates (1/s) while `meanwhile` runs."""
        stop = asyncio.Event()
        clients = [asyncio.create_task(self._client(stop)) for _ in range(_CLIENTS)]
        started = perf_counter()
        if meanwhile is not None:
            await meanwhile()
        await asyncio.sleep(max(0.0, self.seconds - (perf_counter() - started)))
        stop.set()
        operations = sum(await asyncio.gather(*clients))
        return operations / (perf_counter() - started)

    async def _client(self, stop: asyncio.Event) -> int:
        plane, operations = self.running.plane, 0
        inc = OperatorCall("hits", Operator.INC, 1.0)
        while not stop.is_set():
            id_ = f"t{self.random.randrange(self.objects)}"
            await plane.read(Get(self.database, _CLASS, id_))
            operation = f"evolve-{self.random.getrandbits(64):x}"
            await plane.write(Update(self.database, _CLASS, id_, operation, operators=(inc,)))
            operations += 2
        return operations

    async def check(self, name: str) -> None:
        """Check the field of every object; raises `Failed` if one has lost its value."""
        intact = 0
        async for page in pages(self.running.plane, self.database, _CLASS, fields=(name,)):
            for outcome in page:
                intact += (outcome.values or {}).get(name) == int(outcome.id[1:])
        if intact != self.objects:
            raise Failed(f"{self.objects - intact} objects on {self.kind} have lost their value")


async def run(options: Options) -> Measured:
    objects = options.objects or (_QUICK_OBJECTS if options.quick else _OBJECTS)
    seconds, random = (1.0 if options.quick else 10.0), Random(options.seed)
    async with shared_service() as running:
        await state_metrics(running.service)
        results: list[Result] = []
        for kind, server in running.servers.items():
            store = _Store(running, kind, object_limit(server, objects), seconds, random)
            statement = _STATEMENTS[kind]()
            await statement.open(server.url)
            try:
                await store.fill(statement)
                results += await _measure(options, store, statement)
            finally:
                await statement.close()
        return Measured(results, await running.service.versions())


async def _measure(options: Options, store: _Store, statement: _Statement) -> list[Result]:
    sides: dict[str, list[float]] = {"alone": [], "meanwhile": [], "ours": [], "by hand": []}
    former, new = _NAMES
    for _ in range(3 if options.quick else 7):

        async def rename(names: tuple[str, str] = (former, new)) -> None:
            sides["ours"].append(await timed_ms(partial(store.rename, *names)))

        sides["alone"].append(await store.throughput())
        sides["meanwhile"].append(await store.throughput(rename))
        sides["by hand"].append(await timed_ms(partial(statement.rename, former, new)))
        await store.check(new)
        former, new = new, former
    medians = {name: median(figures) for name, figures in sides.items()}
    kind, on = store.kind, f"{store.objects:,} on {store.kind}"
    options.note(
        f"{kind}: {medians['meanwhile']:,.0f}/s during a rename, {medians['alone']:,.0f}/s before"
    )
    options.note(
        f"{kind}: {medians['ours']:.1f} ms under load, {medians['by hand']:.1f} ms by hand"
    )
    # PostgreSQL also renames a column without touching a row, and has no replicas to agree with.
    bar = None if kind == "postgresql" else _TIME_BAR
    during = Result(
        f"reads and updates during a rename, {on}",
        "operations/s",
        medians["meanwhile"],
        medians["alone"],
        _THROUGHPUT_BAR,
    )
    duration = Result(
        f"a rename, {on}", "ms", medians["ours"], medians["by hand"], bar, small_is_good=True
    )
    return [during, duration, await _measure_copy(options, store, former)]


async def _measure_copy(options: Options, store: _Store, name: str) -> Result:
    """Measure a copy of all objects, while clients read and update them."""
    times_ms: list[float] = []

    async def copy() -> None:
        times_ms.append(await timed_ms(partial(store.copy, name)))

    meanwhile = await store.throughput(copy)
    await store.check(_COPY)
    options.note(f"{store.kind}: {meanwhile:,.0f}/s during a copy")
    rate = store.objects / (times_ms[0] / 1000)
    return Result(f"objects copied, {store.objects:,} on {store.kind}", "objects/s", rate)

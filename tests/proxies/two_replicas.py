"""Two replicas with one sketch, a Varnish and an nginx before one of them, readers behind both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field

import httpx

from benchmarks.harness.staleness import Staleness
from benchmarks.harness.varnish import Varnish, varnish
from mediator.stores.port import SystemConfig
from sketch.client import CoherentClient, PortolanError
from sketch.protocol.port import FilterSnapshot, Partition
from tests.faults.conditions import eventually
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique
from tests.process.sketch.sketches import bits_of
from tests.proxies.nginx import Nginx, nginx
from tests.proxies.replica import Barriers, Plan, Replica, replica

DELTA_S = 0.5
TTL_S = 600.0
"""Longer than any test, so that nothing leaves the filter meanwhile."""
CLASS = "articles"
UPDATE = {"content-type": "application/vnd.portolan.update+json"}
INC = b'{"hits":{"inc":1}}'
FORCED = {"cache-control": "no-cache"}


@dataclass
class World:
    """Two replicas' environment, and the keys that must be in the filter.

    Attributes:
        plan: The plan of further replicas.
        here: The replica behind the caches.
        caches: Varnish and nginx.
        judge: Checks every read of every reader.
        written: Keys that were written while caches had copies of them.
    """

    plan: Plan
    here: Replica
    caches: tuple[Varnish, Nginx]
    http: httpx.AsyncClient
    database: str
    judge: Staleness = field(default_factory=lambda: Staleness(DELTA_S))
    written: set[str] = field(default_factory=set)

    @property
    def partition(self) -> Partition:
        return Partition(self.database, CLASS)

    async def reset(self) -> None:
        """Continue with a new database, and so with an empty filter."""
        self.database = await _schema(self.here)
        self.written = set()

    def at(self, id_: str) -> str:
        """Return the path of an object."""
        return f"/v1/{self.database}/{CLASS}/{id_}"

    async def create(self) -> str:
        """Create an object that both caches store."""
        id_ = unique("x")
        answer = await self.http.put(self.here.url + self.at(id_), json={"title": "One"})
        assert answer.is_success, answer.text
        await self.fill(id_)
        return id_

    async def fill(self, id_: str) -> None:
        """Make both caches store the origin's answer."""
        for cache in self.caches:
            answer = await self.http.get(cache.url + self.at(id_), headers=FORCED)
            assert "s-maxage" in answer.headers["cache-control"], answer.headers

    async def purge(self, cache: Varnish | Nginx, id_: str) -> None:
        """Remove an object from a cache."""
        headers = {"authorization": f"Bearer {cache.token}"}
        await self.http.request("PURGE", cache.url + self.at(id_), headers=headers)

    async def cached_hits(self, id_: str) -> list[int]:
        """Return the hits that clients without a filter receive through the caches."""
        answers = [await self.http.get(cache.url + self.at(id_)) for cache in self.caches]
        return [int(answer.json()["hits"]) for answer in answers]

    async def inc(self, id_: str, url: str = "") -> int:
        """Write, and note that it was acknowledged."""
        address = (url or self.here.url) + self.at(id_)
        answer = await self.http.patch(address, content=INC, headers=UPDATE)
        assert answer.is_success, answer.text
        hits = int(answer.json()["hits"])
        self.judge.record(id_, hits)
        self.written.add(f"{CLASS}/{id_}#hits")
        return hits

    async def is_cacheable(self, id_: str) -> bool:
        """Return whether the sketch permits caching of an object; the request is a revalidation."""
        stale = {"If-None-Match": '"j1.main:1"'}
        answer = await self.http.get(self.here.url + self.at(id_), headers=stale)
        return "s-maxage" in answer.headers["cache-control"]

    async def filter(self) -> FilterSnapshot:
        """Return the filter as it is now."""
        return await self.here.sketch.snapshot([self.partition])

    async def is_exact(self) -> bool:
        """Return whether the filter has exactly the keys that must be in it."""
        snapshot = await self.filter()
        return snapshot.bits == bits_of(self.written, snapshot.shape)

    @asynccontextmanager
    async def readers(self, *ids: str) -> AsyncIterator[Readers]:
        """Read objects through both caches all the time, and check every read."""
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    CoherentClient(cache.url, self.database, delta_s=DELTA_S, timeout_s=5.0)
                )
                for cache in self.caches
            ]
            readers = Readers(clients, ids, self.judge)
            await readers.start()
            yield readers
            await readers.read_all()
            await readers.stop()
        judge = self.judge
        assert judge.violations == 0, f"{judge.violations} of {judge.reads} reads were too old"


class Readers:
    """Closed loops of reads, two through each cache."""

    def __init__(
        self, clients: Sequence[CoherentClient], ids: Sequence[str], judge: Staleness
    ) -> None:
        self._clients = clients
        self._ids = ids
        self._judge = judge
        self._tasks: list[asyncio.Task[None]] = []
        self._reads = [0] * len(clients)
        self._ending = False

    async def start(self) -> None:
        self._ending = False
        self._tasks = [
            asyncio.create_task(self._read(number, client))
            for number, client in enumerate(self._clients)
            for _ in range(2)
        ]
        await self.read_all()

    async def read_all(self) -> None:
        """Wait until all objects were read through both caches, later than the bound."""
        await asyncio.sleep(2 * DELTA_S)
        targets = [reads + 10 * len(self._ids) for reads in self._reads]

        async def reached() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return all(reads >= target for reads, target in zip(self._reads, targets, strict=True))

        await eventually(reached)

    async def stop(self) -> None:
        """Stop after the reads under way: the origin and caches would continue cancelled ones."""
        self._ending = True
        await asyncio.gather(*self._tasks)

    async def _read(self, number: int, client: CoherentClient) -> None:
        while not self._ending:
            for id_ in self._ids:
                bound = self._judge.lower_bound(id_)
                try:
                    value = (await client.get(CLASS, id_)).value
                except PortolanError:  # a proxy, or a system behind it, is down: nothing was read
                    await asyncio.sleep(0.01)
                    continue
                assert value is not None
                self._judge.check(id_, bound, value["hits"])
                self._reads[number] += 1
                await asyncio.sleep(0.002)


@asynccontextmanager
async def world_on(
    systems: Sequence[SystemConfig],
    *,
    purged: bool,
    sketch_url: str = "",
    skew_s: float = 0.0,
    purge_repeat_s: float = 2.0,
) -> AsyncIterator[World]:
    """Run a replica on systems, with caches before it."""
    redis, postgres, _ = systems
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        configs = await enter(scratch_systems(*systems))
        plan = Plan(
            systems=[asdict(config) for config in configs],
            catalogue_url=await enter(scratch_catalogue(postgres)),
            sketch_url=sketch_url or redis.url,
            namespace=unique("sketch"),
            skew_s=skew_s,
            purge_repeat_s=purge_repeat_s,
        )
        forwarder = await enter(_forwarder())
        caches = (await enter(varnish(forwarder.url)), await enter(nginx(forwarder.url)))
        if purged:
            plan.purge = [_target("varnish", caches[0]), _target("nginx", caches[1])]
        here = await enter(replica(plan, Barriers()))
        forwarder.port = int(here.url.rpartition(":")[2])
        await here.running.favour()
        http = await enter(httpx.AsyncClient(trust_env=False, timeout=60.0))
        yield World(plan, here, caches, http, await _schema(here))


async def _schema(here: Replica) -> str:
    fields = {
        "title": field_on("postgres"),
        "hits": field_on("redis", "integer", default=0, group="hits"),
    }
    cache = {"visibility": "public", "max_ttl_s": TTL_S}
    database, classes = unique("db"), {CLASS: {"cache": cache, "fields": fields}}
    # Before the class exists: a partition that recovery or purging reads first counts as lost,
    # and nothing of it is cacheable for the length of a write lease.
    await here.sketch.create(Partition(database, CLASS))
    await here.running.mediator.control.set_schema(database, {"classes": classes})
    return database


def _target(kind: str, cache: Varnish | Nginx) -> dict[str, str]:
    return {"name": kind, "kind": kind, "at": cache.url, "token": cache.token}


@dataclass
class _Forwarder:
    """Forwards connections to a port that is chosen later: caches need the address before."""

    url: str = ""
    port: int = 0
    connections: set[asyncio.Task[object]] = field(default_factory=set)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        task.add_done_callback(self.connections.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        except OSError:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def _forwarder() -> AsyncIterator[_Forwarder]:
    forwarder = _Forwarder()
    server = await asyncio.start_server(forwarder.pass_on, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    forwarder.url = f"http://{host}:{port}"
    try:
        yield forwarder
    finally:
        server.close()
        connections = list(forwarder.connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()

"""Mixed load that records acknowledged writes, and checks the stored objects against them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from random import Random
from typing import Any, Final, TypeAlias

import httpx

from app.commands.demo.failed import Failed
from benchmarks.harness.staleness import Staleness
from mediator.base.concurrency import end
from sketch.client import CoherentClient, PortolanError

__all__ = ["DATABASE", "DELTA_S", "Broken", "Load"]

Figure: TypeAlias = tuple[str, str, str]
"""Class, object and field of a counter."""

DATABASE: Final = "soaked"
DELTA_S: Final = 1.0
"""Bound on the staleness of cached reads (seconds)."""

_CACHED: Final = "counts"
_ARTICLES: Final = "articles"
_IDS: Final = tuple(f"c{number}" for number in range(40))
_PAUSE_S: Final = 0.02
_RETRY_S: Final = 0.2
_MAX_ATTEMPTS: Final = 300
_UPDATE: Final = {"content-type": "application/vnd.portolan.update+json"}
_INC: Final = {"n": {"inc": 1}}
_PAGE: Final = 1_000
_EMPTY_PAGES: Final = 5
"""Empty pages, each of a second, after which the feed has delivered all."""
_PUT_SHARE: Final = 0.7
"""The share of writes of an existing article that do not delete it."""


class Broken(AssertionError):
    """A stored object differs from its acknowledged writes; the message says where."""


@dataclass(slots=True)
class _Ledger:
    """Increments of counters: acknowledged ones, and uncertain ones."""

    acknowledged: Counter[Figure] = field(default_factory=Counter)
    uncertain: Counter[Figure] = field(default_factory=Counter)

    def incremented(self, *figures: Figure, is_acknowledged: bool) -> None:
        (self.acknowledged if is_acknowledged else self.uncertain).update(figures)

    def check(self, figure: Figure, value: float) -> None:
        minimum = self.acknowledged[figure]
        maximum = minimum + self.uncertain[figure]
        if not minimum <= value <= maximum:
            raise Broken(f"{figure} is {value}, not from {minimum} to {maximum}")


@dataclass(slots=True)
class _Stock:
    """Articles that are put and deleted repeatedly, each by one writer.

    A write without a reply may take effect later, while its lease lasts: it may be visible as long
    as the object is written.
    """

    acknowledged: dict[str, str | None] = field(default_factory=dict)
    uncertain: dict[str, set[str | None]] = field(default_factory=dict)

    def record(self, id_: str, title: str | None, *, is_acknowledged: bool) -> None:
        """Note a title that was put; None: the article was deleted."""
        if is_acknowledged:
            self.acknowledged[id_] = title
        else:
            self.uncertain.setdefault(id_, set()).add(title)

    def check(self, id_: str, title: str | None) -> None:
        possible = {self.acknowledged.get(id_), *self.uncertain.get(id_, ())}
        if title not in possible:
            raise Broken(f"{id_} is {title!r}, and may be {possible}")


class Load:
    """Reads and writes in many ways, through both replicas.

    Args:
        replicas: Addresses of the data API; the first one is never restarted.
        classes: Classes whose field ``n`` counts, the cached one first.

    Attributes:
        answered: Requests that succeeded.
        refused: All other requests, by their failure.
        feed_resets: How often the feed was reset, and lost the positions of its followers.
    """

    def __init__(self, replicas: Sequence[str], classes: Sequence[str], seed: int) -> None:
        self._replicas = replicas
        self._classes = classes
        self._seed = seed
        self._ledger, self._stock = _Ledger(), _Stock()
        self._feed_counts: Counter[tuple[str, str]] = Counter()
        self._seen: set[str] = set()
        self._position = "beginning"
        self._stop = asyncio.Event()
        # Idle connections of this client would count among the descriptors of a replica.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(trust_env=False, timeout=20.0, limits=limits)
        self._reader = CoherentClient(replicas[0], DATABASE, delta_s=DELTA_S)
        self.answered = 0
        self.refused: Counter[str] = Counter()
        self.staleness = Staleness(DELTA_S)
        self.feed_resets = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for class_name in self._classes:
            objects = [{"id": id_} for id_ in _IDS]
            if await self._send("POST", class_name, objects) is None:
                raise Failed(f"{class_name} could not be filled: {dict(self.refused)}")
        steps: Iterable[Callable[[Random], Awaitable[None]]] = (
            *(self._increment, self._increment, self._increment_once, self._batch),
            *(self._transaction, self._replace, self._query, self._read_cached),
        )
        lanes = [self._lane(number, step) for number, step in enumerate(steps)]
        self._tasks = [asyncio.create_task(work) for work in (*lanes, self._follow())]

    async def surge(self) -> None:
        """Read much at once, so that pools are full: otherwise they fill by chance."""
        reads = [f"{name}/{id_}" for name in self._classes for id_ in _IDS]
        await asyncio.gather(*(self._send("GET", path) for path in 2 * reads))

    async def end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        await end(self._tasks)
        await self._reader.close()
        await self._http.aclose()

    async def _lane(self, number: int, step: Callable[[Random], Awaitable[None]]) -> None:
        chance = Random(f"{self._seed} {number}")
        while not self._stop.is_set():
            await step(chance)
            await asyncio.sleep(_PAUSE_S)

    async def _increment(self, chance: Random) -> None:
        class_name, id_, _ = figure = self._figure(chance)
        response = await self._send("PATCH", f"{class_name}/{id_}", _INC, _UPDATE)
        self._ledger.incremented(figure, is_acknowledged=response is not None)
        if response is not None and class_name == _CACHED:
            self.staleness.record(id_, response.json()["n"])

    async def _increment_once(self, chance: Random) -> None:
        """Increment under an Idempotency-Key until it is acknowledged: it counts once."""
        class_name, id_, _ = figure = self._figure(chance)
        key = {"idempotency-key": f"soak-{chance.getrandbits(64):x}"}
        for _ in range(_MAX_ATTEMPTS):
            if await self._send("PATCH", f"{class_name}/{id_}", _INC, {**_UPDATE, **key}):
                return self._ledger.incremented(figure, is_acknowledged=True)
            await asyncio.sleep(_RETRY_S)
        raise Failed(
            f"a write was refused for {_MAX_ATTEMPTS * _RETRY_S:g} s: {dict(self.refused)}"
        )

    async def _batch(self, chance: Random) -> None:
        figures = {self._figure(chance) for _ in range(5)}
        operations = [_operation(figure) for figure in figures]
        response = await self._send("POST", "batch", {"operations": operations})
        statuses = (
            [result["status"] for result in response.json()] if response else [0] * len(figures)
        )
        for figure, status in zip(figures, statuses, strict=True):
            self._ledger.incremented(figure, is_acknowledged=status == httpx.codes.OK)

    async def _transaction(self, chance: Random) -> None:
        id_ = chance.choice(_IDS)
        figures = [(class_name, id_, "n") for class_name in self._classes]
        operations = [_operation(figure) for figure in figures]
        response = await self._send("POST", "transactions", {"reads": [], "operations": operations})
        self._ledger.incremented(*figures, is_acknowledged=response is not None)

    async def _replace(self, chance: Random) -> None:
        id_, title = chance.choice(_IDS), f"written {chance.getrandbits(32):x}"
        if self._stock.acknowledged.get(id_) is None or chance.random() < _PUT_SHARE:
            response = await self._send("PUT", f"{_ARTICLES}/{id_}", {"title": title})
            self._stock.record(id_, title, is_acknowledged=response is not None)
        else:
            response = await self._send("DELETE", f"{_ARTICLES}/{id_}")
            self._stock.record(id_, None, is_acknowledged=response is not None)

    async def _query(self, chance: Random) -> None:
        query = {"filter": {"ge": ["n", chance.randrange(10)]}, "limit": 10}
        await self._send("POST", f"{chance.choice(self._classes)}/query", query)

    async def _read_cached(self, chance: Random) -> None:
        for id_ in chance.choices(_IDS, k=5):
            lower_bound = self.staleness.lower_bound(id_)
            try:
                read = await self._reader.get(_CACHED, id_)
            except PortolanError as error:
                self.refused[type(error).__name__] += 1
                continue
            self.answered += 1
            assert read.value is not None, "nobody deletes counters"
            self.staleness.check(id_, lower_bound, read.value["n"])

    async def _follow(self) -> None:
        while not self._stop.is_set():
            if not await self._page():
                await asyncio.sleep(_RETRY_S)

    async def _page(self) -> int:
        """Read a page of the feed; return the number of its changes."""
        at = self._replicas[0]
        path = f"changes?after={self._position}&limit={_PAGE}&wait=1"
        try:
            response = await self._http.get(f"{at}/v1/{DATABASE}/{path}")
        except httpx.TransportError:
            return 0
        if response.status_code == httpx.codes.GONE:
            self.feed_resets += 1
            self._position = "beginning"
        if response.is_error:
            return 0
        page = response.json()
        for change in page["changes"]:
            if change["id"] not in self._seen and change["kind"] == "update":
                self._feed_counts[change["class"], change["object"]] += 1
            self._seen.add(change["id"])
        self._position = page["position"]
        return len(page["changes"])

    def _figure(self, chance: Random) -> Figure:
        return chance.choice(self._classes), chance.choice(_IDS), "n"

    async def _send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response | None:
        """Send a request to a replica in turn; None if it failed."""
        at = self._replicas[next(_requests) % len(self._replicas)]
        try:
            url = f"{at}/v1/{DATABASE}/{path}"
            response = await self._http.request(method, url, json=body, headers=headers)
        except httpx.TransportError as error:
            self.refused[type(error).__name__] += 1
            return None
        if response.is_error:
            self.refused[response.json()["type"]] += 1
            return None
        self.answered += 1
        return response

    async def find_violations(self) -> list[str]:
        """Compare stored objects with acknowledged writes and with the feed; return violations."""
        await self._read_feed_to_end()
        figures = product(self._classes, _IDS, "n")
        checks = [self._check_counter(figure) for figure in figures]
        checks += [self._check_article(id_) for id_ in _IDS]
        violations = []
        for check in checks:
            try:
                await check
            except Broken as broken:
                violations.append(str(broken))
        return violations

    async def _check_article(self, id_: str) -> None:
        object_ = await self._read_object(f"{_ARTICLES}/{id_}")
        self._stock.check(id_, object_["title"] if object_ else None)

    async def _check_counter(self, figure: Figure) -> None:
        class_name, id_, field_name = figure
        object_ = await self._read_object(f"{class_name}/{id_}")
        value = object_[field_name] if object_ else -1
        self._ledger.check(figure, value)
        counted = self._feed_counts[class_name, id_]
        if counted != value:
            raise Broken(f"the feed has {counted} updates of {figure}, which is {value}")

    async def _read_object(self, path: str) -> dict[str, Any] | None:
        response = await self._http.get(f"{self._replicas[0]}/v1/{DATABASE}/{path}")
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        return dict(response.raise_for_status().json())

    async def _read_feed_to_end(self) -> None:
        silent = 0
        while silent < _EMPTY_PAGES:
            silent = 0 if await self._page() else silent + 1


_requests = count()


def _operation(figure: Figure) -> dict[str, Any]:
    class_name, id_, _ = figure
    return {"op": "update", "class": class_name, "id": id_, "body": _INC}

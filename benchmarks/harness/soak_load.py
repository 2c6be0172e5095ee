"""Mixed load whose every acknowledged write is written down, and held against what there is."""

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
_AGAIN_S: Final = 0.2
_INSIST: Final = 300
_UPDATE: Final = {"content-type": "application/vnd.portolan.update+json"}
_INC: Final = {"n": {"inc": 1}}
_PAGE: Final = 1_000
_SILENT: Final = 5
"""Empty pages, each of a second, after which the feed has delivered all."""
_KEPT: Final = 0.7
"""Share of writes of an article that is there which do not delete it."""


class Broken(AssertionError):
    """What is there is not what was acknowledged; the message says where."""


@dataclass(slots=True)
class _Ledger:
    """Increments of counters: those that were answered well, and those that were not."""

    acknowledged: Counter[Figure] = field(default_factory=Counter)
    uncertain: Counter[Figure] = field(default_factory=Counter)

    def incremented(self, *figures: Figure, known: bool) -> None:
        (self.acknowledged if known else self.uncertain).update(figures)

    def check(self, figure: Figure, value: float) -> None:
        least = self.acknowledged[figure]
        most = least + self.uncertain[figure]
        if not least <= value <= most:
            raise Broken(f"{figure} is {value}, not from {least} to {most}")


@dataclass(slots=True)
class _Stock:
    """Articles that are put and deleted again and again, each by one writer.

    What was not answered may take effect later, while its lease lasts: it may be there as long as
    the object is written.
    """

    acknowledged: dict[str, str | None] = field(default_factory=dict)
    doubtful: dict[str, set[str | None]] = field(default_factory=dict)

    def written(self, id_: str, title: str | None, *, known: bool) -> None:
        """Note a title that was put; None: the article was deleted."""
        if known:
            self.acknowledged[id_] = title
        else:
            self.doubtful.setdefault(id_, set()).add(title)

    def check(self, id_: str, title: str | None) -> None:
        may_be = {self.acknowledged.get(id_), *self.doubtful.get(id_, ())}
        if title not in may_be:
            raise Broken(f"{id_} is {title!r}, and may be {may_be}")


class Load:
    """Reads and writes in many ways, through both replicas.

    Args:
        replicas: Addresses of the data API; the first one is never restarted.
        classes: Classes whose field ``n`` counts, the cached one first.

    Attributes:
        answered: Requests that were answered well.
        refused: All others, by what became of them.
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
        self._ending = asyncio.Event()
        # Idle connections of ours would count among the descriptors of a replica.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(trust_env=False, timeout=20.0, limits=limits)
        self._reader = CoherentClient(replicas[0], DATABASE, delta_s=DELTA_S)
        self.answered = 0
        self.refused: Counter[str] = Counter()
        self.judge = Staleness(DELTA_S)
        self.feed_resets = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        for class_name in self._classes:
            some = [{"id": id_} for id_ in _IDS]
            if await self._send("POST", class_name, some) is None:
                raise Failed(f"{class_name} could not be filled: {dict(self.refused)}")
        steps: Iterable[Callable[[Random], Awaitable[None]]] = (
            *(self._increment, self._increment, self._increment_once, self._batch),
            *(self._transaction, self._replace, self._query, self._read_cached),
        )
        lanes = [self._lane(number, step) for number, step in enumerate(steps)]
        self._tasks = [asyncio.create_task(work) for work in (*lanes, self._follow())]

    async def surge(self) -> None:
        """Read much at once, so that pools are as full as they get: else they fill by chance."""
        reads = [f"{name}/{id_}" for name in self._classes for id_ in _IDS]
        await asyncio.gather(*(self._send("GET", path) for path in 2 * reads))

    async def end(self) -> None:
        self._ending.set()
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        await end(self._tasks)
        await self._reader.close()
        await self._http.aclose()

    async def _lane(self, number: int, step: Callable[[Random], Awaitable[None]]) -> None:
        chance = Random(f"{self._seed} {number}")
        while not self._ending.is_set():
            await step(chance)
            await asyncio.sleep(_PAUSE_S)

    async def _increment(self, chance: Random) -> None:
        class_name, id_, _ = figure = self._figure(chance)
        answer = await self._send("PATCH", f"{class_name}/{id_}", _INC, _UPDATE)
        self._ledger.incremented(figure, known=answer is not None)
        if answer is not None and class_name == _CACHED:
            self.judge.known(id_, answer.json()["n"])

    async def _increment_once(self, chance: Random) -> None:
        """Increment under an Idempotency-Key until it is acknowledged: it counts once."""
        class_name, id_, _ = figure = self._figure(chance)
        key = {"idempotency-key": f"soak-{chance.getrandbits(64):x}"}
        for _ in range(_INSIST):
            if await self._send("PATCH", f"{class_name}/{id_}", _INC, {**_UPDATE, **key}):
                return self._ledger.incremented(figure, known=True)
            await asyncio.sleep(_AGAIN_S)
        raise Failed(f"a write was refused for {_INSIST * _AGAIN_S:g} s: {dict(self.refused)}")

    async def _batch(self, chance: Random) -> None:
        figures = {self._figure(chance) for _ in range(5)}
        operations = [_operation(figure) for figure in figures]
        answer = await self._send("POST", "batch", {"operations": operations})
        statuses = [each["status"] for each in answer.json()] if answer else [0] * len(figures)
        for figure, status in zip(figures, statuses, strict=True):
            self._ledger.incremented(figure, known=status == httpx.codes.OK)

    async def _transaction(self, chance: Random) -> None:
        id_ = chance.choice(_IDS)
        figures = [(class_name, id_, "n") for class_name in self._classes]
        operations = [_operation(figure) for figure in figures]
        answer = await self._send("POST", "transactions", {"reads": [], "operations": operations})
        self._ledger.incremented(*figures, known=answer is not None)

    async def _replace(self, chance: Random) -> None:
        id_, title = chance.choice(_IDS), f"written {chance.getrandbits(32):x}"
        if self._stock.acknowledged.get(id_) is None or chance.random() < _KEPT:
            answer = await self._send("PUT", f"{_ARTICLES}/{id_}", {"title": title})
            self._stock.written(id_, title, known=answer is not None)
        else:
            answer = await self._send("DELETE", f"{_ARTICLES}/{id_}")
            self._stock.written(id_, None, known=answer is not None)

    async def _query(self, chance: Random) -> None:
        query = {"filter": {"ge": ["n", chance.randrange(10)]}, "limit": 10}
        await self._send("POST", f"{chance.choice(self._classes)}/query", query)

    async def _read_cached(self, chance: Random) -> None:
        for id_ in chance.choices(_IDS, k=5):
            due = self.judge.due(id_)
            try:
                read = await self._reader.get(_CACHED, id_)
            except PortolanError as error:
                self.refused[type(error).__name__] += 1
                continue
            self.answered += 1
            assert read.value is not None, "nobody deletes counters"
            self.judge.judge(id_, due, read.value["n"])

    async def _follow(self) -> None:
        while not self._ending.is_set():
            if not await self._page():
                await asyncio.sleep(_AGAIN_S)

    async def _page(self) -> int:
        """Take a page of the feed; return how many changes were on it."""
        at = self._replicas[0]
        path = f"changes?after={self._position}&limit={_PAGE}&wait=1"
        try:
            answer = await self._http.get(f"{at}/v1/{DATABASE}/{path}")
        except httpx.TransportError:
            return 0
        if answer.status_code == httpx.codes.GONE:
            self.feed_resets += 1
            self._position = "beginning"
        if answer.is_error:
            return 0
        page = answer.json()
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
        """Send a request to a replica in turn; None if it was not answered well."""
        at = self._replicas[next(_turns) % len(self._replicas)]
        try:
            url = f"{at}/v1/{DATABASE}/{path}"
            answer = await self._http.request(method, url, json=body, headers=headers)
        except httpx.TransportError as error:
            self.refused[type(error).__name__] += 1
            return None
        if answer.is_error:
            self.refused[answer.json()["type"]] += 1
            return None
        self.answered += 1
        return answer

    async def lost(self) -> list[str]:
        """Compare what there is with what was acknowledged, and with the feed; return mistakes."""
        await self._read_feed_to_end()
        figures = product(self._classes, _IDS, "n")
        checks = [self._check_counter(figure) for figure in figures]
        checks += [self._check_article(id_) for id_ in _IDS]
        wrong = []
        for check in checks:
            try:
                await check
            except Broken as broken:
                wrong.append(str(broken))
        return wrong

    async def _check_article(self, id_: str) -> None:
        found = await self._found(f"{_ARTICLES}/{id_}")
        self._stock.check(id_, found["title"] if found else None)

    async def _check_counter(self, figure: Figure) -> None:
        class_name, id_, field_name = figure
        found = await self._found(f"{class_name}/{id_}")
        value = found[field_name] if found else -1
        self._ledger.check(figure, value)
        counted = self._feed_counts[class_name, id_]
        if counted != value:
            raise Broken(f"the feed has {counted} updates of {figure}, which is {value}")

    async def _found(self, path: str) -> dict[str, Any] | None:
        answer = await self._http.get(f"{self._replicas[0]}/v1/{DATABASE}/{path}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return dict(answer.raise_for_status().json())

    async def _read_feed_to_end(self) -> None:
        silent = 0
        while silent < _SILENT:
            silent = 0 if await self._page() else silent + 1


_turns = count()


def _operation(figure: Figure) -> dict[str, Any]:
    class_name, id_, _ = figure
    return {"op": "update", "class": class_name, "id": id_, "body": _INC}

"""Registered queries: the cost of finding the results that a write may have changed.

Each write moves one of a shop's articles: it matches queries that it leaves, queries that it
enters, and ranges around its price. Of the queries six in ten are for a value, the others for
ranges, beginnings, elements and combinations; one in two hundred has no condition that an index
could use. The search is measured in processor time, the writes in elapsed time. A figure counts
only if every changed result was found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from random import Random
from time import perf_counter, thread_time
from typing import Final

from app.coherence.cached_leases import CachedLeases
from app.coherence.layouts import ClassLayouts
from app.coherence.query_registry import QueryRegistry
from app.coherence.write_guard import SketchGuard
from app.commands.demo.failed import Failed
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import embedded_redis
from mediator.base.clock import SystemClock
from mediator.model.effects import Effect, Image
from mediator.model.evaluate import holds, lookup_of
from mediator.model.guard import CacheKey
from mediator.query.invalidation.index import QueryIndex
from mediator.query.invalidation.registered_query import RegisteredQuery
from mediator.query.parameters import parse_parameters
from mediator.query.parser import MAX_LIMIT
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.parse import parse_schema
from mediator.schema.types import Values
from sketch.filter.shape import FilterShape
from sketch.protocol.keys import canonical_query, key_of_query
from sketch.protocol.port import Partition, SketchLimits
from sketch.redis.server import RedisSketch
from sketch.ttl import Static

__all__ = ["run"]

_COUNTS: Final = (0, 100, 10_000)
_BAR_MS: Final = 1.0
_PARTITION: Final = Partition("shop", "articles")
_SCHEMA: Final = parse_schema(
    _PARTITION.database,
    {
        "classes": {
            _PARTITION.class_name: {
                "fields": {
                    "maker": {"type": "string"},
                    "price": {"type": "integer"},
                    "name": {"type": "string"},
                    "tags": {"type": "set", "items": "string"},
                }
            }
        }
    },
)
_FIELDS: Final = frozenset(_SCHEMA.classes[_PARTITION.class_name].fields)
_MAKERS: Final = 5_000
_PRICES: Final = 1_000_000
_UNINDEXED_EVERY: Final = 200
_CHECKED_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class _Costs:
    mean_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: list[float]) -> _Costs:
        ordered = sorted(seconds)
        p99 = ordered[len(ordered) * 99 // 100]
        return cls(1_000 * sum(ordered) / len(ordered), 1_000 * p99)


async def run(options: Options) -> Measured:
    rounds = 2_000 if options.quick else 20_000
    results: list[Result] = []
    for count in _COUNTS:
        costs = _search(options.seed, count, rounds)
        options.log(f"search of {count:,}: {costs.mean_ms:.3f} ms, p99 {costs.p99_ms:.3f} ms")
        results += _rows(f"finding results among {count} queries", costs, count)
    async with embedded_redis() as endpoint:
        results += await _writes_by_count(options, endpoint.url, rounds // 10)
    return Measured(results, {"redis": f"valkey {endpoint.version}"})


def _rows(name: str, costs: _Costs, count: int) -> Iterator[Result]:
    bar = _BAR_MS if count == _COUNTS[-1] else None
    yield Result(name, "ms", costs.mean_ms, bar=bar, small_is_good=True)
    yield Result(f"{name}, p99", "ms", costs.p99_ms, bar=bar, small_is_good=True)


def _search(seed: int, count: int, rounds: int) -> _Costs:
    draw = Random(seed)
    queries = dict(_queries(draw, count))
    index = QueryIndex()
    for key, query in queries.items():
        index.put(key, query)
    seconds = []
    for number in range(rounds):
        effect = _move(draw)
        started = thread_time()
        found = index.changed([effect])
        seconds.append(thread_time() - started)
        if number < _CHECKED_ROUNDS:
            _check(queries, effect, found)
    return _Costs.of(seconds)


async def _writes_by_count(options: Options, url: str, rounds: int) -> list[Result]:
    costs: dict[int, _Costs] = {}
    for count in _COUNTS:
        sketch = RedisSketch(url, SketchLimits(), FilterShape(), f"bench{count}")
        try:
            cost = costs[count] = await _writes(sketch, options.seed, count, rounds)
        finally:
            await sketch.close()
        options.log(f"write with {count:,}: {cost.mean_ms:.3f} ms, p99 {cost.p99_ms:.3f} ms")
    base, largest = costs[0], costs[_COUNTS[-1]]
    difference = _Costs(largest.mean_ms - base.mean_ms, largest.p99_ms - base.p99_ms)
    return [
        *_rows("begin and end of a write with 0 queries", base, 0),
        *_rows(f"what {_COUNTS[-1]} queries add to it", difference, _COUNTS[-1]),
    ]


async def _writes(sketch: RedisSketch, seed: int, count: int, rounds: int) -> _Costs:
    await sketch.create(_PARTITION)
    draw = Random(seed)
    keys = [key for key, _ in _queries(draw, count)]
    guard = _guard(sketch)
    await guard.adopt_layout(*_PARTITION)
    await asyncio.gather(*(sketch.report_query(_PARTITION, key, 600.0, "1") for key in keys))
    token = await guard.begin(_PARTITION.database, _keys(0))
    await guard.end(_PARTITION.database, token, {}, lambda _: {})
    seconds = []
    for number in range(1, rounds + 1):
        effect = _move(draw)
        started = perf_counter()
        token = await guard.begin(_PARTITION.database, _keys(number))
        await guard.end(_PARTITION.database, token, {}, partial(_effects, effect))
        seconds.append(perf_counter() - started)
    return _Costs.of(seconds)


def _guard(sketch: RedisSketch) -> SketchGuard:
    route = ClassRoute(_SCHEMA.classes[_PARTITION.class_name], 1, ())
    database = DatabaseRoute(_SCHEMA, {_PARTITION.class_name: route})
    model = RoutingModel(1, {_PARTITION.database: database})
    queries = QueryRegistry(sketch, lambda: model)
    layouts, clock = ClassLayouts(sketch, lambda: model, queries), SystemClock()
    leases = CachedLeases(sketch, clock)
    return SketchGuard(sketch, Static(), queries, layouts, leases, lambda _: None, clock)


def _keys(number: int) -> list[CacheKey]:
    return [CacheKey(_PARTITION.class_name, str(number), "main")]


def _queries(draw: Random, count: int) -> Iterator[tuple[str, RegisteredQuery]]:
    for number in range(count):
        pairs = [*_parameters_of(draw, number).items(), ("limit", str(1 + number % 100))]
        read = parse_parameters(pairs, _SCHEMA, _PARTITION.class_name, max_limit=MAX_LIMIT)
        yield (
            key_of_query(_PARTITION.class_name, canonical_query(pairs)),
            RegisteredQuery(read.query),
        )


def _parameters_of(draw: Random, number: int) -> dict[str, str]:
    low = draw.randrange(_PRICES)
    if number % _UNINDEXED_EVERY == 0:
        return {"name.like": f"%{draw.randrange(_MAKERS)}%"}
    match number % 10:
        case 0:
            return {"price.between": f"{low},{low + _PRICES // 1_000}"}
        case 1:
            return {"name.like": f"{draw.randrange(_MAKERS):04}%"}
        case 2:
            return {"tags.contains": f"t{draw.randrange(_MAKERS)}"}
        case 3:
            return {"maker": _maker(draw), "price.ge": str(low), "order": "price"}
        case _:
            return {"maker": _maker(draw), "order": "-price", "fields": "id"}


def _maker(draw: Random) -> str:
    return f"m{draw.randrange(_MAKERS)}"


def _move(draw: Random) -> Effect:
    """Return the effect of a write that changed the maker and the price of an article."""
    same: Values = {"name": f"{draw.randrange(_MAKERS):04} lamp", "tags": ["t1", "t2"]}
    before, after = (
        Image("a", _FIELDS, {**same, "maker": _maker(draw), "price": draw.randrange(_PRICES)})
        for _ in range(2)
    )
    return Effect(before, after, frozenset({"maker", "price"}))


def _check(queries: Mapping[str, RegisteredQuery], effect: Effect, keys: AbstractSet[str]) -> None:
    images = [image for image in (effect.before, effect.after) if image is not None]
    for key, query in queries.items():
        filter_ = query.query.filter
        assert filter_ is not None
        matches = [holds(filter_, lookup_of(image.id, image.values)) for image in images]
        if matches[0] is not matches[1] and key not in keys:
            raise Failed(f"{key} was not found")


def _effects(effect: Effect, alone: bool) -> Mapping[str, list[Effect]]:  # noqa: ARG001 - the guard's
    return {_PARTITION.class_name: [effect]}

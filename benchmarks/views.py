"""Incremental views: the cost of a change for their holder, with 10, 1,000 and 10,000 of them.

Each change moves one of a shop's articles to another maker and price. Of the views eight in ten are
about the articles of one maker, a few of these joined with their reviews or without any; the others
are about a range of prices, or the beginning of a name. Either no view is about the article, or it
leaves one and enters another. The index, the networks and the rows that would be published are
measured, in processor time; the feed and the publication are not. A figure counts only if the right
views have changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from statistics import median
from time import thread_time
from typing import Any, Final

from app.commands.demo.failed import Failed
from benchmarks.harness.report import Measured, Options, Result
from mediator.model.change import Change
from mediator.routing.model import ClassRoute
from mediator.schema.parse import parse_schema
from mediator.stores.port import Fragment
from mediator.views.evaluation import Evaluation
from mediator.views.parser import parse_view

__all__ = ["run"]

_COUNTS: Final = (10, 1_000, 10_000)
_BAR: Final = 2.0
_ROUNDS: Final = 7
_PRICES: Final = 1_000_000
_SCHEMA: Final = parse_schema(
    "shop",
    {
        "classes": {
            "articles": {
                "fields": {
                    "maker": {"type": "string"},
                    "name": {"type": "string"},
                    "price": {"type": "integer"},
                }
            },
            "reviews": {"fields": {"article": {"type": "reference", "to": "articles"}}},
        }
    },
)


async def run(options: Options) -> Measured:
    changes = 300 if options.quick else 3_000
    draw = Random(options.seed)
    populations = {count: _Population(count, draw) for count in _COUNTS}
    seconds: dict[tuple[str, int], list[float]] = {}
    # Each count in every round, so that a noisy machine disturbs all of them alike.
    for _ in range(_ROUNDS):
        for count, population in populations.items():
            seconds.setdefault(("none", count), []).append(
                population.measure(changes, matching=False)
            )
            seconds.setdefault(("two", count), []).append(
                population.measure(changes, matching=True)
            )
    costs = {key: 1e6 * median(samples) for key, samples in seconds.items()}
    for (concerned, count), cost in costs.items():
        options.log(f"{count:,} views, {concerned} concerned: {cost:.1f} µs")
    return Measured(list(_results(costs)), {})


def _results(costs: dict[tuple[str, int], float]) -> Iterator[Result]:
    for count in _COUNTS:
        yield Result(f"a change that concerns no view, of {count:,}", "µs", costs["none", count])
    for count in _COUNTS:
        yield Result(f"a change that concerns two views, of {count:,}", "µs", costs["two", count])
    low, high = (costs["none", count] for count in (_COUNTS[0], _COUNTS[-1]))
    name = f"a change that concerns no view, {_COUNTS[-1]:,} against {_COUNTS[0]}"
    yield Result(name, "µs", high, baseline=low, bar=_BAR, small_is_good=True)


class _Population:
    """A number of views over an article that is moved repeatedly."""

    def __init__(self, count: int, draw: Random) -> None:
        self._draw = draw
        self._version = 0
        self._values: dict[str, Any] | None = None
        routes = {
            name: ClassRoute(class_, 1, (_fragment(name),))
            for name, class_ in _SCHEMA.classes.items()
        }
        self._evaluation = Evaluation(routes)
        self._count = count
        for number in range(count):
            for _ in self._evaluation.add(f"v{number}", parse_view(_view(number), _SCHEMA)):
                pass

    def measure(self, changes: int, *, matching: bool) -> float:
        """Return the seconds of a change."""
        self._evaluation.apply(self._change(matching=False))
        self._evaluation.take()
        batch = [self._change(matching=matching) for _ in range(changes)]
        evaluation, touched, started = self._evaluation, 0, thread_time()
        for change in batch:
            evaluation.apply(change)
            touched += len(evaluation.take())
        seconds = (thread_time() - started) / changes
        if (touched > 0) is not matching or evaluation.stopped:
            raise Failed(f"{touched} views have changed")
        return seconds

    def _change(self, *, matching: bool) -> Change:
        # Views are about makers by their number, and every tenth of these has one.
        maker = 10 * self._draw.randrange(max(1, self._count // 10)) + 9 if matching else -1
        after = {"maker": f"m{maker}", "name": "none", "price": -self._draw.randrange(1, _PRICES)}
        before, self._values, self._version = self._values, after, self._version + 1
        kind = "create" if before is None else "replace"
        members = ("shop", "articles", "a", "main", self._version, kind, before, after, 0, "shop")
        return Change(str(self._version), *members)


def _fragment(name: str) -> Fragment:
    fields = _SCHEMA.classes[name].fields
    return Fragment("redis", "shop", name, fields, {"main": tuple(sorted(fields))})


def _view(number: int) -> dict[str, Any]:
    low = number * 13 % _PRICES
    of_maker = {"class": "articles", "filter": {"eq": ["maker", f"m{number}"]}}
    join: dict[str, Any]
    match number % 100:
        case last if last % 10 == 0:
            between = {"between": ["price", low, low + _PRICES // 1_000]}
            return {"class": "articles", "filter": between, "fields": ["id", "price"]}
        case last if last % 10 == 1:
            return {"class": "articles", "filter": {"like": ["name", f"{number:05}%"]}}
        case 2:
            join = {"as": "review", "class": "reviews", "on": {"article": "id"}}
            counted = {"compute": {"n": {"count": "*"}}}
            return {**of_maker, "join": join, "aggregate": counted}
        case 3:
            join = {"class": "reviews", "on": {"article": "id"}, "anti": True}
            return {**of_maker, "join": join, "fields": ["id"]}
        case _:
            return {**of_maker, "fields": ["id", "price"]}

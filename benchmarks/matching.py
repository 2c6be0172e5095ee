"""Similarity matching: accuracy against a known truth, time by size, and ablations.

Networks of roads and people of households are synthetic, so the truth is known. The time is that of
a whole run: reading, partitions, matching, recomposition. The ablations are those of the mechanism:
no relational similarity, no aggregation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.harness.matching_data import (
    PEOPLE_SPEC,
    ROADS_SPEC,
    TwoSources,
    accuracy,
    households,
    roads,
)
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.spark_session import opened_session
from benchmarks.harness.whole_run import whole_run
from spark_jobs.session import LazySession

__all__ = ["run"]

_QUICK: Final = (1_000, 2_000)
_SIZES: Final = (10_000, 30_000)
_FULL: Final = (10_000, 100_000, 500_000)
_BAR: Final = 0.95
_GROWTH: Final = 1.2


async def run(options: Options) -> Measured:
    return await asyncio.to_thread(_measure, options)


def _measure(options: Options) -> Measured:
    sizes = _QUICK if options.quick else _FULL if options.full else _SIZES
    results: list[Result] = []
    with opened_session() as spark:
        _match(spark, roads(_QUICK[0], options.seed), ROADS_SPEC)  # starts processes of Python
        results += _roads(spark, sizes, options)
        results += _ablations(spark, sizes[0], options)
        results += _people(spark, sizes[0], options)
    return Measured(results)


def _roads(spark: SparkSession, sizes: tuple[int, ...], options: Options) -> Iterator[Result]:
    previous: tuple[int, float] | None = None
    for size in sizes:
        options.note(f"roads: {size:,} objects")
        data = roads(size, options.seed)
        count = len(data.left) + len(data.right)
        seconds, precision, recall = _match(spark, data, ROADS_SPEC)
        name = f"roads, {count:,} objects"
        yield Result(f"precision, {name}", "", precision, bar=_BAR)
        yield Result(f"recall, {name}", "", recall, bar=_BAR)
        yield Result(f"objects a second, {name}", "1/s", count / seconds)
        if previous is not None:
            growth = (seconds / previous[1]) / (count / previous[0])
            label = f"growth of time by growth of size, {name}"
            yield Result(label, "", growth, bar=_GROWTH, small_is_good=True)
        previous = count, seconds


def _ablations(spark: SparkSession, size: int, options: Options) -> Iterator[Result]:
    options.note(f"roads: {size:,} objects, without parts of the mechanism")
    data = roads(size, options.seed)
    for name, spec in (
        ("without aggregation", {**ROADS_SPEC, "aggregation": False}),
        ("without relations", _without_relations(ROADS_SPEC)),
    ):
        _, precision, recall = _match(spark, data, spec)
        yield Result(f"precision, roads {name}", "", precision)
        yield Result(f"recall, roads {name}", "", recall)


def _people(spark: SparkSession, size: int, options: Options) -> Iterator[Result]:
    options.note(f"households: {size:,} people")
    data = households(size, options.seed)
    _, precision, recall = _match(spark, data, PEOPLE_SPEC)
    yield Result("precision, people of households", "", precision, bar=_BAR)
    yield Result("recall, people of households", "", recall, bar=_BAR)
    _, precision, recall = _match(spark, data, _without_relations(PEOPLE_SPEC))
    yield Result("precision, people without relations", "", precision)
    yield Result("recall, people without relations", "", recall)


def _without_relations(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification without relations, whose weight the other measures share."""
    share = 1 - spec["relational"]
    measures = [{**measure, "weight": measure["weight"] / share} for measure in spec["measures"]]
    return {**spec, "measures": measures, "relational": 0.0}


def _match(
    spark: SparkSession, data: TwoSources, spec: Mapping[str, Any]
) -> tuple[float, float, float]:
    """Execute a run; return its seconds, precision and recall."""
    with TemporaryDirectory() as folder:
        sources = {}
        for side in ("left", "right"):
            path = Path(folder, f"{side}.json")
            path.write_text("".join(f"{json.dumps(row)}\n" for row in getattr(data, side)))
            sources[side] = {"file": str(path)}
        full_spec, session = {**spec, **sources}, LazySession.of(spark)
        run = whole_run("matching.similarity", full_spec, Path(folder, "run"), session)
        result = b"".join(run.result.stream("json"))
    rows = map(json.loads, result.decode().splitlines())
    links = [(row["left"], row["right"]) for row in rows if row["outcome"] == "similarity"]
    return (run.seconds, *accuracy(links, data.truth))

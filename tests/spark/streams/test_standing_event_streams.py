"""Standing queries on Spark over event streams: several runs give the reference's results."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import orjson
import pytest

from mediator.event_streams.port import EventStream, NewTuple, StreamKey
from mediator.standing.planning import Plan
from mediator.standing.runtime import Runtime
from mediator.standing.state import StreamTuple
from spark_jobs.standing.commits import StateDirectory
from spark_jobs.standing.shared_joins import SharedJoins
from spark_jobs.standing.streaming import event_stream_tuples, start
from spark_jobs.streaming_queries import Failed, end
from tests.spark.standing.feeds import (
    ATTRIBUTES,
    COUNT,
    DOCUMENT,
    random_tuples,
    reference_results,
)
from tests.spark.streams.database_streams import MAX_STARTS, Streams
from tests.unit.standing_spark.in_process import plan_of, results_in


class Feed:
    """Event streams, and the drawn number of each of their tuples."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.numbers: dict[tuple[str, int], int] = {}

    def key(self, stream: str) -> StreamKey:
        id_ = self.streams.running.mediator.data.model.databases[self.streams.database].id
        return StreamKey(id_, stream)

    async def declare(self) -> None:
        for name, attributes in ATTRIBUTES.items():
            stream = EventStream(name, frozenset(attributes), 3600.0, 10_000)
            assert await self.streams.event_streams.declare(self.key(name), stream, 10)

    async def append(self, tuples: list[tuple[int, StreamTuple]]) -> list[tuple[int, StreamTuple]]:
        """Append tuples one by one; return them in the order of their batch."""
        order = []
        for number, tuple_ in tuples:
            new = NewTuple(tuple_.time_s, orjson.dumps(tuple_.values))
            position = await self.streams.event_streams.append(self.key(tuple_.stream), [new])
            self.numbers[tuple_.stream, position] = number
            order.append((position, tuple_.stream, (number, tuple_)))
        return [numbered for _, _, numbered in sorted(order, key=lambda entry: entry[:2])]

    def results(self, plan: Plan) -> Counter[Any]:
        """Count the results, with the drawn numbers of their tuples."""
        counts: Counter[Any] = Counter()
        for row in results_in(self.streams.checkpoint):
            relations = sorted(plan.workload.queries[row["query"]].relations)
            pairs = zip(relations, row["numbers"], strict=True)
            counts[row["query"], tuple(self.numbers[pair] for pair in pairs)] += 1
        return counts


def run(streams: Streams, plan: Plan) -> None:
    """Process all available tuples as one batch."""
    directory = StateDirectory(streams.checkpoint)
    for _ in range(MAX_STARTS):
        with directory.locked():
            joins = SharedJoins(directory, plan, 1.0, 0.0)
            tuples = event_stream_tuples(streams.spark, streams.database, sorted(ATTRIBUTES))
            try:
                end(start(joins, tuples, lambda _: None, {"availableNow": True}))
            except Failed as error:
                # On a busy machine, a Python worker can take longer than Spark's ten seconds.
                if "failed to connect back" not in str(error):
                    raise
            else:
                return
    pytest.fail("the machine is too busy to start a process in ten seconds")


@pytest.mark.large  # it has eight Python processes besides Spark's
@pytest.mark.timeout(900)
async def test_results_are_the_references_over_runs_with_other_plans(streams: Streams) -> None:
    feed, draw = Feed(streams), Random(7)
    await feed.declare()
    reference = Runtime(DOCUMENT["streams"], 3, 1.0)
    expected: Counter[Any] = Counter()
    for run_number, materialise in enumerate((False, True)):
        plan = plan_of(DOCUMENT, materialise=materialise)
        reference.activate(plan)
        batch = await feed.append(random_tuples(COUNT * run_number, draw))
        expected += Counter(reference_results(reference, batch))
        await asyncio.to_thread(run, streams, plan)
        assert feed.results(plan) == expected
    assert StateDirectory(streams.checkpoint).latest().batch == 1
    assert expected.total() > 100

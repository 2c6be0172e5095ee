"""Standing queries on Spark over event streams: the reference's results, over several runs."""

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
from tests.spark.standing.feeds import COUNT, DOCUMENT, LETTERS, drawn, reference_results
from tests.spark.streams.database_streams import STARTS, Streams
from tests.unit.standing_spark.in_process import plan_of, results_in


class Feed:
    """Event streams, and where their tuples are in what was drawn."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.drawn: dict[tuple[str, int], int] = {}

    def key(self, stream: str) -> StreamKey:
        id_ = self.streams.running.mediator.data.model.databases[self.streams.database].id
        return StreamKey(id_, stream)

    async def declare(self) -> None:
        for name, attributes in LETTERS.items():
            stream = EventStream(name, frozenset(attributes), 3600.0, 10_000)
            assert await self.streams.event_streams.declare(self.key(name), stream, 10)

    async def append(self, tuples: list[tuple[int, StreamTuple]]) -> list[tuple[int, StreamTuple]]:
        """Append tuples, each by itself; return them as the batch that has them orders them."""
        order = []
        for number, each in tuples:
            new = NewTuple(each.time_s, orjson.dumps(each.values))
            at = await self.streams.event_streams.append(self.key(each.stream), [new])
            self.drawn[each.stream, at] = number
            order.append((at, each.stream, (number, each)))
        return [each for _, _, each in sorted(order, key=lambda of: of[:2])]

    def results(self, plan: Plan) -> Counter[Any]:
        """Return what was found, by what was drawn."""
        found: Counter[Any] = Counter()
        for row in results_in(self.streams.checkpoint):
            relations = sorted(plan.workload.queries[row["query"]].relations)
            pairs = zip(relations, row["numbers"], strict=True)
            found[row["query"], tuple(self.drawn[pair] for pair in pairs)] += 1
        return found


def run(streams: Streams, plan: Plan) -> None:
    """Execute all that is there, as one batch."""
    directory = StateDirectory(streams.checkpoint)
    for _ in range(STARTS):
        with directory.locked():
            joins = SharedJoins(directory, plan, 1.0, 0.0)
            tuples = event_stream_tuples(streams.spark, streams.database, sorted(LETTERS))
            try:
                end(start(joins, tuples, lambda _: None, {"availableNow": True}))
            except Failed as error:
                # Spark waits for a process of its own for ten seconds, which a busy machine needs.
                if "failed to connect back" not in str(error):
                    raise
            else:
                return
    pytest.fail("the machine is too busy to start a process in ten seconds")


@pytest.mark.large  # it has eight processes of Python beside those of Spark
@pytest.mark.timeout(900)
async def test_results_are_the_references_over_runs_with_other_plans(streams: Streams) -> None:
    feed, draw = Feed(streams), Random(7)
    await feed.declare()
    reference = Runtime(DOCUMENT["streams"], 3, 1.0)
    expected: Counter[Any] = Counter()
    for at, materialise in enumerate((False, True)):
        plan = plan_of(DOCUMENT, materialise=materialise)
        reference.activate(plan)
        batch = await feed.append(drawn(COUNT * at, draw))
        expected += Counter(reference_results(reference, batch))
        await asyncio.to_thread(run, streams, plan)
        assert feed.results(plan) == expected
    assert StateDirectory(streams.checkpoint).latest().batch == 1
    assert expected.total() > 100

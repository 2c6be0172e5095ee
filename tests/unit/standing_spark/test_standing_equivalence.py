"""Random plans and feeds: results equal a batch join's, and costs the reference's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import orjson
import pytest

from mediator.standing.planning import Plan
from mediator.standing.runtime import Runtime
from tests.unit.standing.batch_join import Found, Logged, batch_join, found
from tests.unit.standing_spark.drawn_feeds import (
    LATENESS_S,
    RETENTION_S,
    STREAMS,
    random_batch,
    random_plan,
)
from tests.unit.standing_spark.in_process import InProcess, results_in


class Comparison:
    """Feeds both runtimes with the same plans and tuples."""

    def __init__(self, path: Path, draw: Random) -> None:
        self._path = path
        self._draw = draw
        self._parallelism = draw.choice([1, 3])
        self._reference = Runtime(STREAMS, self._parallelism, RETENTION_S, LATENESS_S)
        self._running: InProcess | None = None
        self._batch = 0
        self._now_s = 0.0
        self.log: list[Logged] = []
        self._position: dict[tuple[str, int], int] = {}
        self.results: Found = Counter()

    def activate(self) -> Plan:
        plan = random_plan(self._draw, self._parallelism)
        self._reference.activate(plan)
        if self._running is None:
            self._running = InProcess(self._path, plan, RETENTION_S, LATENESS_S, self._draw)
        self._running.joins.activate(plan)
        return plan

    def feed(self) -> None:
        reference, running = self._reference, self._running
        assert running is not None
        tuples = list(random_batch(self._draw, 10 * self._batch, self._now_s))
        self._now_s += self._draw.choice([0.1, 1.0, 3.0])
        before, late = running.joins.directory.latest(), reference.late
        sent = Counter(reference.sent)
        for number, tuple_ in tuples:
            position = self._position[tuple_.stream, number] = len(self._position)
            if tuple_.time_s >= reference.watermark_s:
                self.log.append((position, tuple_))
        expected = found(reference.feed([tuple_ for _, tuple_ in tuples]), self.log)
        commit = running.feed(self._batch, tuples)
        results = self._committed()
        assert results == expected
        self.results += results
        orders = [hop.order for hop in running.joins.hops.hops]
        base = before.sent if before.plan == commit.plan else [0] * len(orders)
        counts = zip(orders, commit.sent, base, strict=True)
        assert (
            Counter({order: now - earlier for order, now, earlier in counts})
            == reference.sent - sent
        )
        assert commit.late - before.late == reference.late - late
        assert commit.rows == sum(reference.sizes().values())
        self._batch += 1

    def _committed(self) -> Found:
        results: Found = Counter()
        for row in results_in(self._path, self._batch):
            members = zip(sorted(orjson.loads(row["tuples"])), row["numbers"], strict=True)
            positions = ((name, self._position[name, number]) for name, number in members)
            results[row["query"], tuple(positions)] += 1
        return results


@pytest.mark.parametrize("seed", range(24))
def test_results_and_sent_tuples_equal_those_of_the_reference(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    comparison = Comparison(tmp_path, draw)
    expected: Found = Counter()
    for _ in range(draw.randrange(1, 4)):
        plan = comparison.activate()
        since = comparison.log[-1][0] + 1 if comparison.log else 0
        for _ in range(draw.randrange(1, 5)):
            comparison.feed()
        for name, join in plan.workload.queries.items():
            expected += batch_join(name, join, comparison.log, since, 10**9)
    assert comparison.results == expected

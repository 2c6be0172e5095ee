"""Results over HTTP equal a join of all logged tuples, whatever fails or is paused."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from mediator.base import holding
from mediator.standing.model import Join
from mediator.standing.needs import needs_of
from tests.faults.conditions import eventually
from tests.process.standing.bench import Bench
from tests.process.standing.oracle import Recorder

STREAMS = {"r": "an", "s": "abn", "t": "bcn", "u": "cn"}
FAULTS = ("before", "after", "lease")


@pytest.fixture
async def recorder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Recorder]:
    monkeypatch.setattr(holding, "PAUSE_S", 0.01)
    shared = bench.service.mediator.coordination
    assert shared is not None
    for name, attributes in STREAMS.items():
        await bench.declare(f"n{name}", attributes)
    new_recorder = Recorder(shared, bench.id)
    yield new_recorder
    new_recorder.stop()


def query(random: Random, *names: str) -> dict[str, Any]:
    shared_attributes = {"nrns": "a", "nsnt": "b", "ntnu": "c"}
    return {
        "relations": list(names),
        "predicates": [
            [f"{one}.{at}", f"{other}.{at}"]
            for one, other in pairwise(names)
            for at in shared_attributes[one + other]
        ],
        "window_s": random.choice([3, 5, 8]),
        "lateness_s": 2,
    }


class Sender:
    """Sends tuples at random rates, with skewed values, some of them late."""

    def __init__(self, bench: Bench, random: Random) -> None:
        self._bench = bench
        self._random = random
        self._count = 0
        self._now_s = 100.0

    async def send(self) -> None:
        random = self._random
        self._now_s += random.choice([0.1, 0.5, 3])
        for name, attributes in STREAMS.items():
            tuples = [self._tuple(attributes) for _ in range(random.choice([0, 1, 1, 4]))]
            if tuples:
                await self._bench.send(f"n{name}", *tuples)

    def _tuple(self, attributes: str) -> tuple[float, dict[str, Any]]:
        random = self._random
        self._count += 1
        values: dict[str, Any] = {at: min(3, int(random.expovariate(0.7))) for at in attributes}
        time_s = self._now_s - random.choice([0, 0, 0.3, 1.5, 4])
        return time_s, values | {"n": self._count}


@pytest.mark.parametrize("seed", range(2))
async def test_results_equal_a_join_of_the_log_whatever_fails(
    bench: Bench, recorder: Recorder, seed: int
) -> None:
    random = Random(seed)
    # Of six publications in turn three fail, each at another step.
    recorder.fault = lambda call: FAULTS[call % 3] if call % 2 else ""
    sender = Sender(bench, random)
    await sender.send()
    queries = [await bench.ready(query(random, "nr", "ns", "nt"))]
    joins = await _joins(bench)
    for step in range(24):
        await sender.send()
        if step % 4 == 3:
            await bench.wait_until_taken()
        if step == 7:
            queries.append(await bench.ready(query(random, "ns", "nt", "nu")))
            queries.append(await bench.ready(query(random, "nt", "nu")))
            joins |= await _joins(bench)
        if step in (9, 17):
            await bench.pause(queries[1])
        if step in (13, 21):
            await bench.resume(queries[1])
        if step == 18:
            await bench.pause(queries[2])
        if step == 15:
            assert (await bench.client.delete(f"standing-queries/{queries[0]}")).status_code == 204
    await bench.resume(queries[2])
    await bench.wait_until_taken()
    for query_id in queries[1:]:
        await eventually(partial(bench.has_state, query_id, "ready"))
    await eventually(recorder.is_complete)
    assert sum(map(len, recorder.results.values())) > 50
    for query_id in queries[1:]:
        assert recorder.published(query_id) == recorder.expected(query_id, joins[query_id])
        assert max(recorder.published(query_id).values()) == 1
        over_http = Counter(
            tuple(sorted((name, t["n"]) for name, t in result["tuples"].items()))
            for result in await bench.results(query_id)
        )
        assert over_http == recorder.published(query_id)


async def _joins(bench: Bench) -> dict[str, Join]:
    shared = bench.service.mediator.coordination
    assert shared is not None
    stored = await shared.standing_results.queries(bench.id)
    database = bench.service.mediator.data.model.databases[bench.database]
    return needs_of(stored, database, await bench.streams.of_database(bench.id)).joins

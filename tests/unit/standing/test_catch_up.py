"""A query that catches up has the results that it would have had without its pause."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

from mediator.base.clock import SystemClock
from mediator.base.slices import Slices
from mediator.standing import catch_up
from mediator.standing.batch_run import BatchRun
from mediator.standing.catch_up import CatchUp
from mediator.standing.model import Attribute, Join
from mediator.standing.query import Source, StandingQuery
from mediator.standing.replanning import choose_plan, workload_of
from mediator.standing.results import LoggedTuple
from mediator.standing.runtime import Runtime
from mediator.standing.sampling import Sampling

WINDOW_S, LATENESS_S = 8.0, 3.0
SOURCES = {name: Source("stream", name) for name in "rs"}
EQUAL = frozenset({Attribute("r", "a"), Attribute("s", "a")})
JOIN = Join(frozenset(SOURCES), frozenset({EQUAL}), WINDOW_S)
QUERY = StandingQuery(SOURCES, JOIN, LATENESS_S, None, 1, {})
PLAN = choose_plan(
    workload_of({"q": JOIN}, Sampling().statistics([JOIN])), "greedy", materialise=False
)


class UnpausedRun:
    """Takes batches without a pause, also of another stream, which moves the watermark."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.runtime = Runtime("rsx", 1, WINDOW_S, LATENESS_S)
        self.runtime.activate(PLAN)
        self.numbers = dict.fromkeys("rsx", 0)
        self.now_s = 100.0

    def batch(self) -> BatchRun:
        self.now_s += self.random.choice([0.5, 2, 6])
        run = BatchRun(self.runtime, {"q": QUERY})
        for _ in run.run([self.tuple() for _ in range(self.random.randint(1, 12))]):
            pass
        return run

    def tuple(self) -> LoggedTuple:
        name, random = self.random.choice("rrssx"), self.random
        self.numbers[name] += 1
        values = {"a": random.randint(1, 2), "n": self.numbers[name]}
        time_s = self.now_s - random.choice([0, 0, 1, 2.5, 7])
        return LoggedTuple(name, time_s, values, self.numbers[name])


async def log_of(batches: Sequence[BatchRun]) -> AsyncIterator[Sequence[LoggedTuple]]:
    for batch in batches:
        yield batch.accepted


@pytest.mark.parametrize("seed", range(20))
async def test_a_query_has_the_results_that_it_would_have_had(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(catch_up, "_BATCH_TUPLES", random.choice([1, 3, 500]))
    unpaused, slices = UnpausedRun(random), Slices(SystemClock())
    first = [unpaused.batch() for _ in range(5)]
    catching_up = CatchUp("q", {name: unpaused.numbers[name] for name in "rs"}, QUERY, LATENESS_S)
    missed = [unpaused.batch() for _ in range(5)]
    await catching_up.open(log_of(first + missed), PLAN, slices)
    results: Counter[bytes] = Counter()
    while not catching_up.has_ended or len(missed) < 8:
        results.update((await catching_up.run(slices)).results["q"])
        if len(missed) < 8:
            missed.append(unpaused.batch())
            catching_up.add(missed[-1].accepted)
    assert results == Counter(result for batch in missed for result in batch.results["q"])
    assert results


async def test_history_that_was_logged_late_is_not_executed_again() -> None:
    def logged_tuple(name: str, number: int) -> LoggedTuple:
        return LoggedTuple(name, 100.0 + number, {"a": 1}, number)

    batches = [BatchRun(Runtime("rs", 1, 1.0), {}) for _ in range(2)]
    batches[0].accepted = [logged_tuple("r", 2), logged_tuple("s", 1)]
    # History of r for a query with a longer window, behind the missed tuples.
    batches[1].accepted = [logged_tuple("s", 2), logged_tuple("r", 1)]
    catching_up, slices = CatchUp("q", {"r": 2, "s": 1}, QUERY, LATENESS_S), Slices(SystemClock())
    await catching_up.open(log_of(batches), PLAN, slices)
    run = await catching_up.run(slices)
    assert [tuple_.number for tuple_ in run.accepted] == [2]
    assert len(run.results["q"]) == 2  # with both of r
    assert catching_up.has_ended
    assert catching_up.numbers == {"r": 2, "s": 2}


@pytest.mark.parametrize("batch_tuples", [2, 500])
async def test_a_log_whose_history_is_out_of_order_is_executed_once(
    monkeypatch: pytest.MonkeyPatch, batch_tuples: int
) -> None:
    """An older version logged tuples that were late during the pause behind later ones."""
    monkeypatch.setattr(catch_up, "_BATCH_TUPLES", batch_tuples)
    order = [("r", 3), ("s", 1), ("s", 2), ("r", 2)]
    batch = BatchRun(Runtime("rs", 1, 1.0), {})
    batch.accepted = [LoggedTuple(name, 100.0, {"a": 1}, n) for name, n in order]
    catching_up, slices = CatchUp("q", {"r": 1, "s": 0}, QUERY, LATENESS_S), Slices(SystemClock())
    await catching_up.open(log_of([batch]), PLAN, slices)
    for _ in range(len(order)):
        if not catching_up.has_ended:
            await catching_up.run(slices)
    assert catching_up.has_ended
    assert catching_up.numbers == {"r": 3, "s": 2}

"""Messages are queued by the level with which lookups cost least."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from mediator.flows.levels import LevelChoice
from mediator.flows.partitioning import Grain, canonical
from mediator.flows.plan import MAX_LEVELS, Plan
from tests.unit.flows.plans import LOOKUP, ORDERS, flow

NAMES = ("number", "name", "country")


def plan_of(names: Sequence[str]) -> Plan:
    """A plan that looks each attribute up."""
    lookups = [
        {
            **LOOKUP,
            "query": {"class": "credits", "filter": {"eq": ["customer", {"$": f"/{name}"}]}},
        }
        for name in names
    ]
    return flow([{"op": "receive", "attributes": dict.fromkeys(names, "integer")}, *lookups]).plan


def batches_of(plan: Plan, messages: Sequence[Any], level: int) -> list[list[Any]]:
    batches: defaultdict[bytes, list[Any]] = defaultdict(list)
    for message in messages:
        batches[canonical(message, plan.levels[level])].append(message)
    return list(batches.values())


def lookups_s(plan: Plan, batch: Sequence[Any], costs: Sequence[float]) -> dict[Grain, float]:
    """Return the seconds of the lookups of a batch: each once for every value in it."""
    return {
        frozenset(level): cost * len({canonical(message, level) for message in batch})
        for level, cost in zip(plan.levels, costs, strict=True)
    }


def choose_level(
    plan: Plan, messages: Sequence[Mapping[str, Any]], costs: Sequence[float], present: int = 0
) -> int:
    choice = LevelChoice(plan)
    for batch in batches_of(plan, messages, present):
        choice.add_batch(batch, lookups_s(plan, batch, costs))
    return choice.choose(present)


def messages(chance: Random, values: Sequence[int], number: int = 500) -> list[dict[str, int]]:
    return [
        {name: chance.randrange(count) for name, count in zip(NAMES, values, strict=True)}
        for _ in range(number)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_lookups_cost_least_with_the_level_that_is_chosen(seed: int) -> None:
    """The counts of a window are its costs of execution with each level."""
    chance, plan = Random(seed), plan_of(NAMES)
    values = [chance.choice((1, 3, 10, 100, 10**6)) for _ in NAMES]
    costs = [chance.choice((0.0001, 0.001, 0.01)) for _ in NAMES]
    sample, present = messages(chance, values), chance.randrange(3)
    totals = [
        sum(
            sum(lookups_s(plan, batch, costs).values()) for batch in batches_of(plan, sample, level)
        )
        for level in range(3)
    ]
    choice = choose_level(plan, sample, costs, present)
    if min(totals) < 0.75 * totals[present]:
        assert totals[choice] == pytest.approx(min(totals))
    else:
        assert totals[choice] <= totals[present] * (1 + 1e-9)


def test_of_lookups_that_cost_the_same_the_one_with_the_fewest_values_is_at_the_top() -> None:
    """The order of the paper: by falling selectivity."""
    sample = messages(Random(1), (10**6, 50, 4))
    assert choose_level(plan_of(NAMES), sample, (1.0, 1.0, 1.0)) == 2


def test_a_cheap_lookup_is_not_at_the_top_though_it_has_fewer_values() -> None:
    sample = messages(Random(1), (10**6, 50, 4))
    assert choose_level(plan_of(NAMES), sample, (0.0, 1.0, 0.0001)) == 1


def test_levels_that_cost_about_the_same_do_not_alternate() -> None:
    sample = messages(Random(1), (20, 22, 1))
    plan = plan_of(NAMES[:2])
    assert [choose_level(plan, sample, (1.0, 1.0), present) for present in range(2)] == [0, 1]


def test_a_plan_with_one_lookup_has_one_level_with_its_selectivity() -> None:
    plan, choice = flow(ORDERS).plan, LevelChoice(flow(ORDERS).plan)
    assert choice.document()[0]["selectivity"] is None
    batch = [{"number": f"{n}", "name": f"{n % 10}"} for n in range(100)]
    choice.add_batch(batch, {frozenset(plan.levels[0]): 1.0})
    assert choice.choose(0) == 0
    assert choice.document() == [
        {
            "attributes": [{"attribute": "name", "by": "value"}],
            "selectivity": pytest.approx(0.1),
            "lookup_s": pytest.approx(0.1),
        }
    ]


def test_a_plan_with_many_lookups_has_a_few_levels() -> None:
    names = [f"n{number}" for number in range(MAX_LEVELS + 2)]
    assert len(plan_of(names).levels) == MAX_LEVELS
    # A lookup of the same attributes adds no level.
    assert len(plan_of(["n0", "n0"]).levels) == 1

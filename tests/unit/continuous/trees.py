"""Queries for tests of the optimiser: the paper's trees, and random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, product
from random import Random

from mediator.continuous.model import (
    Aggregate,
    Aggregation,
    Function,
    Join,
    Operator,
    Project,
    Query,
    Select,
    Stream,
    ValueType,
    Window,
    inputs_of,
    post_order,
    relational,
)
from mediator.continuous.order import UNLIMITED, Capacity, Engine, PlanCost, Usage

FIELDS = {"plug": ValueType.INTEGER, "load": ValueType.NUMBER}
STREAMS = {"loads": Stream(FIELDS, 1000.0)}
_COUNT = {"n": Aggregation(Function.COUNT)}


def query(root: Operator) -> Query:
    return Query(STREAMS, root, 1.0, {"plug": 100.0})


def branch(name: str) -> Operator:
    """A window, a selection and an aggregate: the paper's average over some minutes."""
    window = Window(f"window_{name}", "loads", FIELDS, 60.0)
    return Aggregate(
        name, Select(f"select_{name}", window, (), 0.5), ("plug",), {f"n_{name}": _COUNT["n"]}
    )


def top(root: Operator) -> Operator:
    return Project("top", root, {"plug": "plug"})


def two_way(a: str = "a", b: str = "b") -> Operator:
    return Join(f"join_{a}{b}", branch(a), branch(b))


def five_way() -> Operator:
    return Join("join_five", Join("join_abc", two_way(), branch("c")), two_way("d", "e"))


def eight_way() -> Operator:
    six = Join("join_six", five_way(), branch("f"))
    return Join("join_eight", Join("join_seven", six, branch("g")), branch("h"))


def chain(length: int) -> Operator:
    root: Operator = Window("window", "loads", FIELDS, 60.0)
    for number in range(length):
        root = Project(f"p{number}", root, {"plug": "plug"})
    return root


def complete(height: int) -> Operator:
    """A complete binary tree of joins; the leaves are windows."""
    numbers = count()

    def grow(levels: int) -> Operator:
        name = f"o{next(numbers)}"
        if not levels:
            return Window(name, "loads", FIELDS, 60.0)
        return Join(name, grow(levels - 1), grow(levels - 1))

    return grow(height)


def random_tree(draw: Random, operators: int) -> Operator:
    numbers = count()

    def grow(budget: int) -> Operator:
        name = f"o{next(numbers)}"
        if budget == 0:
            return Window(name, "loads", FIELDS, 60.0)
        if budget >= 2 and draw.random() < 0.5:
            left = draw.randrange(budget)
            return Join(name, grow(left), grow(budget - 1 - left))
        return Project(name, grow(budget - 1), {"plug": "plug"})

    return grow(operators)


class RandomCosts:
    """Random costs of each operator and each statement, which do not add up."""

    def __init__(self, seed: int, scale: float) -> None:
        self._seed, self._scale = seed, scale
        self._costs: dict[frozenset[str], float] = {}

    def on_spark(self, operator: Operator) -> float:
        return self._cost(frozenset({operator.name, "on Spark"}))

    def in_database(self, operators: Sequence[Operator]) -> float:
        return self._cost(frozenset([operator.name for operator in operators]))

    def _cost(self, names: frozenset[str]) -> float:
        if names not in self._costs:
            draw = Random(f"{self._seed} {sorted(names)}")
            self._costs[names] = draw.random() * self._scale
        return self._costs[names]


def exhaustive(root: Operator, costs: RandomCosts, capacity: Capacity = UNLIMITED) -> PlanCost:
    """Return the best cost of all 2ⁿ placements."""
    operators = relational(root)
    placements = product(Engine, repeat=len(operators))
    plan_costs = (
        cost_of(
            root,
            costs,
            capacity,
            {op.name: engine for op, engine in zip(operators, engines, strict=True)},
        )
        for engines in placements
    )
    return min(plan_costs, key=lambda cost: cost.order)


def cost_of(
    root: Operator, costs: RandomCosts, capacity: Capacity, engines: Mapping[str, Engine]
) -> PlanCost:
    """Return the cost of one placement, statement by statement."""
    usage = Usage()
    parents = {
        child.name: operator.name for operator in post_order(root) for child in inputs_of(operator)
    }
    statements: dict[str, list[Operator]] = {}
    for operator in reversed(list(post_order(root))):
        if engines.get(operator.name) is not Engine.DATABASE:
            cost = costs.on_spark(operator)
            usage = usage.plus(Usage(cost, cost))
            continue
        start = operator.name
        while engines.get(parents.get(start, "")) is Engine.DATABASE:
            start = parents[start]
        statements.setdefault(start, []).append(operator)
    for operators in statements.values():
        cost = costs.in_database(operators)
        usage = usage.plus(Usage(cost, database=cost))
    return capacity.cost(usage)

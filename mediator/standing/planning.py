"""Plans of standing queries: one per query or one for all, greedy or optimal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from mediator.standing.greedy import greedy_choice
from mediator.standing.model import Join, Workload, stream_store
from mediator.standing.probe_orders import ProbeOrder, StoreLayout, partition_candidates
from mediator.standing.problem import Choice, build_problem, steps_of
from mediator.standing.program import solve

__all__ = ["DEFAULT_LIMIT_S", "MODES", "Mode", "Plan", "PlanOptions", "make_plans"]

Mode: TypeAlias = Literal["individual", "greedy", "shared"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

DEFAULT_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of planning.

    Attributes:
        materialise: Whether intermediate results can be kept.
        replicas: Whether a store can have several layouts, by different attributes.
        limit_s: The solver's time limit for one plan, in seconds.
    """

    materialise: bool = True
    replicas: bool = False
    limit_s: float = DEFAULT_LIMIT_S


@dataclass(frozen=True, slots=True)
class Plan:
    """A choice of probe orders, with its costs and stores.

    Attributes:
        workload: The planned queries.
        costs: By step, in tuples a second.
        stores: All stores: every stream of the queries, and the intermediate results.
        cost: The probe cost, which is the sum of the costs.
        bound: Lower bound on the cost of any plan; 0 for the greedy choice, as it is unknown.
        variables: Number of variables of the program.
        solved_s: The solver's time.
        is_greedy: Whether this is the greedy choice, requested or not.
    """

    workload: Workload
    choice: Choice
    costs: Mapping[ProbeOrder, float]
    stores: tuple[StoreLayout, ...]
    cost: float
    bound: float
    variables: int
    solved_s: float
    is_greedy: bool

    @property
    def gap(self) -> float:
        """The share of the cost that a better plan might save; 0: none."""
        return max(0.0, 1 - self.bound / self.cost) if self.cost else 0.0

    def retention_s(self, store: Join) -> float:
        """Return how long the plan's queries need a store's tuples, in seconds."""
        if len(store.relations) > 1:
            return store.window_s
        windows = (q.window_s for q in self.workload.joins if store.relations <= q.relations)
        return max(windows)

    def stored(self, store: Join) -> float:
        """Return the tuples that a store holds on average."""
        return self.workload.statistics.size(store) * self.retention_s(store)

    def readers(self, store: Join) -> list[str]:
        """Return the queries that probe a store at some step."""
        return [
            name
            for name, query in self.workload.queries.items()
            if store in self._probed_for(query)
        ]

    def _probed_for(self, query: Join) -> set[Join]:
        visited: set[Join] = set()
        pending = [query]
        while pending:
            join = pending.pop()
            if len(join.relations) > 1:
                probed = {
                    at for relation in join.relations for at in self.choice[join, relation].probed
                }
                pending += probed - visited
                visited |= probed
        return visited


def make_plans(workload: Workload, mode: Mode, options: PlanOptions) -> list[Plan]:
    """Plan queries: one plan for all, or one per query.

    Raises:
        Invalid: There are too many candidate probe orders.
        SolverMissing: SciPy is not installed.
    """
    if mode != "individual":
        return [_plan(workload, options, optimal=mode == "shared")]
    return [_plan(workload.only([name]), options, optimal=True) for name in workload.queries]


def _plan(workload: Workload, options: PlanOptions, *, optimal: bool) -> Plan:
    problem = build_problem(workload, materialise=options.materialise, replicas=options.replicas)
    choice = greedy_choice(problem)
    bound, solved_s, is_greedy = 0.0, 0.0, True
    if optimal:
        solution = solve(problem, options.limit_s)
        bound, solved_s = solution.bound, solution.solved_s
        solved = solution.choice
        # At its time limit, the solver may have no choice or a worse one.
        if solved is not None and problem.cost(solved) <= problem.cost(choice):
            choice, is_greedy = solved, False
    return Plan(
        workload,
        choice,
        {step: problem.costs[step] for step in steps_of(choice)},
        _stores(workload, choice),
        problem.cost(choice),
        bound,
        problem.variables,
        solved_s,
        is_greedy,
    )


def _stores(workload: Workload, choice: Choice) -> tuple[StoreLayout, ...]:
    """Return all probed layouts, and the unprobed streams, which later queries need."""
    probed = {step for order in choice.values() for step in order.steps}
    joined = {name for query in workload.joins for name in query.relations}
    unprobed = {stream_store(name) for name in joined} - {step.join for step in probed}
    partitions = partition_candidates(workload, unprobed)
    probed |= {StoreLayout(store, partitions[store][0]) for store in unprobed}
    return tuple(sorted(probed, key=str))

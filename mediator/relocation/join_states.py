"""The states of a worker's plan, by partition, and its execution tuple by tuple.

A composite shares one global window with all its components, and thus expires with the oldest of
them. If it expired with its newest component, plans of different shapes would give different
results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mediator.relocation.messages import Group, Routed
from mediator.relocation.plans import JoinOrders, cheapest_order, left_deep_plan, order_cost
from mediator.standing.model import Join, Statistics, Workload, stream_store
from mediator.standing.rules import Probe, Rules, Store, compile_rules
from mediator.standing.runtime import Result
from mediator.standing.state import JoinedTuple, StreamTuple, Task, join_pair

__all__ = ["Adopted", "JoinStates", "NumberedTuple", "adopt", "state_id"]

_RATE_SHARE: Final = 8
"""The share of the window (one in so many) over which arrival rates are estimated."""

_MAX_COST_RATIO: Final = 0.7
"""Maximum cost of a new plan, relative to the current one, to be worth a change."""


@dataclass(frozen=True, slots=True)
class NumberedTuple(StreamTuple):
    """A tuple of a partition.

    Attributes:
        number: Its position in the log of its relation.
        new_in: The relocation in which the receiver got it as well; 0: none.
    """

    number: int
    new_in: int


def state_id(join: Join) -> str:
    """Return the schema of a state: states with equal ids have the same rows in any plan."""
    if len(join.relations) == 1:
        return str(join)
    predicates = sorted("=".join(sorted(map(str, predicate))) for predicate in join.predicates)
    return f"{join}|{','.join(predicates)}|{join.window_s!r}"


@dataclass(slots=True)
class _State:
    """One state of one partition.

    Attributes:
        newest_old_s: The start of its last old row; rows older than a window are gone.
    """

    task: Task = field(default_factory=Task)
    newest_old_s: float = float("-inf")


class JoinStates:
    """The states of one worker, by partition, for the queries of a workload.

    The id of a state identifies its contents on any worker; some states are derived from others,
    from which they can be recomputed.

    Args:
        shape: The order in which the relations of each query are joined.

    Attributes:
        joined: Pairs made, results included: the work of probing.
        inserted: Rows stored.
    """

    def __init__(self, workload: Workload, shape: JoinOrders) -> None:
        self._workload = workload
        self._partitions: dict[int, dict[Join, _State]] = {}
        self._relocations: dict[int, int] = {}
        self.joined = 0
        self.inserted = 0
        self._set_shape(shape)

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all states, each after those that it is derived from."""
        return list(self._joins)

    @property
    def shape(self) -> JoinOrders:
        """The derivations of states: the plan, in a serialisable form."""
        return self._shape

    def reshape(self, shape: JoinOrders) -> None:
        """Continue with another plan, and compute its new derived states from existing ones."""
        former = set(self._joins.values())
        self._set_shape(shape)
        for partition, states in self._partitions.items():
            self._partitions[partition] = {
                join: states.get(join) or _State() for join in self._joins.values()
            }
            for state, join in self._joins.items():
                if join not in former:
                    self.recompute(partition, state)

    def cheaper_shape(self, watermark_s: float) -> JoinOrders | None:
        """Return a plan that is worth a change, by the latest arrivals; None: none is."""
        # One more than the count of each: idle relations must not determine the order.
        rates = dict.fromkeys(self._workload.statistics.rates, 1.0)
        for partition in self._partitions:
            for name, count in self._recent(partition, watermark_s, 1):
                rates[name] += count
        statistics = Statistics(rates, self._workload.statistics.selectivities)
        shape, differs = {}, False
        for name, query in self._workload.queries.items():
            order = self._shape[name]
            best = cheapest_order(query, statistics)
            if order_cost(query, best, statistics) < _MAX_COST_RATIO * order_cost(
                query, order, statistics
            ):
                order, differs = best, True
            shape[name] = order
        return shape if differs else None

    def _set_shape(self, shape: JoinOrders) -> None:
        self._shape = shape
        plan = left_deep_plan(self._workload, shape)
        self._rules: Rules = compile_rules(plan)
        by_size = sorted(self._rules.stores, key=lambda join: (len(join.relations), state_id(join)))
        self._joins: dict[str, Join] = {state_id(join): join for join in by_size}
        self._retention_s = {join: plan.retention_s(join) for join in by_size}

    def insert(self, partition: int, routed: Routed) -> Iterator[Result]:
        """Insert a tuple, and return its results, except those of new tuples only."""
        item = JoinedTuple.of(self._number(partition, routed))
        for label in self._rules.inputs[routed.relation]:
            yield from self._handle(partition, label, item)

    def install(self, partition: int, state: str, rows: Sequence[Any]) -> int:
        """Store rows of a state without emitting results; return how many."""
        join = self._joins[state]
        if len(join.relations) == 1:
            (relation,) = join.relations
            for number, time_s, values, new_in in rows:
                numbered = NumberedTuple(relation, time_s, values, number, new_in)
                self._keep(partition, join, JoinedTuple.of(numbered))
            return len(rows)
        components = self._by_number(partition, join)
        count = 0
        for row in rows:
            members = [components.get((relation, number)) for relation, number in row]
            # A missing component has left the window, and so has the row.
            if None not in members:
                self._keep(partition, join, _composite(member for member in members if member))
                count += 1
        return count

    def recompute(self, partition: int, state: str) -> int:
        """Compute a derived state of a partition, without results; return its rows."""
        join = self._joins[state]
        rows = list(self._derive(partition, join))
        for row in rows:
            self._keep(partition, join, row)
        return len(rows)

    def restore(self, partition: int, tuples: Iterable[Routed]) -> None:
        """Store tuples that were inserted before, and derive the other states, without results."""
        for routed in tuples:
            item = JoinedTuple.of(self._number(partition, routed))
            self._keep(partition, stream_store(routed.relation), item)
        for state, join in self._joins.items():
            if len(join.relations) > 1:
                self.recompute(partition, state)

    @property
    def work(self) -> int:
        """Rows stored or joined."""
        return self.joined + self.inserted

    def export(self, partition: int) -> Mapping[str, list[Any]]:
        """Return the rows of every state of a partition."""
        return {
            state: [_export_row(item) for item in self._items(partition, join)]
            for state, join in self._joins.items()
        }

    def drop(self, partition: int) -> None:
        """Forget a partition."""
        self._partitions.pop(partition, None)
        self._relocations.pop(partition, None)

    def rows(self, partition: int) -> Mapping[str, int]:
        """Return how many rows each state of a partition has."""
        return {
            state: len(self._items(partition, join))
            for state, join in self._joins.items()
            if partition in self._partitions
        }

    def arriving(self, partition: int, watermark_s: float) -> int:
        """Estimate the tuples that arrive within a window, from the latest ones."""
        return _RATE_SHARE * sum(
            count for _, count in self._recent(partition, watermark_s, _RATE_SHARE)
        )

    def purge(self, partition: int, watermark_s: float) -> None:
        """Drop rows that no tuple from the watermark on can join."""
        for join, state in self._partitions.get(partition, {}).items():
            horizon_s = watermark_s - self._retention_s[join]
            live = [item for item in state.task.tuples if item.first_s >= horizon_s]
            if len(live) < len(state.task.tuples):
                state.task = Task()
                for item in live:
                    state.task.add(item)

    def begin(self, partition: int, relocation: int) -> None:
        """Mark all rows of a partition as old; inserted tuples are then marked by their flags."""
        self._relocations[partition] = relocation
        for state in self._states(partition).values():
            times = (item.first_s for item in state.task.tuples)
            state.newest_old_s = max(times, default=float("-inf"))

    def end(self, partition: int) -> None:
        """Stop distinguishing old rows from new ones."""
        self._relocations.pop(partition, None)

    def holds_old(self, partition: int, watermark_s: float) -> bool:
        """Whether any state, derived ones included, has an old row that can still be joined."""
        return any(
            state.newest_old_s >= watermark_s - self._retention_s[join]
            for join, state in self._states(partition).items()
        )

    def _handle(self, partition: int, label: int, item: JoinedTuple) -> Iterator[Result]:
        """Apply the rules of an edge to a tuple that arrives on it."""
        target = self._rules.edges[label].target.join
        for rule in self._rules.by_edge[label]:
            match rule:
                case Store():
                    self._keep(partition, target, item)
                case Probe():
                    yield from self._probe(partition, target, rule, item)

    def _probe(
        self, partition: int, target: Join, rule: Probe, item: JoinedTuple
    ) -> Iterator[Result]:
        task = self._states(partition)[target].task
        for partner in list(task.partners(item, rule.matches)):
            pair = self._join(item, partner, rule.order.join.window_s)
            if pair is None:
                continue
            # Only here, at the root, new tuples are not combined: the receiver has all their
            # components. Below it they must be, as the pair may join an old tuple.
            if not self._is_new(partition, pair):
                yield from (Result(query, pair.tuples) for query in rule.queries)
            for out in rule.out:
                yield from self._handle(partition, out, pair)

    def _join(self, one: JoinedTuple, other: JoinedTuple, window_s: float) -> JoinedTuple | None:
        pair = join_pair(one, other, window_s)
        self.joined += pair is not None
        return pair

    def _keep(self, partition: int, join: Join, item: JoinedTuple) -> None:
        state = self._states(partition)[join]
        state.task.add(item)
        self.inserted += 1
        if not self._is_new(partition, item):
            state.newest_old_s = max(state.newest_old_s, item.first_s)

    def _is_new(self, partition: int, item: JoinedTuple) -> bool:
        relocation = self._relocations.get(partition)
        return relocation is not None and all(
            isinstance(component, NumberedTuple) and component.new_in == relocation
            for component in item.tuples.values()
        )

    def _number(self, partition: int, routed: Routed) -> NumberedTuple:
        new_in = self._relocations.get(partition, 0) if routed.is_new else 0
        return NumberedTuple(routed.relation, routed.time_s, routed.values, routed.number, new_in)

    def _derive(self, partition: int, join: Join) -> Iterable[JoinedTuple]:
        """Join the states that a state is derived from, the largest first."""
        states = self._states(partition)
        base = max(
            (
                candidate
                for candidate in states
                if candidate.relations < join.relations
                and candidate == join.within(candidate.relations)
            ),
            key=lambda candidate: (len(candidate.relations), state_id(candidate)),
        )
        covered, rows = base.relations, list(states[base].task.tuples)
        while covered != join.relations:
            name = min(join.neighbours(covered))
            matches = sorted(pair for pair in join.across(covered) if pair[1].relation == name)
            task = states[stream_store(name)].task
            rows = [
                joined_pair
                for item in rows
                for partner in task.partners(item, matches)
                if (joined_pair := self._join(item, partner, join.window_s)) is not None
            ]
            covered |= {name}
        return rows

    def _recent(self, partition: int, watermark_s: float, share: int) -> Iterator[tuple[str, int]]:
        """Count the tuples of each relation in the last share (one in `share`) of its window."""
        for join, retention_s in self._retention_s.items():
            if len(join.relations) == 1:
                since_s = watermark_s - retention_s / share
                (name,) = join.relations
                yield name, sum(item.first_s >= since_s for item in self._items(partition, join))

    def _by_number(self, partition: int, join: Join) -> dict[tuple[str, int], StreamTuple]:
        return {
            (component.stream, component.number): component
            for name in join.relations
            for item in self._items(partition, stream_store(name))
            for component in item.tuples.values()
            if isinstance(component, NumberedTuple)
        }

    def _items(self, partition: int, join: Join) -> Sequence[JoinedTuple]:
        states = self._partitions.get(partition)
        return states[join].task.tuples if states else ()

    def _states(self, partition: int) -> dict[Join, _State]:
        if partition not in self._partitions:
            self._partitions[partition] = {join: _State() for join in self._joins.values()}
        return self._partitions[partition]


class Adopted(NamedTuple):
    """Rows that were moved, rows without a state here, and recomputed rows."""

    moved: int
    discarded: int
    recomputed: int


def adopt(states: JoinStates, group: Group) -> Adopted:
    """Adopt a partition group: match states by id, and recompute unmatched states bottom-up.

    Recomputed pairs were already joined by the sender, so nothing is emitted (D-CAPE, section 4).
    """
    moved = recomputed = 0
    # In this order, each state finds the states that it is derived from, shipped or recomputed.
    for state in states.ids:
        if state in group.states:
            moved += states.install(group.partition, state, group.states[state])
        else:
            recomputed += states.recompute(group.partition, state)
    unmatched = group.states.keys() - set(states.ids)
    discarded = sum(len(group.states[state]) for state in unmatched)
    return Adopted(moved, discarded, recomputed)


def _composite(components: Iterable[StreamTuple]) -> JoinedTuple:
    tuples = {component.stream: component for component in components}
    times = [component.time_s for component in tuples.values()]
    return JoinedTuple(tuples, min(times), max(times))


def _export_row(item: JoinedTuple) -> list[Any]:
    components = [
        component for component in item.tuples.values() if isinstance(component, NumberedTuple)
    ]
    if len(components) == 1:
        (component,) = components
        # Flags belong to a relocation that has ended: the next owner sets its own.
        return [component.number, component.time_s, dict(component.values), 0]
    return [[component.stream, component.number] for component in components]

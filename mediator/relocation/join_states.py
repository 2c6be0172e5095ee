"""The states of a worker's plan, by partition; and its execution, tuple by tuple.

A composite lives in one global window with all its parts, and so dies with the oldest of them. If
it died with its newest part, plans of different shapes would give different answers.
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

_RECENT: Final = 8
"""The share of the window by which the rate of arrivals is estimated."""

_WORTH: Final = 0.7
"""Of the cost of the present plan, what another one may have at most to be worth a change."""


@dataclass(frozen=True, slots=True)
class NumberedTuple(StreamTuple):
    """A tuple of a partition.

    Attributes:
        number: Its position in the log of its relation.
        new_in: The relocation in which it went to the receiver too; 0: none.
    """

    number: int
    new_in: int


def state_id(join: Join) -> str:
    """Return the schema of a state: equal ids hold the same rows, whatever the plan."""
    if len(join.relations) == 1:
        return str(join)
    predicates = sorted("=".join(sorted(map(str, each))) for each in join.predicates)
    return f"{join}|{','.join(predicates)}|{join.window_s!r}"


@dataclass(slots=True)
class _State:
    """One state of one partition.

    Attributes:
        newest_old_s: When the last old row in it begins; what is older than a window is no more.
    """

    task: Task = field(default_factory=Task)
    newest_old_s: float = float("-inf")


class JoinStates:
    """The states of one worker, divided by partition, for the queries of a workload.

    A state has an id, which says what it holds wherever it is kept; some states are derived from
    others, and can be made anew from them.

    Args:
        shape: The order in which the relations of each query are joined.

    Attributes:
        joined: Pairs that were made, of which results are a part: the work of probing.
        inserted: Rows that were kept.
    """

    def __init__(self, workload: Workload, shape: JoinOrders) -> None:
        self._workload = workload
        self._partitions: dict[int, dict[Join, _State]] = {}
        self._relocations: dict[int, int] = {}
        self.joined = 0
        self.inserted = 0
        self._use(shape)

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all states, each behind those that it is derived from."""
        return list(self._joins)

    @property
    def shape(self) -> JoinOrders:
        """What is derived, and from what: the plan, in a form that can be kept."""
        return self._shape

    def reshape(self, shape: JoinOrders) -> None:
        """Go on with another plan: what it derives anew is made from what there is."""
        former = set(self._joins.values())
        self._use(shape)
        for partition, states in self._partitions.items():
            self._partitions[partition] = {
                join: states.get(join) or _State() for join in self._joins.values()
            }
            for state, join in self._joins.items():
                if join not in former:
                    self.recompute(partition, state)

    def cheaper_shape(self, watermark_s: float) -> JoinOrders | None:
        """Return a plan that is worth a change, by what arrived last; None: there is none."""
        # One more of each than there are: what is idle is no reason for any order.
        rates = dict.fromkeys(self._workload.statistics.rates, 1.0)
        for partition in self._partitions:
            for name, count in self._recent(partition, watermark_s, 1):
                rates[name] += count
        statistics = Statistics(rates, self._workload.statistics.selectivities)
        shape, differs = {}, False
        for name, query in self._workload.queries.items():
            order = self._shape[name]
            best = cheapest_order(query, statistics)
            if order_cost(query, best, statistics) < _WORTH * order_cost(query, order, statistics):
                order, differs = best, True
            shape[name] = order
        return shape if differs else None

    def _use(self, shape: JoinOrders) -> None:
        self._shape = shape
        plan = left_deep_plan(self._workload, shape)
        self._rules: Rules = compile_rules(plan)
        by_size = sorted(self._rules.stores, key=lambda join: (len(join.relations), state_id(join)))
        self._joins: dict[str, Join] = {state_id(join): join for join in by_size}
        self._retention_s = {join: plan.retention_s(join) for join in by_size}

    def insert(self, partition: int, routed: Routed) -> Iterator[Result]:
        """Keep a tuple, and return the results that it makes; not those of new tuples only."""
        item = JoinedTuple.of(self._numbered(partition, routed))
        for label in self._rules.inputs[routed.relation]:
            yield from self._handle(partition, label, item)

    def install(self, partition: int, state: str, rows: Sequence[Any]) -> int:
        """Keep rows of a state without making results; return how many."""
        join = self._joins[state]
        if len(join.relations) == 1:
            (relation,) = join.relations
            for number, time_s, values, new_in in rows:
                each = NumberedTuple(relation, time_s, values, number, new_in)
                self._keep(partition, join, JoinedTuple.of(each))
            return len(rows)
        parts = self._by_number(partition, join)
        count = 0
        for row in rows:
            found = [parts.get((relation, number)) for relation, number in row]
            # A part that is gone has left the window, and so has the row.
            if None not in found:
                self._keep(partition, join, _composite(each for each in found if each))
                count += 1
        return count

    def recompute(self, partition: int, state: str) -> int:
        """Make a derived state from what the partition holds, without results; return its rows."""
        join = self._joins[state]
        rows = list(self._derive(partition, join))
        for row in rows:
            self._keep(partition, join, row)
        return len(rows)

    def restore(self, partition: int, processed: Iterable[Routed]) -> None:
        """Keep tuples that were inserted before, and derive the other states, without results."""
        for routed in processed:
            item = JoinedTuple.of(self._numbered(partition, routed))
            self._keep(partition, stream_store(routed.relation), item)
        for state, join in self._joins.items():
            if len(join.relations) > 1:
                self.recompute(partition, state)

    @property
    def work(self) -> int:
        """Rows that were kept or joined."""
        return self.joined + self.inserted

    def export(self, partition: int) -> Mapping[str, list[Any]]:
        """Return the rows of every state that a partition has."""
        return {
            state: [_exported(item) for item in self._items(partition, join)]
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
        """Return how many tuples would arrive within a window, by the latest of them."""
        return _RECENT * sum(count for _, count in self._recent(partition, watermark_s, _RECENT))

    def purge(self, partition: int, watermark_s: float) -> None:
        """Drop what no tuple from the watermark on can join."""
        for join, state in self._partitions.get(partition, {}).items():
            horizon_s = watermark_s - self._retention_s[join]
            kept = [item for item in state.task.tuples if item.first_s >= horizon_s]
            if len(kept) < len(state.task.tuples):
                state.task = Task()
                for item in kept:
                    state.task.add(item)

    def begin(self, partition: int, relocation: int) -> None:
        """Take all that a partition holds for old, and what is inserted by its flag."""
        self._relocations[partition] = relocation
        for state in self._states(partition).values():
            times = (item.first_s for item in state.task.tuples)
            state.newest_old_s = max(times, default=float("-inf"))

    def end(self, partition: int) -> None:
        """Make no difference between old and new any more."""
        self._relocations.pop(partition, None)

    def holds_old(self, partition: int, watermark_s: float) -> bool:
        """Say whether any state, derived ones too, has an old row that may still be joined."""
        return any(
            state.newest_old_s >= watermark_s - self._retention_s[join]
            for join, state in self._states(partition).items()
        )

    def _handle(self, partition: int, label: int, item: JoinedTuple) -> Iterator[Result]:
        """Do what the rules of an edge say with a tuple that arrives on it."""
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
            both = self._join(item, partner, rule.order.join.window_s)
            if both is None:
                continue
            # Only here, at the root, new tuples do not meet: the receiver has all of their parts.
            # Below it they must, as what they make may meet an old one.
            if not self._is_new(partition, both):
                yield from (Result(query, both.tuples) for query in rule.queries)
            for out in rule.out:
                yield from self._handle(partition, out, both)

    def _join(self, one: JoinedTuple, other: JoinedTuple, window_s: float) -> JoinedTuple | None:
        both = join_pair(one, other, window_s)
        self.joined += both is not None
        return both

    def _keep(self, partition: int, join: Join, item: JoinedTuple) -> None:
        state = self._states(partition)[join]
        state.task.add(item)
        self.inserted += 1
        if not self._is_new(partition, item):
            state.newest_old_s = max(state.newest_old_s, item.first_s)

    def _is_new(self, partition: int, item: JoinedTuple) -> bool:
        relocation = self._relocations.get(partition)
        return relocation is not None and all(
            isinstance(each, NumberedTuple) and each.new_in == relocation
            for each in item.tuples.values()
        )

    def _numbered(self, partition: int, routed: Routed) -> NumberedTuple:
        new_in = self._relocations.get(partition, 0) if routed.is_new else 0
        return NumberedTuple(routed.relation, routed.time_s, routed.values, routed.number, new_in)

    def _derive(self, partition: int, join: Join) -> Iterable[JoinedTuple]:
        """Join the states that a state is derived from: the largest of them first."""
        states = self._states(partition)
        known_join = max(
            (
                each
                for each in states
                if each.relations < join.relations and each == join.within(each.relations)
            ),
            key=lambda each: (len(each.relations), state_id(each)),
        )
        known, found = known_join.relations, list(states[known_join].task.tuples)
        while known != join.relations:
            name = min(join.neighbours(known))
            matches = sorted(pair for pair in join.across(known) if pair[1].relation == name)
            task = states[stream_store(name)].task
            found = [
                both
                for item in found
                for partner in task.partners(item, matches)
                if (both := self._join(item, partner, join.window_s)) is not None
            ]
            known |= {name}
        return found

    def _recent(self, partition: int, watermark_s: float, share: int) -> Iterator[tuple[str, int]]:
        """Count the tuples of each relation in the last one of so many shares of its window."""
        for join, kept_s in self._retention_s.items():
            if len(join.relations) == 1:
                since_s = watermark_s - kept_s / share
                (name,) = join.relations
                yield name, sum(item.first_s >= since_s for item in self._items(partition, join))

    def _by_number(self, partition: int, join: Join) -> dict[tuple[str, int], StreamTuple]:
        return {
            (each.stream, each.number): each
            for name in join.relations
            for item in self._items(partition, stream_store(name))
            for each in item.tuples.values()
            if isinstance(each, NumberedTuple)
        }

    def _items(self, partition: int, join: Join) -> Sequence[JoinedTuple]:
        states = self._partitions.get(partition)
        return states[join].task.tuples if states else ()

    def _states(self, partition: int) -> dict[Join, _State]:
        if partition not in self._partitions:
            self._partitions[partition] = {join: _State() for join in self._joins.values()}
        return self._partitions[partition]


class Adopted(NamedTuple):
    """Rows that were taken over, had no state here, and were made anew."""

    moved: int
    discarded: int
    recomputed: int


def adopt(states: JoinStates, group: Group) -> Adopted:
    """Take a partition group in: match states by id, and recompute, bottom-up, what had no match.

    What is recomputed are pairs that the sender has joined already, so nothing is emitted (D-CAPE,
    section 4).
    """
    moved = recomputed = 0
    # In this order each state finds those that it is derived from, shipped or recomputed.
    for state in states.ids:
        if state in group.states:
            moved += states.install(group.partition, state, group.states[state])
        else:
            recomputed += states.recompute(group.partition, state)
    unmatched = group.states.keys() - set(states.ids)
    discarded = sum(len(group.states[state]) for state in unmatched)
    return Adopted(moved, discarded, recomputed)


def _composite(parts: Iterable[StreamTuple]) -> JoinedTuple:
    tuples = {each.stream: each for each in parts}
    times = [each.time_s for each in tuples.values()]
    return JoinedTuple(tuples, min(times), max(times))


def _exported(item: JoinedTuple) -> list[Any]:
    parts = [each for each in item.tuples.values() if isinstance(each, NumberedTuple)]
    if len(parts) == 1:
        (each,) = parts
        # Flags are of a relocation that has ended: the next owner has its own.
        return [each.number, each.time_s, dict(each.values), 0]
    return [[each.stream, each.number] for each in parts]

"""The state of stores: tuples in tasks, with a hash index for each probed attribute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mediator.standing.model import Attribute, Join
from mediator.standing.probe_orders import StoreLayout

__all__ = ["JoinedTuple", "PlanEpoch", "StreamTuple", "Task", "join_pair", "task_of"]


@dataclass(frozen=True, slots=True)
class StreamTuple:
    """A tuple of a stream.

    Attributes:
        time_s: Its event time, which windows compare.
        values: Scalars by attribute. A missing or null value equals nothing.
    """

    stream: str
    time_s: float
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JoinedTuple:
    """Joined tuples, one of each relation.

    Attributes:
        first_s: The time of the earliest tuple.
        last_s: The time of the latest tuple.
    """

    tuples: Mapping[str, StreamTuple]
    first_s: float
    last_s: float

    @classmethod
    def of(cls, one: StreamTuple) -> JoinedTuple:
        return cls({one.stream: one}, one.time_s, one.time_s)

    def key(self, attribute: Attribute) -> Hashable | None:
        """Return the key by which an attribute's value is compared; None: nothing equals it."""
        value = self.tuples[attribute.relation].values.get(attribute.name)
        # True equals 1 in Python, but not in JSON.
        return None if value is None else (type(value) is bool, value)


def join_pair(one: JoinedTuple, other: JoinedTuple, window_s: float) -> JoinedTuple | None:
    """Join two joined tuples; None if they are further apart than the window."""
    first_s, last_s = min(one.first_s, other.first_s), max(one.last_s, other.last_s)
    if last_s - first_s > window_s:
        return None
    return JoinedTuple({**one.tuples, **other.tuples}, first_s, last_s)


class Task:
    """A partition of a store."""

    __slots__ = ("_indexes", "tuples")

    def __init__(self) -> None:
        self.tuples: list[JoinedTuple] = []
        self._indexes: dict[Attribute, defaultdict[Hashable, list[JoinedTuple]]] = {}

    def add(self, item: JoinedTuple) -> None:
        self.tuples.append(item)
        for attribute, index in self._indexes.items():
            index[item.key(attribute)].append(item)

    def partners(
        self, item: JoinedTuple, matches: Sequence[tuple[Attribute, Attribute]]
    ) -> Iterator[JoinedTuple]:
        """Yield the tuples that match an item; the first pair is looked up in an index."""
        mine, theirs = matches[0]
        key = item.key(mine)
        if key is None:
            return
        for candidate in self._index(theirs).get(key, ()):
            if all(_equal(item.key(one), candidate.key(other)) for one, other in matches[1:]):
                yield candidate

    def _index(self, attribute: Attribute) -> Mapping[Hashable, list[JoinedTuple]]:
        if attribute not in self._indexes:
            index = self._indexes[attribute] = defaultdict(list)
            for item in self.tuples:
                index[item.key(attribute)].append(item)
        return self._indexes[attribute]


def _equal(one: Hashable | None, other: Hashable | None) -> bool:
    return one is not None and one == other


def task_of(key: Hashable | None, tasks: int) -> int:
    return hash(key) % tasks


@dataclass(slots=True)
class PlanEpoch:
    """A plan epoch: the tuples that arrived while a plan was active, in its layouts.

    Attributes:
        tasks: By store and layout.
        newest_s: The latest start of its tuples.
    """

    tasks: dict[Join, dict[StoreLayout, list[Task]]] = field(default_factory=dict)
    newest_s: float = float("-inf")

    @property
    def is_empty(self) -> bool:
        return self.newest_s == float("-inf")

    def open(self, layouts: Iterable[StoreLayout], parallelism: int) -> None:
        for layout in layouts:
            count = 1 if layout.partition is None else parallelism
            self.tasks.setdefault(layout.join, {})[layout] = [Task() for _ in range(count)]

    def add(self, layout: StoreLayout, item: JoinedTuple) -> None:
        tasks = self.tasks[layout.join][layout]
        number = 0
        if layout.partition is not None:
            number = task_of(item.key(layout.partition), len(tasks))
        tasks[number].add(item)
        self.newest_s = max(self.newest_s, item.first_s)

    def items(self, join: Join) -> Iterator[JoinedTuple]:
        """Yield the tuples of a store, in any one of its layouts."""
        for tasks in list(self.tasks.get(join, {}).values())[:1]:
            for task in tasks:
                yield from task.tuples

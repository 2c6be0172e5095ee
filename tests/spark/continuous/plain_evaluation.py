"""The results of continuous queries in plain Python, slide by slide over the whole log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mediator.continuous.model import (
    Aggregate,
    Aggregation,
    Column,
    Comparison,
    Function,
    Join,
    Operator,
    Project,
    Query,
    Select,
    Window,
)

Row = Mapping[str, Any]
Tuple = tuple[str, float, Row]


def results(query: Query, tuples: list[Tuple], trigger: int = 1) -> list[dict[str, Any]]:
    """Return the result at each slide that is before the latest time of the log.

    One is late if an earlier one was in a later trigger, and so has completed its slide.
    """
    slide = round(query.slide_s * 1e6)
    in_time: list[tuple[str, int, Row]] = []
    completed = None
    for stream, time_s, values in tuples:
        time = round(time_s * 1e6)
        end = -(-time // (slide * trigger)) * slide * trigger
        if completed is None:
            completed = end - slide * trigger
            first = -(-time // slide)
        completed = max(completed, end - slide * trigger)
        if -(-time // slide) >= first and -(-time // slide) * slide > completed:
            in_time.append((stream, time, values))
    if not in_time:
        return []
    last = max(-(-time // slide) for _, time, _ in in_time) - 1
    found = []
    for number in range(first, last + 1):
        time_s = round(number * query.slide_s, 6)
        rows = _relation(query.root, in_time, number * slide)
        found += [{"time_s": time_s, "values": dict(row)} for row in rows]
    return found


def _relation(operator: Operator, log: list[tuple[str, int, Row]], at: int) -> list[Row]:
    match operator:
        case Window(stream=stream, range_s=range_s, rows=rows):
            there = [(t, n, v) for n, (s, t, v) in enumerate(log) if s == stream and t <= at]
            if range_s is not None:
                return [values for t, _, values in there if t > at - round(range_s * 1e6)]
            assert rows is not None
            return [values for _, _, values in sorted(there, key=lambda each: each[:2])[-rows:]]
        case Select(of=of, where=where):
            return [row for row in _relation(of, log, at) if all(_holds(c, row) for c in where)]
        case Project(of=of, columns=columns):
            return [{n: row[o] for n, o in columns.items()} for row in _relation(of, log, at)]
        case Join(left=left, right=right, shared=shared):
            others = _relation(right, log, at)
            return [
                {**one, **other}
                for one in _relation(left, log, at)
                for other in others
                if all(one[name] == other[name] for name in shared)
            ]
        case Aggregate(of=of, by=by, columns=columns):
            groups = defaultdict(list)
            for row in _relation(of, log, at):
                groups[tuple(row[name] for name in by)].append(row)
            return [
                {
                    **dict(zip(by, key, strict=True)),
                    **{name: _computed(each, rows_) for name, each in columns.items()},
                }
                for key, rows_ in groups.items()
            ]


def _holds(comparison: Comparison, row: Row) -> bool:
    one, other = row[comparison.field], comparison.other
    if isinstance(other, Column):
        other = row[other.field] if isinstance(one, str) else float(row[other.field]) * other.times
    compare = {
        "eq": "__eq__",
        "ne": "__ne__",
        "lt": "__lt__",
        "le": "__le__",
        "gt": "__gt__",
        "ge": "__ge__",
    }
    one = one if isinstance(one, str) else float(one)
    return bool(getattr(one, compare[comparison.comparator])(other))


def _computed(aggregation: Aggregation, rows: Iterable[Row]) -> float:
    values = [row[aggregation.field] if aggregation.field else 1 for row in rows]
    match aggregation.function:
        case Function.COUNT:
            return len(values)
        case Function.SUM:
            return float(sum(values))
        case Function.AVERAGE:
            return float(sum(values)) / len(values)
        case Function.MINIMUM:
            return min(values)
        case Function.MAXIMUM:
            return max(values)

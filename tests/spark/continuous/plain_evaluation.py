"""A reference evaluation of continuous queries in plain Python, slide by slide over the log."""

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
    """Return the result of each slide before the log's latest time.

    A tuple is late if an earlier tuple belonged to a later trigger and thus completed its slide.
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
    results_ = []
    for number in range(first, last + 1):
        time_s = round(number * query.slide_s, 6)
        rows = _relation(query.root, in_time, number * slide)
        results_ += [{"time_s": time_s, "values": dict(row)} for row in rows]
    return results_


def _relation(operator: Operator, log: list[tuple[str, int, Row]], at: int) -> list[Row]:
    match operator:
        case Window(stream=stream, range_s=range_s, rows=rows):
            in_window = [(t, n, v) for n, (s, t, v) in enumerate(log) if s == stream and t <= at]
            if range_s is not None:
                return [values for t, _, values in in_window if t > at - round(range_s * 1e6)]
            assert rows is not None
            return [
                values for _, _, values in sorted(in_window, key=lambda entry: entry[:2])[-rows:]
            ]
        case Select(of=of, where=where):
            return [row for row in _relation(of, log, at) if all(_holds(c, row) for c in where)]
        case Project(of=of, columns=columns):
            return [{n: row[o] for n, o in columns.items()} for row in _relation(of, log, at)]
        case Join(left=left, right=right, shared=shared):
            right_rows = _relation(right, log, at)
            return [
                {**left_row, **right_row}
                for left_row in _relation(left, log, at)
                for right_row in right_rows
                if all(left_row[name] == right_row[name] for name in shared)
            ]
        case Aggregate(of=of, by=by, columns=columns):
            groups = defaultdict(list)
            for row in _relation(of, log, at):
                groups[tuple(row[name] for name in by)].append(row)
            return [
                {
                    **dict(zip(by, key, strict=True)),
                    **{
                        name: _computed(aggregation, rows_) for name, aggregation in columns.items()
                    },
                }
                for key, rows_ in groups.items()
            ]


def _holds(comparison: Comparison, row: Row) -> bool:
    value, other = row[comparison.field], comparison.other
    if isinstance(other, Column):
        other = (
            row[other.field] if isinstance(value, str) else float(row[other.field]) * other.times
        )
    operators = {
        "eq": "__eq__",
        "ne": "__ne__",
        "lt": "__lt__",
        "le": "__le__",
        "gt": "__gt__",
        "ge": "__ge__",
    }
    value = value if isinstance(value, str) else float(value)
    return bool(getattr(value, operators[comparison.comparator])(other))


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

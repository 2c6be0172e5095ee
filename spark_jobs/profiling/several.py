"""Dependencies of several columns together: candidates by Apriori, validated in two shuffles again.

If (a, b) is included in (c, d), a is in c and b in d: so only what was found is combined. With an
error above 0 that is a heuristic, as shares of tuples do not follow from shares of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.profiling.cells import canonical_field, keyed
from spark_jobs.profiling.columns import ProfiledColumn, load_columns
from spark_jobs.profiling.inclusion import inclusions, overlaps
from spark_jobs.profiling.spec import IndSpec
from spark_jobs.runner.port import StageContext

__all__ = ["FOUND", "Candidate", "combined", "several"]

FOUND: Final = (
    "dependent array<int>, referenced array<int>, distinct_dependent long, "
    "distinct_referenced long, missing long"
)
_MOST_COMBINED: Final = 5_000
"""Dependencies that are combined with each other: those with the most values."""

_Numbers: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """Columns of one table, and as many of another, by number; the first ones ascend."""

    dependent: _Numbers
    referenced: _Numbers


def several(spec: IndSpec, context: StageContext, smaller: DataFrame, arity: int) -> DataFrame:
    """Return dependencies of this arity from those of one column less."""
    columns = load_columns(context)
    ranked = smaller.orderBy(f.desc("distinct_dependent"), "dependent", "referenced")
    known = ranked.limit(_MOST_COMBINED + 1).toArrow().to_pylist()
    found = [Candidate(tuple(one["dependent"]), tuple(one["referenced"])) for one in known]
    candidates = sorted(combined(found[:_MOST_COMBINED], columns))
    chosen = candidates[: spec.candidates]
    left_out = len(candidates) - len(chosen)
    figures = {"candidates": len(candidates), "validated": len(chosen), "left_out": left_out}
    context.report(f"arity {arity}", {**figures, "combined_all": len(found) <= _MOST_COMBINED})
    return _validated(spec, context, columns, chosen)


def combined(found: Iterable[Candidate], columns: Sequence[ProfiledColumn]) -> Iterator[Candidate]:
    """Combine dependencies that differ in their last columns alone; all within must be known."""
    known = {one for one in found if _may_combine(one, columns)}
    groups: dict[tuple[_Numbers, _Numbers, str, str], list[Candidate]] = {}
    for one in sorted(known):
        tables = columns[one.dependent[-1]].table, columns[one.referenced[-1]].table
        groups.setdefault((one.dependent[:-1], one.referenced[:-1], *tables), []).append(one)
    for group in groups.values():
        for first in group:
            for second in group:
                whole = Candidate(
                    (*first.dependent, second.dependent[-1]),
                    (*first.referenced, second.referenced[-1]),
                )
                if first.dependent[-1] < second.dependent[-1] and _is_possible(whole, known):
                    yield whole


def _may_combine(one: Candidate, columns: Sequence[ProfiledColumn]) -> bool:
    """Elements of lists are no columns of a row."""
    return all(columns[number].is_field for number in (*one.dependent, *one.referenced))


def _is_possible(whole: Candidate, known: set[Candidate]) -> bool:
    if len({*whole.referenced}) < len(whole.referenced):
        return False
    return all(
        Candidate(_without(whole.dependent, at), _without(whole.referenced, at)) in known
        for at in range(len(whole.dependent))
    )


def _without(numbers: _Numbers, at: int) -> _Numbers:
    return numbers[:at] + numbers[at + 1 :]


def _validated(
    spec: IndSpec,
    context: StageContext,
    columns: Sequence[ProfiledColumn],
    candidates: Sequence[Candidate],
) -> DataFrame:
    if not candidates:
        return context.spark.createDataFrame([], FOUND)
    sides = sorted({side for one in candidates for side in (one.dependent, one.referenced)})
    numbers = {side: number for number, side in enumerate(sides)}
    values = _tuples(spec, context, columns, numbers)
    held = inclusions(overlaps(keyed(values), len(sides)), spec.error)
    pairs = [
        (numbers[one.dependent], numbers[one.referenced], one.dependent, one.referenced)
        for one in candidates
    ]
    asked = context.spark.createDataFrame(
        pairs, "a int, b int, dependent array<int>, referenced array<int>"
    )
    names = ("dependent", "referenced", "distinct_dependent", "distinct_referenced", "missing")
    return held.join(f.broadcast(asked), ["a", "b"]).select(*names)


def _tuples(
    spec: IndSpec,
    context: StageContext,
    columns: Sequence[ProfiledColumn],
    numbers: Mapping[_Numbers, int],
) -> DataFrame:
    """The tuples of all sides, as values of columns; one that lacks a value is none."""
    by_table: dict[str, list[Any]] = {}
    for side, number in numbers.items():
        values = [canonical_field(columns[at], spec) for at in side]
        complete = reduce(lambda whole, one: whole & one, (one.isNotNull() for one in values))
        # As JSON no two tuples have the same text.
        text = f.when(complete, f.to_json(f.array(*values)))
        row = f.struct(f.lit(number).alias("column"), text.alias("value"))
        by_table.setdefault(columns[side[0]].table, []).append(row)
    frames = [
        context.input(table).select(f.inline(f.array(*rows))) for table, rows in by_table.items()
    ]
    return reduce(DataFrame.unionByName, frames).where(f.col("value").isNotNull())

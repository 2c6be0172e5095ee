"""Dependencies of several columns together: candidates by Apriori, validated in two more shuffles.

If (a, b) is included in (c, d), a is included in c and b in d, so only known dependencies are
combined. With an error above 0 this is a heuristic, because shares of tuples do not follow from
shares of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.profiling.cells import canonical_field, hash_values
from spark_jobs.profiling.columns import ProfiledColumn, load_columns
from spark_jobs.profiling.inclusion import inclusions, overlaps
from spark_jobs.profiling.spec import IndSpec
from spark_jobs.runner.port import StageContext

__all__ = ["DEPENDENCIES", "Candidate", "combine", "several"]

DEPENDENCIES: Final = (
    "dependent array<int>, referenced array<int>, distinct_dependent long, "
    "distinct_referenced long, missing long"
)
_MAX_COMBINED: Final = 5_000
"""Maximum dependencies that are combined with each other: those with the most values."""

_Numbers: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """Columns of one table, and as many of another table, by number; `dependent` ascends."""

    dependent: _Numbers
    referenced: _Numbers


def several(spec: IndSpec, context: StageContext, smaller: DataFrame, arity: int) -> DataFrame:
    """Return dependencies of this arity, from those with one column less."""
    columns = load_columns(context)
    ranked = smaller.orderBy(f.desc("distinct_dependent"), "dependent", "referenced")
    rows = ranked.limit(_MAX_COMBINED + 1).toArrow().to_pylist()
    parts = [Candidate(tuple(row["dependent"]), tuple(row["referenced"])) for row in rows]
    candidates = sorted(combine(parts[:_MAX_COMBINED], columns))
    validated = candidates[: spec.candidates]
    skipped = len(candidates) - len(validated)
    figures = {"candidates": len(candidates), "validated": len(validated), "left_out": skipped}
    context.report(f"arity {arity}", {**figures, "combined_all": len(parts) <= _MAX_COMBINED})
    return _validate(spec, context, columns, validated)


def combine(
    dependencies: Iterable[Candidate], columns: Sequence[ProfiledColumn]
) -> Iterator[Candidate]:
    """Combine dependencies that differ only in the last columns; all subsets must be known."""
    known = {candidate for candidate in dependencies if _can_combine(candidate, columns)}
    groups: dict[tuple[_Numbers, _Numbers, str, str], list[Candidate]] = {}
    for candidate in sorted(known):
        tables = columns[candidate.dependent[-1]].table, columns[candidate.referenced[-1]].table
        groups.setdefault(
            (candidate.dependent[:-1], candidate.referenced[:-1], *tables), []
        ).append(candidate)
    for group in groups.values():
        for first in group:
            for second in group:
                combination = Candidate(
                    (*first.dependent, second.dependent[-1]),
                    (*first.referenced, second.referenced[-1]),
                )
                if first.dependent[-1] < second.dependent[-1] and _is_possible(combination, known):
                    yield combination


def _can_combine(candidate: Candidate, columns: Sequence[ProfiledColumn]) -> bool:
    """Return whether all columns are fields; elements of lists cannot form tuples of a row."""
    return all(columns[number].is_field for number in (*candidate.dependent, *candidate.referenced))


def _is_possible(candidate: Candidate, known: set[Candidate]) -> bool:
    if len({*candidate.referenced}) < len(candidate.referenced):
        return False
    return all(
        Candidate(_without(candidate.dependent, at), _without(candidate.referenced, at)) in known
        for at in range(len(candidate.dependent))
    )


def _without(numbers: _Numbers, at: int) -> _Numbers:
    return numbers[:at] + numbers[at + 1 :]


def _validate(
    spec: IndSpec,
    context: StageContext,
    columns: Sequence[ProfiledColumn],
    candidates: Sequence[Candidate],
) -> DataFrame:
    if not candidates:
        return context.spark.createDataFrame([], DEPENDENCIES)
    sides = sorted(
        {side for candidate in candidates for side in (candidate.dependent, candidate.referenced)}
    )
    numbers = {side: number for number, side in enumerate(sides)}
    values = _tuples(spec, context, columns, numbers)
    included = inclusions(overlaps(hash_values(values), len(sides)), spec.error)
    pairs = [
        (
            numbers[candidate.dependent],
            numbers[candidate.referenced],
            candidate.dependent,
            candidate.referenced,
        )
        for candidate in candidates
    ]
    requested = context.spark.createDataFrame(
        pairs, "a int, b int, dependent array<int>, referenced array<int>"
    )
    names = ("dependent", "referenced", "distinct_dependent", "distinct_referenced", "missing")
    return included.join(f.broadcast(requested), ["a", "b"]).select(*names)


def _tuples(
    spec: IndSpec,
    context: StageContext,
    columns: Sequence[ProfiledColumn],
    numbers: Mapping[_Numbers, int],
) -> DataFrame:
    """Return the tuples of all sides, as values of columns; without incomplete tuples."""
    by_table: dict[str, list[Any]] = {}
    for side, number in numbers.items():
        values = [canonical_field(columns[at], spec) for at in side]
        complete = reduce(lambda x, y: x & y, (value.isNotNull() for value in values))
        # As JSON, distinct tuples have distinct texts.
        text = f.when(complete, f.to_json(f.array(*values)))
        row = f.struct(f.lit(number).alias("column"), text.alias("value"))
        by_table.setdefault(columns[side[0]].table, []).append(row)
    frames = [
        context.input(table).select(f.inline(f.array(*rows))) for table, rows in by_table.items()
    ]
    return reduce(DataFrame.unionByName, frames).where(f.col("value").isNotNull())

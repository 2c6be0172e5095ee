"""The forecast of a profile, and its stages: each reads inputs and frames of earlier stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.profiling.cells import cells, hash_values
from spark_jobs.profiling.columns import columns, load_columns, nested
from spark_jobs.profiling.inclusion import inclusions, overlaps
from spark_jobs.profiling.propose import LIKELY, blocking_rules, references
from spark_jobs.profiling.ranking import RANKED, Ranking
from spark_jobs.profiling.several import several
from spark_jobs.profiling.spec import IndSpec
from spark_jobs.profiling.statistics import report, statistics
from spark_jobs.runner.port import Forecast, Frame, StageContext

__all__ = ["STAGES", "forecast"]

_CELLS_PER_S: Final = 500_000
_STARTING_S: Final = 5.0
_BASE_BYTES: Final = 512 * 2**20
_BYTES_PER_CELL: Final = 4
"""Memory per cell; unaggregated values beyond it are spilled to disk before the shuffle."""
_MAX_PROPOSALS: Final = 500


def forecast(spec: IndSpec, context: StageContext) -> Forecast:
    """Count rows and fields; nested values are unknown until they are flattened."""
    rows = {table: context.input_rows(table) for table in spec.tables}
    widths = {table: len(context.input(table).columns) for table in spec.tables}
    values = sum(rows[table] * widths[table] for table in spec.tables)
    fields = sum(widths.values())
    pairs = fields * (fields - 1)
    size = f"There are {fields:,} fields with {values:,} values, and {pairs:,} pairs of fields."
    notes = [f"{size} Values inside lists and objects come on top."]
    notes += [
        f"{table} has no rows: its columns are in no result." for table in rows if not rows[table]
    ]
    return Forecast(
        rows=rows,
        memory_bytes=_BASE_BYTES + _BYTES_PER_CELL * values,
        time_s=_STARTING_S + spec.arity * values / _CELLS_PER_S,
        notes=tuple(notes),
    )


def _overlaps(spec: IndSpec, context: StageContext) -> DataFrame:
    columns_ = load_columns(context)
    context.count("columns", len(columns_))
    return overlaps(hash_values(cells(spec, context, columns_)), len(columns_))


def _several(arity: int, spec: IndSpec, context: StageContext) -> DataFrame:
    return several(spec, context, _of_arity(spec, context, arity - 1), arity)


def _of_arity(spec: IndSpec, context: StageContext, arity: int) -> DataFrame:
    if arity > 1:
        return context.output(f"arity {arity}")
    dependencies = inclusions(context.output("overlaps"), spec.error)
    sides = f.array("a").alias("dependent"), f.array("b").alias("referenced")
    return dependencies.select(*sides, "distinct_dependent", "distinct_referenced", "missing")


def _inclusions(spec: IndSpec, context: StageContext) -> DataFrame:
    """Rank dependencies, best first, and report proposals."""
    frames = [_of_arity(spec, context, arity) for arity in range(1, spec.arity + 1)]
    ranking = Ranking(load_columns(context), _report_columns(spec, context))
    ranked = reduce(DataFrame.unionByName, frames).mapInArrow(ranking.kernel(), RANKED)
    _propose(spec, context, ranking, ranked)
    return ranked.orderBy(*_best_first())


def _best_first() -> list[Column]:
    names = ("dependent_table", "dependent", "referenced_table", "referenced")
    return [f.desc("score"), *map(f.col, names)]


def _report_columns(spec: IndSpec, context: StageContext) -> dict[int, int]:
    """Report the statistics; return the number of values of each column."""
    by_column = {row["column"]: row for row in context.output_table("statistics").to_pylist()}
    selves = context.output("overlaps").where(f.col("a") == f.col("b")).select("a", "values")
    distinct = {row["a"]: row["values"] for row in selves.toArrow().to_pylist()}
    rows = {table: context.input_rows(table) for table in spec.tables}
    context.report("columns", report(load_columns(context), by_column, rows, distinct))
    return {number: row["values"] for number, row in by_column.items()}


def _propose(spec: IndSpec, context: StageContext, ranking: Ranking, ranked: DataFrame) -> None:
    fields: dict[str, list[str]] = {table: [] for table in spec.tables}
    for column in ranking.columns:
        if column.is_field:
            fields[column.table].append(column.path)
    between = ranked.where(f.col("dependent_table") != f.col("referenced_table"))
    single = between.where(f.size("dependent") == 1).orderBy(*_best_first())
    likely_references: list[Any] = (
        single.where(f.col("score") >= LIKELY).limit(_MAX_PROPOSALS).toArrow().to_pylist()
    )
    same_name = single.where(f.col("dependent") == f.col("referenced"))
    same_names: list[Any] = same_name.limit(_MAX_PROPOSALS).toArrow().to_pylist()
    context.report("references", {"proposals": references(spec, likely_references, fields)})
    context.report("blocking", {"jobs": blocking_rules(spec, same_names, fields)})


STAGES: Final[Mapping[str, Callable[[IndSpec, StageContext], Frame]]] = {
    "nested": nested,
    "columns": columns,
    "statistics": statistics,
    "overlaps": _overlaps,
    **{f"arity {arity}": partial(_several, arity) for arity in (2, 3, 4)},
    "inclusions": _inclusions,
}

"""The kind of job `profile.ind`: inclusion dependencies between columns, and their statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from spark_jobs.profiling.spec import IndSpec
from spark_jobs.runner.port import ColumnType, Forecast, Input, Stage, StageContext, stages_in

__all__ = ["InclusionProfile"]

_COLUMNS: Final[Mapping[str, ColumnType]] = {
    "id": "string",
    "dependent_table": "string",
    "dependent": "array",
    "referenced_table": "string",
    "referenced": "array",
    "distinct_dependent": "integer",
    "distinct_referenced": "integer",
    "missing": "integer",
    "error": "number",
    "coverage": "number",
    "key": "number",
    "names": "number",
    "score": "number",
    "why": "string",
}


class InclusionProfile:
    """Finds columns whose values all occur in other columns, in any number of tables."""

    name = "profile.ind"
    summary = "Finds columns whose values all occur in another column, and proposes references."
    specification = IndSpec
    example: ClassVar = {"inputs": {"people": {"class": "people"}, "cities": {"class": "cities"}}}

    def inputs(self, spec: IndSpec) -> tuple[Input, ...]:
        return spec.inputs

    def columns(self, spec: IndSpec) -> Mapping[str, ColumnType]:
        """Return the columns; they are the same for every arity."""
        del spec
        return _COLUMNS

    def forecast(self, spec: IndSpec, context: StageContext) -> Forecast:
        from spark_jobs.profiling.stages import forecast  # noqa: PLC0415 - needs Spark

        return forecast(spec, context)

    def stages(self, spec: IndSpec) -> tuple[Stage, ...]:
        multi_column = (f"arity {arity}" for arity in range(2, spec.arity + 1))
        names = ("nested", "columns", "statistics", "overlaps", *multi_column, "inclusions")
        return stages_in("spark_jobs.profiling.stages", names, spec)

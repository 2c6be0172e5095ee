"""The kind of job `matching.schema`: correspondences of two schemas, with relation and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import ClassVar, Final

from spark_jobs.matching.schemas.spec import SchemaMatchingSpec
from spark_jobs.runner.port import (
    ColumnType,
    Forecast,
    Input,
    InputUnfit,
    Stage,
    StageContext,
    stages_in,
)

__all__ = ["SchemaMatching"]

_REQUIRED: Final = ("rapidfuzz", "rdflib")


class SchemaMatching:
    """Finds corresponding fields of two tables, or concepts of two ontologies."""

    name = "matching.schema"
    summary = "Matches the fields of two schemas, or the concepts of two ontologies, with reasons."
    specification = SchemaMatchingSpec
    example: ClassVar = {
        "left": {"table": {"class": "people"}},
        "right": {"table": {"class": "customers"}},
    }

    def inputs(self, spec: SchemaMatchingSpec) -> tuple[Input, ...]:
        return spec.inputs

    def columns(self, spec: SchemaMatchingSpec) -> Mapping[str, ColumnType]:
        del spec
        return {
            "id": "string",
            "left": "string",
            "right": "string",
            "relation": "string",
            "confidence": "number",
            "bits": "number",
            "evidence": "string",
        }

    def forecast(self, spec: SchemaMatchingSpec, context: StageContext) -> Forecast:
        if missing := [module for module in _REQUIRED if find_spec(module) is None]:
            raise InputUnfit(
                f'{", ".join(missing)} is missing here: pip install "portolan[matching]".'
            )
        from spark_jobs.matching.schemas.stages import forecast  # noqa: PLC0415 - needs Spark

        return forecast(spec, context)

    def stages(self, spec: SchemaMatchingSpec) -> tuple[Stage, ...]:
        names = ("profiles", "candidates", "correspondences")
        return stages_in("spark_jobs.matching.schemas.stages", names, spec)

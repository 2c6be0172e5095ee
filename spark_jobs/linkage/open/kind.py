"""The kind of job `linkage.open`: blocking, comparison, weights, clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from spark_jobs.linkage.open.spec import KNOWN, LinkageEngine, LinkageResult, OpenSpec
from spark_jobs.runner.port import ColumnType, Forecast, Input, Stage, StageContext, stages_in

__all__ = ["OpenLinkage"]

_COLUMNS: Final[Mapping[LinkageResult, Mapping[str, ColumnType]]] = {
    LinkageResult.CLUSTERS: {
        "id": "string",
        "cluster": "string",
        "source": "string",
        "record": "string",
        "probability": "number",
    },
    LinkageResult.PAIRS: {
        "id": "string",
        "left_source": "string",
        "left_record": "string",
        "right_source": "string",
        "right_record": "string",
        "probability": "number",
        "bits": "number",
        "pattern": "integer",
        "rarity": "number",
        "why": "string",
        "together": "boolean",
    },
}


class OpenLinkage:
    """Finds records of the same person or thing, within one table or across several."""

    name = "linkage.open"
    summary = "Finds records that denote the same, in one table or in several, with reasons."
    specification = OpenSpec
    example: ClassVar = {"inputs": {"people": {"class": "people"}}, "zero_config": True}

    def inputs(self, spec: OpenSpec) -> tuple[Input, ...]:
        if spec.known is None:
            return spec.inputs
        fields = ("cluster", "source", "record")
        return (*spec.inputs, Input(KNOWN, spec.known, fields, local_rows=spec.local_records))

    def columns(self, spec: OpenSpec) -> Mapping[str, ColumnType]:
        return _COLUMNS[spec.result]

    def forecast(self, spec: OpenSpec, context: StageContext) -> Forecast:
        from spark_jobs.linkage.open.stages import forecast  # noqa: PLC0415 - needs Spark

        return forecast(spec, context)

    def stages(self, spec: OpenSpec) -> tuple[Stage, ...]:
        last = (
            ("pairs", "clusters")
            if spec.result is LinkageResult.CLUSTERS
            else ("clusters", "pairs")
        )
        choice = ("engine",) if spec.engine is LinkageEngine.AUTO else ()
        names = ("plan", "values", *choice, "records", "compare", "model", "roots", *last)
        return stages_in("spark_jobs.linkage.open.stages", names, spec)

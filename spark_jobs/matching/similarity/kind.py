"""The kind of job `matching.similarity`: links objects of two sources that denote the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import ColumnType, Forecast, Input, Stage, StageContext, stages_in

__all__ = ["SimilarityMatching"]

_COLUMNS: Final[Mapping[str, ColumnType]] = {
    "id": "string",
    "left": "array",
    "right": "array",
    "outcome": "string",
    "similarity": "number",
    "terms": "array",
    "why": "string",
    "fingerprint": "string",
    "rejected": "array",
}
_FORMER_COLUMNS: Final = tuple(name for name in _COLUMNS if name not in {"id", "why"})
"""Columns of a result that a later run reads."""


class SimilarityMatching:
    """Links objects of two sources by weighted similarity, their relations, and aggregation."""

    name = "matching.similarity"
    summary = "Links objects of two sources that denote the same, n to m, with reasons."
    specification = SimilaritySpec
    example: ClassVar = {
        "left": {"class": "people"},
        "right": {"class": "customers"},
        "blocking": {"keys": [{"field": "name", "take": "soundex"}]},
        "measures": [
            {"measure": "text", "field": "name", "weight": 0.7},
            {"measure": "text", "field": "city", "weight": 0.3},
        ],
        "threshold": 0.8,
        "aggregation": False,
    }

    def inputs(self, spec: SimilaritySpec) -> tuple[Input, ...]:
        list_columns = ("left", "right", "decision")
        lists = () if spec.lists is None else (Input("lists", spec.lists, list_columns),)
        former = () if spec.former is None else (Input("former", spec.former, _FORMER_COLUMNS),)
        left = Input("left", spec.left, spec.fields("left"))
        right = Input("right", spec.right, spec.fields("right"))
        label_columns = ("left", "right", "match")
        labels = (
            () if spec.learning is None else (Input("labels", spec.learning.labels, label_columns),)
        )
        return (left, right, *lists, *former, *labels)

    def columns(self, spec: SimilaritySpec) -> Mapping[str, ColumnType]:
        del spec
        return _COLUMNS

    def forecast(self, spec: SimilaritySpec, context: StageContext) -> Forecast:
        from spark_jobs.matching.similarity.stages import forecast  # noqa: PLC0415 - needs Spark

        return forecast(spec, context)

    def stages(self, spec: SimilaritySpec) -> tuple[Stage, ...]:
        learning = () if spec.learning is None else ("learn",)
        roads = () if spec.roads is None else ("roads",)
        names = (*roads, "objects", *learning, "borders", "partitions", "match", "report", "result")
        return stages_in("spark_jobs.matching.similarity.stages", names, spec)

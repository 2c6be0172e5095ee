"""``linkage.private``: a kind of job that finds pairs of similar encodings.

    {"kind": "linkage.private",
     "spec": {"left": {"file": "a.csv"}, "right": {"file": "b.csv"}, "threshold": 0.8}}

gives rows ``left_party``, ``left``, ``right_party``, ``right`` and ``similarity``, the most similar
first: exactly the pairs that brute force finds, with any filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.runner.port import ColumnType, Forecast, Input, Stage, StageContext, stages_in

__all__ = ["PrivateLinkage"]


class PrivateLinkage:
    """Links encoded records of several owners."""

    name = "linkage.private"
    summary = "Finds the encoded records of different owners that are of the same person."
    specification = PrivateSpec
    example: ClassVar = {"left": {"class": "ours"}, "right": {"class": "theirs"}, "threshold": 0.8}

    def inputs(self, spec: PrivateSpec) -> tuple[Input, ...]:
        return tuple(Input(name, source, (spec.bits,)) for name, source in spec.owners.items())

    def columns(self, spec: PrivateSpec) -> Mapping[str, ColumnType]:
        del spec
        ends: tuple[str, ...] = ("left_party", "left", "right_party", "right")
        return {**dict.fromkeys(ends, "string"), "similarity": "number"}

    def forecast(self, spec: PrivateSpec, context: StageContext) -> Forecast:
        from spark_jobs.linkage.private.stages import forecast  # noqa: PLC0415 - needs Spark

        return forecast(spec, context)

    def stages(self, spec: PrivateSpec) -> tuple[Stage, ...]:
        names = ("order", "blocks", "compare", "links")
        return stages_in("spark_jobs.linkage.private.stages", names, spec)

"""A context without a runner: executes stages one by one and keeps their output in a folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.linkage.open.kind import OpenLinkage
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.runner.port import Forecast

__all__ = ["FolderContext", "frame"]


class FolderContext:
    """Keeps the output of stages as Parquet, as the runner does."""

    def __init__(self, spark: SparkSession, folder: Path, inputs: Mapping[str, DataFrame]) -> None:
        self.spark = spark
        self.counters: Counter[str] = Counter()
        self.reports: dict[str, Any] = {}
        self.folder = folder
        self.inputs = inputs

    def input(self, name: str) -> DataFrame:
        return self.inputs[name]

    def output(self, stage: str) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / stage))

    def input_rows(self, name: str) -> int:
        return self.inputs[name].count()

    def input_table(self, name: str) -> pa.Table:
        return self.inputs[name].toArrow()

    def output_table(self, stage: str) -> pa.Table:
        return pq.read_table(self.folder / stage)

    def progress(self, done: int, total: int) -> None:
        """Ignore the progress."""

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def report(self, name: str, document: Mapping[str, Any]) -> None:
        self.reports[name] = json.loads(json.dumps(document))

    def execute(self, spec: OpenSpec, until: str | None = None) -> list[dict[str, Any]]:
        """Execute all stages, or those up to `until`; return the rows of the last."""
        last = ""
        for stage in OpenLinkage().stages(spec):
            frame = stage.run(self)
            if isinstance(frame, pa.Table):
                (self.folder / stage.name).mkdir(parents=True, exist_ok=True)
                pq.write_table(frame, self.folder / stage.name / "part.parquet")
            elif frame is not None:
                frame.write.parquet(str(self.folder / stage.name), mode="overwrite")
            last = stage.name
            if last == until:
                break
        return self.rows(last)

    def rows(self, stage: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.output(stage).collect()]

    def forecast(self, spec: OpenSpec) -> Forecast:
        return OpenLinkage().forecast(spec, self)


def frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return records as an input whose values are all strings, as from CSV."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in names}
    return spark.createDataFrame(pa.table(columns))

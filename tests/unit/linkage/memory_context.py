"""A context for open linkage in this process, with inputs and outputs in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_jobs.linkage.open.local.stages import STAGES
from spark_jobs.linkage.open.spec import OpenSpec

__all__ = ["MemoryContext", "text_table"]


def text_table(rows: Sequence[Mapping[str, str | None]]) -> pa.Table:
    """Return records with the same fields as an input whose values are strings, as from CSV."""
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]})


class MemoryContext:
    """The part of a stage context that the local engine uses, without Spark."""

    def __init__(self, inputs: Mapping[str, pa.Table]) -> None:
        self.counters: Counter[str] = Counter()
        self.reports: dict[str, Any] = {}
        self._inputs = inputs
        self._outputs: dict[str, pa.Table] = {}

    def input_rows(self, name: str) -> int:
        return len(self._inputs[name])

    def input_table(self, name: str) -> pa.Table:
        return self._inputs[name]

    def output_table(self, stage: str) -> pa.Table:
        return self._outputs[stage]

    def progress(self, done: int, total: int) -> None:
        """Ignore the progress."""

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def report(self, name: str, document: Mapping[str, Any]) -> None:
        self.reports[name] = document

    def execute(self, spec: OpenSpec) -> pa.Table:
        """Execute all stages; return the output of the last."""
        for name, stage in STAGES.items():
            self._outputs[name] = stage(spec, self)  # type: ignore[arg-type]  # without Spark
        return self._outputs[name]

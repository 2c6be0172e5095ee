"""The engine of a run: the one asked for, or by the data.

Results of the two differ a little, for they estimate in different ways. So the default is always
Spark, and *auto* has to be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from pyspark.sql import DataFrame

from spark_jobs.linkage.open.blocks import loads
from spark_jobs.linkage.open.non_ascii import SPARE_CODES, non_ascii_characters
from spark_jobs.linkage.open.plan import document_frame, load_document, load_plan
from spark_jobs.linkage.open.spec import Engine, OpenSpec
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["IN_PROCESS_PAIRS", "Choice", "choose", "engine", "load_engine"]

IN_PROCESS_PAIRS: Final = 10_000_000
"""Pairs that are compared in one process at most."""

_MISSING: Final = 'Splink is not installed here: pip install "portolan[linkage]".'


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, Spark or Splink, and why it is that one, in a sentence."""

    engine: Engine
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Write it."""
        return {"engine": self.engine.value, "reason": self.reason}


def choose(spec: OpenSpec, records: DataFrame, pairs: int) -> Choice:
    """Choose an engine.

    Args:
        spec: Complete.
        records: Prepared; heavy blocks are not split yet.
        pairs: Of all their blocks.

    Raises:
        InputUnfit: Splink is asked for, and cannot do it.
    """
    if spec.engine is Engine.SPARK:
        return Choice(Engine.SPARK, "It was asked for.")
    obstacle = _obstacle(spec, records, pairs)
    if spec.engine is Engine.AUTO:
        if obstacle:
            return Choice(Engine.SPARK, obstacle)
        return Choice(Engine.SPLINK, f"{pairs:,} pairs fit one process.")
    if obstacle:
        raise InputUnfit(f'/engine: {obstacle} Or let engine be "spark".')
    return Choice(Engine.SPLINK, "It was asked for.")


def engine(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Choose for a run that says *auto*, by the same pairs as its forecast; keep the choice."""
    complete, records = load_plan(spec, context), context.output("values")
    choice = choose(complete, records, sum(load.pairs for load in loads(records, complete)))
    context.report("engine", choice.to_json())
    return document_frame(context, choice.to_json())


def load_engine(spec: OpenSpec, context: StageContext) -> Engine:
    """Return the engine of a run.

    Raises:
        InputUnfit: It is Splink, which the worker that goes on with the run has not got.
    """
    chosen = spec.engine
    if chosen is Engine.AUTO:
        chosen = Engine(load_document(context, "engine")["engine"])
    if chosen is Engine.SPLINK and not _installed():
        raise InputUnfit(f"/engine: {_MISSING}")
    return chosen


def _obstacle(spec: OpenSpec, records: DataFrame, pairs: int) -> str | None:
    if not _installed():
        return _MISSING
    if pairs > IN_PROCESS_PAIRS:
        return f"There are {pairs:,} pairs; one process is given {IN_PROCESS_PAIRS:,} at most."
    if len(non_ascii_characters(records, spec)) > len(SPARE_CODES):
        return (
            "What is compared by its spelling has more different characters beyond a to z than the "
            f"{len(SPARE_CODES)} that Splink on DuckDB can tell apart."
        )
    return None


def _installed() -> bool:
    return all(find_spec(package) for package in ("splink", "duckdb"))

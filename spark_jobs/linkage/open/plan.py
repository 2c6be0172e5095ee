"""The plan of a run: its rules, comparisons and engine, as given or by the data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.blocks import loads
from spark_jobs.linkage.open.profile import draw_sample
from spark_jobs.linkage.open.propose import PlanProposal, propose
from spark_jobs.linkage.open.spec import LinkageEngine, LinkagePlan, Measure, OpenSpec
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = [
    "SPARE_CODES",
    "choose",
    "compared_by_characters",
    "complete_spec",
    "document_frame",
    "engine",
    "load_document",
    "load_engine",
    "load_plan",
    "non_ascii_characters",
    "plan",
]

IN_PROCESS_PAIRS: Final = 10_000_000
"""Pairs that are compared in one process at most."""

_MISSING: Final = 'Splink is not installed here: pip install "portolan[linkage]".'

_BY_CHARACTERS: Final = {Measure.LEVENSHTEIN, Measure.JARO_WINKLER}
_USED: Final = "abcdefghijklmnopqrstuvwxyz0123456789 "

SPARE_CODES: Final = "".join(chr(code) for code in range(1, 128) if chr(code) not in _USED)
"""Codes of one byte that prepared values, without capitals and punctuation, do not use.

DuckDB's measures of spelling count characters of more than a byte as several. A distance is the
same whichever code stands for a character.
"""


def complete_spec(spec: OpenSpec, context: StageContext) -> tuple[OpenSpec, PlanProposal | None]:
    """Complete a specification by proposals from the data.

    Raises:
        InputUnfit: The data propose nothing.
    """
    if spec.is_complete:
        return spec.prepared(), None
    fields = bool(spec.blocking or spec.comparisons) or spec.engine is LinkageEngine.SPLINK
    proposal = propose(draw_sample(spec, context), only_fields=fields)
    proposed = {
        "blocking": spec.blocking or proposal.rules,
        "comparisons": spec.comparisons or proposal.comparisons,
        "similarity": proposal.similarity,
    }
    return spec.model_copy(update=proposed).prepared(), proposal


def plan(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Keep the plan of the run, so that all of its stages use the same."""
    complete, proposal = complete_spec(spec, context)
    if proposal is not None:
        context.report("proposal", proposal.to_json())
    kept = LinkagePlan(
        blocking=complete.blocking,
        comparisons=complete.comparisons,
        similarity=complete.similarity,
    )
    return document_frame(context, kept.model_dump(mode="json"))


def load_plan(spec: OpenSpec, context: StageContext) -> OpenSpec:
    kept = LinkagePlan.parse(load_document(context, "plan"))
    return spec.model_copy(update={name: getattr(kept, name) for name in LinkagePlan.model_fields})


def document_frame(context: StageContext, document: Mapping[str, Any]) -> DataFrame:
    return context.spark.createDataFrame([(json.dumps(document),)], "document string")


def load_document(context: StageContext, stage: str) -> Mapping[str, Any]:
    row = context.output(stage).first()
    assert row is not None
    document: Mapping[str, Any] = json.loads(row["document"])
    return document


class EngineChoice(NamedTuple):
    """An engine, Spark or Splink, and why it is that one, in a sentence."""

    engine: LinkageEngine
    reason: str


def choose(spec: OpenSpec, records: DataFrame, pairs: int) -> EngineChoice:
    """Choose an engine for prepared records, whose heavy blocks are not split yet.

    Results of the two differ a little, because they estimate differently. So the default is always
    Spark, and *auto* has to be chosen.

    Raises:
        InputUnfit: Splink is requested, and cannot do it.
    """
    if spec.engine is LinkageEngine.SPARK:
        return EngineChoice(LinkageEngine.SPARK, "The specification requires it.")
    obstacle = _obstacle(spec, records, pairs)
    if spec.similarity is not None:
        obstacle = "Splink compares fields only, and whole records are compared here."
    if spec.engine is LinkageEngine.AUTO:
        if obstacle:
            return EngineChoice(LinkageEngine.SPARK, obstacle)
        return EngineChoice(LinkageEngine.SPLINK, f"{pairs:,} pairs fit one process.")
    if obstacle:
        raise InputUnfit(f'/engine: {obstacle} Or let engine be "spark".')
    return EngineChoice(LinkageEngine.SPLINK, "The specification requires it.")


def engine(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Choose for a run with *auto*, by the same pairs as its forecast; keep the choice."""
    complete, records = load_plan(spec, context), context.output("values")
    choice = choose(complete, records, sum(load.pairs for load in loads(records, complete)))
    context.report("engine", choice._asdict())
    return document_frame(context, choice._asdict())


def load_engine(spec: OpenSpec, context: StageContext) -> LinkageEngine:
    """Return the engine of a run.

    Raises:
        InputUnfit: It is Splink, which the worker that continues the run does not have.
    """
    chosen = spec.engine
    if chosen is LinkageEngine.AUTO:
        chosen = LinkageEngine(load_document(context, "engine")["engine"])
    if chosen is LinkageEngine.SPLINK and not _installed():
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
            f"{len(SPARE_CODES)} that Splink on DuckDB can distinguish."
        )
    return None


def _installed() -> bool:
    return all(find_spec(package) for package in ("splink", "duckdb"))


def compared_by_characters(spec: OpenSpec) -> Iterator[int]:
    for k, comparison in enumerate(spec.comparisons):
        if any(level.measure in _BY_CHARACTERS for level in comparison.levels):
            yield k


def non_ascii_characters(records: DataFrame, spec: OpenSpec) -> str:
    """Return characters beyond ASCII in values compared by spelling; one too many is enough."""
    columns = [f.col(f"c{k}") for k in compared_by_characters(spec)]
    if not columns:
        return ""
    each = f.regexp_extract_all(f.concat_ws("", *columns), f.lit(r"([^\x00-\x7f])"), f.lit(1))
    characters = (
        records.select(f.explode(each).alias("character")).distinct().limit(len(SPARE_CODES) + 1)
    )
    return "".join(sorted(characters.toArrow().column("character").to_pylist()))

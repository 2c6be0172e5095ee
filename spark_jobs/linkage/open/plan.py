"""The plan of a run: its rules, comparisons and engine, specified or proposed from the data.

Only the checks for Splink start Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.profile import RecordSample
from spark_jobs.linkage.open.propose import PlanProposal, propose
from spark_jobs.linkage.open.spec import (
    MAX_LOCAL_RECORDS,
    LinkageEngine,
    LinkagePlan,
    Measure,
    OpenSpec,
)
from spark_jobs.runner.port import InputUnfit, StageContext
from spark_jobs.texts import has_text

__all__ = [
    "SPARE_CODES",
    "EngineChoice",
    "SampleReader",
    "check_splink",
    "choose",
    "compared_by_characters",
    "complete_spec",
    "document_frame",
    "inputs_fit",
    "keep_engine",
    "keep_plan",
    "load_document",
    "load_engine",
    "load_plan",
    "non_ascii_characters",
]

IN_PROCESS_PAIRS: Final = 10_000_000
"""Maximum pairs that one process compares."""

_NO_SPLINK: Final = 'Splink is not installed here: pip install "portolan[linkage]".'

_CHARACTER_MEASURES: Final = {Measure.LEVENSHTEIN, Measure.JARO_WINKLER}
_USED_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789 "

SPARE_CODES: Final = "".join(
    chr(code) for code in range(1, 128) if chr(code) not in _USED_CHARACTERS
)
"""One-byte codes that prepared values, without capitals and punctuation, do not use.

DuckDB's string measures count a multi-byte character as several. A distance does not depend on the
code that replaces a character.
"""


SampleReader: TypeAlias = Callable[[OpenSpec, StageContext], RecordSample]


def complete_spec(
    spec: OpenSpec, context: StageContext, draw: SampleReader
) -> tuple[OpenSpec, PlanProposal | None]:
    """Complete a specification by proposals from a sample of the data.

    Raises:
        InputUnfit: The data propose nothing.
    """
    if spec.is_complete:
        return spec.prepared(), None
    fields = bool(spec.blocking or spec.comparisons) or spec.engine is LinkageEngine.SPLINK
    proposal = propose(draw(spec, context), only_fields=fields)
    proposed = {
        "blocking": spec.blocking or proposal.rules,
        "comparisons": spec.comparisons or proposal.comparisons,
        "similarity": proposal.similarity,
    }
    return spec.model_copy(update=proposed).prepared(), proposal


def keep_plan(spec: OpenSpec, context: StageContext, draw: SampleReader) -> pa.Table:
    """Store the plan of the run, so that all its stages use the same plan."""
    complete, proposal = complete_spec(spec, context, draw)
    if proposal is not None:
        context.report("proposal", proposal.to_json())
    plan = LinkagePlan(
        blocking=complete.blocking,
        comparisons=complete.comparisons,
        similarity=complete.similarity,
    )
    return document_frame(plan.model_dump(mode="json"))


def load_plan(spec: OpenSpec, context: StageContext) -> OpenSpec:
    plan = LinkagePlan.parse(load_document(context, "plan"))
    return spec.model_copy(update={name: getattr(plan, name) for name in LinkagePlan.model_fields})


def document_frame(document: Mapping[str, Any]) -> pa.Table:
    return pa.table({"document": [json.dumps(document)]})


def load_document(context: StageContext, stage: str) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(
        context.output_table(stage).column("document")[0].as_py()
    )
    return document


class EngineChoice(NamedTuple):
    """An engine, and the reason for it in a sentence."""

    engine: LinkageEngine
    reason: str


def choose(spec: OpenSpec, context: StageContext, count: Callable[[], int]) -> EngineChoice:
    """Choose an engine by the size of the inputs and, if they fit, by the pairs that `count` gives.

    Raises:
        InputUnfit: The specification requires the worker's process, but the inputs do not fit.
    """
    if spec.engine in {LinkageEngine.SPARK, LinkageEngine.SPLINK}:
        return EngineChoice(spec.engine, "The specification requires it.")
    obstacle = _too_large(spec, context)
    pairs = count() if obstacle is None else 0
    if pairs > IN_PROCESS_PAIRS:
        obstacle = f"There are {pairs:,} pairs; one process is given {IN_PROCESS_PAIRS:,} at most."
    if obstacle is None:
        return EngineChoice(LinkageEngine.LOCAL, f"{pairs:,} pairs fit one process.")
    if spec.engine is LinkageEngine.LOCAL:
        raise InputUnfit(f'/engine: {obstacle} Or let engine be "auto".')
    return EngineChoice(LinkageEngine.SPARK, obstacle)


def keep_engine(spec: OpenSpec, context: StageContext, count: Callable[[], int]) -> pa.Table:
    """Choose the engine of an *auto* run by the same pairs as its forecast; store the choice."""
    choice = choose(spec, context, count)
    context.report("engine", choice._asdict())
    return document_frame(choice._asdict())


def load_engine(spec: OpenSpec, context: StageContext) -> LinkageEngine:
    """Return the engine of a run.

    Raises:
        InputUnfit: It is Splink, which is not installed on the worker that continues the run.
    """
    if spec.engine is LinkageEngine.AUTO:
        return LinkageEngine(load_document(context, "engine")["engine"])
    if spec.engine is LinkageEngine.SPLINK and not _is_splink_installed():
        raise InputUnfit(f"/engine: {_NO_SPLINK}")
    return spec.engine


def inputs_fit(spec: OpenSpec, context: StageContext) -> bool:
    """Whether the worker's process prepares the inputs."""
    return bool(spec.local_records) and _too_large(spec, context) is None


def _too_large(spec: OpenSpec, context: StageContext) -> str | None:
    """Return why the inputs need Spark; None: they do not."""
    names = [input_.name for input_ in spec.inputs]
    records = sum(context.input_rows(name) for name in names)
    if records > MAX_LOCAL_RECORDS:
        limit = f"{MAX_LOCAL_RECORDS:,} at most"
        return f"There are {records:,} records; one process is given {limit}."
    for name in names:
        for column in context.input_table(name).schema:
            if not has_text(column.type):
                return f"{name} has values of type {column.type} in {column.name}."
    return None


def check_splink(spec: OpenSpec, records: DataFrame, pairs: int) -> None:
    """Check that Splink can link prepared records, before heavy blocks are split.

    Raises:
        InputUnfit: It cannot.
    """
    if obstacle := _obstacle(spec, records, pairs):
        raise InputUnfit(f'/engine: {obstacle} Or let engine be "auto".')


def _obstacle(spec: OpenSpec, records: DataFrame, pairs: int) -> str | None:
    if not _is_splink_installed():
        return _NO_SPLINK
    if pairs > IN_PROCESS_PAIRS:
        return f"There are {pairs:,} pairs; one process is given {IN_PROCESS_PAIRS:,} at most."
    if len(non_ascii_characters(records, spec)) > len(SPARE_CODES):
        return (
            "What is compared by its spelling has more different characters beyond a to z than the "
            f"{len(SPARE_CODES)} that Splink on DuckDB can distinguish."
        )
    return None


def _is_splink_installed() -> bool:
    return all(find_spec(package) for package in ("splink", "duckdb"))


def compared_by_characters(spec: OpenSpec) -> Iterator[int]:
    for k, comparison in enumerate(spec.comparisons):
        if any(level.measure in _CHARACTER_MEASURES for level in comparison.levels):
            yield k


def non_ascii_characters(records: DataFrame, spec: OpenSpec) -> str:
    """Return non-ASCII characters of values compared by character, at most one beyond the limit."""
    columns = [f.col(f"c{k}") for k in compared_by_characters(spec)]
    if not columns:
        return ""
    matches = f.regexp_extract_all(f.concat_ws("", *columns), f.lit(r"([^\x00-\x7f])"), f.lit(1))
    characters = (
        records.select(f.explode(matches).alias("character")).distinct().limit(len(SPARE_CODES) + 1)
    )
    return "".join(sorted(characters.toArrow().column("character").to_pylist()))

"""What a run will do: as it was told, or as its data propose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from spark_jobs.linkage.open.parse import read_rules_and_comparisons, written
from spark_jobs.linkage.open.profile import draw_sample
from spark_jobs.linkage.open.propose import Proposal, propose
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.runner.port import StageContext

__all__ = ["kept_document", "kept_plan", "one_document", "plan", "planned"]


def planned(spec: OpenSpec, context: StageContext) -> tuple[OpenSpec, Proposal | None]:
    """Complete a specification; what it says itself stays.

    Raises:
        InputUnfit: The data propose nothing.
    """
    if not spec.zero_config:
        return spec, None
    proposal = propose(draw_sample(spec, context))
    rules = spec.blocking or proposal.rules
    comparisons = spec.comparisons or proposal.comparisons
    return replace(spec, blocking=rules, comparisons=comparisons), proposal


def plan(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Keep what the run will do, so that all of its stages do the same."""
    complete, proposal = planned(spec, context)
    if proposal is not None:
        context.report("proposal", proposal.to_json())
    return one_document(context, written(complete.blocking, complete.comparisons))


def kept_plan(spec: OpenSpec, context: StageContext) -> OpenSpec:
    """Complete a specification by what was kept."""
    rules, comparisons = read_rules_and_comparisons(kept_document(context, "plan"))
    return replace(spec, blocking=rules, comparisons=comparisons)


def one_document(context: StageContext, document: Mapping[str, Any]) -> DataFrame:
    """A frame that holds one document."""
    return context.spark.createDataFrame([(json.dumps(document),)], "document string")


def kept_document(context: StageContext, stage: str) -> Mapping[str, Any]:
    """The document that a stage kept."""
    row = context.output(stage).first()
    assert row is not None
    document: Mapping[str, Any] = json.loads(row["document"])
    return document

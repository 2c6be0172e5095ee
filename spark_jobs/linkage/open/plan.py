"""The plan of a run: its rules and comparisons, given or proposed from the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from spark_jobs.linkage.open.profile import draw_sample
from spark_jobs.linkage.open.propose import Proposal, propose
from spark_jobs.linkage.open.spec import OpenSpec, Plan
from spark_jobs.runner.port import StageContext

__all__ = ["kept_document", "kept_plan", "one_document", "plan", "planned"]


def planned(spec: OpenSpec, context: StageContext) -> tuple[OpenSpec, Proposal | None]:
    """Complete a specification by what the data propose.

    Raises:
        InputUnfit: The data propose nothing.
    """
    if spec.is_complete:
        return spec, None
    proposal = propose(draw_sample(spec, context))
    rules = spec.blocking or proposal.rules
    comparisons = spec.comparisons or proposal.comparisons
    return spec.model_copy(update={"blocking": rules, "comparisons": comparisons}), proposal


def plan(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Keep the plan of the run, so that all of its stages follow the same."""
    complete, proposal = planned(spec, context)
    if proposal is not None:
        context.report("proposal", proposal.to_json())
    kept = Plan(blocking=complete.blocking, comparisons=complete.comparisons)
    return one_document(context, kept.model_dump(mode="json"))


def kept_plan(spec: OpenSpec, context: StageContext) -> OpenSpec:
    """Complete a specification by the plan that was kept."""
    kept = Plan.parse(kept_document(context, "plan"))
    return spec.model_copy(update={"blocking": kept.blocking, "comparisons": kept.comparisons})


def one_document(context: StageContext, document: Mapping[str, Any]) -> DataFrame:
    """A frame that holds one document."""
    return context.spark.createDataFrame([(json.dumps(document),)], "document string")


def kept_document(context: StageContext, stage: str) -> Mapping[str, Any]:
    """The document that a stage kept."""
    row = context.output(stage).first()
    assert row is not None
    document: Mapping[str, Any] = json.loads(row["document"])
    return document

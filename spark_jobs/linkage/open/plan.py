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

__all__ = ["complete_spec", "document_frame", "load_document", "load_plan", "plan"]


def complete_spec(spec: OpenSpec, context: StageContext) -> tuple[OpenSpec, Proposal | None]:
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
    complete, proposal = complete_spec(spec, context)
    if proposal is not None:
        context.report("proposal", proposal.to_json())
    kept = Plan(blocking=complete.blocking, comparisons=complete.comparisons)
    return document_frame(context, kept.model_dump(mode="json"))


def load_plan(spec: OpenSpec, context: StageContext) -> OpenSpec:
    """Complete a specification by the plan that was kept."""
    kept = Plan.parse(load_document(context, "plan"))
    return spec.model_copy(update={"blocking": kept.blocking, "comparisons": kept.comparisons})


def document_frame(context: StageContext, document: Mapping[str, Any]) -> DataFrame:
    """A frame that holds one document."""
    return context.spark.createDataFrame([(json.dumps(document),)], "document string")


def load_document(context: StageContext, stage: str) -> Mapping[str, Any]:
    """The document that a stage kept."""
    row = context.output(stage).first()
    assert row is not None
    document: Mapping[str, Any] = json.loads(row["document"])
    return document

"""The stage that learns from labelled pairs, and the specification with learned weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from spark_jobs.columns import quoted
from spark_jobs.matching.similarity.learning import LearnedWeights, fit_weights
from spark_jobs.matching.similarity.objects import Reader, Similarity
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["effective_spec", "learn"]

_MAX_LABELS: Final = 10_000


def learn(spec: SimilaritySpec, context: StageContext) -> pa.Table:
    """Learn from the labelled pairs whose objects exist, and report the result.

    Raises:
        InputUnfit: There are too many labels, or they do not determine weights.
    """
    pairs = _labelled(context)
    similarity = Similarity(spec)
    terms = [similarity.all_terms(*values) for values in _values(spec, pairs)]
    fitted = fit_weights(np.array(terms), [row["match"] for row in pairs], spec.relational)
    report = _report(spec, fitted)
    context.report("learned", report)
    return pa.table({"document": [json.dumps(asdict(fitted))]})


def effective_spec(spec: SimilaritySpec, context: StageContext) -> SimilaritySpec:
    """Return the specification with the weights and threshold of the run."""
    if spec.learning is None or not spec.learning.apply:
        return spec
    (row,) = context.output_table("learn").to_pylist()
    document: Mapping[str, Any] = json.loads(row["document"])
    measures = tuple(
        measure.model_copy(update={"weight": weight})
        for measure, weight in zip(spec.measures, document["weights"], strict=True)
    )
    return spec.model_copy(update={"measures": measures, "threshold": document["threshold"]})


def _labelled(context: StageContext) -> list[Any]:
    columns = [quoted(name).cast("string").alias(name) for name in ("left", "right", "match")]
    if context.input_rows("labels") > _MAX_LABELS:
        raise InputUnfit(f"labels has more than {_MAX_LABELS:,} rows.")
    labels = context.input("labels").select(*columns).persist()
    try:
        invalid = labels.where("match is null or lower(match) not in ('true', 'false')").first()
        if invalid is not None:
            raise InputUnfit(
                f"labels: {invalid['left']}, {invalid['right']}: true or false is expected."
            )
        joined = labels
        for at, side in enumerate(("left", "right")):
            records = context.output("objects").where(f.col("side") == at)
            side_records = records.select(
                f.col("id").alias(side), f.col("record").alias(f"{side}_record")
            )
            joined = joined.join(side_records, side)
        match = (f.lower("match") == "true").alias("match")
        ordered = joined.select("left", "right", "left_record", "right_record", match)
        return ordered.orderBy("left", "right", "match").collect()
    finally:
        labels.unpersist()


def _values(
    spec: SimilaritySpec, pairs: list[Any]
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    left, right = Reader(spec, "left"), Reader(spec, "right")
    for row in pairs:
        ends = (
            left.read(json.loads(row["left_record"])),
            right.read(json.loads(row["right_record"])),
        )
        yield ends[0].values, ends[1].values


def _report(spec: SimilaritySpec, fitted: LearnedWeights) -> Mapping[str, Any]:
    labels = [measure.label for measure in spec.measures]
    return {**asdict(fitted), "weights": dict(zip(labels, fitted.weights, strict=True))}

"""The stage that learns from labelled pairs, and the specification with what it learned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from spark_jobs.columns import quoted
from spark_jobs.matching.similarity.learning import Learned, learned
from spark_jobs.matching.similarity.objects import Reader, Similarity
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["effective", "learn"]

_MOST_LABELS: Final = 10_000


def learn(spec: SimilaritySpec, context: StageContext) -> pa.Table:
    """Learn from the labelled pairs whose objects there are, and report it.

    Raises:
        InputUnfit: There are too many labels, or they tell nothing.
    """
    pairs = _labelled(context)
    similarity = Similarity(spec)
    terms = [similarity.all_terms(*values) for values in _values(spec, pairs)]
    found = learned(np.array(terms), [row["match"] for row in pairs], spec.relational)
    report = _report(spec, found)
    context.report("learned", report)
    return pa.table({"document": [json.dumps(asdict(found))]})


def effective(spec: SimilaritySpec, context: StageContext) -> SimilaritySpec:
    """Return the specification with the weights and the threshold that the run uses."""
    if spec.learning is None or not spec.learning.apply:
        return spec
    (row,) = context.output_table("learn").to_pylist()
    found: Mapping[str, Any] = json.loads(row["document"])
    measures = tuple(
        measure.model_copy(update={"weight": weight})
        for measure, weight in zip(spec.measures, found["weights"], strict=True)
    )
    return spec.model_copy(update={"measures": measures, "threshold": found["threshold"]})


def _labelled(context: StageContext) -> list[Any]:
    columns = [quoted(name).cast("string").alias(name) for name in ("left", "right", "match")]
    if context.input_rows("labels") > _MOST_LABELS:
        raise InputUnfit(f"labels has more than {_MOST_LABELS:,} rows.")
    labels = context.input("labels").select(*columns).persist()
    try:
        unfit = labels.where("match is null or lower(match) not in ('true', 'false')").first()
        if unfit is not None:
            raise InputUnfit(
                f"labels: {unfit['left']}, {unfit['right']}: true or false is expected."
            )
        joined = labels
        for at, side in enumerate(("left", "right")):
            records = context.output("objects").where(f.col("side") == at)
            named = records.select(f.col("id").alias(side), f.col("record").alias(f"{side}_record"))
            joined = joined.join(named, side)
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


def _report(spec: SimilaritySpec, found: Learned) -> Mapping[str, Any]:
    labels = [measure.label for measure in spec.measures]
    return {**asdict(found), "weights": dict(zip(labels, found.weights, strict=True))}

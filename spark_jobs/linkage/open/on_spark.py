"""The stages of a run on Spark: each reads inputs and stored frames of earlier stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.blocks import check_loads, loads, split_heavy
from spark_jobs.linkage.open.clusters import assign_clusters, merges, name_clusters
from spark_jobs.linkage.open.difference import MAX_LINKS, compared_texts, differing_share
from spark_jobs.linkage.open.evaluate import LABELS, evaluation
from spark_jobs.linkage.open.model import Model, bits_of
from spark_jobs.linkage.open.pairs import compare_pairs
from spark_jobs.linkage.open.plan import keep_plan, load_engine, load_plan
from spark_jobs.linkage.open.prepare import source_name, values, with_frequencies
from spark_jobs.linkage.open.profile import draw_sample
from spark_jobs.linkage.open.spec import LinkageEngine, OpenSpec
from spark_jobs.linkage.open.training import keep_model, load_model, train_model
from spark_jobs.linkage.open.trust import trust
from spark_jobs.linkage.open.whole.matching import COLUMNS, MAX_RECORDS, match_records
from spark_jobs.result_ids import result_id_column
from spark_jobs.runner.port import Frame, StageContext

__all__ = ["STAGES"]

_ENDS: Final = ("left_source", "left_record", "right_source", "right_record")


def _plan(spec: OpenSpec, context: StageContext) -> pa.Table:
    return keep_plan(spec, context, draw_sample)


def _values(spec: OpenSpec, context: StageContext) -> DataFrame:
    return values(load_plan(spec, context), context)


def _records(spec: OpenSpec, context: StageContext) -> DataFrame:
    complete = load_plan(spec, context)
    records, splits = split_heavy(context.output("values"), complete)
    context.report("splits", {"heavy": splits})
    return with_frequencies(records, complete.comparisons)


def _compare(spec: OpenSpec, context: StageContext) -> DataFrame:
    complete = load_plan(spec, context)
    records = context.output("records")
    if complete.similarity is not None:
        # One row beyond the limit reveals that there are too many.
        limited = records.select(*COLUMNS).limit(MAX_RECORDS + 1)
        return context.spark.createDataFrame(match_records(limited.toArrow(), complete, context))
    pairs = check_loads(complete, context, loads(records, complete))
    if load_engine(spec, context) is LinkageEngine.SPLINK:
        from spark_jobs.linkage.open.in_process import comparing  # noqa: PLC0415 - extra linkage

        return comparing.compare_pairs(complete, context)
    return compare_pairs(records, complete, pairs, records.count() * len(complete.blocking))


def _model(spec: OpenSpec, context: StageContext) -> pa.Table:
    context.count("pairs compared", context.output("compare").count())
    return keep_model(spec, context, lambda complete: _estimate(complete, context))


def _estimate(complete: OpenSpec, context: StageContext) -> Model:
    if load_engine(complete, context) is LinkageEngine.SPLINK:
        from spark_jobs.linkage.open.in_process import training  # noqa: PLC0415 - extra linkage

        return training.train_model(complete, context)
    return train_model(context.output("records"), context.output("compare"), complete)


def _scored(spec: OpenSpec, context: StageContext) -> DataFrame:
    model, pairs = load_model(spec, context), context.output("compare")
    patterns = pairs.select("pattern").distinct().orderBy("pattern").toArrow().column("pattern")
    codes = patterns.to_numpy()
    table = pa.table({"pattern": codes, "base": model.pattern_bits(codes)})
    weights = f.broadcast(context.spark.createDataFrame(table))
    bits = (f.col("base") + f.col("rarity")).alias("bits")
    return pairs.join(weights, "pattern").select(*pairs.columns, bits)


def _roots(spec: OpenSpec, context: StageContext) -> DataFrame:
    complete = load_plan(spec, context)
    scored, min_bits = _scored(spec, context), bits_of(spec.threshold)
    links = scored.where(f.col("bits") >= min_bits).count()
    context.count("links", links)
    return assign_clusters(scored, context.output("records"), complete, min_bits, links)


def _pairs(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Return all links, with reasons, and whether both ends are in one cluster."""
    links = _scored(spec, context).where(f.col("bits") >= bits_of(spec.threshold))
    ends = _ends(spec, context)
    left, right = (
        ends.select(
            *(f.col(name).alias(f"{side}_{name}") for name in ends.columns)
        ).withColumnRenamed(f"{side}_row", side[0])
        for side in ("left", "right")
    )
    joined = (
        links.join(left, "l").join(right, "r").join(_explanations(spec, context, links), "pattern")
    )
    return joined.select(
        result_id_column(*_ENDS),
        *_ENDS,
        _probability(f.col("bits")).alias("probability"),
        *("bits", "pattern", "rarity"),
        f.format_string("%s Rarity adds %.1f bits.", "why", f.col("rarity") + f.col("usual")).alias(
            "why"
        ),
        (f.col("left_root") == f.col("right_root")).alias("together"),
    )


def _ends(spec: OpenSpec, context: StageContext) -> DataFrame:
    linked = context.output("records").join(context.output("roots"), "row")
    return linked.select("row", source_name(spec), f.col("id").alias("record"), "root")


def _explanations(spec: OpenSpec, context: StageContext, links: DataFrame) -> DataFrame:
    model = load_model(spec, context)
    patterns = links.select("pattern").distinct().toArrow().column("pattern").to_pylist()
    rows = [
        (pattern, model.explanation(pattern), model.usual_rarity(pattern)) for pattern in patterns
    ]
    return f.broadcast(
        context.spark.createDataFrame(rows, "pattern long, why string, usual double")
    )


def _probability(bits: Column) -> Column:
    bounded = f.greatest(f.least(bits, f.lit(500.0)), f.lit(-500.0))
    # Null stays null: greatest and least skip it.
    return f.when(bits.isNotNull(), 1 / (1 + f.pow(f.lit(2.0), -bounded)))


def _clusters(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Return every record with its cluster, and the probability of its best link into it."""
    records, roots = context.output("records"), context.output("roots")
    clusters = name_clusters(records, roots, spec)
    if spec.known is not None:
        context.report("merges", merges(clusters))
    if spec.truth is not None:
        _evaluate(spec, context, clusters)
    links = _links(_scored(spec, context), roots, bits_of(spec.threshold))
    context.report("trust", _trust(spec, context, links))
    best = _best_links(links)
    return clusters.join(best, "row", "left").select(
        result_id_column("source", "record"),
        "cluster",
        "source",
        "record",
        _probability(f.col("bits")).alias("probability"),
    )


def _links(scored: DataFrame, roots: DataFrame, min_bits: float) -> DataFrame:
    """Return links of at least `min_bits`, and whether their ends are in one cluster."""
    links = scored.where(f.col("bits") >= min_bits).select("l", "r", "bits")
    for end in ("l", "r"):
        links = links.join(
            roots.select(f.col("row").alias(end), f.col("root").alias(f"{end}_root")), end
        )
    inside = (f.col("l_root") == f.col("r_root")).alias("kept")
    return links.select("l", "r", "bits", inside)


def _trust(spec: OpenSpec, context: StageContext, links: DataFrame) -> Mapping[str, Any]:
    probability = f.avg(f.when(f.col("kept"), _probability(f.col("bits"))))
    row = links.agg(f.count("*"), f.count_if("kept"), f.coalesce(probability, f.lit(0.0))).first()
    assert row is not None
    count, inside, mean = row
    return trust(count, inside, mean, _differing_share(spec, context, links.where("kept")))


def _differing_share(spec: OpenSpec, context: StageContext, links: DataFrame) -> float:
    complete = load_plan(spec, context)
    if complete.similarity is not None:
        return 0.0  # its probabilities already include the differences
    first = links.select("l", "r").orderBy("l", "r").limit(MAX_LINKS).toArrow()
    left, right = (first.column(end).to_numpy() for end in ("l", "r"))
    rows = context.spark.createDataFrame(pa.table({"row": np.union1d(left, right)}))
    records = context.output("records").select(*compared_texts(complete))
    return differing_share(left, right, records.join(f.broadcast(rows), "row").toArrow())


def _best_links(links: DataFrame) -> DataFrame:
    ends = links.where("kept").select(f.explode(f.array("l", "r")).alias("row"), "bits")
    return ends.groupBy("row").agg(f.max("bits").alias("bits"))


def _evaluate(spec: OpenSpec, context: StageContext, clusters: DataFrame) -> None:
    labelled = clusters.where(f.col("truth").isNotNull())
    counts = labelled.groupBy(*LABELS).agg(f.count("*").alias("n")).toArrow()
    pairs = context.output("compare").select("l", "r")
    for end in ("l", "r"):
        truth = labelled.select(f.col("row").alias(end), f.col("truth").alias(f"{end}_truth"))
        pairs = pairs.join(truth, end)
    same_truth_pairs = pairs.where(f.col("l_truth") == f.col("r_truth")).count()
    context.report("evaluation", evaluation(counts, same_truth_pairs, within=spec.within))


STAGES: Final[Mapping[str, Callable[[OpenSpec, StageContext], Frame]]] = {
    "plan": _plan,
    "values": _values,
    "records": _records,
    "compare": _compare,
    "model": _model,
    "roots": _roots,
    "pairs": _pairs,
    "clusters": _clusters,
}

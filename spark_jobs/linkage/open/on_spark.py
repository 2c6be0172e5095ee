"""The stages of a run on Spark: each follows from inputs and what earlier ones kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.blocks import check_loads, loads, split_heavy
from spark_jobs.linkage.open.clusters import assigned, merges, named
from spark_jobs.linkage.open.difference import LOOKED_AT, compared_texts, differing
from spark_jobs.linkage.open.evaluate import LABELS, evaluation
from spark_jobs.linkage.open.model import Model, bits_of
from spark_jobs.linkage.open.pairs import compared
from spark_jobs.linkage.open.plan import keep_plan, load_engine, load_plan
from spark_jobs.linkage.open.prepare import source_name, values, with_frequencies
from spark_jobs.linkage.open.profile import draw_sample
from spark_jobs.linkage.open.spec import LinkageEngine, OpenSpec
from spark_jobs.linkage.open.training import keep_model, load_model, trained
from spark_jobs.linkage.open.trust import trust
from spark_jobs.linkage.open.whole.matching import COLUMNS, MOST_RECORDS, matched
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
        # One more row than fits tells that there are too many.
        limited = records.select(*COLUMNS).limit(MOST_RECORDS + 1)
        return context.spark.createDataFrame(matched(limited.toArrow(), complete, context))
    pairs = check_loads(complete, context, loads(records, complete))
    if load_engine(spec, context) is LinkageEngine.SPLINK:
        from spark_jobs.linkage.open.in_process import comparing  # noqa: PLC0415 - extra linkage

        return comparing.compared(complete, context)
    return compared(records, complete, pairs, records.count() * len(complete.blocking))


def _model(spec: OpenSpec, context: StageContext) -> pa.Table:
    context.count("pairs compared", context.output("compare").count())
    return keep_model(spec, context, lambda complete: _estimated(complete, context))


def _estimated(complete: OpenSpec, context: StageContext) -> Model:
    if load_engine(complete, context) is LinkageEngine.SPLINK:
        from spark_jobs.linkage.open.in_process import training  # noqa: PLC0415 - extra linkage

        return training.trained(complete, context)
    return trained(context.output("records"), context.output("compare"), complete)


def _scored(spec: OpenSpec, context: StageContext) -> DataFrame:
    model, pairs = load_model(spec, context), context.output("compare")
    patterns = pairs.select("pattern").distinct().orderBy("pattern").toArrow().column("pattern")
    known = patterns.to_numpy()
    table = pa.table({"pattern": known, "base": model.pattern_bits(known)})
    weights = f.broadcast(context.spark.createDataFrame(table))
    bits = (f.col("base") + f.col("rarity")).alias("bits")
    return pairs.join(weights, "pattern").select(*pairs.columns, bits)


def _roots(spec: OpenSpec, context: StageContext) -> DataFrame:
    complete = load_plan(spec, context)
    scored, least = _scored(spec, context), bits_of(spec.threshold)
    links = scored.where(f.col("bits") >= least).count()
    context.count("links", links)
    return assigned(scored, context.output("records"), complete, least, links)


def _pairs(spec: OpenSpec, context: StageContext) -> DataFrame:
    """All links, with the reasons, and whether both ends came into one cluster."""
    links = _scored(spec, context).where(f.col("bits") >= bits_of(spec.threshold))
    ends = _ends(spec, context)
    left, right = (
        ends.select(
            *(f.col(name).alias(f"{side}_{name}") for name in ends.columns)
        ).withColumnRenamed(f"{side}_row", side[0])
        for side in ("left", "right")
    )
    joined = (
        links.join(left, "l").join(right, "r").join(_explained(spec, context, links), "pattern")
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


def _explained(spec: OpenSpec, context: StageContext, links: DataFrame) -> DataFrame:
    model = load_model(spec, context)
    found = links.select("pattern").distinct().toArrow().column("pattern").to_pylist()
    rows = [(pattern, model.explanation(pattern), model.usual_rarity(pattern)) for pattern in found]
    return f.broadcast(
        context.spark.createDataFrame(rows, "pattern long, why string, usual double")
    )


def _probability(bits: Column) -> Column:
    bounded = f.greatest(f.least(bits, f.lit(500.0)), f.lit(-500.0))
    # Null stays null: greatest and least skip it.
    return f.when(bits.isNotNull(), 1 / (1 + f.pow(f.lit(2.0), -bounded)))


def _clusters(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Every record with its cluster, and the probability of its best link into it."""
    records, roots = context.output("records"), context.output("roots")
    clusters = named(records, roots, spec)
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


def _links(scored: DataFrame, roots: DataFrame, least: float) -> DataFrame:
    """Links of at least so many bits, and whether their ends are in one cluster."""
    links = scored.where(f.col("bits") >= least).select("l", "r", "bits")
    for end in ("l", "r"):
        links = links.join(
            roots.select(f.col("row").alias(end), f.col("root").alias(f"{end}_root")), end
        )
    kept = (f.col("l_root") == f.col("r_root")).alias("kept")
    return links.select("l", "r", "bits", kept)


def _trust(spec: OpenSpec, context: StageContext, links: DataFrame) -> Mapping[str, Any]:
    probability = f.avg(f.when(f.col("kept"), _probability(f.col("bits"))))
    row = links.agg(f.count("*"), f.count_if("kept"), f.coalesce(probability, f.lit(0.0))).first()
    assert row is not None
    count, kept, mean = row
    return trust(count, kept, mean, _differing(spec, context, links.where("kept")))


def _differing(spec: OpenSpec, context: StageContext, links: DataFrame) -> float:
    complete = load_plan(spec, context)
    if complete.similarity is not None:
        return 0.0  # its probabilities say so already
    first = links.select("l", "r").orderBy("l", "r").limit(LOOKED_AT).toArrow()
    left, right = (first.column(end).to_numpy() for end in ("l", "r"))
    rows = context.spark.createDataFrame(pa.table({"row": np.union1d(left, right)}))
    records = context.output("records").select(*compared_texts(complete))
    return differing(left, right, records.join(f.broadcast(rows), "row").toArrow())


def _best_links(links: DataFrame) -> DataFrame:
    ends = links.where("kept").select(f.explode(f.array("l", "r")).alias("row"), "bits")
    return ends.groupBy("row").agg(f.max("bits").alias("bits"))


def _evaluate(spec: OpenSpec, context: StageContext, clusters: DataFrame) -> None:
    known = clusters.where(f.col("truth").isNotNull())
    counts = known.groupBy(*LABELS).agg(f.count("*").alias("n")).toArrow()
    pairs = context.output("compare").select("l", "r")
    for end in ("l", "r"):
        truth = known.select(f.col("row").alias(end), f.col("truth").alias(f"{end}_truth"))
        pairs = pairs.join(truth, end)
    compared = pairs.where(f.col("l_truth") == f.col("r_truth")).count()
    context.report("evaluation", evaluation(counts, compared, within=spec.within))


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

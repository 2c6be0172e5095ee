"""The stages of a run; each follows from the inputs and from what earlier stages kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.blocks import RuleLoad, loads, split_heavy
from spark_jobs.linkage.open.clusters import assigned, merges, named
from spark_jobs.linkage.open.engine import engine, kept_engine
from spark_jobs.linkage.open.evaluate import blocking_recall, evaluation
from spark_jobs.linkage.open.model import Model, bits_of
from spark_jobs.linkage.open.pairs import compared
from spark_jobs.linkage.open.plan import kept_document, kept_plan, one_document, plan
from spark_jobs.linkage.open.prepare import values, with_frequencies
from spark_jobs.linkage.open.spec import Engine, OpenSpec
from spark_jobs.linkage.open.training import trained
from spark_jobs.runner.port import Desk, InputUnfit

__all__ = ["STAGES", "kept_model"]


def _values(spec: OpenSpec, desk: Desk) -> DataFrame:
    return values(kept_plan(spec, desk), desk)


def _records(spec: OpenSpec, desk: Desk) -> DataFrame:
    complete = kept_plan(spec, desk)
    splits = split_heavy(desk.output("values"), complete)
    desk.report("splits", {"heavy": list(splits.told)})
    return with_frequencies(splits.records, complete.comparisons)


def _compare(spec: OpenSpec, desk: Desk) -> DataFrame:
    complete = kept_plan(spec, desk)
    records = desk.output("records")
    found = loads(records, complete)
    pairs = sum(load.pairs for load in found)
    if pairs > spec.limits.pairs:
        raise InputUnfit(f"The rules make {pairs:,} pairs; limits.pairs is {spec.limits.pairs:,}.")
    desk.report("blocking", {"rules": [_told(complete, load) for load in found]})
    if kept_engine(spec, desk) is Engine.SPLINK:
        from spark_jobs.linkage.open.in_process import comparing  # noqa: PLC0415 - extra linkage

        return comparing.compared(complete, desk)
    return compared(records, complete, pairs, records.count() * len(complete.blocking))


def _told(spec: OpenSpec, load: RuleLoad) -> Mapping[str, Any]:
    rule = spec.blocking[load.rule].name
    return {"rule": rule, "blocks": load.blocks, "pairs": load.pairs, "heaviest": load.heaviest}


def _model(spec: OpenSpec, desk: Desk) -> DataFrame:
    desk.count("pairs compared", desk.output("compare").count())
    model = _fitted(spec, desk)
    desk.report("model", model.to_json())
    return one_document(desk, model.to_json())


def _fitted(spec: OpenSpec, desk: Desk) -> Model:
    """The model that the specification brings, or the estimate of its engine."""
    complete = kept_plan(spec, desk)
    if complete.model is not None:
        return Model.of_json(complete.model, complete.comparisons)
    if kept_engine(spec, desk) is Engine.SPLINK:
        from spark_jobs.linkage.open.in_process import training  # noqa: PLC0415 - extra linkage

        return training.trained(complete, desk)
    return trained(desk.output("records"), desk.output("compare"), complete)


def kept_model(spec: OpenSpec, desk: Desk) -> Model:
    """The model that the run fitted."""
    return Model.of_json(kept_document(desk, "model"), kept_plan(spec, desk).comparisons)


def _scored(spec: OpenSpec, desk: Desk) -> DataFrame:
    """All compared pairs with their ``bits``."""
    model, pairs = kept_model(spec, desk), desk.output("compare")
    patterns = pairs.select("pattern").distinct().orderBy("pattern").toArrow().column("pattern")
    known = patterns.to_numpy()
    table = pa.table({"pattern": known, "base": model.pattern_bits(known)})
    weights = f.broadcast(desk.spark.createDataFrame(table))
    bits = (f.col("base") + f.col("rarity")).alias("bits")
    return pairs.join(weights, "pattern").select(*pairs.columns, bits)


def _roots(spec: OpenSpec, desk: Desk) -> DataFrame:
    complete = kept_plan(spec, desk)
    scored, least = _scored(spec, desk), bits_of(spec.threshold)
    links = scored.where(f.col("bits") >= least).count()
    desk.count("links", links)
    return assigned(scored, desk.output("records"), complete, least, links)


def _pairs(spec: OpenSpec, desk: Desk) -> DataFrame:
    """All links, with the reasons, and whether both ends came into one cluster."""
    links = _scored(spec, desk).where(f.col("bits") >= bits_of(spec.threshold))
    ends = _ends(spec, desk)
    left, right = (
        ends.select(
            *(f.col(name).alias(f"{side}_{name}") for name in ends.columns)
        ).withColumnRenamed(f"{side}_row", side[0])
        for side in ("left", "right")
    )
    joined = links.join(left, "l").join(right, "r").join(_explained(spec, desk, links), "pattern")
    return joined.select(
        f.concat_ws("/", "left_source", "left_record", "right_source", "right_record").alias("id"),
        *("left_source", "left_record", "right_source", "right_record"),
        _probability(f.col("bits")).alias("probability"),
        *("bits", "pattern", "rarity"),
        f.format_string("%s Rarity adds %.1f bits.", "why", f.col("rarity") + f.col("usual")).alias(
            "why"
        ),
        (f.col("left_root") == f.col("right_root")).alias("together"),
    )


def _ends(spec: OpenSpec, desk: Desk) -> DataFrame:
    names = f.array(*(f.lit(wanted.name) for wanted in spec.inputs))
    return (
        desk.output("records")
        .join(desk.output("roots"), "row")
        .select(
            "row",
            f.get(names, f.col("source")).alias("source"),
            f.col("id").alias("record"),
            "root",
        )
    )


def _explained(spec: OpenSpec, desk: Desk, links: DataFrame) -> DataFrame:
    """Sentences for each pattern; there are few of them."""
    model = kept_model(spec, desk)
    found = links.select("pattern").distinct().toArrow().column("pattern").to_pylist()
    rows = [(pattern, model.words(pattern), model.usual_rarity(pattern)) for pattern in found]
    return f.broadcast(desk.spark.createDataFrame(rows, "pattern long, why string, usual double"))


def _probability(bits: Column) -> Column:
    return 1 / (1 + f.pow(f.lit(2.0), -f.greatest(f.least(bits, f.lit(500.0)), f.lit(-500.0))))


def _clusters(spec: OpenSpec, desk: Desk) -> DataFrame:
    """Every record with its cluster, and the probability of its best link into it."""
    records, roots = desk.output("records"), desk.output("roots")
    clusters = named(records, roots, spec)
    if spec.known is not None:
        desk.report("merges", merges(clusters))
    if spec.truth is not None:
        _evaluate(spec, desk, clusters)
    best = _best_links(_scored(spec, desk), roots, bits_of(spec.threshold))
    return clusters.join(best, "row", "left").select(
        f.concat_ws("/", "source", "record").alias("id"),
        "cluster",
        "source",
        "record",
        _probability(f.col("bits")).alias("probability"),
    )


def _best_links(scored: DataFrame, roots: DataFrame, least: float) -> DataFrame:
    links = scored.where(f.col("bits") >= least).select("l", "r", "bits")
    for end in ("l", "r"):
        links = links.join(
            roots.select(f.col("row").alias(end), f.col("root").alias(f"{end}_root")), end
        )
    inside = links.where(f.col("l_root") == f.col("r_root"))
    ends = inside.select(f.explode(f.array("l", "r")).alias("row"), "bits")
    return ends.groupBy("row").agg(f.max("bits").alias("bits"))


def _evaluate(spec: OpenSpec, desk: Desk, clusters: DataFrame) -> None:
    told = dict(evaluation(clusters, within=spec.within))
    pairs, records = desk.output("compare"), desk.output("records")
    told["blocking_recall"] = blocking_recall(pairs, records, within=spec.within)
    desk.report("evaluation", told)


STAGES: Final[Mapping[str, Callable[[OpenSpec, Desk], DataFrame]]] = {
    "plan": plan,
    "values": _values,
    "engine": engine,
    "records": _records,
    "compare": _compare,
    "model": _model,
    "roots": _roots,
    "pairs": _pairs,
    "clusters": _clusters,
}

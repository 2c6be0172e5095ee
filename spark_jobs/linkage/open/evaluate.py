"""How good the result is, where it is known who records really are.

Pairwise: of the pairs put together, how many belong together (precision), and the other way round
(recall). B³ (Bagga and Baldwin 1998): the same for each record and averaged, so that large
clusters do not outweigh small ones. Records without a truth do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.blocks import pairs_column

__all__ = ["blocking_recall", "evaluation", "scores", "share"]


def evaluation(clusters: DataFrame, *, within: bool) -> Mapping[str, Any]:
    """Compare ``cluster`` with ``truth``, by records; pairs of one source count if `within`."""
    labelled = clusters.where(f.col("truth").isNotNull())
    predicted = _pairs(labelled, ["cluster"], within=within)
    true = _pairs(labelled, ["truth"], within=within)
    both = _pairs(labelled, ["cluster", "truth"], within=within)
    return {
        "pairwise": scores(share(both, predicted), share(both, true)),
        "b3": scores(_b3(labelled, "cluster"), _b3(labelled, "truth")),
        "pairs": {"found": predicted, "true": true, "both": both},
    }


def blocking_recall(pairs: DataFrame, records: DataFrame, *, within: bool) -> float:
    """The share of true pairs that were compared at all."""
    truth = records.where(f.col("truth").isNotNull()).select("row", "truth")
    left = truth.select(f.col("row").alias("l"), f.col("truth").alias("l_truth"))
    right = truth.select(f.col("row").alias("r"), f.col("truth").alias("r_truth"))
    both = pairs.select("l", "r").join(left, "l").join(right, "r")
    compared = both.where(f.col("l_truth") == f.col("r_truth")).count()
    true = _pairs(records.where(f.col("truth").isNotNull()), ["truth"], within=within)
    return share(compared, true)


def _pairs(labelled: DataFrame, by: list[str], *, within: bool) -> int:
    of_source = labelled.groupBy(*by, "source").agg(f.count("*").alias("n"))
    groups = of_source.groupBy(*by).agg(pairs_column("n", within=within).alias("pairs"))
    row = groups.agg(f.coalesce(f.sum("pairs"), f.lit(0))).first()
    assert row is not None
    return int(row[0])


def _b3(labelled: DataFrame, side: str) -> float:
    """The mean over records of the share of its group on one side that is with it on the other."""
    both = labelled.groupBy("cluster", "truth").agg(f.count("*").alias("n"))
    whole = labelled.groupBy(side).agg(f.count("*").alias("of"))
    squares = f.sum(f.col("n") * f.col("n") / f.col("of"))
    row = both.join(whole, side).agg(squares, f.sum("n")).first()
    return float(row[0] / row[1]) if row and row[1] else 1.0


def share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def scores(precision: float, recall: float) -> Mapping[str, float]:
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}

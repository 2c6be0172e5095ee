"""Precision and recall of the result, from labelled data.

Pairwise: the share of clustered pairs that are true (precision), and the share of true pairs that
are clustered (recall). B³ (Bagga and Baldwin 1998): the same per record, averaged, so that large
clusters do not outweigh small ones. Records without a truth do not count. Both follow from the
number of records by cluster, truth and source, which each engine counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["LABELS", "evaluation", "label_counts"]

LABELS: Final = ("cluster", "truth", "source")


def label_counts(records: pa.Table) -> pa.Table:
    """Count the records with a truth, grouped by `LABELS`: ``n``."""
    labelled = records.filter(records.column("truth").is_valid())
    return labelled.group_by(LABELS).aggregate([([], "count_all")]).rename_columns([*LABELS, "n"])


def evaluation(counts: pa.Table, compared: int, *, within: bool) -> Mapping[str, Any]:
    """Compare clusters with the truth.

    Args:
        counts: As `label_counts` returns them.
        compared: The number of compared pairs of one truth.
        within: Whether pairs of one source count.
    """
    predicted, true, both = (
        _pairs(counts, by, within=within) for by in (["cluster"], ["truth"], ["cluster", "truth"])
    )
    return {
        "pairwise": _scores(_share(both, predicted), _share(both, true)),
        "b3": _scores(_b3(counts, "cluster"), _b3(counts, "truth")),
        "pairs": {"found": predicted, "true": true, "both": both},
        "blocking_recall": _share(compared, true),
    }


def _pairs(counts: pa.Table, by: list[str], *, within: bool) -> int:
    n = _sum_counts(counts, [*by, "source"])
    squared = n.append_column("square", pc.multiply(n.column("n"), n.column("n")))
    groups = squared.group_by(by).aggregate([("n", "sum"), ("square", "sum")])
    total = groups.column("n_sum").to_numpy()
    excluded = total if within else groups.column("square_sum").to_numpy()
    return int(((total * total - excluded) // 2).sum())


def _b3(counts: pa.Table, side: str) -> float:
    """Return the mean over records of the share of its group on one side that is in both groups."""
    both, totals = _sum_counts(counts, ["cluster", "truth"]), _sum_counts(counts, [side])
    at = pc.index_in(both.column(side), totals.column(side).combine_chunks())
    n, group_sizes = both.column("n").to_numpy(), totals.column("n").take(at).to_numpy()
    return float((n * n / group_sizes).sum() / n.sum()) if len(n) else 1.0


def _sum_counts(counts: pa.Table, by: list[str]) -> pa.Table:
    return counts.group_by(by).aggregate([("n", "sum")]).rename_columns([*by, "n"])


def _share(part: int, total: int) -> float:
    return part / total if total else 1.0


def _scores(precision: float, recall: float) -> Mapping[str, float]:
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}

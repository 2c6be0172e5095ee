"""How good the result is, where it is known who records really are.

Pairwise: of the pairs put together, how many belong together (precision), and the other way round
(recall). B³ (Bagga and Baldwin 1998): the same for each record and averaged, so that large
clusters do not outweigh small ones. Records without a truth do not count. All of it follows from
how many records have a cluster, a truth and a source, which each engine counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["LABELS", "evaluation", "label_counts"]

LABELS: Final = ("cluster", "truth", "source")


def label_counts(records: pa.Table) -> pa.Table:
    """Count the records whose truth is known by `LABELS`: ``n``."""
    labelled = records.filter(records.column("truth").is_valid())
    return labelled.group_by(LABELS).aggregate([([], "count_all")]).rename_columns([*LABELS, "n"])


def evaluation(counts: pa.Table, compared: int, *, within: bool) -> Mapping[str, Any]:
    """Compare clusters with the truth.

    Args:
        counts: As `label_counts` returns them.
        compared: How many pairs of one truth were compared at all.
        within: Whether pairs of one source count.
    """
    found, true, both = (
        _pairs(counts, by, within=within) for by in (["cluster"], ["truth"], ["cluster", "truth"])
    )
    return {
        "pairwise": _scores(_share(both, found), _share(both, true)),
        "b3": _scores(_b3(counts, "cluster"), _b3(counts, "truth")),
        "pairs": {"found": found, "true": true, "both": both},
        "blocking_recall": _share(compared, true),
    }


def _pairs(counts: pa.Table, by: list[str], *, within: bool) -> int:
    n = _summed(counts, [*by, "source"])
    squared = n.append_column("square", pc.multiply(n.column("n"), n.column("n")))
    groups = squared.group_by(by).aggregate([("n", "sum"), ("square", "sum")])
    total = groups.column("n_sum").to_numpy()
    less = total if within else groups.column("square_sum").to_numpy()
    return int(((total * total - less) // 2).sum())


def _b3(counts: pa.Table, side: str) -> float:
    """The mean over records of the share of its group on one side that is with it on the other."""
    both, whole = _summed(counts, ["cluster", "truth"]), _summed(counts, [side])
    at = pc.index_in(both.column(side), whole.column(side).combine_chunks())
    n, of = both.column("n").to_numpy(), whole.column("n").take(at).to_numpy()
    return float((n * n / of).sum() / n.sum()) if len(n) else 1.0


def _summed(counts: pa.Table, by: list[str]) -> pa.Table:
    return counts.group_by(by).aggregate([("n", "sum")]).rename_columns([*by, "n"])


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _scores(precision: float, recall: float) -> Mapping[str, float]:
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}

"""How good the result is, where it is known who records really are, as `open.evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.evaluate import scores, share
from spark_jobs.linkage.open.local.blocks import group_pairs
from spark_jobs.linkage.open.local.clusters import positions
from spark_jobs.linkage.open.strings import Rows

__all__ = ["blocking_recall", "evaluation"]


def evaluation(clusters: pa.Table, *, within: bool) -> Mapping[str, Any]:
    """Compare ``cluster`` with ``truth``, by records; pairs of one source count if `within`."""
    labelled = clusters.filter(clusters.column("truth").is_valid())
    cluster, truth, source = (_numbered(labelled, name) for name in ("cluster", "truth", "source"))
    both = np.unique(np.stack([cluster, truth]), axis=1, return_inverse=True)[1].reshape(-1)
    found, true, same = (_pairs(one, source, within=within) for one in (cluster, truth, both))
    return {
        "pairwise": scores(share(same, found), share(same, true)),
        "b3": scores(_b3(both, cluster), _b3(both, truth)),
        "pairs": {"found": found, "true": true, "both": same},
    }


def blocking_recall(left: Rows, right: Rows, records: pa.Table, *, within: bool) -> float:
    """The share of true pairs that were compared at all."""
    labelled = records.filter(records.column("truth").is_valid())
    truth, source = _numbered(labelled, "truth"), _numbered(labelled, "source")
    rows = labelled.column("row").to_numpy()
    ends = [positions(rows, end) for end in (left, right)]
    known = (ends[0] >= 0) & (ends[1] >= 0)
    compared = int((truth[ends[0][known]] == truth[ends[1][known]]).sum())
    return share(compared, _pairs(truth, source, within=within))


def _numbered(table: pa.Table, name: str) -> Rows:
    """A number for each different value of a column."""
    codes = table.column(name).combine_chunks().dictionary_encode().indices
    numbers: Rows = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _pairs(groups: Rows, sources: Rows, *, within: bool) -> int:
    everyone = np.ones(len(groups), np.bool_)
    return int(group_pairs(groups, sources, everyone, within=within).sum())


def _b3(both: Rows, side: Rows) -> float:
    """The mean over records of the share of its group on one side that is with it on the other."""
    if not len(both):
        return 1.0
    return float((np.bincount(both)[both] / np.bincount(side)[side]).mean())

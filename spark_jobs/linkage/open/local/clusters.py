"""Clusters of weighted pairs, with stable names, as in `open.clusters`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_jobs.linkage.open.cluster_names import TakenNames
from spark_jobs.linkage.open.forest import components
from spark_jobs.linkage.open.refine import CERTAIN, Links, refine_components
from spark_jobs.linkage.open.spec import Clustering, OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows

__all__ = ["WeightedPairs", "assign_clusters", "best_links", "merges", "name_clusters", "positions"]

_MERGES_REPORTED: Final = 100


@dataclass(frozen=True, slots=True)
class WeightedPairs:
    """Compared pairs, by their rows, and their log2 odds."""

    left: Rows
    right: Rows
    bits: Floats

    def where(self, mask: NDArray[Any]) -> WeightedPairs:
        return WeightedPairs(self.left[mask], self.right[mask], self.bits[mask])

    def with_pairs(self, other: WeightedPairs) -> WeightedPairs:
        return WeightedPairs(
            np.concatenate([self.left, other.left]),
            np.concatenate([self.right, other.right]),
            np.concatenate([self.bits, other.bits]),
        )


def positions(rows: Rows, targets: Rows) -> Rows:
    """Return the position of each target row in `rows`; -1: missing."""
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows, targets, sorter=order), max(len(rows) - 1, 0))
    if not len(rows):
        return np.full(len(targets), -1)
    return np.where(rows[order[at]] == targets, order[at], -1)


def assign_clusters(
    scored: WeightedPairs, records: pa.Table, spec: OpenSpec, min_bits: float
) -> pa.Table:
    """Assign records to clusters: ``row`` and ``root``, the least row of its cluster.

    Only records with a link are included: a pair of at least `min_bits`.
    """
    pairs = scored.with_pairs(_known_links(records)) if spec.known else scored
    links = pairs.where(pairs.bits >= min_bits)
    rows, roots = components(links.left, links.right)
    if spec.clustering is not Clustering.COMPONENTS:
        inside = _inside(pairs, rows, roots, records)
        rows, roots = refine_components(inside, spec.clustering, min_bits)
    return pa.table({"row": rows, "root": roots})


def _known_links(records: pa.Table) -> WeightedPairs:
    """Return a link of every record of a known cluster with the cluster's least record."""
    known = records.column("known").combine_chunks()
    is_known = known.is_valid().to_numpy(zero_copy_only=False)
    rows = records.column("row").to_numpy()[is_known]
    groups = known.drop_null().dictionary_encode().indices.to_numpy()
    order = np.lexsort((rows, groups))
    rows, groups = rows[order], groups[order]
    first_rows = rows[np.unique(groups, return_index=True)[1]][groups] if len(rows) else rows
    is_other = rows != first_rows
    left, right = first_rows[is_other], rows[is_other]
    return WeightedPairs(left, right, np.full(len(left), CERTAIN))


def _inside(pairs: WeightedPairs, rows: Rows, roots: Rows, records: pa.Table) -> Links:
    """Return the pairs inside components."""
    ends = [positions(rows, end) for end in (pairs.left, pairs.right)]
    linked = (ends[0] >= 0) & (ends[1] >= 0)
    linked[linked] = roots[ends[0][linked]] == roots[ends[1][linked]]
    inner = pairs.where(linked)
    record_rows, sources = records.column("row").to_numpy(), records.column("source").to_numpy()
    end_sources = [
        sources[positions(record_rows, end)].astype(np.int64) for end in (inner.left, inner.right)
    ]
    return Links(inner.left, inner.right, inner.bits, *end_sources)


def name_clusters(records: pa.Table, roots: pa.Table, spec: OpenSpec) -> pa.Table:
    """Return records: ``row``, ``source`` (name), ``record``, ``cluster``, ``known``, ``truth``.

    Records are ordered by source and id.
    """
    row = records.column("row").to_numpy()
    at = positions(roots.column("row").to_numpy(), row)
    root = np.append(roots.column("root").to_numpy(), 0)[at]
    names = pa.array([input_.name for input_ in spec.inputs])
    members = pa.table(
        {
            "row": row,
            "source": names.take(records.column("source").combine_chunks()),
            "record": records.column("id"),
            "root": np.where(at < 0, row, root),
            "known": records.column("known"),
            "truth": records.column("truth"),
        }
    ).sort_by([("source", "ascending"), ("record", "ascending")])
    # The first of a group is its least record.
    first, group = np.unique(
        members.column("root").to_numpy(), return_index=True, return_inverse=True
    )[1:]
    record_names = pc.binary_join_element_wise(
        members.column("source"), members.column("record"), "/"
    )
    cluster = record_names.take(pa.array(first)).combine_chunks()
    if spec.known:
        cluster = pc.coalesce(
            _known_names(members, group, len(first)), _free_names(cluster, members)
        )
    return members.append_column("cluster", cluster.take(pa.array(group))).drop(["root"])


def _known_names(members: pa.Table, group: Rows, groups: int) -> pa.Array:
    """Return the known cluster with most records of each group, then the least name; null: none."""
    known = pa.table({"group": group, "known": members.column("known")})
    grouped = known.filter(pc.is_valid(known.column("known"))).group_by(["group", "known"])
    ranked = grouped.aggregate([([], "count_all")]).sort_by(
        [("group", "ascending"), ("count_all", "descending"), ("known", "ascending")]
    )
    at = pc.index_in(pa.array(np.arange(groups)), ranked.column("group").combine_chunks())
    return ranked.column("known").combine_chunks().take(at)


def _free_names(names: pa.Array, members: pa.Table) -> pa.Array:
    """Return names for clusters from names of records, numbered if a known cluster has the name."""
    taken_names = TakenNames(members.column("known").unique().drop_null().to_pylist())
    return pa.array([taken_names.free(name) for name in names.to_pylist()], pa.string())


def merges(clusters: pa.Table) -> Mapping[str, Any]:
    """Report the known clusters that now have another name."""
    renamed = clusters.filter(
        pc.fill_null(pc.not_equal(clusters.column("known"), clusters.column("cluster")), False)
    )
    pairs = renamed.select(["known", "cluster"]).rename_columns(["from", "into"])
    distinct = pairs.group_by(["from", "into"]).aggregate([]).sort_by("from")
    return {"merged": distinct.slice(0, _MERGES_REPORTED).to_pylist(), "count": distinct.num_rows}


def best_links(links: WeightedPairs, roots: pa.Table) -> tuple[Rows, Floats]:
    """Return the records with a link inside their cluster, and the bits of the best link."""
    inner = links.where(inside(links, roots))
    members, at = np.unique(np.concatenate([inner.left, inner.right]), return_inverse=True)
    best = np.full(len(members), -np.inf)
    np.maximum.at(best, at, np.tile(inner.bits, 2))
    return members, best


def inside(links: WeightedPairs, roots: pa.Table) -> NDArray[np.bool_]:
    """Return whether both ends of each link are in one cluster."""
    rows, record_roots = roots.column("row").to_numpy(), roots.column("root").to_numpy()
    ends = [positions(rows, end) for end in (links.left, links.right)]
    return record_roots[ends[0]] == record_roots[ends[1]] if len(rows) else np.zeros(0, np.bool_)

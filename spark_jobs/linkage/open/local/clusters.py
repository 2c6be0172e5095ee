"""Clusters of weighted pairs, which keep their names, as `open.clusters`."""

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
from spark_jobs.linkage.open.refine import CERTAIN, Links, refined
from spark_jobs.linkage.open.spec import Clustering, OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows

__all__ = ["WeightedPairs", "assigned", "best_links", "merges", "named", "positions"]

_MERGES_REPORTED: Final = 100


@dataclass(frozen=True, slots=True)
class WeightedPairs:
    """Compared pairs, by their rows, and their log2 odds."""

    left: Rows
    right: Rows
    bits: Floats

    def where(self, kept: NDArray[Any]) -> WeightedPairs:
        return WeightedPairs(self.left[kept], self.right[kept], self.bits[kept])

    def with_pairs(self, more: WeightedPairs) -> WeightedPairs:
        return WeightedPairs(
            np.concatenate([self.left, more.left]),
            np.concatenate([self.right, more.right]),
            np.concatenate([self.bits, more.bits]),
        )


def positions(rows: Rows, wanted: Rows) -> Rows:
    """Where each wanted row is among `rows`; -1: it is not there."""
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows, wanted, sorter=order), max(len(rows) - 1, 0))
    if not len(rows):
        return np.full(len(wanted), -1)
    return np.where(rows[order[at]] == wanted, order[at], -1)


def assigned(scored: WeightedPairs, records: pa.Table, spec: OpenSpec, least: float) -> pa.Table:
    """Assign records to clusters: ``row`` and ``root``, the least row of its cluster.

    Only records with a link are included: a pair of at least `least` bits.
    """
    pairs = scored.with_pairs(_known_links(records)) if spec.known else scored
    links = pairs.where(pairs.bits >= least)
    rows, roots = components(links.left, links.right)
    if spec.clustering is not Clustering.COMPONENTS:
        inside = _inside(pairs, rows, roots, records)
        rows, roots = refined(inside, spec.clustering, least)
    return pa.table({"row": rows, "root": roots})


def _known_links(records: pa.Table) -> WeightedPairs:
    """Every record of a known cluster, linked with the least of it."""
    known = records.column("known").combine_chunks()
    there = known.is_valid().to_numpy(zero_copy_only=False)
    rows = records.column("row").to_numpy()[there]
    groups = known.drop_null().dictionary_encode().indices.to_numpy()
    order = np.lexsort((rows, groups))
    rows, groups = rows[order], groups[order]
    least = rows[np.unique(groups, return_index=True)[1]][groups] if len(rows) else rows
    others = rows != least
    left, right = least[others], rows[others]
    return WeightedPairs(left, right, np.full(len(left), CERTAIN))


def _inside(pairs: WeightedPairs, rows: Rows, roots: Rows, records: pa.Table) -> Links:
    """The pairs whose ends are in one component."""
    ends = [positions(rows, end) for end in (pairs.left, pairs.right)]
    linked = (ends[0] >= 0) & (ends[1] >= 0)
    linked[linked] = roots[ends[0][linked]] == roots[ends[1][linked]]
    kept = pairs.where(linked)
    own, sources = records.column("row").to_numpy(), records.column("source").to_numpy()
    of = [sources[positions(own, end)].astype(np.int64) for end in (kept.left, kept.right)]
    return Links(kept.left, kept.right, kept.bits, *of)


def named(records: pa.Table, roots: pa.Table, spec: OpenSpec) -> pa.Table:
    """Every record: ``row``, ``source`` (its name), ``record``, ``cluster``, ``known``, ``truth``.

    They are in the order of their sources and ids.
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
    own = pc.binary_join_element_wise(members.column("source"), members.column("record"), "/")
    cluster = own.take(pa.array(first)).combine_chunks()
    if spec.known:
        cluster = pc.coalesce(
            _kept_names(members, group, len(first)), _free_names(cluster, members)
        )
    return members.append_column("cluster", cluster.take(pa.array(group))).drop(["root"])


def _kept_names(members: pa.Table, group: Rows, groups: int) -> pa.Array:
    """The known cluster with most records of each group, then the least name; null: none."""
    known = pa.table({"group": group, "known": members.column("known")})
    counted = known.filter(pc.is_valid(known.column("known"))).group_by(["group", "known"])
    ranked = counted.aggregate([([], "count_all")]).sort_by(
        [("group", "ascending"), ("count_all", "descending"), ("known", "ascending")]
    )
    at = pc.index_in(pa.array(np.arange(groups)), ranked.column("group").combine_chunks())
    return ranked.column("known").combine_chunks().take(at)


def _free_names(names: pa.Array, members: pa.Table) -> pa.Array:
    """Names of records as those of clusters, other ones where a known cluster is called so."""
    taken = TakenNames(members.column("known").unique().drop_null().to_pylist())
    return pa.array([taken.free(name) for name in names.to_pylist()], pa.string())


def merges(clusters: pa.Table) -> Mapping[str, Any]:
    """The clusters found before that have another name now."""
    gone = clusters.filter(
        pc.fill_null(pc.not_equal(clusters.column("known"), clusters.column("cluster")), False)
    )
    pairs = gone.select(["known", "cluster"]).rename_columns(["from", "into"])
    distinct = pairs.group_by(["from", "into"]).aggregate([]).sort_by("from")
    return {"merged": distinct.slice(0, _MERGES_REPORTED).to_pylist(), "count": distinct.num_rows}


def best_links(links: WeightedPairs, roots: pa.Table) -> tuple[Rows, Floats]:
    """The records with a link inside of their cluster, and the bits of the best one."""
    kept = links.where(inside(links, roots))
    members, at = np.unique(np.concatenate([kept.left, kept.right]), return_inverse=True)
    best = np.full(len(members), -np.inf)
    np.maximum.at(best, at, np.tile(kept.bits, 2))
    return members, best


def inside(links: WeightedPairs, roots: pa.Table) -> NDArray[np.bool_]:
    """Whether both ends of each link are in one cluster."""
    rows, own = roots.column("row").to_numpy(), roots.column("root").to_numpy()
    ends = [positions(rows, end) for end in (links.left, links.right)]
    return own[ends[0]] == own[ends[1]] if len(rows) else np.zeros(0, np.bool_)

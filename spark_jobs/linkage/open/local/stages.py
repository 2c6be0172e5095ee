"""The stages of a run in the worker's process; each has the same frame as on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.blocks import check_loads
from spark_jobs.linkage.open.chance import SAMPLE
from spark_jobs.linkage.open.difference import MAX_LINKS, compared_texts, differing_share
from spark_jobs.linkage.open.evaluate import evaluation, label_counts
from spark_jobs.linkage.open.hashing import initial_hashes, with_ints, with_longs
from spark_jobs.linkage.open.local.blocks import loads, split_heavy
from spark_jobs.linkage.open.local.clusters import (
    WeightedPairs,
    assign_clusters,
    best_links,
    inside,
    merges,
    name_clusters,
    positions,
)
from spark_jobs.linkage.open.local.comparing import compare_pairs
from spark_jobs.linkage.open.local.prepare import draw_sample, values, with_frequencies
from spark_jobs.linkage.open.model import Model, bits_of
from spark_jobs.linkage.open.plan import keep_plan, load_plan
from spark_jobs.linkage.open.profile import value_codes
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows
from spark_jobs.linkage.open.training import fit_model, keep_model, load_model
from spark_jobs.linkage.open.trust import trust
from spark_jobs.linkage.open.whole.matching import WholeRecordModel, match_records
from spark_jobs.result_ids import result_ids
from spark_jobs.runner.port import StageContext

__all__ = ["STAGES"]

_MAX_BITS: Final = 500.0
_TENTH: Final = Decimal("0.1")


def _plan(spec: OpenSpec, context: StageContext) -> pa.Table:
    return keep_plan(spec, context, draw_sample)


def _values(spec: OpenSpec, context: StageContext) -> pa.Table:
    return values(load_plan(spec, context), context)


def _records(spec: OpenSpec, context: StageContext) -> pa.Table:
    complete = load_plan(spec, context)
    records, splits = split_heavy(context.output_table("values"), complete)
    context.report("splits", {"heavy": splits})
    return with_frequencies(records, complete.comparisons)


def _compare(spec: OpenSpec, context: StageContext) -> pa.Table:
    complete, records = load_plan(spec, context), context.output_table("records")
    if complete.similarity is not None:
        return match_records(records, complete, context)
    pairs = check_loads(complete, context, loads(records, complete))
    return compare_pairs(records, complete, context, pairs)


def _model(spec: OpenSpec, context: StageContext) -> pa.Table:
    pairs = context.output_table("compare")
    context.count("pairs compared", pairs.num_rows)
    return keep_model(spec, context, lambda complete: _fit(complete, context, pairs))


def _fit(spec: OpenSpec, context: StageContext, pairs: pa.Table) -> Model:
    counts = pairs.group_by(["rules", "pattern"]).aggregate([([], "count_all")])
    ordered = counts.rename_columns(["rules", "pattern", "n"]).sort_by(
        [("rules", "ascending"), ("pattern", "ascending")]
    )
    records = context.output_table("records")
    sizes = np.bincount(records.column("source").to_numpy(), minlength=len(spec.inputs))
    return fit_model(spec, ordered, _sample(records, spec), sizes.tolist())


def _sample(records: pa.Table, spec: OpenSpec) -> pa.Table:
    """Return records for random pairs: the same samples as on Spark."""
    rows = records.column("row").to_numpy()
    hashes = with_longs(initial_hashes(len(rows)), rows)
    seeded = with_ints(hashes, np.full(len(rows), spec.seed, np.int32)).view(np.int64)
    order, source = np.lexsort((rows, seeded)), records.column("source").to_numpy()
    sources = [order[source[order] == at] for at in range(len(spec.inputs))]
    groups = [order] if spec.within else sources
    sample = np.concatenate([group[: SAMPLE // len(groups)] for group in groups])
    return records.take(pa.array(sample)).combine_chunks()


def _bits(spec: OpenSpec, context: StageContext, pairs: pa.Table) -> Floats:
    patterns, at = np.unique(pairs.column("pattern").to_numpy(), return_inverse=True)
    base = load_model(spec, context).pattern_bits(patterns)
    bits: Floats = base[at] + pairs.column("rarity").to_numpy()
    return bits


def _scored(spec: OpenSpec, context: StageContext) -> WeightedPairs:
    pairs = context.output_table("compare")
    left, right = (pairs.column(name).to_numpy() for name in ("l", "r"))
    return WeightedPairs(left, right, _bits(spec, context, pairs))


def _roots(spec: OpenSpec, context: StageContext) -> pa.Table:
    scored, min_bits = _scored(spec, context), bits_of(spec.threshold)
    context.count("links", int((scored.bits >= min_bits).sum()))
    return assign_clusters(
        scored, context.output_table("records"), load_plan(spec, context), min_bits
    )


def _pairs(spec: OpenSpec, context: StageContext) -> pa.Table:
    """Return all links, with reasons, and whether both ends are in one cluster."""
    pairs = context.output_table("compare")
    bits = _bits(spec, context, pairs)
    linked = bits >= bits_of(spec.threshold)
    links, bits = pairs.filter(pa.array(linked)), bits[linked]
    ends = {side: _ends(spec, context, links.column(side[0])) for side in ("left", "right")}
    names = [ends[side].column(name) for side in ends for name in ("source", "record")]
    roots = [ends[side].column("root").to_numpy() for side in ends]
    return pa.table(
        {
            "id": result_ids(*names),
            "left_source": names[0],
            "left_record": names[1],
            "right_source": names[2],
            "right_record": names[3],
            "probability": _probability(bits),
            "bits": bits,
            "pattern": links.column("pattern"),
            "rarity": links.column("rarity"),
            "why": pa.array(_reasons(load_model(spec, context), links), pa.string()),
            "together": roots[0] == roots[1],
        }
    )


def _ends(spec: OpenSpec, context: StageContext, rows: pa.ChunkedArray) -> pa.Table:
    records, roots = context.output_table("records"), context.output_table("roots")
    ends = records.take(
        pa.array(positions(records.column("row").to_numpy(), targets := rows.to_numpy()))
    )
    names = pa.array([input_.name for input_ in spec.inputs])
    return pa.table(
        {
            "source": names.take(ends.column("source").combine_chunks()),
            "record": ends.column("id"),
            "root": roots.column("root").take(
                pa.array(positions(roots.column("row").to_numpy(), targets))
            ),
        }
    )


def _reasons(model: Model | WholeRecordModel, links: pa.Table) -> Sequence[str]:
    patterns, at = np.unique(links.column("pattern").to_numpy(), return_inverse=True)
    explanations = [
        (model.explanation(pattern), model.usual_rarity(pattern)) for pattern in patterns.tolist()
    ]
    rarities = links.column("rarity").to_pylist()
    return [
        f"{explanations[n][0]} Rarity adds {_round_to_tenths(rarity + explanations[n][1])} bits."
        for n, rarity in zip(at.tolist(), rarities, strict=True)
    ]


def _round_to_tenths(bits: float) -> Decimal:
    """Round to tenths, halves away from zero, as Spark's `format_string` does."""
    return Decimal(repr(bits)).quantize(_TENTH, ROUND_HALF_UP)


def _probability(bits: Floats) -> Floats:
    probability: Floats = 1 / (1 + np.exp2(-np.clip(bits, -_MAX_BITS, _MAX_BITS)))
    return probability


def _clusters(spec: OpenSpec, context: StageContext) -> pa.Table:
    """Return every record with its cluster, and the probability of its best link into it."""
    records, roots = context.output_table("records"), context.output_table("roots")
    clusters, scored = name_clusters(records, roots, spec), _scored(spec, context)
    if spec.known is not None:
        context.report("merges", merges(clusters))
    if spec.truth is not None:
        same_truth_pairs = _same_truth(clusters, scored)
        report = evaluation(label_counts(clusters), same_truth_pairs, within=spec.within)
        context.report("evaluation", report)
    links = scored.where(scored.bits >= bits_of(spec.threshold))
    context.report("trust", _trust(spec, context, links))
    return pa.table(
        {
            "id": result_ids(clusters.column("source"), clusters.column("record")),
            **{name: clusters.column(name) for name in ("cluster", "source", "record")},
            "probability": _best(spec, scored, roots, clusters.column("row").to_numpy()),
        }
    )


def _same_truth(clusters: pa.Table, pairs: WeightedPairs) -> int:
    """Count the pairs of records with the same truth."""
    rows, truth = clusters.column("row").to_numpy(), clusters.column("truth").combine_chunks()
    left, right = (value_codes(truth)[positions(rows, end)] for end in (pairs.left, pairs.right))
    return int(((left == right) & (left >= 0)).sum())


def _trust(spec: OpenSpec, context: StageContext, links: WeightedPairs) -> Mapping[str, Any]:
    inner = inside(links, context.output_table("roots"))
    probability = _probability(links.bits[inner]).mean() if inner.any() else 0.0
    share = _differing_share(spec, context, links.where(inner))
    return trust(len(inner), int(inner.sum()), float(probability), share)


def _differing_share(spec: OpenSpec, context: StageContext, links: WeightedPairs) -> float:
    complete = load_plan(spec, context)
    if complete.similarity is not None:
        return 0.0  # its probabilities already include the differences
    first = np.lexsort((links.right, links.left))[:MAX_LINKS]
    left, right = links.left[first], links.right[first]
    records = context.output_table("records").select(compared_texts(complete))
    sampled = positions(records.column("row").to_numpy(), np.union1d(left, right))
    return differing_share(left, right, records.take(pa.array(sampled)))


def _best(spec: OpenSpec, scored: WeightedPairs, roots: pa.Table, rows: Rows) -> pa.Array:
    linked, bits = best_links(scored.where(scored.bits >= bits_of(spec.threshold)), roots)
    at = positions(linked, rows)
    return pa.array(np.append(_probability(bits), 0.0)[at], mask=at < 0)


STAGES: Final[Mapping[str, Callable[[OpenSpec, StageContext], pa.Table]]] = {
    "plan": _plan,
    "values": _values,
    "records": _records,
    "compare": _compare,
    "model": _model,
    "roots": _roots,
    "pairs": _pairs,
    "clusters": _clusters,
}

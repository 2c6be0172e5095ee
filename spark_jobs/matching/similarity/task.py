"""The task of one partition: finds its links, or reuses those of a former result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from spark_jobs.matching.similarity.engine import Link, Matching, match
from spark_jobs.matching.similarity.fingerprints import (
    Fingerprint,
    FormerRow,
    PartitionLink,
    reason_to_match,
)
from spark_jobs.matching.similarity.objects import MatchObject, Reader
from spark_jobs.matching.similarity.spec import Side, SimilaritySpec

__all__ = ["FORMER", "MATCHED", "RECORDS", "SIDES", "match_partition"]

SIDES: Final[tuple[Side, Side]] = ("left", "right")
RECORDS: Final = pa.schema([("side", pa.int32()), ("id", pa.string()), ("record", pa.string())])
"""Records of objects as JSON, by the number of their side."""
FORMER: Final = 2
"""The side of rows of the former result, which are not objects."""

MATCHED: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("left", pa.list_(pa.string())),
        ("right", pa.list_(pa.string())),
        ("similarity", pa.float64()),
        ("terms", pa.map_(pa.string(), pa.float64())),
        ("count", pa.int64()),
        ("partition", pa.int32()),
        ("fingerprint", pa.string()),
        ("reason", pa.string()),
    ]
)


def match_partition(
    rows: Sequence[Mapping[str, Any]], spec: SimilaritySpec
) -> Iterator[dict[str, Any]]:
    """Match the objects of a partition, unless a former result has their links.

    Args:
        rows: Objects with ``partition``, ``side``, ``id``, ``record``, ``link``, ``cannot``,
            ``owned``; and rows of the former result, by their side.

    Yields:
        Links, rows to report, and last the ``partition``: the number of objects it owns, its
        fingerprint, and the reason for matching them; none if links are reused.
    """
    former = [FormerRow.from_json(row["record"]) for row in rows if row["side"] == FORMER]
    objects_ = [row for row in rows if row["side"] != FORMER]
    if not objects_:
        return
    current = Fingerprint.of(_settings(spec), objects_)
    reason = reason_to_match(current, former)
    if reason is None:
        links = [row.link for row in former if row.link is not None]
    else:
        matching, owned = _matching(objects_, spec)
        links = [_partition_link(link) for link in matching.links if _owns_link(link, owned)]
        yield from _report_rows(matching, owned, spec)
    partition = {"partition": rows[0]["partition"]}
    yield from (_link_row(link) | partition for link in links)
    fingerprint = str(current.with_links(links))
    count = sum(row["owned"] for row in objects_)
    yield {
        "kind": "partition", "count": count, "fingerprint": fingerprint, "reason": reason,
    } | partition  # fmt: skip


def _matching(rows: Sequence[Mapping[str, Any]], spec: SimilaritySpec) -> tuple[Matching, set[str]]:
    """Match objects; also return the ids on the left that the partition owns."""
    readers = [Reader(spec, side) for side in SIDES]
    sides: tuple[list[MatchObject], list[MatchObject]] = [], []
    for row in rows:
        record = json.loads(row["record"])
        read = readers[row["side"]].read(record, row["link"], row["cannot"] or ())
        sides[row["side"]].append(read)
    return match(*sides, spec), {row["id"] for row in rows if row["owned"] and not row["side"]}


def _owns_link(link: Link, owned: set[str]) -> bool:
    """Whether the partition outputs a link, because it owns the link's first object."""
    return not link.decided and link.left[0] in owned


def _partition_link(link: Link) -> PartitionLink:
    return PartitionLink(link.left, link.right, link.similarity, link.terms)


def _report_rows(
    matching: Matching, owned: set[str], spec: SimilaritySpec
) -> Iterator[dict[str, Any]]:
    for pair in matching.uncertain:
        if pair.left in owned:
            terms = {"kind": "uncertain", "left": [pair.left], "right": [pair.right]}
            yield {**terms, "similarity": pair.similarity, "terms": [*pair.terms.items()]}
    labels = [measure.label for measure in spec.measures]
    for terms_ in matching.sample:
        yield {"kind": "sample", "terms": [*zip(labels, terms_, strict=True)]}
    yield {"kind": "candidates", "count": matching.candidates}
    yield {"kind": "aggregations", "count": matching.aggregations}


def _link_row(link: PartitionLink) -> dict[str, Any]:
    ids = {"left": [*link.left], "right": [*link.right]}
    return {"kind": "link", **ids, "similarity": link.similarity, "terms": [*link.terms.items()]}


def _settings(spec: SimilaritySpec) -> str:
    return spec.model_dump_json(exclude=_EXCLUDED)


_EXCLUDED: Final = {
    *("left", "right", "must", "cannot", "lists", "former", "learning", "partition", "limits")
}
"""Members that the fingerprint covers by its objects, or that do not change links."""

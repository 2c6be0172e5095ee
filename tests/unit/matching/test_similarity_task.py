"""The task of a partition: links reused from a former result equal recomputed ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.matching.similarity.fingerprints import FormerRow, PartitionLink
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.matching.similarity.task import FORMER, match_partition

Row = dict[str, Any]
SPEC = SimilaritySpec.parse(
    {
        "left": {"file": "left.csv"},
        "right": {"file": "right.csv"},
        "blocking": {"keys": [{"field": "key"}]},
        "references": [{"field": "near"}],
        "measures": [{"measure": "number", "field": "length", "weight": 0.8}],
        "relational": 0.2,
        "threshold": 0.4,
    }
)


def row(side: int, id_: str, length: int, **changes: Any) -> Row:
    record = {"id": id_, "key": "k", "length": length, "near": changes.pop("near", None)}
    document = {"partition": 0, "side": side, "id": id_, "record": json.dumps(record)}
    return {**document, "link": None, "cannot": None, "owned": True, **changes}


def task(rows: Sequence[Mapping[str, Any]]) -> tuple[list[PartitionLink], Row]:
    """Return the links of a partition and its report row."""
    *rows_, partition = match_partition(rows, SPEC)
    links = [
        PartitionLink(
            tuple(row_["left"]), tuple(row_["right"]), row_["similarity"], dict(row_["terms"])
        )
        for row_ in rows_
        if row_["kind"] == "link"
    ]
    return sorted(links, key=lambda link: link[:2]), partition


def former(links: Sequence[PartitionLink], fingerprint: str) -> list[Row]:
    rows = [FormerRow(fingerprint), *(FormerRow(fingerprint, link) for link in links)]
    return [{"partition": 0, "side": FORMER, "id": "", "record": row_.to_json()} for row_ in rows]


ids = st.sampled_from("abcd")
objects = st.lists(
    st.builds(
        row,
        st.integers(0, 1),
        ids,
        st.integers(1, 6),
        near=st.one_of(st.none(), ids),
        cannot=st.one_of(st.none(), st.lists(ids, max_size=2)),
        owned=st.booleans(),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda object_: (object_["side"], object_["id"]),
)


@given(objects, objects)
def test_a_former_result_changes_nothing_but_the_work(before: list[Row], now: list[Row]) -> None:
    links, partition = task(before)
    for rows, unchanged in ((before[::-1], True), (now, False)):
        links_, report = task([*rows, *former(links, partition["fingerprint"])])
        all_links, full_report = task(rows)
        assert links_ == all_links
        assert report["fingerprint"] == full_report["fingerprint"]
        assert report["count"] == sum(object_["owned"] for object_ in rows)
        if unchanged:
            assert report["reason"] is None


def test_reused_links_are_not_compared() -> None:
    rows = [row(0, "a", 3), row(1, "b", 3)]
    links, partition = task(rows)
    assert links
    output = [*match_partition([*rows, *former(links, partition["fingerprint"])], SPEC)]
    assert [row_["kind"] for row_ in output] == ["link", "partition"]


def test_a_link_of_another_partition_is_left_out() -> None:
    links, partition = task([row(0, "a", 3, owned=False), row(1, "b", 3)])
    assert not links
    assert partition["count"] == 1

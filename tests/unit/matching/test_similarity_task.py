"""The task of a partition: what it takes over from a former result is what it would find."""

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
    """Return the links that a partition gives, and what it says of itself."""
    *found, partition = match_partition(rows, SPEC)
    links = [
        PartitionLink(
            tuple(each["left"]), tuple(each["right"]), each["similarity"], dict(each["terms"])
        )
        for each in found
        if each["kind"] == "link"
    ]
    return sorted(links, key=lambda link: link[:2]), partition


def former(links: Sequence[PartitionLink], fingerprint: str) -> list[Row]:
    rows = [FormerRow(fingerprint), *(FormerRow(fingerprint, link) for link in links)]
    return [{"partition": 0, "side": FORMER, "id": "", "record": each.to_json()} for each in rows]


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
    unique_by=lambda each: (each["side"], each["id"]),
)


@given(objects, objects)
def test_a_former_result_changes_nothing_but_the_work(before: list[Row], now: list[Row]) -> None:
    links, partition = task(before)
    for rows, same in ((before[::-1], True), (now, False)):
        found, stated = task([*rows, *former(links, partition["fingerprint"])])
        whole, fresh = task(rows)
        assert found == whole
        assert stated["fingerprint"] == fresh["fingerprint"]
        assert stated["count"] == sum(each["owned"] for each in rows)
        if same:
            assert stated["reason"] is None


def test_what_is_taken_over_is_not_compared() -> None:
    rows = [row(0, "a", 3), row(1, "b", 3)]
    links, partition = task(rows)
    assert links
    again = [*match_partition([*rows, *former(links, partition["fingerprint"])], SPEC)]
    assert [each["kind"] for each in again] == ["link", "partition"]


def test_a_link_of_another_partition_is_not_given() -> None:
    links, partition = task([row(0, "a", 3, owned=False), row(1, "b", 3)])
    assert not links
    assert partition["count"] == 1

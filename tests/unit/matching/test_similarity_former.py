"""Rows of a former result, from files and from classes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_jobs.matching.similarity.fingerprints import FormerRow, PartitionLink
from spark_jobs.matching.similarity.former import parse_row

TERMS = [{"measure": "text(name)", "similarity": 1}]
LINK = PartitionLink(("a1", "a2"), ("b1",), 0.1 + 0.2, {"text(name)": 1.0})
REJECTED = {"left": ["a2"], "right": ["b2"], "similarity": 0.5, "terms": TERMS}
ROW: dict[str, Any] = {
    "left": ["a1", "a2"],
    "right": ["b1"],
    "outcome": "similarity",
    "similarity": 0.1 + 0.2,
    "terms": TERMS,
    "fingerprint": "f",
    "rejected": [REJECTED],
}


def parsed(row: dict[str, Any]) -> list[tuple[int, str, FormerRow]]:
    return [
        (object_["side"], object_["id"], FormerRow.from_json(object_["record"]))
        for object_ in parse_row(json.dumps(row))
    ]


def test_a_file_and_a_class_give_the_same_rows() -> None:
    expected = [
        (0, "a1", FormerRow("f", LINK)),
        (0, "a2", FormerRow(None, PartitionLink(("a2",), ("b2",), 0.5, {"text(name)": 1.0}))),
    ]
    assert parsed(ROW) == expected
    texts = {name: json.dumps(ROW[name]) for name in ("left", "right", "terms", "rejected")}
    assert parsed(ROW | texts) == expected


@pytest.mark.parametrize("outcome", ["must", "unmatched"])
def test_only_matched_rows_are_links(outcome: str) -> None:
    row = ROW | {"left": [], "outcome": outcome, "similarity": None, "terms": None}
    assert parsed(row | {"rejected": None}) == [(1, "b1", FormerRow("f"))]


@pytest.mark.parametrize(
    "change",
    [
        {"left": None, "right": None, "rejected": None, "outcome": "unmatched"},
        {"left": "no array"},
        {"left": {"a": 1}},
        {"similarity": "much"},
        {"terms": [1]},
        {"terms": "[" * 10_000},
        {"rejected": [{}]},
        {"rejected": 7},
    ],
)
def test_invalid_rows_are_left_out(change: dict[str, Any]) -> None:
    assert parsed(ROW | change) == []

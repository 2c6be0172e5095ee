"""Records of roads are replaced by records of their pieces before matching."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_jobs.matching.similarity.prepare import prepare_records
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.specification import SpecInvalid

LENGTHS = {"measure": "length", "field": "line", "weight": 1.0}
SPEC: dict[str, Any] = {
    "left": {"file": "left.csv"},
    "right": {"file": "right.csv"},
    "blocking": {"grid": {"field": "line"}, "buffer": 1.0},
    "measures": [LENGTHS],
    "threshold": 0.5,
    "roads": {"snap": 1.0},
}


def records(*documents: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Prepare records as the stage does; return them by id."""
    rows = [
        {"side": 0, "id": document["id"], "record": json.dumps(document)} for document in documents
    ]
    spec = SimilaritySpec.parse({**SPEC, **changes})
    return {row["id"]: json.loads(row["record"]) for row in prepare_records(rows, spec)}


def test_m5_a_record_is_replaced_by_those_of_its_pieces() -> None:
    prepared = records(
        {"id": "a", "name": "High", "line": "LINESTRING (0 0, 10 0)"},
        {"id": "b", "name": "Low", "line": [[5, -5], [5, 5]]},
        {"id": "c", "line": None},
        {"id": "d", "line": [[7, 7], [7, 7]]},
    )
    assert {*prepared} == {"a/1", "a/2", "b/1", "b/2", "c", "d"}
    assert prepared["a/2"] == {"id": "a/2", "name": "High", "line": [[5, 0], [10, 0]]}
    assert prepared["c"] == {"id": "c", "line": None}


def test_an_axis_has_the_ids_of_both_lanes() -> None:
    lanes: list[dict[str, Any]] = [
        {"id": "in", "line": [[0, 0], [100, 0]], "one": True},
        {"id": "out", "line": [[100, 4], [0, 4]], "one": "yes"},
    ]
    roads = {"snap": 1.0, "axes": 6.0, "one_way": {"field": "one"}}
    assert records(*lanes, roads=roads)["in+out"]["line"] == [[0, 2], [100, 2]]
    assert {*records(*lanes)} == {"in", "out"}


def test_a_piece_with_an_id_in_use_is_refused() -> None:
    lines = {"a": [[0, 0], [10, 0]], "b": [[5, -5], [5, 5]]}
    crossing = [{"id": id_, "line": line} for id_, line in lines.items()]
    with pytest.raises(InputUnfit, match="a/1"):
        records(*crossing, {"id": "a/1", "line": None})


def test_too_many_lines_at_one_location_are_refused() -> None:
    lines = [{"id": str(n), "line": [[0, n], [10, 9 - n]]} for n in range(9)]
    with pytest.raises(InputUnfit, match=r"limits\.block_pairs"):
        records(*lines, limits={"block_pairs": 1})


def test_lines_of_a_crowded_network_are_refused() -> None:
    lines = [
        {"id": f"{area}{n}", "line": [[100 * area, 4 * n], [100 * area + 10, 4 - 4 * n]]}
        for area in range(5)
        for n in range(2)
    ]
    assert len(records(*lines)) == 20
    with pytest.raises(InputUnfit, match=r"^left: .* near. limits\.pairs is exceeded"):
        records(*lines, limits={"pairs": 5})


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"roads": {"snap": -1.0}}, "/roads/snap"),
        ({"roads": {"snap": 1.0, "axes": 2.0}}, "/roads"),
        ({"blocking": {"keys": [{"field": "line"}]}}, "/roads"),
    ],
)
def test_a_contradictory_specification_of_roads_is_refused(changes: Any, pointer: str) -> None:
    with pytest.raises(SpecInvalid) as error:
        SimilaritySpec.parse({**SPEC, **changes})
    assert error.value.pointer == pointer

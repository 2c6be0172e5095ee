"""The guide shows a view that is parsed, and bounds that are in force."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from mediator.schema.parse import parse_schema
from mediator.views import evaluation, network, nodes, parser, results, service
from mediator.views.parser import parse_view
from tests.process.incremental_views.shop import CLASSES, TOTALS

GUIDE = (Path(__file__).parents[3] / "docs" / "incremental-views.md").read_text()
BODY = re.compile(r"^```http\nPOST.*?\n\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_example_of_the_guide_is_the_view_that_is_tested() -> None:
    [body] = map(orjson.loads, BODY.findall(GUIDE))
    assert list(parse_view(body, parse_schema("shop", {"classes": CLASSES})).columns)
    assert {**body, "name": ""} == {**TOTALS, "name": "", "filter": body["filter"]}


def test_the_bounds_of_the_guide_are_in_force() -> None:
    for number in (
        service.MAX_VIEWS,
        nodes.MAX_ROWS,
        nodes.MAX_GROUPS,
        nodes.MAX_VALUES,
        network.MAX_TUPLES,
        network.MAX_CHANGE_TUPLES,
        evaluation.MAX_OBJECTS,
        evaluation.MAX_UNINDEXED,
        results.MAX_DELTAS,
        parser.MAX_JOINS,
        parser.MAX_COLUMNS,
        parser.MAX_NAME_LENGTH,
    ):
        assert f"{number:,}" in GUIDE
    assert nodes.MAX_RESULT_BYTES == 8 * 2**20
    assert evaluation.MAX_BYTES == 256 * 2**20
    assert results.MAX_DELTA_BYTES == 32 * 2**20
    assert results.BYTES_AT_ONCE == 2**20

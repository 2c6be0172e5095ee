"""Costly queries: grouped by their shape, bounded in number, without a constant."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.telemetry.costly_queries import CostlyQueries
from mediator.base.observation import CostlyQueryFound, RequestFinished
from mediator.query.parser import parse_query_document
from mediator.query.shapes import costly_query, shape_of
from mediator.schema.parse import parse_schema

EVENT: Final = CostlyQueryFound("news", "articles", "{}", 0.5, 40, ("title",), None)
SCHEMA: Final = parse_schema(
    "news",
    {
        "classes": {
            "articles": {
                "fields": {
                    "title": {"type": "string"},
                    "hits": {"type": "integer", "index": True},
                    "more": {"type": "map", "items": "string"},
                }
            }
        }
    },
)


def test_shapes_are_counted_by_outcome() -> None:
    queries = CostlyQueries()
    queries.observe(EVENT)
    queries.observe(replace(EVENT, seconds=1.5, rows=7))
    queries.observe(replace(EVENT, rows=None, refusal="too costly"))
    queries.observe(replace(EVENT, shape='{"count":"exact"}', seconds=0.2))
    queries.observe(RequestFinished("GET", "/", 200, 9.0))
    first, second = queries.shapes
    assert (first.answered, first.refused, first.seconds) == (2, 1, 2.0)
    assert (first.slowest_s, first.rows, first.last.refusal) == (1.5, 40, "too costly")
    assert second.seconds == 0.2


def test_the_latest_shapes_are_kept() -> None:
    queries = CostlyQueries()
    queries.observe(EVENT)
    for number in range(99):
        queries.observe(replace(EVENT, shape=str(number)))
    queries.observe(EVENT)
    queries.observe(replace(EVENT, shape="one more"))
    shapes = {shape.last.shape for shape in queries.shapes}
    assert len(shapes) == 100
    assert {"{}", "one more"} <= shapes
    assert "0" not in shapes


def test_a_shape_has_no_constants() -> None:
    document = {
        "filter": {
            "and": [
                {"eq": ["title", "secret"]},
                {"not": {"in": ["hits", [1234, 5678]]}},
                {"or": [{"between": ["hits", 1234, 5678]}, {"like": ["title", "secret%"]}]},
                {"contains": ["title", "secret"]},
                {"exists": "more.secret"},
                {"ge": ["id", "secret"]},
            ]
        },
        "order": [["hits", "desc"], "title"],
        "limit": 3,
        "count": "exact",
    }
    query = parse_query_document(document, SCHEMA, "articles").query
    shape = shape_of(query)
    assert "secret" not in shape
    assert "1234" not in shape
    assert shape == (
        '{"filter":{"and":[{"eq":["title","?"]},{"not":{"in":["hits","?"]}},'
        '{"or":[{"between":["hits","?"]},{"like":["title","?"]}]},{"contains":["title","?"]},'
        '{"exists":"more.…"},{"ge":["id","?"]}]},"order":["-hits","title"],"count":"exact"}'
    )
    event = costly_query(query, None, 0.2, None, "needs a scan")
    assert (event.shape, event.without_index) == (shape, ())

"""Fields of a unique constraint are placed together, on a system that enforces it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mediator.base.errors import Unplaceable
from mediator.placement.decide import build_routes, decide
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema
from tests.unit.placement.deciding import READER, TWO, WRITER, systems_of

READ = {"type": "string", "annotations": [{"metric": "read_latency", "goal": 0.02}]}
WRITE = {"type": "string", "annotations": [{"metric": "write_latency", "goal": 0.02}]}


def schema_of(unique: list[list[str]], **fields: object) -> Schema:
    class_ = {"fields": fields, "unique": unique}
    return parse_schema("news", {"classes": {"articles": class_}})


def test_fields_of_one_constraint_stay_together() -> None:
    without = decide(schema_of([], read=READ, write=WRITE), TWO)
    assert len(set(systems_of(without).values())) == 2
    schema = schema_of([["write", "read"]], read=READ, write=WRITE)
    with_constraint = decide(schema, TWO)
    assert len(set(systems_of(with_constraint).values())) == 1
    versions = dict.fromkeys(schema.classes, 1)
    route = build_routes(schema, with_constraint.groups, versions, "reader").classes["articles"]
    assert [fragment.unique for fragment in route.fragments] == [(("write", "read"),)]
    assert route.copy is not None
    assert route.copy.unique == (), "a copy claims nothing"


def test_a_fragment_has_the_constraints_of_its_fields() -> None:
    schema = schema_of([], read={**READ, "unique": True}, write={**WRITE, "unique": True})
    decision = decide(schema, TWO)
    routes = build_routes(schema, decision.groups, dict.fromkeys(schema.classes, 1))
    unique = {f.system: f.unique for f in routes.classes["articles"].fragments}
    assert unique == {"reader": (("read",),), "writer": (("write",),)}


def test_a_system_that_enforces_no_unique_constraints_is_not_chosen() -> None:
    schema = schema_of([], read={**READ, "unique": True}, other=READ)
    systems = (replace(READER, claims=False), WRITER)
    assert systems_of(decide(schema, systems)) == {
        "articles.read": "writer",
        "articles.other": "reader",
    }
    with pytest.raises(Unplaceable, match="keeps no values unique"):
        decide(schema, [replace(candidate, claims=False) for candidate in TWO])

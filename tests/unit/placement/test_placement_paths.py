"""Fields with path indexes are placed on a system that supports such indexes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mediator.base.errors import Unplaceable
from mediator.placement.decide import decide, named_mistakes, view_system
from mediator.schema.annotations import Capability
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema
from tests.unit.placement.deciding import READER, TWO, WRITER, systems_of

READ = {"annotations": [{"metric": "read_latency", "goal": 0.02}]}
DOCUMENT = {"type": "document", "indexed_paths": ["city"], **READ}
WITHOUT_PATHS = replace(READER, path_indexes=False)
VIEWS = {Capability.SCANS, Capability.SORTING, Capability.RANGE_QUERIES}


def schema_of(document: object = DOCUMENT, **members: object) -> Schema:
    fields = {"address": document, "name": {"type": "string", **READ}}
    return parse_schema("shop", {**members, "classes": {"articles": {"fields": fields}}})


def test_a_system_that_indexes_no_paths_is_not_chosen() -> None:
    assert set(systems_of(decide(schema_of(), TWO)).values()) == {"reader"}
    assert systems_of(decide(schema_of(), (WITHOUT_PATHS, WRITER))) == {
        "articles.address": "writer",
        "articles.name": "reader",
    }
    without = schema_of({**DOCUMENT, "indexed_paths": []})
    assert systems_of(decide(without, (WITHOUT_PATHS, WRITER)))["articles.address"] == "reader"


def test_a_required_system_without_path_indexes_is_refused_with_the_reason() -> None:
    with pytest.raises(Unplaceable) as refused:
        decide(schema_of({**DOCUMENT, "system": "reader"}), (WITHOUT_PATHS, WRITER))
    assert "indexes no paths within documents and maps, as articles.address has" in str(
        refused.value
    )


def test_a_view_has_the_path_indexes() -> None:
    candidates = [
        replace(candidate, capabilities=frozenset(VIEWS)) for candidate in (WITHOUT_PATHS, WRITER)
    ]
    schema = schema_of(mode="microbatched")
    assert view_system(schema, decide(schema, candidates)) == "writer"
    named = schema_of(mode="microbatched", materialised_view={"system": "reader"})
    [mistake] = named_mistakes(named, candidates)
    assert mistake.pointer == "/materialised_view/system"
    assert "is not proven for indexes of paths" in mistake.detail

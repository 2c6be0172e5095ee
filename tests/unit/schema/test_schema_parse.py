"""Schema documents: parsed, and rendered again."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest

from mediator.base.errors import SchemaInvalid
from mediator.schema.annotations import (
    LEVELS,
    BinaryRequirement,
    Capability,
    ContinuousRequirement,
    Linear,
    Metric,
    ViolationRule,
)
from mediator.schema.differences import differences
from mediator.schema.foreign_keys import ForeignKey, foreign_keys_of
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import (
    MISSING,
    CachePolicy,
    DefaultSystem,
    Field,
    MaterialisedView,
    Mode,
    OnDelete,
)
from mediator.schema.types import FieldType
from tests.unit.schema.documents import FOREIGN, NEWSPAPER, REFERENCE, REFERENCES


def test_the_newspaper_is_parsed() -> None:
    schema = parse_schema("news", NEWSPAPER)
    assert (schema.database, schema.mode) == ("news", Mode.MICROBATCHED)
    people, articles = schema.classes["people"], schema.classes["articles"]
    assert schema.default == DefaultSystem("postgres")
    assert people.ttl_s == 3600.0
    assert (schema.system, people.system, articles.system) == ("postgres", None, "mongo")
    assert (articles.fields["title"].system, articles.fields["hits"].system) == (None, "redis")
    assert articles.cache == CachePolicy("public", 60.0)
    assert articles.require_if_match
    assert articles.fields["price"].default == Decimal("1.5")
    assert articles.fields["price"].group is None
    assert articles.fields["tags"].default == ["a", "b"]
    assert articles.fields["author"] == Field("author", FieldType.REFERENCE, to="people")
    assert articles.fields["hits"].annotations == (
        BinaryRequirement(Capability.SORTING),
        ContinuousRequirement(Metric.WRITE_THROUGHPUT, 3.0, goal=10_000.0),
        ContinuousRequirement(
            Metric.WRITE_LATENCY,
            1.0,
            utility=Linear(((0.02, 1.0), (0.05, 0.0))),
            statistic="p99",
            violation=ViolationRule(0.5, 60.0),
        ),
    )


def test_everything_has_a_default() -> None:
    schema = parse_schema("news", {"classes": {"a": {"fields": {"x": {"type": "float"}}}}})
    assert (schema.mode, schema.materialised_view) == (Mode.MIXED, MaterialisedView(None, 5.0))
    assert schema.default == DefaultSystem(None)
    assert schema.classes["a"].cache == CachePolicy("none", 600.0)
    assert schema.classes["a"].fields["x"].default is MISSING
    assert parse_schema("news", {}).classes == {}


def test_a_rendered_schema_is_parsed_to_the_same() -> None:
    schema = parse_schema("news", NEWSPAPER)
    document = schema_document(schema)
    assert parse_schema("news", document) == schema
    assert schema_document(parse_schema("news", document)) == document
    assert document["classes"]["articles"]["fields"]["title"] == {
        "type": "string",
        "max_length": 300,
        "required": True,
        "index": False,
        "group": "main",
        "annotations": [],
    }


def test_foreign_keys_are_parsed_and_rendered() -> None:
    fields = {
        "ignored": {**REFERENCE, "on_delete": "ignore"},
        "listed": {**REFERENCES, "on_delete": "ignore"},
        "kept": {**REFERENCE, "required": True, "on_delete": "cascade"},
        "several": {**FOREIGN, "type": "set", "required": True, "on_delete": "nullify"},
    }
    schema = parse_schema("news", {"classes": {"c": {"fields": fields}}})
    keys = foreign_keys_of(schema.classes["c"])
    assert keys == (
        ForeignKey("c", "kept", "c", OnDelete.CASCADE),
        ForeignKey("c", "several", "c", OnDelete.NULLIFY, is_array=True),
    )
    document = schema_document(schema)
    rendered = document["classes"]["c"]["fields"]
    assert [name for name, field in rendered.items() if "on_delete" in field] == ["kept", "several"]
    assert parse_schema("news", document) == schema
    former = deepcopy(document)
    del former["classes"]["c"]["fields"]["kept"]["on_delete"]
    [difference] = differences(former, document)
    assert (difference.node, difference.member, difference.after) == (
        "c.kept",
        "on_delete",
        "cascade",
    )


def test_the_foreign_keys_to_one_class_are_bounded() -> None:
    fields = {f"f{n}": {**REFERENCE, "on_delete": "refuse"} for n in range(66)}
    with pytest.raises(SchemaInvalid, match="64 foreign keys") as caught:
        parse_schema("news", {"classes": {"c": {"fields": fields}}})
    assert [p.pointer for p in caught.value.locations] == [
        f"/classes/c/fields/f{n}/on_delete" for n in (64, 65)
    ]
    del fields["f65"], fields["f64"]
    parse_schema("news", {"classes": {"c": {"fields": fields}}})


def test_an_expiring_class_has_no_foreign_keys_to_it() -> None:
    fields = {"f": {**REFERENCE, "on_delete": "nullify"}}
    classes = {"c": {"ttl_s": 60, "fields": fields}}
    with pytest.raises(SchemaInvalid, match="ttl_s") as caught:
        parse_schema("news", {"classes": classes})
    assert [p.pointer for p in caught.value.locations] == ["/classes/c/fields/f/on_delete"]


def test_a_class_has_one_time_of_its_last_write() -> None:
    field = {"type": "timestamp", "updated": True}
    document = {"classes": {"c": {"fields": {"one": field, "two": field, "three": field}}}}
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", document)
    assert [(p.pointer, p.detail) for p in caught.value.locations] == [
        (f"/classes/c/fields/{name}/updated", "would be equal to one") for name in ("two", "three")
    ]
    del document["classes"]["c"]["fields"]["two"], document["classes"]["c"]["fields"]["three"]
    schema = parse_schema("news", document)
    assert schema_document(schema)["classes"]["c"]["fields"]["one"]["updated"] is True
    assert parse_schema("news", schema_document(schema)) == schema


@pytest.mark.parametrize("capability", Capability)
def test_a_capability_is_required_where_the_paper_allows_it(capability: Capability) -> None:
    """docs/papers/ppm.md, section 2, the table of requirements."""
    requirement = {"annotations": [{"require": capability.value}]}
    documents = {
        "database": requirement,
        "class": {"classes": {"c": requirement}},
        "field": {"classes": {"c": {"fields": {"f": {"type": "integer", **requirement}}}}},
    }
    for level, document in documents.items():
        if level in LEVELS[capability]:
            parse_schema("news", document)
        else:
            with pytest.raises(SchemaInvalid, match=" or ".join(LEVELS[capability])) as caught:
                parse_schema("news", document)
            assert caught.value.locations[0].pointer.endswith("/annotations/0/require")


OWNED: dict[str, Any] = {
    "owner_field": "author",
    "fields": {"author": {"type": "string", "required": True, "index": True}},
}


def test_the_owner_field_is_parsed_and_rendered() -> None:
    schema = parse_schema("news", {"classes": {"drafts": OWNED}})
    assert schema.classes["drafts"].owner_field == "author"
    assert parse_schema("news", schema_document(schema)) == schema


@pytest.mark.parametrize(
    ("location", "value"),
    [
        ("owner_field", "nobody"),
        ("owner_field", "id"),
        ("owner_field", 1),
        ("fields/author/type", "reference"),
        ("fields/author/required", False),
        ("fields/author/index", False),
        ("fields/author/group", "apart"),
        ("cache/visibility", "public"),
        ("cache/visibility", "private"),
    ],
)
def test_an_unsuitable_owner_field_is_refused(location: str, value: Any) -> None:
    class_: dict[str, Any] = deepcopy({**OWNED, "cache": {}})
    *parents, last = location.split("/")
    node = class_
    for name in parents:
        node = node[name]
    node[last] = value
    if value == "reference":
        node["to"] = "drafts"
    with pytest.raises(SchemaInvalid) as refused:
        parse_schema("news", {"classes": {"drafts": class_}})
    assert f"/classes/drafts/{location}" in [error.pointer for error in refused.value.locations]

"""Suggestions for misspelt members and enumerated values of documents."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.models.operations import parse_batch, parse_operation, parse_transaction
from mediator.base.errors import Invalid
from mediator.schema.parse import parse_schema

STRING: dict[str, Any] = {"type": "string"}


def _schema(**members: Any) -> dict[str, Any]:
    return {"classes": {"articles": {"fields": {"title": STRING}, **members}}}


def _annotated(annotation: dict[str, Any]) -> dict[str, Any]:
    return _schema(fields={"title": {"type": "string", "annotations": [annotation]}})


def _suggestions(error: Invalid) -> dict[str, str]:
    """Return the suggestions by the location of the mistake."""
    suggestions = {
        location.pointer: location.detail.partition("; did you mean ")[2]
        for location in error.locations
    }
    return {pointer: suggestion[1:-2] for pointer, suggestion in suggestions.items() if suggestion}


@pytest.mark.parametrize(
    ("document", "suggested"),
    [
        ({"clases": {}}, {"/clases": "classes"}),
        ({"mode": "advisry"}, {"/mode": "advisory"}),
        (_schema(cahce={}), {"/classes/articles/cahce": "cache"}),
        (
            _schema(cache={"visibilty": "public"}),
            {"/classes/articles/cache/visibilty": "visibility"},
        ),
        (
            _schema(cache={"visibility": "pulbic"}),
            {"/classes/articles/cache/visibility": "public"},
        ),
        (
            _schema(fields={"a": {"type": "strng", "requird": True}}),
            {
                "/classes/articles/fields/a/type": "string",
                "/classes/articles/fields/a/requird": "required",
            },
        ),
        (
            _schema(fields={"a": {"type": "reference", "to": "article"}}),
            {"/classes/articles/fields/a/to": "articles"},
        ),
        (_schema(owner_field="titel"), {"/classes/articles/owner_field": "title"}),
        (
            _annotated({"metric": "read_latncy", "goal": 1}),
            {"/classes/articles/fields/title/annotations/0/metric": "read_latency"},
        ),
        (
            _annotated({"require": "scan"}),
            {"/classes/articles/fields/title/annotations/0/require": "scans"},
        ),
        (
            _annotated({"metric": "read_latency", "goal": 1, "wieght": 2}),
            {"/classes/articles/fields/title/annotations/0/wieght": "weight"},
        ),
        (_schema(nothing_like_it=1), {}),
    ],
)
def test_schemas(document: dict[str, Any], suggested: dict[str, str]) -> None:
    with pytest.raises(Invalid) as caught:
        parse_schema("news", document)
    assert _suggestions(caught.value) == suggested


@pytest.mark.parametrize(
    ("parse", "document", "suggested"),
    [
        (parse_batch, {"operation": []}, {"/operation": "operations"}),
        (parse_operation, {"op": "pt", "class": "a", "id": "1"}, {"/op": "put"}),
        (parse_operation, {"op": "get", "clas": "a", "id": "1"}, {"/clas": "class"}),
        (
            parse_operation,
            {"op": "put", "class": "a", "id": "1", "body": {}, "if_mtch": "x"},
            {"/if_mtch": "if_match"},
        ),
        # Members of other operations are not suggested.
        (parse_operation, {"op": "create", "class": "a", "body": {}, "if_mtch": "x"}, {}),
        (
            parse_transaction,
            {"reads": [{"class": "a", "id": "1", "etg": "x"}], "operations": []},
            {"/reads/0/etg": "etag"},
        ),
        (
            parse_transaction,
            {"reads": [], "operations": [{"op": "put", "class": "a", "id": "1", "bdy": {}}]},
            {"/operations/0/bdy": "body"},
        ),
    ],
)
def test_bodies(parse: Any, document: dict[str, Any], suggested: dict[str, str]) -> None:
    with pytest.raises(Invalid) as caught:
        parse(document)
    assert _suggestions(caught.value) == suggested


def test_the_detail_of_a_schema_ends_with_the_suggestion() -> None:
    with pytest.raises(Invalid) as caught:
        parse_schema("news", _schema(cahce={}))
    assert caught.value.detail.endswith('; did you mean "cache"?')

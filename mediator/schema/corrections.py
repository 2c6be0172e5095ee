"""Suggestions for unknown names in a document, from pydantic's core schema of its model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter
from pydantic_core import ErrorDetails

from mediator.base.suggestions import did_you_mean

__all__ = ["UNKNOWN_MEMBER", "correction"]

_Node: TypeAlias = Mapping[str, Any]
"""A core schema, or a part of one (`pydantic_core.core_schema`)."""

UNKNOWN_MEMBER: Final = frozenset({"unexpected_keyword_argument", "extra_forbidden"})
"""Types of errors that report a member unknown to the model."""

_CHOICES: Final = frozenset({"enum", "literal_error", "union_tag_invalid"})
_NAME: Final = re.compile(r"'([^']*)'")
"""One of the expected names, as pydantic lists them."""


def correction(
    adapter: TypeAdapter[Any], raw: Any, steps: Sequence[str | int], error: ErrorDetails
) -> str:
    """Return the suggestion that ends an error message: `did_you_mean`, or an empty text.

    `steps` are the names and indices that lead from the document, `raw`, to the mistake.
    """
    if error["type"] in UNKNOWN_MEMBER:
        return did_you_mean(steps[-1], _members(adapter.core_schema, raw, steps[:-1]))
    if error["type"] not in _CHOICES:
        return ""
    context = error["ctx"]
    choice = _NAME.findall(context.get("expected") or context["expected_tags"])
    return did_you_mean(context.get("tag", error["input"]), choice)


def _members(schema: _Node, raw: Any, steps: Iterable[str | int]) -> Iterator[str]:
    """Yield the names of the members that an object of the document can have."""
    definitions = {definition["ref"]: definition for definition in schema.get("definitions", ())}
    nodes = list(_shapes(schema, raw, definitions))
    for step in steps:
        raw = _child_value(raw, step)
        children = [child for node in nodes for child in _child_schemas(node, step)]
        nodes = [shape for child in children for shape in _shapes(child, raw, definitions)]
    for node in nodes:
        yield from _fields(node)


def _child_value(raw: Any, step: str | int) -> Any:
    if isinstance(raw, dict):
        return raw.get(step)
    exists = isinstance(raw, list) and isinstance(step, int) and step < len(raw)
    return raw[step] if exists else None


def _shapes(node: _Node, raw: Any, definitions: Mapping[str, _Node]) -> Iterator[_Node]:
    """Yield the possible schemas of a value, unwrapped from defaults, validators and unions."""
    if node["type"] == "definition-ref":
        node = definitions[node["schema_ref"]]
    if "schema" in node:
        yield from _shapes(node["schema"], raw, definitions)
    elif "choices" in node:
        for choice in _choices(node, raw):
            yield from _shapes(choice, raw, definitions)
    else:
        yield node


def _choices(node: _Node, raw: Any) -> Iterator[_Node]:
    """Yield the members of a union; if a value has a tag, only that of the tag."""
    choices = node["choices"]
    if isinstance(choices, Mapping):
        discriminator = node["discriminator"]
        tag = _child_value(raw, discriminator) if isinstance(discriminator, str) else None
        is_known = isinstance(tag, str) and tag in choices
        yield from [choices[tag]] if is_known else choices.values()
    else:
        yield from (choice[0] if isinstance(choice, tuple) else choice for choice in choices)


def _fields(node: _Node) -> dict[str, _Node]:
    """Return the schemas of an object's members, by their names in the document."""
    fields = node.get("fields", {})
    named_fields = (
        fields.items() if isinstance(fields, Mapping) else ((f["name"], f) for f in fields)
    )
    return {field.get("validation_alias", name): field["schema"] for name, field in named_fields}


def _child_schemas(node: _Node, step: str | int) -> Iterator[_Node]:
    """Yield the schemas of a member or an element."""
    if step in (fields := _fields(node)):
        yield fields[str(step)]
    items = node.get("items_schema", ())
    yield from [items] if isinstance(items, Mapping) else items
    if "values_schema" in node:
        yield node["values_schema"]

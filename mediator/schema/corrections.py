"""What is meant by a name that the model of a document does not know, by pydantic's core schema."""

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
"""Types of errors that stand for a member which the model does not have."""

_CHOICES: Final = frozenset({"enum", "literal_error", "union_tag_invalid"})
_NAME: Final = re.compile(r"'([^']*)'")
"""One of the names that pydantic expects, as it lists them."""


def correction(
    adapter: TypeAdapter[Any], raw: Any, steps: Sequence[str | int], error: ErrorDetails
) -> str:
    """Return how the sentence about a mistake ends, if it is a name: `did_you_mean`.

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
    """Yield the names of the members that an object of the document may have."""
    definitions = {each["ref"]: each for each in schema.get("definitions", ())}
    nodes = list(_shapes(schema, raw, definitions))
    for step in steps:
        raw = _inner(raw, step)
        below = [each for node in nodes for each in _below(node, step)]
        nodes = [shape for each in below for shape in _shapes(each, raw, definitions)]
    for node in nodes:
        yield from _fields(node)


def _inner(raw: Any, step: str | int) -> Any:
    if isinstance(raw, dict):
        return raw.get(step)
    is_there = isinstance(raw, list) and isinstance(step, int) and step < len(raw)
    return raw[step] if is_there else None


def _shapes(node: _Node, raw: Any, definitions: Mapping[str, _Node]) -> Iterator[_Node]:
    """Yield what a value may be, without what wraps it: defaults, validators, unions."""
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
    """Yield the members of a union: the one of a value's tag, if it has a tag."""
    choices = node["choices"]
    if isinstance(choices, Mapping):
        discriminator = node["discriminator"]
        tag = _inner(raw, discriminator) if isinstance(discriminator, str) else None
        is_known = isinstance(tag, str) and tag in choices
        yield from [choices[tag]] if is_known else choices.values()
    else:
        yield from (each[0] if isinstance(each, tuple) else each for each in choices)


def _fields(node: _Node) -> dict[str, _Node]:
    """Return the schemas of an object's members, by their names in the document."""
    fields = node.get("fields", {})
    named = fields.items() if isinstance(fields, Mapping) else ((f["name"], f) for f in fields)
    return {field.get("validation_alias", name): field["schema"] for name, field in named}


def _below(node: _Node, step: str | int) -> Iterator[_Node]:
    """Yield the schemas of a member or an element."""
    if step in (fields := _fields(node)):
        yield fields[str(step)]
    items = node.get("items_schema", ())
    yield from [items] if isinstance(items, Mapping) else items
    if "values_schema" in node:
        yield node["values_schema"]

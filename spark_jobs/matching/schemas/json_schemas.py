"""JSON schemas as elements: each property with its type, by the names that lead to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from spark_jobs.matching.schemas.elements import Element
from spark_jobs.runner.port import InputUnfit

__all__ = ["parse_json_schema"]

MOST_TEXT: Final = 4 * 2**20
"""Characters of a schema."""
MOST_ELEMENTS: Final = 2_000
_DEEPEST: Final = 8
_VARIANTS: Final = ("allOf", "anyOf", "oneOf")


def parse_json_schema(text: str, name: str) -> list[Element]:
    """Return the properties of a JSON schema, in the order of their paths.

    References are followed within the document alone, and not in circles; properties below eight
    others are left out.

    Raises:
        InputUnfit: It is too large, is no JSON object, or has no properties.
    """
    if len(text) > MOST_TEXT:
        raise InputUnfit(f"{name}: a JSON schema has {MOST_TEXT:,} characters at most.")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputUnfit(f"{name}: this is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise InputUnfit(f"{name}: a JSON schema is an object.")
    elements: dict[tuple[str, ...], Element] = {}
    for element in _elements(document, document, (), frozenset()):
        elements.setdefault(element.path, element)
        if len(elements) > MOST_ELEMENTS:
            raise InputUnfit(f"{name}: a JSON schema has {MOST_ELEMENTS:,} properties at most.")
    if not elements:
        raise InputUnfit(f"{name}: the JSON schema has no properties.")
    return [elements[path] for path in sorted(elements)]


def _elements(
    schema: Any, root: Mapping[str, Any], path: tuple[str, ...], seen: frozenset[str]
) -> Iterator[Element]:
    if not isinstance(schema, dict) or len(path) > _DEEPEST:
        return
    schema, seen = _resolved(schema, root, seen)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for key, value in properties.items():
            if key:
                inner, _ = _resolved(value, root, seen)
                yield Element((*path, key), _type(inner))
                yield from _elements(value, root, (*path, key), seen)
    yield from _elements(schema.get("items"), root, path, seen)
    for variant in _VARIANTS:
        options = schema.get(variant)
        for option in options if isinstance(options, list) else ():
            yield from _elements(option, root, path, seen)


def _resolved(
    schema: Any, root: Mapping[str, Any], seen: frozenset[str]
) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Follow references; one that leads elsewhere, nowhere or in a circle gives an empty schema."""
    while isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
        if reference in seen:
            return {}, seen
        seen |= {reference}
        schema = _target(reference, root)
    return (schema, seen) if isinstance(schema, dict) else ({}, seen)


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    target: Any = root
    if not reference.startswith("#"):
        return None
    for token in reference[1:].split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    return target


def _type(schema: Mapping[str, Any]) -> str:
    stated = schema.get("type")
    if isinstance(stated, list):
        types = [each for each in stated if each != "null"]
        stated = types[0] if len(types) == 1 else None
    return stated if isinstance(stated, str) else ""

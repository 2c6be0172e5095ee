"""JSON schemas as elements: each property with its type, by the names that lead to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from spark_jobs.matching.schemas.elements import Element
from spark_jobs.runner.port import InputUnfit

__all__ = ["parse_json_schema"]

MOST_TEXT: Final = 4 * 2**20
"""Characters of a schema."""
MOST_ELEMENTS: Final = 2_000
MOST_STEPS: Final = 200_000
"""Visits of subschemas: a few dozen references are enough to lead to one for ever."""
MOST_CHARACTERS: Final = 1_000
"""Of the names that lead to a property; candidates, and what is said of them, have both."""
_DEEPEST: Final = 8
_MOST_TYPES: Final = 8
"""Of one schema; JSON has seven."""
_TYPES: Final = frozenset(
    ("array", "boolean", "integer", "null", "number", "object", "string"),
)
_VARIANTS: Final = ("allOf", "anyOf", "oneOf")


def parse_json_schema(text: str, name: str) -> list[Element]:
    """Return the properties of a JSON schema, in the order of their paths.

    References are followed within the document alone, and not in circles; properties below eight
    others are left out.

    Raises:
        InputUnfit: It is too large, is no JSON object, has no properties, or names of these that
            are too long, or its references lead to too many subschemas.
    """
    if len(text) > MOST_TEXT:
        raise InputUnfit(f"{name}: a JSON schema has {MOST_TEXT:,} characters at most.")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputUnfit(f"{name}: this is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise InputUnfit(f"{name}: a JSON schema is an object.")
    elements = _Walk(document, name).elements()
    if not elements:
        raise InputUnfit(f"{name}: the JSON schema has no properties.")
    return [elements[path] for path in sorted(elements)]


class _Subschema(NamedTuple):
    """A part of the document, with the names and the references that led to it."""

    schema: Any
    path: tuple[str, ...] = ()
    seen: frozenset[str] = frozenset()


class _Walk:
    """Visits the subschemas of a document, depth first; the first of several types counts."""

    def __init__(self, document: Mapping[str, Any], name: str) -> None:
        self._document = document
        self._name = name
        self._steps = 0
        self._targets: dict[str, Any] = {}
        self._elements: dict[tuple[str, ...], Element] = {}

    def elements(self) -> Mapping[tuple[str, ...], Element]:
        """Return the properties by their paths.

        Raises:
            InputUnfit: They are too many, or the way to them is too long.
        """
        waiting = [_Subschema(self._document)]
        while waiting:
            each = waiting.pop()
            below: list[_Subschema] = []
            for child in self._below(each):
                self._step()
                below.append(child)
            waiting += reversed(below)
        return self._elements

    def _below(self, given: _Subschema) -> Iterator[_Subschema]:
        if not isinstance(given.schema, dict) or len(given.path) > _DEEPEST:
            return
        schema, path, seen = self._resolved(given)
        properties = schema.get("properties")
        for key, value in properties.items() if isinstance(properties, dict) else ():
            if key:
                below = _Subschema(value, (*path, key), seen)
                self._add(Element(below.path, _type(self._resolved(below).schema)))
                yield below
        if "items" in schema:
            yield _Subschema(schema["items"], path, seen)
        for variant in _VARIANTS:
            options = schema.get(variant)
            for option in options if isinstance(options, list) else ():
                yield _Subschema(option, path, seen)

    def _add(self, element: Element) -> None:
        if sum(map(len, element.path)) > MOST_CHARACTERS:
            raise InputUnfit(
                f"{self._name}: the names that lead to a property of a JSON schema have "
                f"{MOST_CHARACTERS:,} characters at most together."
            )
        self._elements.setdefault(element.path, element)
        if len(self._elements) > MOST_ELEMENTS:
            raise InputUnfit(
                f"{self._name}: a JSON schema has {MOST_ELEMENTS:,} properties at most."
            )

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise InputUnfit(
                f"{self._name}: the JSON schema has more than {MOST_STEPS:,} subschemas, each "
                "counted as often as references lead to it."
            )

    def _resolved(self, given: _Subschema) -> _Subschema:
        """Follow references; one that leads elsewhere, nowhere or in a circle gives nothing."""
        schema, path, seen = given
        while isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
            if reference in seen:
                return _Subschema({}, path, seen)
            self._step(1 + len(seen))  # those are copied
            seen |= {reference}
            schema = self._target(reference)
        return _Subschema(schema if isinstance(schema, dict) else {}, path, seen)

    def _target(self, reference: str) -> Any:
        if reference not in self._targets:
            self._targets[reference] = _found(reference, self._document)
        return self._targets[reference]


def _found(reference: str, root: Mapping[str, Any]) -> Any:
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
        types = [each for each in stated[:_MOST_TYPES] if each != "null"]
        stated = types[0] if len(types) == 1 else None
    return stated if isinstance(stated, str) and stated in _TYPES else ""

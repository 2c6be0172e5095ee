"""Parses JSON schemas into elements: each property with its path and type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from spark_jobs.matching.schemas.elements import Element
from spark_jobs.runner.port import InputUnfit

__all__ = ["parse_json_schema"]

MAX_TEXT: Final = 4 * 2**20
"""Maximum characters of a schema."""
MAX_ELEMENTS: Final = 2_000
MAX_STEPS: Final = 200_000
"""Maximum visits of subschemas: a few dozen references suffice for an endless number."""
MAX_CHARACTERS: Final = 1_000
"""Maximum characters of a property's path; candidates and their evidence repeat it."""
_MAX_DEPTH: Final = 8
_MAX_TYPES: Final = 8
"""Maximum types of one schema; JSON has seven."""
_TYPES: Final = frozenset(
    ("array", "boolean", "integer", "null", "number", "object", "string"),
)
_VARIANTS: Final = ("allOf", "anyOf", "oneOf")


def parse_json_schema(text: str, name: str) -> list[Element]:
    """Return the properties of a JSON schema, in the order of their paths.

    References are followed only within the document, and not in cycles; properties nested deeper
    than eight others are skipped.

    Raises:
        InputUnfit: It is too large, is not a JSON object, has no properties or too long paths, or
            its references lead to too many subschemas.
    """
    if len(text) > MAX_TEXT:
        raise InputUnfit(f"{name}: a JSON schema has {MAX_TEXT:,} characters at most.")
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
    """A part of the document, with its path and the references that led to it."""

    schema: Any
    path: tuple[str, ...] = ()
    seen: frozenset[str] = frozenset()


class _Walk:
    """Visits the subschemas of a document, depth first; of several types the first counts."""

    def __init__(self, document: Mapping[str, Any], name: str) -> None:
        self._document = document
        self._name = name
        self._steps = 0
        self._targets: dict[str, Any] = {}
        self._elements: dict[tuple[str, ...], Element] = {}

    def elements(self) -> Mapping[tuple[str, ...], Element]:
        """Return the properties by their paths.

        Raises:
            InputUnfit: They are too many, or a path is too long.
        """
        pending = [_Subschema(self._document)]
        while pending:
            subschema = pending.pop()
            children: list[_Subschema] = []
            for child in self._below(subschema):
                self._step()
                children.append(child)
            pending += reversed(children)
        return self._elements

    def _below(self, subschema: _Subschema) -> Iterator[_Subschema]:
        if not isinstance(subschema.schema, dict) or len(subschema.path) > _MAX_DEPTH:
            return
        schema, path, seen = self._resolve(subschema)
        properties = schema.get("properties")
        for key, value in properties.items() if isinstance(properties, dict) else ():
            if key:
                child = _Subschema(value, (*path, key), seen)
                self._add(Element(child.path, _type(self._resolve(child).schema)))
                yield child
        if "items" in schema:
            yield _Subschema(schema["items"], path, seen)
        for variant in _VARIANTS:
            options = schema.get(variant)
            for option in options if isinstance(options, list) else ():
                yield _Subschema(option, path, seen)

    def _add(self, element: Element) -> None:
        if sum(map(len, element.path)) > MAX_CHARACTERS:
            raise InputUnfit(
                f"{self._name}: the names that lead to a property of a JSON schema have "
                f"{MAX_CHARACTERS:,} characters at most together."
            )
        self._elements.setdefault(element.path, element)
        if len(self._elements) > MAX_ELEMENTS:
            raise InputUnfit(
                f"{self._name}: a JSON schema has {MAX_ELEMENTS:,} properties at most."
            )

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise InputUnfit(
                f"{self._name}: the JSON schema has more than {MAX_STEPS:,} subschemas, each "
                "counted as often as references lead to it."
            )

    def _resolve(self, subschema: _Subschema) -> _Subschema:
        """Follow references; an external, dangling or cyclic reference gives an empty schema."""
        schema, path, seen = subschema
        while isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
            if reference in seen:
                return _Subschema({}, path, seen)
            self._step(1 + len(seen))  # `seen` is copied
            seen |= {reference}
            schema = self._target(reference)
        return _Subschema(schema if isinstance(schema, dict) else {}, path, seen)

    def _target(self, reference: str) -> Any:
        if reference not in self._targets:
            self._targets[reference] = _find(reference, self._document)
        return self._targets[reference]


def _find(reference: str, root: Mapping[str, Any]) -> Any:
    target: Any = root
    if not reference.startswith("#"):
        return None
    for token in reference[1:].split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    return target


def _type(schema: Mapping[str, Any]) -> str:
    type_ = schema.get("type")
    if isinstance(type_, list):
        types = [name for name in type_[:_MAX_TYPES] if name != "null"]
        type_ = types[0] if len(types) == 1 else None
    return type_ if isinstance(type_, str) and type_ in _TYPES else ""

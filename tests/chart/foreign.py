"""Kinds that are not Kubernetes' own, validated by the definitions that their makers publish.

Unknown fields are mistakes: a server drops fields that a definition does not have, without a word.
Rules in CEL (``x-kubernetes-validations``) are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml
from jsonschema_rs import Draft4Validator

__all__ = ["SCHEMAS", "mistakes"]

SCHEMAS: Final = Path(__file__).parents[2] / ".tools" / "schemas"
"""The folder in which `make chart` puts the definitions of modules that helm/tools/schemas pins."""

_Kind: TypeAlias = tuple[str, str]
_ENVELOPE: Final = {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}}


def mistakes(manifest: Mapping[str, Any]) -> list[str] | None:
    """Return the mistakes of an object, a line each; None if its kind has no definition here."""
    schema = _schemas().get((manifest["apiVersion"], manifest["kind"]))
    if schema is None:
        return None
    return [
        f"{'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in Draft4Validator(schema).iter_errors(manifest)
    ]


@cache
def _schemas() -> dict[_Kind, Any]:
    """Return the schema of each served version of each kind."""
    schemas: dict[_Kind, Any] = {}
    for path in SCHEMAS.glob("*.yaml"):
        # The loader in C: a definition has ten thousand lines.
        definition = yaml.load(path.read_bytes(), yaml.CSafeLoader)["spec"]
        for version in definition["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"] |= _ENVELOPE
            kind = (f"{definition['group']}/{version['name']}", definition["names"]["kind"])
            schemas[kind] = _closed(schema)
    return schemas


def _closed(schema: Any) -> Any:
    """Return a schema whose objects take only the fields that it names."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        # The values of `properties` are schemas, whatever the names of the fields.
        keyword: {name: _closed(item) for name, item in value.items()}
        if keyword == "properties"
        else _closed(value)
        for keyword, value in schema.items()
    }
    if "pattern" in schema and isinstance(schema["pattern"], str):
        # Go's flag for ignoring case; other dialects set it for a group.
        closed["pattern"] = re.sub(r"^\^\(\?i\)(.*)\$$", r"^(?i:\1)$", schema["pattern"])
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed

"""Kinds that are not Kubernetes' own, held against the definitions that their makers publish.

What is there is checked, and that nothing else is: a server drops fields that a definition does not
know, without a word. Rules in CEL (``x-kubernetes-validations``) are not evaluated.
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
"""Where `make chart` puts the definitions, from the modules that helm/tools/schemas pins."""

_Kind: TypeAlias = tuple[str, str]
_ENVELOPE: Final = {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}}


def mistakes(manifest: Mapping[str, Any]) -> list[str] | None:
    """Return what is wrong with an object, a line each; None: its kind is defined nowhere here."""
    schema = _schemas().get((manifest["apiVersion"], manifest["kind"]))
    if schema is None:
        return None
    return [
        f"{'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in Draft4Validator(schema).iter_errors(manifest)
    ]


@cache
def _schemas() -> dict[_Kind, Any]:
    """Return the schema of each version that is served of each kind."""
    found: dict[_Kind, Any] = {}
    for path in SCHEMAS.glob("*.yaml"):
        # The loader in C: a definition has ten thousand lines.
        definition = yaml.load(path.read_bytes(), yaml.CSafeLoader)["spec"]
        for version in definition["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"] |= _ENVELOPE
            kind = (f"{definition['group']}/{version['name']}", definition["names"]["kind"])
            found[kind] = _closed(schema)
    return found


def _closed(schema: Any) -> Any:
    """Return a schema in which objects take no field that it does not name."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    below = {
        # What `properties` holds are schemas, whatever the names of the fields are.
        word: {name: _closed(each) for name, each in value.items()}
        if word == "properties"
        else _closed(value)
        for word, value in schema.items()
    }
    if "pattern" in schema and isinstance(schema["pattern"], str):
        # As Go writes that case does not matter; elsewhere it is said of a group.
        below["pattern"] = re.sub(r"^\^\(\?i\)(.*)\$$", r"^(?i:\1)$", schema["pattern"])
    if schema.get("type") == "object" and "properties" in schema:
        below.setdefault("additionalProperties", False)
    return below

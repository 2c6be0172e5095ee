"""The references within an OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["references_of"]


def references_of(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for member in node.values():
            yield from references_of(member)
    elif isinstance(node, list):
        for element in node:
            yield from references_of(element)

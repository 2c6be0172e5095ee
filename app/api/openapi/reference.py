"""References to components of an OpenAPI document."""

from __future__ import annotations

from typing import Any

__all__ = ["ref"]


def ref(kind: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}

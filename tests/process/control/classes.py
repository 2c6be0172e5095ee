"""Classes for the control plane's tests."""

from __future__ import annotations

from typing import Any

from tests.process.service import field_on


def class_on(system: str, **members: Any) -> dict[str, Any]:
    """Return a class with one field, placed on `system`."""
    return {"fields": {"title": field_on(system)}, **members}

"""Classes of the tests of the control plane."""

from __future__ import annotations

from typing import Any

from tests.process.service import field_on


def on(system: str, **members: Any) -> dict[str, Any]:
    """Return a class with one field that is placed on a system."""
    return {"fields": {"title": field_on(system)}, **members}

"""Paths for Spark."""

from __future__ import annotations

import re

__all__ = ["literal_path"]


def literal_path(path: str) -> str:
    """Escape a path for Spark, which reads glob characters as patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)

"""Paths as Spark takes them."""

from __future__ import annotations

import re

__all__ = ["literal_path"]


def literal_path(path: str) -> str:
    """Return what Spark reads as this path, whatever characters it has that are of patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)

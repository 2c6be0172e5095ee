"""Canonical JSON text, for comparisons."""

from __future__ import annotations

from typing import Any

import orjson

__all__ = ["as_text"]


def as_text(value: Any) -> bytes:
    """Return text that is equal for equal JSON: to Python, `true` equals 1."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)

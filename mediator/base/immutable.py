"""Immutable values for hot paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

__all__ = ["immutable"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def immutable(cls: type[T]) -> type[T]:
    """Create a dataclass with slots that type checkers treat as frozen.

    Freezing it at run time as well would treble its creation time.
    """
    return dataclass(slots=True)(cls)

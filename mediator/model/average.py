"""Averages of exact sums: the same wherever the sum was computed."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from mediator.schema.limits import DECIMAL_DIGITS
from mediator.schema.types import Value

__all__ = ["average"]

_ROUNDED: Final = Context(prec=DECIMAL_DIGITS, rounding=ROUND_HALF_EVEN)


def average(total: Any, count: int) -> Value:
    """Divide a sum by its count: a float, correctly rounded; of decimals a decimal."""
    if not count:
        return None
    if isinstance(total, Decimal):
        return _ROUNDED.divide(total, Decimal(count))
    return float(total / count)

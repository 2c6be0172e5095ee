"""Exact arithmetic of aggregates: the decimals that floats stand for, and averages rounded once."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

from mediator.schema.limits import DECIMAL_DIGITS

__all__ = ["average", "decimal_of"]

_ROUNDED: Final = Context(prec=DECIMAL_DIGITS, rounding=ROUND_HALF_EVEN)

_ALL_INTEGERS: Final = 2.0**53
"""Up to here, and beyond 1E+40, no decimal of 17 digits is halfway between two floats."""
_NONE_HALFWAY: Final = 1e40


def decimal_of(value: float) -> Decimal:
    """Return the shortest decimal that is nearer to a finite float than to any other float.

    PostgreSQL writes the same. `repr` also returns decimals halfway to another float, such as
    1E+23, as readers choose the even one of the two.
    """
    number = Decimal(repr(value))
    if -_ALL_INTEGERS < value < _ALL_INTEGERS or abs(value) > _NONE_HALFWAY:
        return number
    while _is_halfway(number, value):
        digits = len(number.as_tuple().digits)
        number = Decimal(f"{value:.{digits}e}")  # with one more digit
    return number


def _is_halfway(number: Decimal, value: float) -> bool:
    """Whether an integer is halfway between a float, also an integer, and the next float."""
    following = math.nextafter(value, math.inf if number > value else -math.inf)
    return 2 * int(number) == int(value) + int(following)


def average(
    total: int | Decimal, count: int, *, as_decimal: bool = False
) -> float | Decimal | None:
    """Divide an exact sum by its count, rounding once.

    Args:
        total: The sum.
        count: How many numbers were added.
        as_decimal: Whether they are decimals; the average is then one, of 34 digits.

    Returns:
        The average; None without numbers.
    """
    if not count:
        return None
    if as_decimal:
        return _ROUNDED.divide(total, Decimal(count))
    numerator, denominator = total.as_integer_ratio()
    return numerator / (denominator * count)

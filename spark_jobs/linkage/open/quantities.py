"""Numbers as catalogues write them, with units and currencies: ``$1,299.00``, ``2 TB``.

Units of one dimension become the same one, so 2 TB equals 2000 GB. Currencies are not converted, as
rates change: an amount is its number. What has another unit is no quantity, but a code, say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from spark_jobs.texts import mapped

__all__ = ["as_quantities", "quantity"]

_LONGEST: Final = 64
"""Characters of a quantity: some patterns take time with the square of it."""
_PLAIN: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_QUANTITY: Final = re.compile(
    r"(?P<sign>-?)(?P<currency>[^\d.,'\s-]*)\s*(?P<digits>\d[\d.,'\s]*)(?P<unit>[^\d.,'\s]*)\.?",
    re.ASCII,
)
_NUMBERS: Final = (
    re.compile(r"(?P<whole>\d+)(\.(?P<part>\d*))?"),
    re.compile(r"(?P<whole>\d{1,3}(,\d{3})+)(\.(?P<part>\d*))?"),
    re.compile(r"(?P<whole>\d{1,3}(\.\d{3})+)(,(?P<part>\d*))?"),
    re.compile(r"(?P<whole>\d{1,3}([ ']\d{3})+)([.,](?P<part>\d*))?"),
    re.compile(r"(?P<whole>\d+),(?P<part>\d*)"),
)
"""The first that describes a number tells the separators of thousands and of decimals."""
_NOT_DIGITS: Final = re.compile(r"\D")

_SIGNS: Final = ("$", "us$", "c$", "a$", "€", "£", "¥", "₹", "₩", "₽", "₺")
_CODES: Final = (
    *("aud", "brl", "cad", "chf", "cny", "dkk", "eur", "gbp", "inr", "jpy", "krw", "mxn", "nok"),
    *("pln", "sek", "usd"),
)
_CURRENCIES: Final = frozenset({"", *_SIGNS, *_CODES})
_UNITS: Final[Mapping[str, float]] = {
    "mg": 1e-3,
    "g": 1.0,
    "kg": 1e3,
    "oz": 28.349523125,
    "lb": 453.59237,
    "lbs": 453.59237,
    "mm": 1e-3,
    "cm": 1e-2,
    "m": 1.0,
    "km": 1e3,
    "in": 0.0254,
    "inch": 0.0254,
    "inches": 0.0254,
    '"': 0.0254,
    "″": 0.0254,
    "ft": 0.3048,
    "ml": 1e-3,
    "cl": 1e-2,
    "l": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "hz": 1.0,
    "khz": 1e3,
    "mhz": 1e6,
    "ghz": 1e9,
    "w": 1.0,
    "kw": 1e3,
    "mah": 1e-3,
    "ah": 1.0,
    "": 1.0,
    "%": 1.0,
    **dict.fromkeys(_CURRENCIES, 1.0),
}
"""By how much a number with a unit, in small letters, is multiplied."""


def as_quantities(texts: pa.Array) -> pa.Array:
    """The `quantity` of each text; null: it is none."""
    return mapped(texts, quantity, pa.float64())


def quantity(text: str) -> float | None:
    """Return the number that a text denotes, in the first unit of its dimension; None: it is none.

    ``1,299`` has a thousands separator, as three digits follow, ``12,5`` a decimal comma, and
    ``1.299`` a decimal point.
    """
    stripped = text.strip()
    if len(stripped) > _LONGEST:
        return None
    if _PLAIN.fullmatch(stripped):
        return float(stripped)
    found = _QUANTITY.fullmatch(stripped)
    if found is None or found["currency"].lower() not in _CURRENCIES:
        return None
    number, factor = _read(found["digits"].strip()), _UNITS.get(found["unit"].lower())
    if number is None or factor is None:
        return None
    return (-number if found["sign"] else number) * factor


def _read(digits: str) -> float | None:
    for pattern in _NUMBERS:
        if found := pattern.fullmatch(digits):
            return float(f"{_NOT_DIGITS.sub('', found['whole'])}.{found['part'] or 0}")
    return None

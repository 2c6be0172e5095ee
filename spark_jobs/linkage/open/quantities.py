"""Parses numbers of catalogues, with units and currencies: ``$1,299.00``, ``2 TB``.

Units of one dimension are converted to one unit, so 2 TB equals 2000 GB. Currencies are not
converted, because rates change. A number with an unknown unit is not a quantity; it may be a code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from spark_jobs.texts import map_texts

__all__ = ["as_quantities", "quantity"]

_MAX_CHARACTERS: Final = 64
"""Maximum characters of a quantity: some patterns take quadratic time."""
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
"""The first pattern that matches determines the thousands and decimal separators."""
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
"""The factor of each unit, in lower case."""


def as_quantities(texts: pa.Array) -> pa.Array:
    """Return the `quantity` of each text; null: it is not one."""
    return map_texts(texts, quantity, pa.float64())


def quantity(text: str) -> float | None:
    """Return the number that a text denotes, in the base unit of its dimension; None: not a number.

    ``1,299`` has a thousands separator, as three digits follow, ``12,5`` a decimal comma, and
    ``1.299`` a decimal point.
    """
    stripped = text.strip()
    if len(stripped) > _MAX_CHARACTERS:
        return None
    if _PLAIN.fullmatch(stripped):
        return float(stripped)
    match = _QUANTITY.fullmatch(stripped)
    if match is None or match["currency"].lower() not in _CURRENCIES:
        return None
    number, factor = _parse_digits(match["digits"].strip()), _UNITS.get(match["unit"].lower())
    if number is None or factor is None:
        return None
    return (-number if match["sign"] else number) * factor


def _parse_digits(digits: str) -> float | None:
    for pattern in _NUMBERS:
        if match := pattern.fullmatch(digits):
            return float(f"{_NOT_DIGITS.sub('', match['whole'])}.{match['part'] or 0}")
    return None

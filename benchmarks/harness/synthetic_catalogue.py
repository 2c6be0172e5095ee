"""Two synthetic catalogues of products: the same products, described by two shops.

One shop has long texts; the other drops words, writes model numbers apart, has prices with their
currency, and seldom a description. Products come in variants that differ by their model numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["catalogues"]

_BRANDS: Final = ("Acorn", "Belmont", "Cresta", "Dunmore", "Elgin", "Fairfax", "Galway", "Harlow")
_THINGS: Final = (
    "Compact Digital Camera", "Stainless Steel Toaster", "Wireless Noise Cancelling Headphones",
    "Portable Hard Drive", "Flat Panel Television", "Cordless Phone", "Gas Grill",
    "Front Load Washing Machine", "Laser Printer", "Car Audio Amplifier", "Bookshelf Speaker",
)  # fmt: skip
_TRAITS: Final = (
    "Black", "Silver", "White", "Red", "Blue", "1.5 TB", "500 GB", "32 Inch", "12 Megapixel",
    "Energy Star", "Rechargeable", "Bluetooth", "Remote Control", "Twin Pack", "Refurbished",
)  # fmt: skip
_VARIANTS: Final = 3
_PRICED: Final = 0.6
_WORDS_KEPT: Final = 0.7
_MODEL_SHOWN: Final = 0.8
_DESCRIBED: Final = 0.4

Product = dict[str, str | None]


def catalogues(size: int, common: float, seed: int) -> tuple[Sequence[Product], Sequence[Product]]:
    """Generate two catalogues of `size` products each, a share of which is in both.

    Returns:
        Products with ``id``, ``name``, ``description``, ``price`` and ``entity``, which is the same
        where they are.
    """
    draw = random.Random(seed)
    shared = round(size * common)
    products = list(_products(2 * size - shared, draw))
    draw.shuffle(products)
    first = [_long_entry(product, draw) for product in products[:size]]
    second = [_short_entry(product, draw) for product in products[size - shared :]]
    draw.shuffle(second)
    return first, second


def _products(count: int, draw: random.Random) -> Iterator[tuple[str, str, float]]:
    """Yield titles, model numbers and prices of products."""
    yielded = 0
    while yielded < count:
        brand, thing = draw.choice(_BRANDS), draw.choice(_THINGS)
        line = "".join(draw.choices("ABCDEFGHKLMNPRSTVWX", k=3))
        number, price = draw.randrange(100, 9900), draw.uniform(9, 900)
        for variant in range(min(_VARIANTS, count - yielded)):
            traits = " ".join(draw.sample(_TRAITS, 2))
            model = f"{line}{number + 10 * variant}{draw.choice('BKSWX')}"
            yield f"{brand} {thing} {traits}", model, price * (1 + variant / 10)
            yielded += 1


def _long_entry(product: tuple[str, str, float], draw: random.Random) -> Product:
    title, model, price = product
    extra = ", ".join(draw.sample(_TRAITS, 3))
    return {
        "id": f"a{model}{draw.randrange(10**6)}",
        "name": f"{title} - {model}",
        "description": f"{title} - {model}/ {extra}/ Great Value/ One Year Warranty",
        "price": f"{price:.2f}" if draw.random() < _PRICED else None,
        "entity": f"{title} {model}",
    }


def _short_entry(product: tuple[str, str, float], draw: random.Random) -> Product:
    title, model, price = product
    brand, *words = title.split()
    name_words = [brand, *(word for word in words if draw.random() < _WORDS_KEPT)]
    cut = draw.randrange(2, 4)
    model_text = f"{model[:cut]}-{model[cut:]}" if draw.random() < _MODEL_SHOWN else ""
    return {
        "id": f"b{model}{draw.randrange(10**6)}",
        "name": " ".join([*name_words, model_text]).strip(),
        "description": draw.choice(_TRAITS) if draw.random() < _DESCRIBED else None,
        "price": f"{price * draw.uniform(0.9, 1.1):.2f} gbp",
        "entity": f"{title} {model}",
    }

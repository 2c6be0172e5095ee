"""Two catalogues of products that were made up: the same things, described by two shops.

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
    """Make two catalogues of `size` products each, of which a share is in both.

    Returns:
        Products with ``id``, ``name``, ``description``, ``price`` and ``entity``, which is the same
        where they are.
    """
    drawn = random.Random(seed)
    shared = round(size * common)
    made = list(_products(2 * size - shared, drawn))
    drawn.shuffle(made)
    first = [_listed(one, drawn) for one in made[:size]]
    second = [_other_shop(one, drawn) for one in made[size - shared :]]
    drawn.shuffle(second)
    return first, second


def _products(count: int, drawn: random.Random) -> Iterator[tuple[str, str, float]]:
    """The title, the model number and the price of products."""
    made = 0
    while made < count:
        brand, thing = drawn.choice(_BRANDS), drawn.choice(_THINGS)
        line = "".join(drawn.choices("ABCDEFGHKLMNPRSTVWX", k=3))
        number, price = drawn.randrange(100, 9900), drawn.uniform(9, 900)
        for variant in range(min(_VARIANTS, count - made)):
            traits = " ".join(drawn.sample(_TRAITS, 2))
            model = f"{line}{number + 10 * variant}{drawn.choice('BKSWX')}"
            yield f"{brand} {thing} {traits}", model, price * (1 + variant / 10)
            made += 1


def _listed(product: tuple[str, str, float], drawn: random.Random) -> Product:
    title, model, price = product
    extra = ", ".join(drawn.sample(_TRAITS, 3))
    return {
        "id": f"a{model}{drawn.randrange(10**6)}",
        "name": f"{title} - {model}",
        "description": f"{title} - {model}/ {extra}/ Great Value/ One Year Warranty",
        "price": f"{price:.2f}" if drawn.random() < _PRICED else None,
        "entity": f"{title} {model}",
    }


def _other_shop(product: tuple[str, str, float], drawn: random.Random) -> Product:
    title, model, price = product
    brand, *words = title.split()
    kept = [brand, *(word for word in words if drawn.random() < _WORDS_KEPT)]
    cut = drawn.randrange(2, 4)
    shown = f"{model[:cut]}-{model[cut:]}" if drawn.random() < _MODEL_SHOWN else ""
    return {
        "id": f"b{model}{drawn.randrange(10**6)}",
        "name": " ".join([*kept, shown]).strip(),
        "description": drawn.choice(_TRAITS) if drawn.random() < _DESCRIBED else None,
        "price": f"{price * drawn.uniform(0.9, 1.1):.2f} gbp",
        "entity": f"{title} {model}",
    }

"""PostgreSQL writes floats as the mediator takes them into sums: as their shortest decimals."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal

from mediator.model.exact import decimal_of
from mediator.stores.postgres import PostgresStore

WRITTEN = """
SELECT array_agg(number::text::numeric ORDER BY position)
FROM unnest($1::float8[]) WITH ORDINALITY AS each (number, position)
"""


def floats() -> list[float]:
    """Return floats of all sizes, and those near which a decimal is halfway between two."""
    of = random.Random(1)
    any_ = [struct.unpack("d", of.randbytes(8))[0] for _ in range(5_000)]
    round_ = [float(of.randrange(10**5) * 10**k) for k in range(13, 40) for _ in range(200)]
    whole = [float(of.randrange(2**53, 2**80)) for _ in range(5_000)]
    powers = [math.ldexp(1.0, exponent) for exponent in range(-1074, 1024)]
    near = [math.nextafter(each, side) for each in (*round_, *powers) for side in (0.0, 1e308)]
    return [each for each in (*any_, *round_, *whole, *powers, *near) if math.isfinite(each)]


async def test_the_text_of_a_float_is_its_decimal(store: PostgresStore) -> None:
    values = floats()
    written: list[Decimal] = await store.use(lambda c: c.fetchval(WRITTEN, values))
    assert [v for v, text in zip(values, written, strict=True) if decimal_of(v) != text] == []
    assert [v for v, text in zip(values, written, strict=True) if Decimal(repr(v)) != text], (
        "none of these is what the two write differently"
    )

"""PostgreSQL formats floats as the mediator adds them: as their shortest decimals."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal

from mediator.model.exact import decimal_of
from mediator.stores.postgres import PostgresStore

DECIMALS_QUERY = """
SELECT array_agg(number::text::numeric ORDER BY position)
FROM unnest($1::float8[]) WITH ORDINALITY AS each (number, position)
"""


def floats() -> list[float]:
    """Return floats of all sizes, and floats next to a decimal halfway between two."""
    rng = random.Random(1)
    arbitrary = [struct.unpack("d", rng.randbytes(8))[0] for _ in range(5_000)]
    round_ = [float(rng.randrange(10**5) * 10**k) for k in range(13, 40) for _ in range(200)]
    integers = [float(rng.randrange(2**53, 2**80)) for _ in range(5_000)]
    powers = [math.ldexp(1.0, exponent) for exponent in range(-1074, 1024)]
    neighbours = [
        math.nextafter(number, side) for number in (*round_, *powers) for side in (0.0, 1e308)
    ]
    return [
        number
        for number in (*arbitrary, *round_, *integers, *powers, *neighbours)
        if math.isfinite(number)
    ]


async def test_the_text_of_a_float_is_its_decimal(store: PostgresStore) -> None:
    values = floats()
    decimals: list[Decimal] = await store.use(lambda c: c.fetchval(DECIMALS_QUERY, values))
    assert [v for v, text in zip(values, decimals, strict=True) if decimal_of(v) != text] == []
    assert [v for v, text in zip(values, decimals, strict=True) if Decimal(repr(v)) != text], (
        "repr() writes every value in the same way"
    )

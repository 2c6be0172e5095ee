"""Numbers with units and currencies, as written in catalogues."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.linkage.open.prepared import normalise
from spark_jobs.linkage.open.profile import RecordSample, ValueKind, pairs_of, profile
from spark_jobs.linkage.open.propose import propose
from spark_jobs.linkage.open.quantities import as_quantities, quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (" -2.5e1 ", -25),
        (".5", 0.5),
        ("1.299", 1.299),
        ("1,299", 1299),
        ("12,5", 12.5),
        ("1,234,567.89", 1234567.89),
        ("1.234.567,89", 1234567.89),
        ("1 234 567,89", 1234567.89),
        ("1'000", 1000),
        ("$1,299.00", 1299),
        ("-$5.50", -5.5),
        ("US$ 7", 7),
        ("€ 1.299,00", 1299),
        ("12,50 EUR", 12.5),
        ("5 %", 5),
        ("2 TB", 2e12),
        ("2000GB", 2e12),
        ("12,5 kg", 12_500),
        ("5 lbs.", 2267.96185),
        ('10"', 0.254),
        ("25,4 cm", 0.254),
    ],
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize(
    "text",
    ["", "x", "A12", "12abc", "5 sq ft", "3 4 kg", "1,2,3", "10 - 20", "2020-01-01", "1_0", "NaN"],
)
def test_other_texts_are_not_quantities(text: str) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize("text", ["1" * 10**6 + "x", "1 " * 10**6, "$" * 10**6])
def test_long_texts_are_rejected_quickly(text: str) -> None:
    assert quantity(text) is None


def test_missing_and_unparsable_values_are_null() -> None:
    assert as_quantities(pa.array(["2 kg", None, "two"])).to_pylist() == [2000.0, None, None]


def sample(values: list[str]) -> RecordSample:
    raw = {"value": pa.array(values)}
    columns = {"value": normalise(raw["value"])}
    return RecordSample(
        columns, raw, len(values), len(values), pairs_of([len(values)], within=True)
    )


def test_prices_are_compared_as_numbers() -> None:
    prices = sample([f"${n:,}.{n % 100:02}" for n in range(1, 4_000, 7)])
    assert profile(prices)[0].value_kind is ValueKind.NUMBER
    levels = propose(prices, only_fields=True).comparisons[0].levels
    assert [level.number is not None for level in levels] == [False, True, True]
    assert levels[2].number == pytest.approx(4_000 / 12**0.5 / 10, rel=0.05)


@pytest.mark.parametrize("pattern", ["{0} {1} {2}", "{0}.{1}.{2}", "{0}{1}{2}"])
def test_identifiers_are_not_compared_as_numbers(pattern: str) -> None:
    phones = [pattern.format(300 + n, 500 + n % 97, 100 + n % 89) for n in range(400)]
    assert profile(sample(phones))[0].value_kind is not ValueKind.NUMBER

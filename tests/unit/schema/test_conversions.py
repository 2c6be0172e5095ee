"""Conversions are exact or refused: total ones lose nothing and are reversible."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.schema.conversions import PARTIAL, TOTAL, conversion
from mediator.schema.errors import InvalidValue
from mediator.schema.scalars import canonical_decimal
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType
from mediator.schema.values import encoder

_NEW_YEAR: Final = "2024-01-02T00:00:00Z"
_INTEGERS: Final = st.integers(-(2**63), 2**63 - 1)
_NON_INTEGERS: Final = ("", "007", "1.0", " 1", "\uff11", "9" * 19)
_VALUES: Final[dict[FieldType, st.SearchStrategy[Any]]] = {
    FieldType.STRING: st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    FieldType.INTEGER: _INTEGERS,
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False).map(lambda v: v + 0.0),
    FieldType.DECIMAL: st.builds(
        lambda digits, exponent: canonical_decimal(Decimal(digits).scaleb(exponent)),
        _INTEGERS,
        st.integers(-300, 300),
    ),
    FieldType.BOOLEAN: st.booleans(),
    FieldType.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    FieldType.BINARY: st.binary(),
    FieldType.REFERENCE: st.sampled_from(["ada", "1", "true", _NEW_YEAR]),
}


def field(type_: FieldType, items: FieldType | None = None, **members: Any) -> Field:
    return Field("f", type_, items, **members)


def convert(source: Field, target: Field, value: Any) -> Any:
    conversion_ = conversion(source, target)
    assert conversion_ is not None
    return conversion_.convert(value)


@pytest.mark.parametrize(("source", "target"), TOTAL)
def test_a_total_conversion_accepts_every_value_and_is_reversible(
    source: FieldType, target: FieldType
) -> None:
    @given(_VALUES[source])
    def check(value: Any) -> None:
        result = convert(field(source), field(target), value)
        assert convert(field(target), field(source), result) == value

    total = conversion(field(source), field(target))
    assert total is not None
    assert total.is_total
    check()


@pytest.mark.parametrize(("source", "target"), PARTIAL)
def test_a_partial_conversion_is_exact_or_refuses(source: FieldType, target: FieldType) -> None:
    @given(_VALUES[source] | _texts(source, target))
    def check(value: Any) -> None:
        try:
            result = convert(field(source), field(target), value)
        except InvalidValue:
            return
        reverse = convert(field(target), field(source), result)
        if source is FieldType.STRING:  # one value can have several texts
            reverse, value = (
                convert(field(source), field(target), item) for item in (reverse, value)
            )
        assert reverse == value

    partial = conversion(field(source), field(target))
    assert partial is not None
    assert not partial.is_total
    check()


def _texts(source: FieldType, target: FieldType) -> st.SearchStrategy[Any]:
    """Return a strategy of texts of the target type if the source is a string; else nothing."""
    if source is not FieldType.STRING:
        return st.nothing()
    encode = encoder(field(target)) or str
    return _VALUES[target].map(encode)


@pytest.mark.parametrize(
    ("source", "target", "value", "result"),
    [
        (FieldType.FLOAT, FieldType.DECIMAL, 0.1, Decimal("0.1")),
        (FieldType.DECIMAL, FieldType.FLOAT, Decimal("0.1"), 0.1),
        (FieldType.INTEGER, FieldType.FLOAT, 2**53, 2.0**53),
        (FieldType.DECIMAL, FieldType.INTEGER, Decimal("1E+3"), 1000),
        (FieldType.STRING, FieldType.INTEGER, "-12", -12),
        (FieldType.STRING, FieldType.FLOAT, "1e3", 1000.0),
        (FieldType.BOOLEAN, FieldType.STRING, True, "true"),
        (FieldType.TIMESTAMP, FieldType.STRING, datetime(2024, 1, 2, tzinfo=UTC), _NEW_YEAR),
    ],
)
def test_values_are_converted(
    source: FieldType, target: FieldType, value: Any, result: Any
) -> None:
    assert convert(field(source), field(target), value) == result


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        (FieldType.INTEGER, FieldType.FLOAT, 2**53 + 1),
        (FieldType.FLOAT, FieldType.INTEGER, 1.5),
        (FieldType.FLOAT, FieldType.INTEGER, 1e300),
        (FieldType.DECIMAL, FieldType.INTEGER, Decimal("0.5")),
        (FieldType.DECIMAL, FieldType.INTEGER, Decimal("1E+6000")),
        (FieldType.DECIMAL, FieldType.FLOAT, Decimal("1E+400")),
        (FieldType.DECIMAL, FieldType.FLOAT, Decimal("0.12345678901234567890")),
        *((FieldType.STRING, FieldType.INTEGER, text) for text in _NON_INTEGERS),
        (FieldType.STRING, FieldType.FLOAT, "nan"),
        (FieldType.STRING, FieldType.BOOLEAN, "True"),
    ],
)
def test_inexact_conversions_are_refused(source: FieldType, target: FieldType, value: Any) -> None:
    with pytest.raises(InvalidValue):
        convert(field(source), field(target), value)


def test_collections_are_converted_item_by_item() -> None:
    texts = field(FieldType.LIST, FieldType.STRING)
    numbers = field(FieldType.LIST, FieldType.INTEGER)
    assert convert(numbers, texts, [3, 1]) == ["3", "1"]
    assert convert(texts, numbers, ["3", "1"]) == [3, 1]
    assert convert(field(FieldType.SET, FieldType.INTEGER), texts, [1, 3]) == ["1", "3"]
    maps = field(FieldType.MAP, FieldType.INTEGER), field(FieldType.MAP, FieldType.DECIMAL)
    assert convert(*maps, {"a": 1}) == {"a": Decimal(1)}
    assert convert(field(FieldType.INTEGER), texts, 7) == ["7"]
    assert convert(field(FieldType.STRING), field(FieldType.SET, FieldType.STRING), "a") == ["a"]
    with pytest.raises(InvalidValue):
        convert(texts, numbers, ["3", "one"])


def test_other_types_are_not_converted() -> None:
    pairs = {*TOTAL, *PARTIAL, *((scalar, scalar) for scalar in SCALARS)}
    for source in SCALARS:
        for target in SCALARS:
            result = conversion(field(source), field(target))
            assert (result is not None) == ((source, target) in pairs)
    list_, set_ = field(FieldType.LIST, FieldType.STRING), field(FieldType.SET, FieldType.STRING)
    assert conversion(list_, set_) is None
    assert conversion(list_, field(FieldType.STRING)) is None
    assert conversion(field(FieldType.STRING), field(FieldType.MAP, FieldType.STRING)) is None
    assert conversion(field(FieldType.DOCUMENT), field(FieldType.STRING)) is None


def test_constraints_of_the_field_hold() -> None:
    short = field(FieldType.STRING, max_length=2)
    assert convert(field(FieldType.INTEGER), short, 12) == "12"
    with pytest.raises(InvalidValue):
        convert(field(FieldType.INTEGER), short, 123)
    with pytest.raises(InvalidValue):
        convert(field(FieldType.INTEGER), field(FieldType.INTEGER, minimum=5), 4)

"""Conversions are exact, or refuse: total ones lose nothing, and lead back where there is a way."""

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
_NO_INTEGERS: Final = ("", "007", "1.0", " 1", "\uff11", "9" * 19)
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


def converted(source: Field, target: Field, value: Any) -> Any:
    found = conversion(source, target)
    assert found is not None
    return found.convert(value)


@pytest.mark.parametrize(("source", "target"), TOTAL)
def test_a_total_conversion_takes_every_value_and_leads_back(
    source: FieldType, target: FieldType
) -> None:
    @given(_VALUES[source])
    def check(value: Any) -> None:
        there = converted(field(source), field(target), value)
        assert converted(field(target), field(source), there) == value

    found = conversion(field(source), field(target))
    assert found is not None
    assert found.is_total
    check()


@pytest.mark.parametrize(("source", "target"), PARTIAL)
def test_a_partial_conversion_is_exact_or_refuses(source: FieldType, target: FieldType) -> None:
    @given(_VALUES[source] | _texts(source, target))
    def check(value: Any) -> None:
        try:
            there = converted(field(source), field(target), value)
        except InvalidValue:
            return
        back = converted(field(target), field(source), there)
        if source is FieldType.STRING:  # one value may have several texts
            back, value = (converted(field(source), field(target), each) for each in (back, value))
        assert back == value

    found = conversion(field(source), field(target))
    assert found is not None
    assert not found.is_total
    check()


def _texts(source: FieldType, target: FieldType) -> st.SearchStrategy[Any]:
    """Texts of values of a type, where texts are converted; else nothing."""
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
def test_what_values_become(source: FieldType, target: FieldType, value: Any, result: Any) -> None:
    assert converted(field(source), field(target), value) == result


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
        *((FieldType.STRING, FieldType.INTEGER, text) for text in _NO_INTEGERS),
        (FieldType.STRING, FieldType.FLOAT, "nan"),
        (FieldType.STRING, FieldType.BOOLEAN, "True"),
    ],
)
def test_what_is_not_exact_is_refused(source: FieldType, target: FieldType, value: Any) -> None:
    with pytest.raises(InvalidValue):
        converted(field(source), field(target), value)


def test_collections_are_converted_by_their_items() -> None:
    texts = field(FieldType.LIST, FieldType.STRING)
    numbers = field(FieldType.LIST, FieldType.INTEGER)
    assert converted(numbers, texts, [3, 1]) == ["3", "1"]
    assert converted(texts, numbers, ["3", "1"]) == [3, 1]
    assert converted(field(FieldType.SET, FieldType.INTEGER), texts, [1, 3]) == ["1", "3"]
    of_members = field(FieldType.MAP, FieldType.INTEGER), field(FieldType.MAP, FieldType.DECIMAL)
    assert converted(*of_members, {"a": 1}) == {"a": Decimal(1)}
    assert converted(field(FieldType.INTEGER), texts, 7) == ["7"]
    assert converted(field(FieldType.STRING), field(FieldType.SET, FieldType.STRING), "a") == ["a"]
    with pytest.raises(InvalidValue):
        converted(texts, numbers, ["3", "one"])


def test_there_is_no_way_between_other_types() -> None:
    ways = {*TOTAL, *PARTIAL, *((each, each) for each in SCALARS)}
    for source in SCALARS:
        for target in SCALARS:
            found = conversion(field(source), field(target))
            assert (found is not None) == ((source, target) in ways)
    listed, kept = field(FieldType.LIST, FieldType.STRING), field(FieldType.SET, FieldType.STRING)
    assert conversion(listed, kept) is None
    assert conversion(listed, field(FieldType.STRING)) is None
    assert conversion(field(FieldType.STRING), field(FieldType.MAP, FieldType.STRING)) is None
    assert conversion(field(FieldType.DOCUMENT), field(FieldType.STRING)) is None


def test_constraints_of_the_field_hold() -> None:
    short = field(FieldType.STRING, max_length=2)
    assert converted(field(FieldType.INTEGER), short, 12) == "12"
    with pytest.raises(InvalidValue):
        converted(field(FieldType.INTEGER), short, 123)
    with pytest.raises(InvalidValue):
        converted(field(FieldType.INTEGER), field(FieldType.INTEGER, minimum=5), 4)

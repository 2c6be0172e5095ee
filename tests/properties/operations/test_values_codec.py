"""Laws of the codec between JSON and Python forms."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonpointer import JsonPointer

from mediator.base.errors import Invalid, Location
from mediator.schema.limits import DOCUMENT_DEPTH
from mediator.schema.scalars import DECIMAL128
from tests.properties.queries.things import (
    CODEC,
    THINGS,
    decimals,
    documents,
    hostile,
    integers,
    text_of,
    values_of,
)

objects = st.sets(st.sampled_from(sorted(THINGS.fields)), max_size=5).flatmap(
    lambda chosen: st.fixed_dictionaries({name: st.none() | values_of(name) for name in chosen})
)


@given(objects)
def test_values_survive_json(values: dict[str, Any]) -> None:
    payload = orjson.loads(orjson.dumps(CODEC.encode(values)))
    decoded = CODEC.decode_object(payload)
    assert decoded == values
    assert text_of(CODEC.encode(decoded)) == text_of(payload)


def decoded_or_locations(body: Any) -> dict[str, Any] | tuple[Location, ...]:
    try:
        return CODEC.decode_object(body)
    except Invalid as error:
        return error.locations


@given(st.dictionaries(st.sampled_from(sorted(THINGS.fields)) | st.text(max_size=5), hostile))
def test_hostile_objects_are_decoded_or_their_mistakes_located(body: dict[str, Any]) -> None:
    values = decoded_or_locations(body)
    if isinstance(values, dict):
        assert CODEC.decode_object(CODEC.encode(values)) == values
        return
    assert values
    for location in values:
        # Text that UTF-8 cannot encode is escaped in the pointer, which then does not resolve.
        if "\\" not in location.pointer:
            JsonPointer(location.pointer).resolve(body)


@given(hostile)
def test_hostile_bodies_raise_nothing_but_invalid(body: Any) -> None:
    assert decoded_or_locations(body) or body == {}


@given(decimals, st.integers(0, 30))
def test_equal_decimals_are_encoded_alike(value: Decimal, zeros: int) -> None:
    encoded = CODEC.encode({"decimal": value})["decimal"]
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    padded = str(Decimal((sign, (*digits, *([0] * zeros)), exponent - zeros)))
    assert CODEC.encode({"decimal": CODEC.decode("decimal", padded, "")})["decimal"] == encoded
    assert Decimal(encoded) == value


@given(st.integers(-(10**40), 10**40), st.integers(-7000, 7000))
def test_decimals_are_kept_exactly_or_refused(digits: int, exponent: int) -> None:
    text = f"{digits}E{exponent}"
    exact = Decimal(text)
    try:
        value = CODEC.decode("decimal", text, "")
    except Invalid:
        significant = len(str(abs(digits)).rstrip("0"))
        assert significant > 34 or not -6143 <= exact.adjusted() <= 6144
    else:
        assert value == exact
        assert not exact or DECIMAL128.create_decimal(text) == value


@given(st.datetimes(timezones=st.timezones()))
def test_times_in_any_zone_keep_their_instant(moment: datetime) -> None:
    offset = moment.utcoffset()
    assume(1 < moment.year < 9999 and offset is not None and not offset.seconds % 60)
    # Python compares ambiguous local times as different; in UTC there are none.
    assert CODEC.decode("timestamp", moment.isoformat(), "") == moment.astimezone(UTC)


@given(documents)
def test_integral_numbers_in_documents_are_integers_however_written(document: Any) -> None:
    doubled = orjson.loads(orjson.dumps(document))
    assert text_of(CODEC.decode("document", doubled, "")) == text_of(document)


@given(integers.filter(lambda n: abs(n) <= 2**53))
def test_equal_numbers_in_documents_have_one_form(number: int) -> None:
    from_integer = CODEC.decode("document", {"n": number}, "")
    from_float = CODEC.decode("document", {"n": float(number)}, "")
    assert text_of(from_integer) == text_of(from_float)


@pytest.mark.parametrize("wrong", [2**63, float("inf"), {"": 1}, {"a\0": 1}, "\0", "\ud800"])
def test_a_mistake_deep_in_a_document_is_found_in_linear_time(wrong: Any) -> None:
    body = wrong
    for _ in range(DOCUMENT_DEPTH - 2):
        body = {"k": body}
    with pytest.raises(Invalid) as caught:
        CODEC.decode_object({"document": {"k": body}})
    assert caught.value.locations[0].pointer.startswith("/document" + "/k" * (DOCUMENT_DEPTH - 1))

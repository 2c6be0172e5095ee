"""Laws of the JSON Schemas of a class; the oracle is the codec that requests are decoded by."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.openapi.class_schemas import class_schemas
from mediator.base.errors import Invalid
from mediator.schema.values import Codec
from tests.properties.operations.test_values_codec import objects
from tests.properties.queries.things import CODEC, THINGS
from tests.properties.schema.constrained_fields import (
    integer_fields,
    numbers,
    schema_of,
    string_fields,
    words,
)

_THINGS = class_schemas(THINGS, ())
READ = jsonschema_rs.validator_for(_THINGS[""], validate_formats=True)
NEW = jsonschema_rs.validator_for(_THINGS[".new"], validate_formats=True)


@given(objects, st.text(min_size=1).filter(lambda text: text.isalnum()))
def test_what_is_answered_is_as_described(values: dict[str, Any], id_: str) -> None:
    answered = {"id": id_, **orjson.loads(orjson.dumps(CODEC.encode(values)))}
    READ.validate(answered)
    NEW.validate(answered)


bodies = st.tuples(integer_fields, st.none() | numbers) | st.tuples(
    string_fields, st.none() | words
)


@settings(max_examples=500)
@given(bodies, st.booleans())
def test_what_is_described_is_what_is_accepted(case: tuple[Any, Any], is_named: bool) -> None:
    field, value = case
    class_ = schema_of(field).classes["c"]
    body = {"f": value} if is_named else {}
    described = jsonschema_rs.is_valid(class_schemas(class_, ())[".new"], body)
    try:
        Codec(class_).decode_object(body)
    except Invalid:
        assert not described
    else:
        assert described

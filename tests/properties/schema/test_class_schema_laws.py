"""Laws of the JSON Schemas of a class; the oracle is the codec that decodes requests."""

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
def test_responses_conform_to_the_schema(values: dict[str, Any], id_: str) -> None:
    response = {"id": id_, **orjson.loads(orjson.dumps(CODEC.encode(values)))}
    READ.validate(response)
    NEW.validate(response)


bodies = st.tuples(integer_fields, st.none() | numbers) | st.tuples(
    string_fields, st.none() | words
)


@settings(max_examples=500)
@given(bodies, st.booleans())
def test_the_schema_describes_exactly_the_accepted_bodies(
    case: tuple[Any, Any], is_named: bool
) -> None:
    field, value = case
    class_ = schema_of(field).classes["c"]
    body = {"f": value} if is_named else {}
    is_described = jsonschema_rs.is_valid(class_schemas(class_, ())[".new"], body)
    try:
        Codec(class_).decode_object(body)
    except Invalid:
        assert not is_described
    else:
        assert is_described

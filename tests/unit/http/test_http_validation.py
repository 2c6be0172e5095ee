"""Bodies and parameters as models: errors have JSON pointers to their locations."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.models.operations import parse_batch, parse_operation, parse_transaction
from app.api.models.reads import ChangesParameters
from app.api.openapi.parameters import parameters_of
from app.http.problems import HttpError
from app.http.validation import parse_parameters
from mediator.base.errors import Invalid

PUT = {"op": "put", "class": "articles", "id": "a", "body": {}}


def pointers(error: Invalid) -> list[str]:
    return [location.pointer for location in error.locations]


@pytest.mark.parametrize(
    ("operation", "pointer"),
    [
        (7, ""),
        ({}, "/op"),
        (PUT | {"op": "explode"}, "/op"),
        (PUT | {"op": "get"}, "/body"),
        (PUT | {"put": 1}, "/put"),
        (PUT | {"a/b~c": 1}, "/a~1b~0c"),
        (PUT | {"if_none_match": "*"}, "/if_none_match"),
        ({"op": "put", "class": 1, "id": "a", "body": {}}, "/class"),
    ],
)
def test_a_mistake_in_an_operation_has_its_pointer(operation: Any, pointer: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_operation(operation)
    assert pointers(caught.value) == [pointer]


def test_an_operation_within_a_transaction_has_the_pointer_of_its_location() -> None:
    with pytest.raises(Invalid) as caught:
        parse_transaction({"operations": [PUT, {**PUT, "op": "get"}, {**PUT, "class": 1}]})
    assert pointers(caught.value) == ["/operations/1/op", "/operations/2/class"]


def test_a_batch_parses_none_of_its_operations() -> None:
    assert parse_batch({"operations": [PUT, 7]}) == [PUT, 7]


@pytest.mark.parametrize("text", ["0", "1001", "1.0", "%2B1", "+1", "1_0", "", "1" * 17, "%D9%A1"])
def test_a_number_in_a_query_is_of_decimal_digits_and_within_its_bounds(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_parameters(ChangesParameters, f"limit={text}".encode())
    assert pointers(caught.value) == ["limit"]


def test_an_unknown_or_repeated_parameter_is_refused() -> None:
    for query in (b"class_name=a", b"limit=1&limit=2"):
        with pytest.raises(HttpError):
            parse_parameters(ChangesParameters, query)


def test_a_parameter_is_described_by_its_name_its_bounds_and_its_default() -> None:
    parameters = {parameter["name"]: parameter for parameter in parameters_of(ChangesParameters)}
    assert parameters.keys() == {"class", "after", "limit", "wait"}
    assert parameters["class"]["schema"]["type"] == "string"
    assert "default" not in parameters["class"]["schema"]
    limit = parameters["limit"]["schema"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 1_000, 100)

"""Results fit a class if the class's codec accepts the values of their columns."""

from __future__ import annotations

from typing import Any, Final, get_args

import pytest

from mediator.base.errors import Invalid
from mediator.schema.parse import parse_schema
from mediator.schema.tree import ClassSchema
from mediator.schema.types import FieldType
from mediator.schema.values import Codec
from spark_jobs.runner.job import Into
from spark_jobs.runner.port import ColumnType
from spark_jobs.sinks.classes import misfits

VALUES: Final[dict[ColumnType, tuple[Any, ...]]] = {
    "string": ("1", "2024-01-02T03:04:05Z", "YQ=="),
    "integer": (1,),
    "number": (0.5,),
    "boolean": (True,),
    "array": ([],),
    "object": ({},),
}
ITEMS: Final = {FieldType.LIST, FieldType.SET, FieldType.MAP}
INTO: Final = Into.parse({"database": "club", "class": "things", "id": ["key"]})


def class_of(**fields: dict[str, Any]) -> ClassSchema:
    return parse_schema("club", {"classes": {"things": {"fields": fields}}}).classes["things"]


@pytest.mark.parametrize("field_type", FieldType)
@pytest.mark.parametrize("column", get_args(ColumnType))
def test_a_column_fits_a_field_that_can_hold_one_of_its_values(
    field_type: FieldType, column: ColumnType
) -> None:
    members = {"items": "string"} if field_type in ITEMS else {}
    members |= {"to": "things"} if field_type is FieldType.REFERENCE else {}
    schema = class_of(value={"type": field_type, **members})
    fits = any(accepts(Codec(schema), value) for value in VALUES[column])
    locations = misfits(INTO, {"key": "string", "value": column}, schema)
    assert (locations == []) is fits
    assert all(location.pointer == "/into/class" for location in locations)


def accepts(codec: Codec, value: Any) -> bool:
    try:
        codec.decode_object({"value": value})
    except Invalid:
        return False
    return True


def test_a_result_cannot_have_a_time_that_the_service_sets() -> None:
    schema = class_of(at={"type": "timestamp", "updated": True, "required": True})
    assert misfits(INTO, {"key": "string"}, schema) == []
    [location] = misfits(INTO, {"key": "string", "at": "string"}, schema)
    assert location.detail == "things.at is set by the service, and the result has it too"


def test_every_mistake_is_located() -> None:
    schema = class_of(
        given={"type": "integer", "required": True, "default": 1},
        kept={"type": "string"},
        needed={"type": "string", "required": True},
    )
    columns: dict[str, ColumnType] = {"kept": "boolean", "more": "string"}
    assert [(location.pointer, location.detail) for location in misfits(INTO, columns, schema)] == [
        ("/into/id", "the result has no column key to make ids of; it has: kept, more"),
        ("/into/class", "things.kept is of type string, and the result has boolean there"),
        ("/into/class", "things has no field more, which the result has"),
        ("/into/class", "things.needed is required, and the result has no such column"),
    ]

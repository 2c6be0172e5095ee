"""Whether results fit classes, by their columns: as the codec of the class accepts values."""

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


@pytest.mark.parametrize("of", FieldType)
@pytest.mark.parametrize("column", get_args(ColumnType))
def test_a_column_fits_a_field_that_can_hold_one_of_its_values(
    of: FieldType, column: ColumnType
) -> None:
    more = {"items": "string"} if of in ITEMS else {}
    more |= {"to": "things"} if of is FieldType.REFERENCE else {}
    schema = class_of(value={"type": of, **more})
    held = any(holds(Codec(schema), value) for value in VALUES[column])
    found = misfits(INTO, {"key": "string", "value": column}, schema)
    assert (found == []) is held
    assert all(location.pointer == "/into/class" for location in found)


def holds(codec: Codec, value: Any) -> bool:
    try:
        codec.decode_object({"value": value})
    except Invalid:
        return False
    return True


def test_a_time_that_the_service_sets_is_no_column() -> None:
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

"""Schemas as text: omitted defaults come back, and mistakes have lines."""

from __future__ import annotations

import orjson
import pytest

from app.admin.pages.schema_text import lines_of, schema_text
from app.commands.demo.newspaper import SCHEMA
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document

TEXT = """{
  "mode": "mixed",
  "classes": {
    "a/b": {"fields": {"x\\"y": [], "z": [1,
      {"deep": ["}", {}]}
    ]}}
  }
}"""


def test_defaults_are_left_out_and_come_back() -> None:
    complete = schema_document(parse_schema("news", SCHEMA))
    text = schema_text(complete)
    document = orjson.loads(text)
    assert "mode" not in document
    assert document["classes"]["comments"]["fields"]["text"] == {
        "type": "string",
        "max_length": 5000,
    }
    assert schema_document(parse_schema("news", document)) == complete


@pytest.mark.parametrize(
    ("pointer", "line"),
    [
        ("", 1),
        ("/mode", 2),
        ('/classes/a~1b/fields/x"y', 4),
        ("/classes/a~1b/fields/z/1", 5),
        ("/classes/a~1b/fields/z/1/deep/1", 5),
        ("/classes/missing/fields", 3),
        ("no pointer", 1),
    ],
)
def test_lines_of_pointers(pointer: str, line: int) -> None:
    assert lines_of(TEXT, [pointer]) == {pointer: line}

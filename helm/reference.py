"""Generates the chart's values.schema.json and README.md from the comments in its values.yaml.

A comment that begins with ``--`` describes the value below it. ``@schema`` precedes a JSON object
that is added to the schema inferred from the default. Values not in values.yaml are refused.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from app.settings.known import SETTINGS

__all__ = ["CHART", "generated", "main"]

CHART: Final = Path(__file__).parent / "portolan"

_LABEL: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_CIDR: Final = r"^([0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}|[0-9a-fA-F:]*:[0-9a-fA-F:.]*/[0-9]{1,3})$"
_CHART_SETTINGS: Final = frozenset(
    {
        *("host", "port", "admin_host", "admin_port", "data_dir", "jobs_dir"),
        *("embedded", "durability", "catalogue_url", "coordination_url", "systems"),
        *("sketch_url", "purge", "drain_s", "metrics_open", "key"),
        *("tls_certificate", "tls_key", "admin_tls_certificate", "admin_tls_key"),
    }
)
"""Settings that the chart decides, or that are secrets."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of the chart.

    Attributes:
        path: Its keys, from the outermost.
        default: The value in values.yaml.
        about: The text of its comment.
        schema: The comment's addition to the schema.
        members: The values within an object without a comment.
    """

    path: tuple[str, ...]
    default: Any
    about: str
    schema: dict[str, Any]
    members: tuple[_Value, ...]


def generated() -> dict[Path, str]:
    """Return the expected contents of the generated files."""
    text = (CHART / "values.yaml").read_text()
    node = yaml.compose(text)
    assert isinstance(node, yaml.MappingNode)
    values = tuple(_values(node, yaml.safe_load(text), text.splitlines(), ()))
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_object(values),
        "$defs": _definitions(),
    }
    # Helm merges these into the values of every chart.
    schema["properties"]["global"] = {"type": "object"}
    introduction = (CHART.parent / "introduction.md").read_text()
    return {
        CHART / "values.schema.json": json.dumps(schema, indent=2) + "\n",
        CHART / "README.md": introduction + "\n".join(_table(values)) + "\n",
    }


def main() -> int:
    """Write the files; with --check only report outdated files, and return 1 if there are any."""
    outdated = [
        path for path, text in generated().items() if not path.exists() or path.read_text() != text
    ]
    if "--check" not in sys.argv[1:]:
        for path in outdated:
            path.write_text(generated()[path])
        return 0
    for path in outdated:
        sys.stderr.write(f"{path.name} is out of date: make chart-reference\n")
    return len(outdated) and 1


def _values(
    node: yaml.MappingNode, defaults: Any, lines: Sequence[str], path: tuple[str, ...]
) -> Iterator[_Value]:
    for key, child in node.value:
        name, default = key.value, defaults[key.value]
        about, schema = _comment(lines, key.start_mark.line)
        members: tuple[_Value, ...] = ()
        if isinstance(child, yaml.MappingNode) and not schema and not about:
            members = tuple(_values(child, default, lines, (*path, name)))
        elif not about:
            raise ValueError(f"values.yaml does not describe {'.'.join((*path, name))}")
        yield _Value((*path, name), default, about, schema, members)


def _comment(lines: Sequence[str], line: int) -> tuple[str, dict[str, Any]]:
    """Return the text of the comment right above a line, and its addition to the schema."""
    start = line
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    comment = [text.lstrip()[1:].strip() for text in lines[start:line]]
    schema = [json.loads(text.removeprefix("@schema")) for text in comment if text[:7] == "@schema"]
    about = " ".join(text for text in comment if text[:7] != "@schema")
    if not about.startswith("--"):
        return "", {}
    return about.removeprefix("--").strip(), schema[0] if schema else {}


def _object(values: Sequence[_Value]) -> dict[str, Any]:
    properties = {value.path[-1]: _schema_of(value) for value in values}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _schema_of(value: _Value) -> dict[str, Any]:
    if value.members:
        return _object(value.members)
    common = {"description": value.about, "default": value.default}
    if "$ref" in value.schema:
        return {**common, "allOf": [value.schema]}
    inferred = {} if {"enum", "type"} & value.schema.keys() else {"type": _type_of(value.default)}
    return {**common, **inferred, **value.schema}


def _type_of(default: Any) -> str:
    kinds = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    return kinds[type(default)]


def _definitions() -> dict[str, Any]:
    return {
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "cidr": {"type": "string", "pattern": _CIDR},
        "labels": _LABEL,
        "objects": {"type": "array", "items": {"type": "object"}},
        "free": {"type": "object"},
        "count": {
            "anyOf": [
                {"type": "null"},
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9]{1,3}%$"},
            ]
        },
        "settings": {
            "type": "object",
            "additionalProperties": False,
            "properties": dict(_settings()),
        },
    }


def _settings() -> Iterator[tuple[str, dict[str, Any]]]:
    for settings in SETTINGS:
        for name, field in settings.model_fields.items():
            if name not in _CHART_SETTINGS:
                yield (
                    f"PORTOLAN_{name.upper()}",
                    {"type": "string", "description": field.description},
                )


def _table(values: Sequence[_Value]) -> Iterator[str]:
    yield "| value | default | meaning |"
    yield "|---|---|---|"
    for value in _leaves(values):
        default = json.dumps(value.default).replace("|", r"\|")
        about = re.sub(r"\|", r"\\|", value.about)
        yield f"| `{'.'.join(value.path)}` | `{default}` | {about} |"


def _leaves(values: Sequence[_Value]) -> Iterator[_Value]:
    for value in values:
        if value.members:
            yield from _leaves(value.members)
        else:
            yield value


if __name__ == "__main__":
    sys.exit(main())

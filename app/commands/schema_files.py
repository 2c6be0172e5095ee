"""Reads a schema from several files, or several schemas from a directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer

from app.commands.running import SUFFIXES, check_name, read_document

__all__ = ["read_schema", "read_schemas"]

_MAX_BYTES: Final = 8 * 2**20


def read_schema(files: Sequence[Path]) -> dict[str, Any]:
    """Read a schema from files; no two of them can have the same class or other member."""
    schema: dict[str, Any] = {}
    for file in files:
        document = read_document(file, _MAX_BYTES, "schema")
        classes, new_classes = schema.get("classes"), document.get("classes")
        if isinstance(classes, dict) and isinstance(new_classes, dict):
            _check_disjoint(classes, new_classes, "/classes/", file)
            classes |= document.pop("classes")
        _check_disjoint(schema, document, "/", file)
        schema |= document
    return schema


def read_schemas(directory: Path) -> dict[str, dict[str, Any]]:
    """Read the schemas in the files of a directory, by database, which each file is named after."""
    schemas: dict[str, dict[str, Any]] = {}
    for file in sorted(directory.iterdir()):
        if file.suffix in SUFFIXES and file.is_file():
            database = check_name(file.stem)
            if database in schemas:
                raise typer.BadParameter(f"{directory} has two files for {database}.")
            schemas[database] = read_schema([file])
    if not schemas:
        raise typer.BadParameter(f"{directory} has no file such as shop.yaml.")
    return schemas


def _check_disjoint(
    existing: Mapping[str, Any], new: Mapping[str, Any], pointer: str, file: Path
) -> None:
    if duplicates := sorted(existing.keys() & new.keys()):
        raise typer.BadParameter(
            f"{file} has {pointer}{duplicates[0]}, which a file before it has too."
        )

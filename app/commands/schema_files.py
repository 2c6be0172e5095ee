"""Schemas in files: one in several, or several in a directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer

from app.commands.running import SUFFIXES, check_name, read_document

__all__ = ["read_schema", "read_schemas"]

_MAX_BYTES: Final = 8 * 2**20


def read_schema(files: Sequence[Path]) -> dict[str, Any]:
    """Return the schema in files, no two of which may have the same class, or other member."""
    whole: dict[str, Any] = {}
    for file in files:
        document = read_document(file, _MAX_BYTES, "schema")
        present, new = whole.get("classes"), document.get("classes")
        if isinstance(present, dict) and isinstance(new, dict):
            _check_disjoint(present, new, "/classes/", file)
            present |= document.pop("classes")
        _check_disjoint(whole, document, "/", file)
        whole |= document
    return whole


def read_schemas(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the schemas in the files of a directory, by the databases that they are called as."""
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
    present: Mapping[str, Any], new: Mapping[str, Any], pointer: str, file: Path
) -> None:
    if both := sorted(present.keys() & new.keys()):
        raise typer.BadParameter(f"{file} has {pointer}{both[0]}, which a file before it has too.")

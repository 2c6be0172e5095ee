"""Specifications as pydantic models: closed and strictly typed; errors carry a JSON pointer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
)
from pydantic_core import PydanticCustomError

__all__ = [
    "ClassReference",
    "ClassSource",
    "FileSource",
    "Names",
    "Source",
    "SpecInvalid",
    "Specification",
    "Text",
    "branch_of_source",
    "short_form",
]

_FORMATS: Final = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_NOT_IN_DOCUMENT: Final = frozenset(
    {"(file)", "(class)", "(ontology)", "(one)", "(list)", "(grid)", "(keys)", "[key]"}
)
"""Parts that pydantic adds to a location: tags of unions, and the marker of a key."""


class SpecInvalid(Exception):
    """A specification is invalid.

    Attributes:
        pointer: The location, as a JSON pointer (RFC 6901) into the specification.
        reason: What is wrong.
    """

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer or '/'}: {reason}")
        self.pointer = pointer
        self.reason = reason


def _check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise PydanticCustomError("distinct", "The names must be different")
    return names


Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=4096)]
Names: TypeAlias = Annotated[
    tuple[Text, ...], Field(min_length=1, max_length=8), AfterValidator(_check_distinct)
]


class Specification(BaseModel):
    """An object of a specification: unknown members are refused, values are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @property
    def endless(self) -> bool:
        """Whether it describes a stream, which runs cannot execute; a member `mode` says so."""
        return False

    @classmethod
    def parse(cls, document: Any) -> Self:
        """Validate a JSON document.

        Raises:
            SpecInvalid: It is invalid; names the first mistake.
        """
        try:
            # In strict mode only JSON text is accepted for tuples and enumerations.
            return cls.model_validate_json(json.dumps(document))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise SpecInvalid(_pointer(first["loc"]), first["msg"]) from None


def _pointer(location: tuple[str | int, ...]) -> str:
    names = (str(name) for name in location if name not in _NOT_IN_DOCUMENT)
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)


def _format_of_suffix(members: dict[str, Any]) -> Any:
    return _FORMATS.get(PurePath(members["path"]).suffix.lower())


class Renaming(Specification):
    """A table, some of whose columns have another name in the job.

    Attributes:
        rename: Names in the job, by names in the table.
    """

    rename: Annotated[dict[Text, Text], Field(max_length=1000)] = Field(default_factory=dict)

    @field_validator("rename")
    @classmethod
    def _check_rename(cls, rename: dict[str, str]) -> dict[str, str]:
        _check_distinct(tuple(rename.values()))
        return rename

    def in_table(self, field: str) -> str:
        """Return the table's name of a field of the job."""
        return next((old for old, new in self.rename.items() if new == field), field)


class FileSource(Renaming):
    """A file or a folder of files; only `portolan job run` may name files.

    Attributes:
        path: Its path on the worker.
        format: By default from the suffix; json is JSON lines.
    """

    path: Text = Field(validation_alias="file")
    format: Literal["csv", "json", "parquet"] = Field(
        default_factory=_format_of_suffix, validate_default=True
    )


class ClassReference(Specification):
    """A class by its name.

    Attributes:
        class_name: The class.
        database: By default the job's.
    """

    class_name: Text = Field(validation_alias="class")
    database: str = ""


class ClassSource(ClassReference, Renaming):
    """Objects of a class, from all of its stores.

    Attributes:
        filter: A condition in the query language; None: all objects.
    """

    filter: dict[str, Any] | None = None

    @field_validator("rename")
    @classmethod
    def _check_id(cls, rename: dict[str, str]) -> dict[str, str]:
        if "id" in {*rename, *rename.values()}:
            raise PydanticCustomError("id", "The id of an object keeps its name")
        return rename


def branch_of_source(document: Any) -> str:
    """Return the tag of a source."""
    if isinstance(document, FileSource) or (isinstance(document, dict) and "file" in document):
        return "(file)"
    return "(class)"


Source: TypeAlias = Annotated[
    Annotated[FileSource, Tag("(file)")] | Annotated[ClassSource, Tag("(class)")],
    Discriminator(branch_of_source),
]
"""The source of a table: ``{"file": …}`` or ``{"class": …}``."""


def short_form(short: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Extend the JSON Schema of a model to admit its short form."""

    def extend(schema: dict[str, Any]) -> None:
        long_form = dict(schema)
        schema.clear()
        schema["anyOf"] = [short, long_form]

    return extend

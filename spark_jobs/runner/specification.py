"""Specifications as pydantic models: closed, strictly typed, and refused with a JSON pointer."""

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
"""What pydantic adds to a location: the branch of a union, the key instead of the value."""


class SpecInvalid(Exception):
    """A specification says what it must not.

    Attributes:
        pointer: Where, as a JSON pointer (RFC 6901) into the specification.
        reason: What is wrong.
    """

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer or '/'}: {reason}")
        self.pointer = pointer
        self.reason = reason


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise PydanticCustomError("distinct", "The names must be different")
    return names


Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=4096)]
Names: TypeAlias = Annotated[
    tuple[Text, ...], Field(min_length=1, max_length=8), AfterValidator(_distinct)
]


class Specification(BaseModel):
    """An object of a specification: unknown members are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @property
    def endless(self) -> bool:
        """Whether it is of a stream, which no run executes; a member `mode` says so then."""
        return False

    @classmethod
    def parse(cls, document: Any) -> Self:
        """Validate a JSON document.

        Raises:
            SpecInvalid: It is not one; names the first mistake.
        """
        try:
            # In strict mode only JSON text may give tuples and enumerations.
            return cls.model_validate_json(json.dumps(document))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise SpecInvalid(_pointer(first["loc"]), first["msg"]) from None


def _pointer(location: tuple[str | int, ...]) -> str:
    names = (str(each) for each in location if each not in _NOT_IN_DOCUMENT)
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)


def _format_of_suffix(members: dict[str, Any]) -> Any:
    return _FORMATS.get(PurePath(members["path"]).suffix.lower())


class Renaming(Specification):
    """A table some columns of which have another name in the job.

    Attributes:
        rename: Names in the job by those in the table.
    """

    rename: Annotated[dict[Text, Text], Field(max_length=1000)] = Field(default_factory=dict)

    @field_validator("rename")
    @classmethod
    def _check_rename(cls, rename: dict[str, str]) -> dict[str, str]:
        _distinct(tuple(rename.values()))
        return rename

    def in_table(self, field: str) -> str:
        """Return the name in the table of a field of the job."""
        return next((old for old, new in self.rename.items() if new == field), field)


class FileSource(Renaming):
    """A file or a folder of files; only `portolan job run` may name files.

    Attributes:
        path: Where, as the worker sees it.
        format: By the suffix unless given; json is one object a line.
    """

    path: Text = Field(validation_alias="file")
    format: Literal["csv", "json", "parquet"] = Field(
        default_factory=_format_of_suffix, validate_default=True
    )


class ClassReference(Specification):
    """A class by its name.

    Attributes:
        class_name: The class.
        database: That of the job unless given.
    """

    class_name: Text = Field(validation_alias="class")
    database: str = ""


class ClassSource(ClassReference, Renaming):
    """Objects of a class, wherever its groups lie.

    Attributes:
        filter: Only what meets it, in the query language; None: all.
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
"""Where a table lies: ``{"file": …}`` or ``{"class": …}``."""


def short_form(short: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Let the JSON Schema of a model admit its short form, too."""

    def extend(schema: dict[str, Any]) -> None:
        whole = dict(schema)
        schema.clear()
        schema["anyOf"] = [short, whole]

    return extend

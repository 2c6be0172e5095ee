"""Blocking rules: records are compared if keys made of parts of their values are equal."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import (
    ConfigDict,
    Field,
    RootModel,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from spark_jobs.runner.specification import Specification, Text, short_form

__all__ = ["KeyPart", "Rule", "Take"]


class Take(StrEnum):
    """The part of a value that goes into a blocking key."""

    WHOLE = "whole"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    SOUNDEX = "soundex"
    WORD = "word"
    SORTED = "sorted"
    YEAR = "year"
    MONTH_DAY = "month_day"


_NEEDS_LENGTH: Final = {Take.PREFIX, Take.SUFFIX, Take.WORD}


class KeyPart(Specification):
    """A part of a blocking key: ``"column"``, or an object.

    Attributes:
        column: The field.
        take: The part of its value.
        length: Characters of a prefix or suffix; or the number of a word, from 1, or from -1 at the
            end.
    """

    model_config = ConfigDict(json_schema_extra=short_form({"type": "string"}))

    column: Text
    take: Take = Take.WHOLE
    length: Annotated[int, Field(ge=-16, le=64)] = Field(default=0, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _read_column(cls, document: Any) -> Any:
        return {"column": document} if isinstance(document, str) else document

    @field_validator("length")
    @classmethod
    def _check_length(cls, length: int, info: ValidationInfo) -> int:
        take = info.data.get("take")
        if (take in _NEEDS_LENGTH) != bool(length):
            reason = "A length is expected" if take in _NEEDS_LENGTH else "There is no length here"
            raise PydanticCustomError("length", reason)
        if length < 0 and take is not Take.WORD:
            raise PydanticCustomError("length", "A length of 1 or more is expected")
        return length

    @property
    def name(self) -> str:
        """A name such as ``surname`` or ``prefix(surname, 3)``."""
        if self.take is Take.WHOLE:
            return self.column
        return f"{self.take}({self.column}{f', {self.length}' if self.length else ''})"

    @model_serializer
    def _to_json(self) -> str | dict[str, Any]:
        if self.take is Take.WHOLE:
            return self.column
        length = {"length": self.length} if self.length else {}
        return {"column": self.column, "take": self.take.value, **length}


class Rule(RootModel[Annotated[tuple[KeyPart, ...], Field(min_length=1, max_length=8)]]):
    """Records are compared if all these parts are equal; one that lacks a part has no block."""

    model_config = ConfigDict(frozen=True, strict=True)

    @property
    def parts(self) -> tuple[KeyPart, ...]:
        return self.root

    @property
    def name(self) -> str:
        return " & ".join(part.name for part in self.parts)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(part.column for part in self.parts)

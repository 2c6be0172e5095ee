"""Specifications of `profile.ind`: tables, nulls, tolerated error, and arity."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from spark_jobs.runner.port import Input
from spark_jobs.runner.specification import Source, Specification, SpecInvalid

__all__ = ["IndSpec", "ValueRule"]

_MAX_TABLES: Final = 256
_MAX_ARITY: Final = 4


def _table_name(name: str) -> str:
    if not name.isidentifier():
        raise PydanticCustomError("table_name", "A name of letters, digits and _ is expected")
    return name


class ValueRule(Specification):
    """Rules by which values of two systems are equal, in addition to the canonical form.

    Attributes:
        nulls: Texts that represent null.
        fold: Whether texts are compared without case, and without blanks at either end.
    """

    nulls: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=32)] = ("",)
    fold: bool = False


class IndSpec(Specification):
    """A specification of `profile.ind`.

    Attributes:
        sources: The tables by name.
        values: The rules for equal values.
        error: The maximum share of a column's distinct values that the other column lacks.
        arity: The maximum number of columns of a dependency.
        candidates: Maximum dependencies of several columns that are validated, in each arity.
    """

    sources: Annotated[
        dict[Annotated[str, AfterValidator(_table_name)], Source],
        Field(min_length=1, max_length=_MAX_TABLES),
    ] = Field(validation_alias="inputs")
    values: ValueRule = ValueRule()
    error: Annotated[float, Field(ge=0, lt=1)] = 0.0
    arity: Annotated[int, Field(ge=1, le=_MAX_ARITY)] = 1
    candidates: Annotated[int, Field(ge=1, le=2_000)] = 500

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "candidates" in self.model_fields_set and self.arity == 1:
            raise SpecInvalid("/candidates", "they are of several columns, and arity is 1")
        return self

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self.sources))

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(Input(name, self.sources[name], identified=False) for name in self.tables)

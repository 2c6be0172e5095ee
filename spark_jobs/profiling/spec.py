"""Specifications of `profile.ind`: the tables, what counts as null, how exact, how many columns."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from spark_jobs.runner.port import Input
from spark_jobs.runner.specification import Source, Specification, SpecInvalid

__all__ = ["IndSpec", "ValueRule"]

_MOST_TABLES: Final = 256
_MOST_ARITY: Final = 4


def _table_name(name: str) -> str:
    if not name.isidentifier():
        raise PydanticCustomError("table_name", "A name of letters, digits and _ is expected")
    return name


class ValueRule(Specification):
    """Which values of two systems are the same, beyond the rule that always holds.

    Attributes:
        nulls: Texts that stand for no value.
        fold: Whether texts are compared without case, and without blanks at either end.
    """

    nulls: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=32)] = ("",)
    fold: bool = False


class IndSpec(Specification):
    """A specification of `profile.ind`.

    Attributes:
        sources: The tables by name.
        values: When two values are the same.
        error: The share of a column's distinct values that the other column may lack.
        arity: Dependencies between as many columns together are looked for, too.
        candidates: How many dependencies of several columns are validated at most, in each arity.
    """

    sources: Annotated[
        dict[Annotated[str, AfterValidator(_table_name)], Source],
        Field(min_length=1, max_length=_MOST_TABLES),
    ] = Field(validation_alias="inputs")
    values: ValueRule = ValueRule()
    error: Annotated[float, Field(ge=0, lt=1)] = 0.0
    arity: Annotated[int, Field(ge=1, le=_MOST_ARITY)] = 1
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

"""Specifications of private linkage: parties, threshold, filters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from spark_jobs.runner.specification import Source, Specification, SpecInvalid, Text

__all__ = ["Filters", "PrivateSpec"]

_NUMBER: Final = re.compile(r"[01]|[01]?\.[0-9]{1,12}|[0-9]{1,9}/[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters that avoid comparisons: by length, by common bits of prefixes, by their positions."""

    length: bool = True
    prefix: bool = True
    position: bool = True


_FILTERS: Final = tuple(field.name for field in fields(Filters))


def _read_threshold(value: Any) -> Fraction:
    # A JSON number means its decimal form: 0.8 is 4/5, not the nearest double.
    text = str(value) if isinstance(value, str | int | float) else ""
    if _NUMBER.fullmatch(text) and 0 < (threshold := Fraction(text)) <= 1:
        return threshold
    reason = 'A number above 0 and not above 1 is expected, such as 0.8, "0.8" or "2/3"'
    raise PydanticCustomError("threshold", reason)


def _read_filters(names: Any) -> Filters:
    if not isinstance(names, list) or not all(name in _FILTERS for name in names):
        raise PydanticCustomError("filters", f"A list of {', '.join(_FILTERS)} is expected")
    return Filters(**{name: name in names for name in _FILTERS})


_Threshold: TypeAlias = Annotated[
    Fraction,
    PlainValidator(_read_threshold),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "string", "pattern": f"^({_NUMBER.pattern})$"},
            ]
        }
    ),
]
_Filters: TypeAlias = Annotated[
    Filters,
    PlainValidator(_read_filters),
    WithJsonSchema({"type": "array", "items": {"enum": list(_FILTERS)}}),
]


class PrivateSpec(Specification):
    """A specification of `linkage.private`.

    Attributes:
        left: The first owner's records, if there are two owners.
        right: The second owner's records.
        parties: Instead, the owners' records by name; a link joins two different owners, the
            earlier one left.
        bits: The field with the encodings, binary or base64.
        threshold: Minimum Tanimoto similarity.
        filters: The filters that avoid comparisons; they do not change the result.
        top_k: Maximum partners of each other owner for a left record; None: all.
        one_to_one: Whether a record is linked to at most one record of each other owner.
        mode: Whether all records exist at the start, or are compared as they arrive.
    """

    left: Source | None = None
    right: Source | None = None
    parties: Annotated[dict[str, Source], Field(min_length=2, max_length=10)] | None = None
    bits: Text = "clk"
    threshold: _Threshold
    filters: _Filters = Filters(prefix=False, position=False)
    top_k: Annotated[int, Field(ge=1, le=100)] | None = None
    one_to_one: bool = False
    mode: Literal["batch", "stream"] = "batch"

    @model_validator(mode="after")
    def _check_parties(self) -> Self:
        for name in ("left", "right"):
            if (getattr(self, name) is None) is (self.parties is None):
                raise SpecInvalid(f"/{name}", "either left and right are expected, or parties")
        return self

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        for name, is_set in (("top_k", self.top_k is not None), ("one_to_one", self.one_to_one)):
            if self.endless and is_set:
                reason = "a stream cannot retract a link when a more similar record arrives"
                raise SpecInvalid(f"/{name}", reason)
        return self

    @property
    def endless(self) -> bool:
        return self.mode == "stream"

    @property
    def owners(self) -> Mapping[str, Source]:
        if self.parties is not None:
            return self.parties
        assert self.left is not None
        assert self.right is not None
        return {"left": self.left, "right": self.right}

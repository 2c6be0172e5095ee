"""What a private linkage is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from spark_jobs.linkage.private.reference import Filters
from spark_jobs.runner.members import Members
from spark_jobs.runner.port import ClassSource, FileSource, SpecInvalid

__all__ = ["PrivateSpec", "read_spec"]

_NUMBER: Final = re.compile(r"[01]|[01]?\.[0-9]{1,12}|[0-9]{1,9}/[1-9][0-9]{0,8}")
_MOST_PARTIES: Final = 10
_MOST_PARTNERS: Final = 100
_FILTERS: Final = ("length", "prefix", "position")


@dataclass(frozen=True, slots=True)
class PrivateSpec:
    """A private linkage.

    Attributes:
        parties: The owners' records by name; pairs are of two different owners, the earlier left.
        bits: The field that holds the encodings, binary or base64.
        threshold: Least Tanimoto similarity.
        filters: What spares comparisons; the result is the same with any.
        top_k: How many partners of each other owner a left record keeps at most; None: all.
        one_to_one: Whether a record is linked to one of each other owner at most.
    """

    parties: Mapping[str, FileSource | ClassSource]
    bits: str
    threshold: Fraction
    filters: Filters
    top_k: int | None
    one_to_one: bool


def read_spec(document: Mapping[str, Any]) -> PrivateSpec:
    """Read ``left`` and ``right`` (or ``parties``), ``threshold``, and what may be left out.

    Raises:
        SpecInvalid: It is not one; names the place.
    """
    members = Members(document)
    spec = PrivateSpec(
        _parties(members),
        members.text("bits", "clk"),
        _threshold(members),
        _filters(members),
        members.whole("top_k", least=1, most=_MOST_PARTNERS, default=None),
        members.flag("one_to_one", default=False),
    )
    members.end()
    return spec


def _parties(members: Members) -> dict[str, FileSource | ClassSource]:
    if "parties" not in members.rest():
        return {name: members.source(name) for name in ("left", "right")}
    of = members.members("parties")
    names = list(of.rest())
    if not 2 <= len(names) <= _MOST_PARTIES:  # noqa: PLR2004 - a linkage is of two at least
        raise SpecInvalid("/parties", f"2 to {_MOST_PARTIES} owners are expected")
    return {name: of.source(name) for name in names}


def _threshold(members: Members) -> Fraction:
    value = members.any("threshold")
    # A JSON number means the decimal that was written: 0.8 is 4/5, not the double beside it.
    text = str(value) if isinstance(value, str | int | float) else ""
    if _NUMBER.fullmatch(text) and 0 < (threshold := Fraction(text)) <= 1:
        return threshold
    reason = 'a number above 0 and not above 1 is expected, such as 0.8, "0.8" or "2/3"'
    raise SpecInvalid(members.at("threshold"), reason)


def _filters(members: Members) -> Filters:
    pointer = members.at("filters")
    names = members.any("filters", ["length"])
    if not isinstance(names, list) or not all(name in _FILTERS for name in names):
        raise SpecInvalid(pointer, f"a list of {', '.join(_FILTERS)} is expected")
    return Filters(**{name: name in names for name in _FILTERS})

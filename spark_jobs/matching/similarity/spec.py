"""Specifications of similarity matching: sources, candidates, constraints, measures, limits.

A specification never becomes code: fields are looked up by name, and operations come from closed
lists.
"""

from __future__ import annotations

from enum import StrEnum
from math import isclose
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from spark_jobs.matching.similarity.measures import MeasureName, Parameters
from spark_jobs.runner.specification import Source, Specification, SpecInvalid, Text

__all__ = [
    "Grid",
    "Key",
    "KeyTake",
    "Keys",
    "MeasureSpec",
    "RoadsSpec",
    "Side",
    "SimilaritySpec",
]

_MAX_MEASURES: Final = 32
_MAX_LISTED: Final = 10_000

Side: TypeAlias = Literal["left", "right"]
_Weight: TypeAlias = Annotated[float, Field(gt=0, le=1)]
_Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
_Positive: TypeAlias = Annotated[float, Field(gt=0, le=1e12)]
_Pairs: TypeAlias = Annotated[tuple[tuple[Text, Text], ...], Field(max_length=_MAX_LISTED)]


class FieldOfBoth(Specification):
    """A field of both sources.

    Attributes:
        field: Its name.
        right: Its name on the right, if different.
    """

    field: Text
    right: Text | None = None

    def name(self, side: Side) -> str:
        return self.field if side == "left" or self.right is None else self.right


class KeyTake(StrEnum):
    """The part of a value that goes into a key."""

    EXACT = "exact"
    PREFIX = "prefix"
    SOUNDEX = "soundex"


class Key(FieldOfBoth):
    """Objects with an equal key are candidates.

    Attributes:
        take: The part of the value: all, its first characters, or a phonetic code.
        length: Characters of a prefix.
    """

    take: KeyTake = KeyTake.EXACT
    length: Annotated[int, Field(ge=1, le=64)] | None = None

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if (self.take is KeyTake.PREFIX) != (self.length is not None):
            raise ValueError("a prefix has a length, and nothing else has one")
        return self


class Keys(Specification):
    """Candidates are objects that share one of the keys."""

    keys: Annotated[tuple[Key, ...], Field(min_length=1, max_length=8)]


class Grid(Specification):
    """Candidates are lines that cross, or come within the buffer.

    Attributes:
        grid: The field with the lines.
        buffer: The distance, in the unit of the coordinates.
    """

    grid: FieldOfBoth
    buffer: Annotated[float, Field(ge=1e-6, le=1e12)]


def _branch(document: Any) -> str:
    if isinstance(document, Grid) or (isinstance(document, dict) and "grid" in document):
        return "(grid)"
    return "(keys)"


class Types(FieldOfBoth):
    """A field with the type of an object, and the types that exclude each other.

    Attributes:
        cannot: Pairs of a type on the left and a type on the right.
    """

    cannot: Annotated[tuple[tuple[Text, Text], ...], Field(min_length=1, max_length=1_000)]


class MeasureSpec(FieldOfBoth):
    """One weighted measure.

    Attributes:
        measure: The measure.
        weight: Its share of the similarity.
        minimum: The minimum similarity of a candidate by this measure.
        missing: The term if either value is missing.
        scale: The difference at which similarity is 0: of numbers, or days, or a distance.
        abbreviations: The long form of each abbreviation in a text.
    """

    measure: MeasureName
    weight: _Weight
    minimum: _Share = 0.0
    missing: _Share = 0.0
    scale: _Positive | None = None
    abbreviations: Annotated[dict[Text, Text], Field(max_length=1_000)] = Field(
        default_factory=dict
    )

    @property
    def label(self) -> str:
        """A label such as ``text(name)``, under which a term of a similarity is reported."""
        return f"{self.measure}({self.field})"

    @property
    def parameters(self) -> Parameters:
        return Parameters(
            self.scale, {word.casefold(): long for word, long in self.abbreviations.items()}
        )


class RoadsSpec(Specification):
    """The preparation of each source's lines, after which they meet only at their ends.

    Attributes:
        snap: Maximum distance of ends that meet, in the unit of the coordinates.
        axes: Maximum distance of two opposite lanes that are one road; None: lanes are not merged.
        one_way: The field that marks lanes: true, yes or 1.
    """

    snap: Annotated[float, Field(ge=0, le=1e12)]
    axes: _Positive | None = None
    one_way: FieldOfBoth | None = None

    @model_validator(mode="after")
    def _check_lanes(self) -> Self:
        if (self.axes is None) != (self.one_way is None):
            raise ValueError("axes and one_way are expected together")
        return self


class Learning(Specification):
    """Learning of weights and the threshold from pairs labelled by users.

    Attributes:
        labels: A table with the columns `left`, `right` and `match` (true or false).
        apply: Whether the run uses the learned values; if not, it only reports them.
    """

    labels: Source
    apply: bool = True


class Limits(Specification):
    """Limits of a run.

    Attributes:
        block_pairs: Pairs of one key or one cell.
        pairs: Pairs of all blocks together; also pairs of pieces of lines in one partition, and
            pairs of near segments of one source when lines are prepared.
        partition_objects: Objects that one task matches, including copies from beyond its border.
        roads: Prepared lines of one source.
    """

    block_pairs: Annotated[int, Field(ge=1, le=10**9)] = 1_000_000
    pairs: Annotated[int, Field(ge=1, le=10**11)] = 100_000_000
    partition_objects: Annotated[int, Field(ge=1, le=10**7)] = 200_000
    roads: Annotated[int, Field(ge=1, le=10**7)] = 1_000_000


class SimilaritySpec(Specification):
    """A specification of `matching.similarity`.

    Attributes:
        left: The left source.
        right: The right source.
        blocking: The selection of candidates: by keys or by a grid.
        roads: The preparation of lines; None: lines are matched unchanged.
        measures: The compared values; the weights and `relational` add up to 1.
        relational: The weight of neighbours that are linked with each other.
        references: Fields with ids of other objects, or arrays of ids: objects with a common
            reference, or of which one refers to the other, are neighbours.
        types: The types that exclude each other.
        threshold: Pairs of a greater similarity are linked.
        aggregation: Whether neighbours are joined, and linked as one.
        must: Pairs that are linked, regardless of similarity.
        cannot: Pairs that are not linked, regardless of similarity.
        lists: A table of more such pairs: columns `left`, `right`, `decision` (must or cannot).
        former: The result of an earlier run, whose links are reused for unchanged partitions.
        learning: The labelled pairs from which weights and the threshold are learned.
        partition: Objects of one task, before the copies from beyond its border.
        border: The width of a partition's border, in steps from object to neighbour or candidate.
        limits: Limits of the run.
    """

    left: Source
    right: Source
    blocking: Annotated[
        Annotated[Grid, Tag("(grid)")] | Annotated[Keys, Tag("(keys)")], Discriminator(_branch)
    ]
    roads: RoadsSpec | None = None
    measures: Annotated[tuple[MeasureSpec, ...], Field(min_length=1, max_length=_MAX_MEASURES)]
    relational: Annotated[float, Field(ge=0, lt=1)] = 0.0
    references: Annotated[tuple[FieldOfBoth, ...], Field(max_length=8)] = ()
    types: Types | None = None
    threshold: Annotated[float, Field(ge=0, lt=1)]
    aggregation: bool = True
    must: _Pairs = ()
    cannot: _Pairs = ()
    lists: Source | None = None
    former: Source | None = None
    learning: Learning | None = None
    partition: Annotated[int, Field(ge=1, le=10**6)] = 10_000
    border: Annotated[int, Field(ge=1, le=8)] = 3
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check rules across members; pointers are those of the document."""
        total = self.relational + sum(measure.weight for measure in self.measures)
        if not isclose(total, 1, abs_tol=1e-6):
            reason = f"the weights and relational sum up to 1, and not to {total:g}"
            raise SpecInvalid("/measures", reason)
        if self.threshold >= 1 - self.relational:
            reason = "a threshold below 1 - relational is expected: before the first link no pair"
            raise SpecInvalid("/threshold", f"{reason} is more similar than that")
        if len({measure.label for measure in self.measures}) < len(self.measures):
            raise SpecInvalid("/measures", "a field is measured twice in the same way")
        if self.roads is not None and not isinstance(self.blocking, Grid):
            raise SpecInvalid("/roads", "a grid is expected: its field holds the lines")
        for number, measure in enumerate(self.measures):
            self._check_scale(measure, f"/measures/{number}/scale")
        return self

    def _check_scale(self, measure: MeasureSpec, pointer: str) -> None:
        nearness = {MeasureName.START, MeasureName.END}
        required = {MeasureName.DATE} | (set() if isinstance(self.blocking, Grid) else nearness)
        if measure.measure in required and measure.scale is None:
            raise SpecInvalid(pointer, "a scale is expected")
        scalable = {MeasureName.NUMBER, MeasureName.DATE, *nearness}
        if measure.scale is not None and measure.measure not in scalable:
            raise SpecInvalid(pointer, "this measure has no scale")

    @property
    def buffer(self) -> float | None:
        return self.blocking.buffer if isinstance(self.blocking, Grid) else None

    def fields(self, side: Side) -> tuple[str, ...]:
        """Return the fields that are read from a source."""
        lines = [self.blocking.grid] if isinstance(self.blocking, Grid) else self.blocking.keys
        types = () if self.types is None else (self.types,)
        lanes = () if self.roads is None or self.roads.one_way is None else (self.roads.one_way,)
        used = (*lines, *lanes, *self.measures, *self.references, *types)
        return tuple(sorted({field.name(side) for field in used} - {"id"}))

"""Specifications of open linkage: inputs, blocking rules, comparisons, thresholds.

A specification never becomes code: fields are looked up by name, and operations come from closed
lists.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from math import prod
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from spark_jobs.linkage.open.rules import Rule
from spark_jobs.runner.port import Input
from spark_jobs.runner.specification import (
    Names,
    Source,
    Specification,
    SpecInvalid,
    Text,
    short_form,
)

__all__ = [
    "KNOWN",
    "MAX_LOCAL_RECORDS",
    "AgreementLevel",
    "Clustering",
    "FieldComparison",
    "LinkageEngine",
    "LinkagePlan",
    "LinkageResult",
    "Measure",
    "OpenSpec",
    "WholeRecords",
]

KNOWN: Final = "known"
"""The input of known clusters: `cluster`, `source`, `record`."""

MAX_RULES: Final = 32
_MAX_INPUTS: Final = 16
_MAX_COMPARISONS: Final = 32
_MAX_PATTERNS: Final = 2**62

MAX_LOCAL_RECORDS: Final = 200_000
"""Maximum records of all inputs that the worker's process links."""


class Measure(StrEnum):
    """How two values are compared; it gives a level's limit its meaning."""

    EXACT = "exact"
    LEVENSHTEIN = "levenshtein"
    JARO_WINKLER = "jaro_winkler"
    JACCARD = "jaccard"
    NUMBER = "number"
    DAYS = "days"

    @property
    def is_distance(self) -> bool:
        """Whether it measures difference: a limit is then a maximum, otherwise a minimum."""
        return self in {Measure.LEVENSHTEIN, Measure.NUMBER, Measure.DAYS}

    @property
    def is_numeric(self) -> bool:
        return self in {Measure.NUMBER, Measure.DAYS}


_Distance: TypeAlias = Annotated[float, Field(ge=0, le=1e12)]
_Similarity: TypeAlias = Annotated[float, Field(gt=0, le=1)]


class AgreementLevel(Specification):
    """One degree of agreement: ``"exact"``, or one measure with its limit.

    A limit is the minimum similarity or the maximum distance.
    """

    model_config = ConfigDict(json_schema_extra=short_form({"const": "exact"}))

    exact: Literal[True] | None = None
    levenshtein: _Distance | None = None
    jaro_winkler: _Similarity | None = None
    jaccard: _Similarity | None = None
    number: _Distance | None = None
    days: _Distance | None = None

    @model_validator(mode="before")
    @classmethod
    def _require_one_measure(cls, document: Any) -> Any:
        if document == Measure.EXACT:
            return {"exact": True}
        if isinstance(document, dict) and len(document) == 1:
            ((name, limit),) = document.items()
            if name in {*Measure} and limit is not None:
                return document
        reason = '"exact" or an object like {{"jaro_winkler": 0.9}} is expected'
        raise PydanticCustomError("level", reason)

    @property
    def measure(self) -> Measure:
        (name,) = self.model_fields_set
        return Measure(name)

    @property
    def limit(self) -> float:
        """The minimum similarity or the maximum distance."""
        return float(getattr(self, self.measure))

    @property
    def name(self) -> str:
        if self.exact:
            return "exact"
        sign = "≤" if self.measure.is_distance else "≥"
        return f"{self.measure} {sign} {self.limit:g}"

    @model_serializer
    def _to_json(self) -> str | dict[str, float]:
        return "exact" if self.exact else {self.measure.value: self.limit}


class FieldComparison(Specification):
    """A comparison of two records.

    Attributes:
        columns: One field, or several joined by blanks.
        levels: Degrees of agreement, the highest first; a pair has the first that it meets. A pair
            that meets none has *else*; with a missing value it has *null*.
        term_frequency: Whether agreement on a rare value weighs more than on a frequent one.
    """

    columns: Names
    levels: Annotated[tuple[AgreementLevel, ...], Field(min_length=1, max_length=8)]
    term_frequency: bool = False

    @property
    def name(self) -> str:
        return "+".join(self.columns)

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of all levels by their number: null, those of `levels`, else."""
        return ("null", *(level.name for level in self.levels), "else")


class Clustering(StrEnum):
    """How links become clusters."""

    COMPONENTS = "components"
    """The connected components of links."""
    AVERAGE = "average"
    """Average linkage: the mean weight between the parts of a cluster is positive."""
    ONE_PER_SOURCE = "one_per_source"
    """The best links first, with at most one record of each table in a cluster."""


class LinkageResult(StrEnum):
    """The frame that is the result of the run."""

    CLUSTERS = "clusters"
    PAIRS = "pairs"


class LinkageEngine(StrEnum):
    """The engine that executes a run."""

    AUTO = "auto"
    """Portolan's kernels: in the worker's process if the input fits, otherwise on Spark."""
    LOCAL = "local"
    """Portolan's kernels in the worker's process; Spark is not started."""
    SPARK = "spark"
    """Portolan's kernels on Spark, for inputs of any size."""
    SPLINK = "splink"
    """Splink on DuckDB in the worker's process, on records prepared by Spark."""


class PairLimits(Specification):
    """Limits of a run.

    Attributes:
        pairs: Pairs of all blocks together.
        block_pairs: Pairs of one block; a heavier block is split by further fields, and skipped and
            reported if still too heavy.
    """

    pairs: Annotated[int, Field(ge=1, le=10**12)] = 1_000_000_000
    block_pairs: Annotated[int, Field(ge=1, le=10**9)] = 1_000_000


class WholeRecords(Specification):
    """Comparison of whole records, by shared words and n-grams weighted by their rarity.

    Attributes:
        columns: The fields whose text is the record's.
        neighbours: The number of most similar records that are a record's candidates.
    """

    columns: Names
    neighbours: Annotated[int, Field(ge=1, le=100)] = 10


class LinkagePlan(Specification):
    """The plan of a comparison.

    Attributes:
        blocking: The rules that select pairs; empty: proposed from the data.
        comparisons: The fields compared; empty: proposed from the data.
        similarity: Whole records instead of both; None: fields.
    """

    blocking: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)] = ()
    comparisons: Annotated[tuple[FieldComparison, ...], Field(max_length=_MAX_COMPARISONS)] = ()
    similarity: WholeRecords | None = None

    @property
    def is_complete(self) -> bool:
        return self.similarity is not None or bool(self.blocking and self.comparisons)

    @property
    def columns(self) -> tuple[str, ...]:
        record_columns = self.similarity.columns if self.similarity else ()
        return tuple(
            sorted({*_columns(self.blocking), *_columns(self.comparisons), *record_columns})
        )

    def prepared(self) -> Self:
        """Return a copy with the comparison that prepares the text of whole records."""
        if self.similarity is None:
            return self
        text = FieldComparison(
            columns=self.similarity.columns, levels=(AgreementLevel(exact=True),)
        )
        return self.model_copy(update={"comparisons": (text,)})


def _columns(readers: Iterable[Rule] | Iterable[FieldComparison]) -> set[str]:
    return {column for reader in readers for column in reader.columns}


def _input_name(name: str) -> str:
    if not name.isidentifier() or name == KNOWN:
        raise PydanticCustomError("input_name", "A name of letters, digits and _ is expected")
    return name


def _usual_clustering(members: dict[str, Any]) -> Clustering:
    return Clustering.AVERAGE if members.get("within") else Clustering.ONE_PER_SOURCE


class OpenSpec(LinkagePlan):
    """A specification of `linkage.open`.

    Attributes:
        sources: One table is deduplicated; two or more are linked with each other.
        zero_config: Whether missing rules and comparisons are proposed from the data.
        within: Whether records of one table are compared with each other; if not, a table is
            assumed to have no duplicates.
        threshold: The minimum probability of linked pairs.
        clustering: How links become clusters.
        result: The frame that is the result.
        engine: The engine of the run; all but Splink have the same result.
        limits: Limits of the run.
        seed: The seed of random numbers.
        known: Clusters of an earlier run, whose records are not compared with each other.
        model: The report `model` of an earlier run; None: estimated.
        truth: A field that identifies the person of a record, for evaluation only; None: unknown.
    """

    sources: Annotated[
        dict[Annotated[str, AfterValidator(_input_name)], Source],
        Field(min_length=1, max_length=_MAX_INPUTS),
    ] = Field(validation_alias="inputs")
    zero_config: bool = False
    within: bool = Field(default_factory=lambda members: len(members.get("sources", ())) == 1)
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    clustering: Clustering = Field(default_factory=_usual_clustering)
    result: LinkageResult = LinkageResult.CLUSTERS
    engine: LinkageEngine = LinkageEngine.AUTO
    limits: PairLimits = PairLimits()
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    known: Source | None = None
    model: dict[str, Any] | None = None
    truth: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check rules across members; pointers are those of the document."""
        self._check_similarity()
        optional = self.zero_config or self.similarity is not None
        if not optional and not self.blocking:
            raise SpecInvalid("/blocking", "rules are expected, or zero_config: true")
        if not optional and not self.comparisons:
            raise SpecInvalid("/comparisons", "comparisons are expected, or zero_config: true")
        if not self.within and len(self.sources) == 1:
            raise SpecInvalid("/within", "one input alone can only be compared with itself")
        if self.model is not None and not self.comparisons:
            raise SpecInvalid("/model", "the comparisons that it was estimated for are missing")
        self._check_comparisons()
        return self

    def _check_similarity(self) -> None:
        if self.similarity is None:
            return
        if self.blocking or self.comparisons:
            raise SpecInvalid(
                "/similarity", "it stands for blocking and comparisons, not beside them"
            )
        if self.engine is LinkageEngine.SPLINK:
            raise SpecInvalid("/engine", "Splink compares fields only, no whole records")

    def _check_comparisons(self) -> None:
        for number, comparison in enumerate(self.comparisons):
            if comparison.term_frequency and not comparison.levels[0].exact:
                reason = "term_frequency needs exact as the first level"
                raise SpecInvalid(f"/comparisons/{number}/levels", reason)
        if len({comparison.name for comparison in self.comparisons}) < len(self.comparisons):
            raise SpecInvalid("/comparisons", "fields are compared twice")
        # A pattern is one 64-bit number.
        if prod(len(comparison.level_names) for comparison in self.comparisons) > _MAX_PATTERNS:
            raise SpecInvalid("/comparisons", "these are too many levels all together")

    @property
    def inputs(self) -> tuple[Input, ...]:
        fields = tuple(sorted({*self.columns, *([self.truth] if self.truth else [])} - {"id"}))
        required = fields if self.is_complete else None
        rows = self.local_records
        return tuple(
            Input(name, self.sources[name], required, local_rows=rows)
            for name in sorted(self.sources)
        )

    @property
    def local_records(self) -> int:
        """Maximum records of all inputs for a run without Spark."""
        local = self.engine in {LinkageEngine.AUTO, LinkageEngine.LOCAL}
        return MAX_LOCAL_RECORDS if local else 0
